"""What a decoder keeps between steps, so that no position is ever computed twice, and no beam is ever moved."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Past:
    """Keys and values of all that was generated so far, BHPK, in storage that doubles when it is full.

    A sentence's W hypotheses share its row: hypothesis w of step t has place p = t W + w. Which places belong to a
    hypothesis' own history is not told here (`DecoderState.lineage_BWP`); so nothing moves when the beam is sorted.
    """

    length: int = 0
    _key: Tensor | None = field(default=None, repr=False)
    _value: Tensor | None = field(default=None, repr=False)

    def append(self, key_BHWK: Tensor, value_BHWK: Tensor) -> tuple[Tensor, Tensor]:
        """Store one more step; returns everything up to and including it."""
        W = key_BHWK.shape[2]
        here = slice(self.length * W, (self.length + 1) * W)
        self._key = _with_room(self._key, key_BHWK, here.stop)
        self._value = _with_room(self._value, value_BHWK, here.stop)
        self._key[:, :, here] = key_BHWK
        self._value[:, :, here] = value_BHWK
        self.length += 1
        return self._key[:, :, : here.stop], self._value[:, :, : here.stop]

    def keep_sentences(self, sentences_B: Tensor) -> None:
        if self._key is not None and self._value is not None:
            self._key, self._value = self._key.index_select(0, sentences_B), self._value.index_select(0, sentences_B)


def _with_room(storage: Tensor | None, new_BHWK: Tensor, places: int) -> Tensor:
    if storage is None:
        B, H, W, K = new_BHWK.shape
        return new_BHWK.new_empty(B, H, 16 * W, K)
    if places <= storage.shape[2]:
        return storage
    return torch.cat([storage, torch.empty_like(storage)], 2)


@dataclass
class LayerState:
    """One decoder layer: the memory's keys and values, and its own past."""

    memory_key_BHSK: Tensor
    memory_value_BHSK: Tensor
    past: Past = field(default_factory=Past)


@dataclass
class DecoderState:
    """All layers of B sentences with W hypotheses each: R = B x W rows."""

    layers: list[LayerState]
    keep_B11S: Tensor | None
    """Which positions of the memory are not padding; None where all are real."""
    lineage_BWP: Tensor | None = None
    """Which places of the past are a hypothesis' own history; None with one hypothesis: all are its own."""

    @property
    def length(self) -> int:
        return self.layers[0].past.length

    @property
    def sentences(self) -> int:
        return len(self.layers[0].memory_key_BHSK)

    def extend(self, width: int) -> Tensor | None:
        """One more step: each of the W hypotheses sees its history and itself. B1WP, the mask of self-attention."""
        if width == 1:
            return None
        device = self.layers[0].memory_key_BHSK.device
        itself_BWW = torch.eye(width, dtype=torch.bool, device=device).expand(self.sentences, -1, -1)
        before = [] if self.lineage_BWP is None else [self.lineage_BWP]
        self.lineage_BWP = torch.cat([*before, itself_BWW], 2)
        return self.lineage_BWP[:, None]

    def select(self, parents_BW: Tensor) -> None:
        """Hypothesis w of sentence b goes on from hypothesis parents_BW[b, w] of it: the beam after it was sorted."""
        if self.lineage_BWP is not None:
            P = self.lineage_BWP.shape[2]
            self.lineage_BWP = self.lineage_BWP.gather(1, parents_BW[:, :, None].expand(-1, -1, P))

    def keep_sentences(self, sentences_B: Tensor) -> None:
        """Drop finished sentences."""
        for layer in self.layers:
            layer.memory_key_BHSK = layer.memory_key_BHSK.index_select(0, sentences_B)
            layer.memory_value_BHSK = layer.memory_value_BHSK.index_select(0, sentences_B)
            layer.past.keep_sentences(sentences_B)
        if self.keep_B11S is not None:
            self.keep_B11S = self.keep_B11S.index_select(0, sentences_B)
        if self.lineage_BWP is not None:
            self.lineage_BWP = self.lineage_BWP.index_select(0, sentences_B)
