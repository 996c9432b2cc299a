"""What a decoder keeps between steps, so that no position is ever computed twice."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Past:
    """Keys and values of the positions generated so far, RHTK, in storage that doubles when it is full."""

    length: int = 0
    _key: Tensor | None = field(default=None, repr=False)
    _value: Tensor | None = field(default=None, repr=False)

    def append(self, key_RH1K: Tensor, value_RH1K: Tensor) -> tuple[Tensor, Tensor]:
        """Store one more position; returns everything up to and including it."""
        self._key = _with_room(self._key, key_RH1K, self.length)
        self._value = _with_room(self._value, value_RH1K, self.length)
        self._key[:, :, self.length] = key_RH1K[:, :, 0]
        self._value[:, :, self.length] = value_RH1K[:, :, 0]
        self.length += 1
        return self._key[:, :, : self.length], self._value[:, :, : self.length]

    def select(self, rows_R: Tensor) -> None:
        """Row r continues what row rows_R[r] had; a row that stays where it is costs nothing."""
        if self._key is None or self._value is None:
            return
        if len(rows_R) != len(self._key):
            self._key, self._value = self._key.index_select(0, rows_R), self._value.index_select(0, rows_R)
            return
        (moved,) = torch.nonzero(rows_R != torch.arange(len(rows_R), device=rows_R.device), as_tuple=True)
        if len(moved):
            for storage in (self._key, self._value):
                filled = storage[:, :, : self.length]
                filled[moved] = filled[rows_R[moved]]  # the right side is a copy: no row is read after it is written


def _with_room(storage: Tensor | None, new_RH1K: Tensor, length: int) -> Tensor:
    if storage is None:
        R, H, _, K = new_RH1K.shape
        return new_RH1K.new_empty(R, H, 16, K)
    if length < storage.shape[2]:
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

    @property
    def length(self) -> int:
        return self.layers[0].past.length

    def select(self, rows_R: Tensor) -> None:
        """Row r continues what row rows_R[r] had: the beam after it has been sorted."""
        for layer in self.layers:
            layer.past.select(rows_R)

    def keep_sentences(self, sentences_B: Tensor) -> None:
        """Drop the memories of finished sentences; `select` drops their rows."""
        for layer in self.layers:
            layer.memory_key_BHSK = layer.memory_key_BHSK.index_select(0, sentences_B)
            layer.memory_value_BHSK = layer.memory_value_BHSK.index_select(0, sentences_B)
        if self.keep_B11S is not None:
            self.keep_B11S = self.keep_B11S.index_select(0, sentences_B)
