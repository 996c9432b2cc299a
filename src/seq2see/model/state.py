"""State of a decoder between decoding steps: the protocol of all models, and the key-value cache of the Transformer.

No position is computed twice, and reordering the hypotheses of a beam copies no keys.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from seq2see.kernels import loading
from seq2see.model.layers import rotate, rotate_rows
from seq2see.model.packing import Packing


class State(Protocol):
    """State of a decoder between steps, for B sentences with W hypotheses each: R = B x W rows."""

    def select(self, parents_BW: Tensor) -> None:
        """Continue hypothesis w of sentence b from hypothesis parents_BW[b, w] of the same sentence."""

    def keep_sentences(self, sentences_B: Tensor) -> None:
        """Keep only the sentences with the indices `sentences_B`, in this order."""


@dataclass
class Past:
    """Keys and values of all tokens generated so far (KV cache), BHPK, in storage that doubles when it is full.

    The W hypotheses of a sentence share a row of the cache: position p = t W + w is the token that hypothesis w got in
    step t.
    `DecoderState.lineage_BWP` says which positions belong to the history of a hypothesis.
    """

    length: int = 0
    _key: Tensor | None = field(default=None, repr=False)
    _value: Tensor | None = field(default=None, repr=False)

    def append(self, key_BHWK: Tensor, value_BHWK: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values of one more step; return those of all steps so far."""
        W = key_BHWK.shape[2]
        here = slice(self.length * W, (self.length + 1) * W)
        self._key = _with_room(self._key, key_BHWK, here.stop)
        self._value = _with_room(self._value, value_BHWK, here.stop)
        self._key[:, :, here] = key_BHWK
        self._value[:, :, here] = value_BHWK
        self.length += 1
        return self._key[:, :, : here.stop], self._value[:, :, : here.stop]

    def turned(self, x_RH1K: Tensor) -> Tensor:
        """Return queries or keys of the next step, rotated by their position (RoPE)."""
        return rotate(x_RH1K, self.length)

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
    """The state of one decoder layer: keys and values of the encoder output, and of the tokens generated so far."""

    memory_key_BHSK: Tensor
    memory_value_BHSK: Tensor
    past: Past = field(default_factory=Past)


@dataclass
class DecoderState:
    """The state of a Transformer's decoder, for B sentences with W hypotheses each: R = B x W rows."""

    layers: list[LayerState]
    keep_B11S: Tensor | None
    """Padding mask of the memory, true where a position is not padding; None if there is no padding."""
    lineage_BWP: Tensor | None = None
    """Mask of the cache positions that belong to the tokens of each hypothesis; None before the first step, or if each
    sentence has one hypothesis, to which all positions belong.
    """

    @property
    def length(self) -> int:
        return self.layers[0].past.length

    @property
    def sentences(self) -> int:
        return len(self.layers[0].memory_key_BHSK)

    def places(self, tokens_R: Tensor) -> tuple[Tensor, int]:
        """Return the position of the next token of each row, and a number above all positions."""
        return torch.full_like(tokens_R, self.length), self.length + 1

    def extend(self, width: int) -> Tensor | None:
        """Begin one more step; return the mask B1WP of self-attention, true for the history of a hypothesis and its new
        position; None if no mask is needed.
        """
        if width == 1:
            return None
        device = self.layers[0].memory_key_BHSK.device
        itself_BWW = torch.eye(width, dtype=torch.bool, device=device).expand(self.sentences, -1, -1)
        before = [] if self.lineage_BWP is None else [self.lineage_BWP]
        self.lineage_BWP = torch.cat([*before, itself_BWW], 2)
        return self.lineage_BWP[:, None]

    def select(self, parents_BW: Tensor) -> None:
        if self.lineage_BWP is not None:
            P = self.lineage_BWP.shape[2]
            self.lineage_BWP = self.lineage_BWP.gather(1, parents_BW[:, :, None].expand(-1, -1, P))

    def keep_sentences(self, sentences_B: Tensor) -> None:
        for layer in self.layers:
            layer.memory_key_BHSK = layer.memory_key_BHSK.index_select(0, sentences_B)
            layer.memory_value_BHSK = layer.memory_value_BHSK.index_select(0, sentences_B)
            layer.past.keep_sentences(sentences_B)
        if self.keep_B11S is not None:
            self.keep_B11S = self.keep_B11S.index_select(0, sentences_B)
        if self.lineage_BWP is not None:
            self.lineage_BWP = self.lineage_BWP.index_select(0, sentences_B)


@dataclass(frozen=True)
class Places:
    """The decoding step of each of B sentences, as a tensor instead of a number, so that a CUDA graph can change it."""

    step_B: Tensor
    """Number of decoding steps that have been made for each sentence; the search increases it in place."""
    width: int
    steps: int

    @property
    def here_BW(self) -> Tensor:
        """Return the cache positions of the W hypotheses of each sentence in the next step."""
        return self.step_B[:, None] * self.width + torch.arange(self.width, device=self.step_B.device)

    def of_rows(self) -> tuple[Tensor, int]:
        """Return the decoding step of each of R = B x W rows, and the maximum number of steps."""
        if self.width == 1:
            return self.step_B, self.steps
        return self.step_B.repeat_interleave(self.width, output_size=len(self.step_B) * self.width), self.steps


class FixedPast(Past):
    """A `Past` with storage of a fixed size, in which sentences may be at different steps."""

    def __init__(self, key_BHPK: Tensor, value_BHPK: Tensor, places: Places) -> None:
        super().__init__()
        self._key_BHPK, self._value_BHPK, self._places = key_BHPK, value_BHPK, places

    def turned(self, x_RH1K: Tensor) -> Tensor:
        return rotate_rows(x_RH1K[:, :, 0], *self._places.of_rows())[:, :, None]

    def append(self, key_BHWK: Tensor, value_BHWK: Tensor) -> tuple[Tensor, Tensor]:
        _, H, _, K = key_BHWK.shape
        here_BHWK = self._places.here_BW[:, None, :, None].expand(-1, H, -1, K)
        self._key_BHPK.scatter_(2, here_BHWK, key_BHWK)
        self._value_BHPK.scatter_(2, here_BHWK, value_BHWK)
        return self._key_BHPK, self._value_BHPK

    def attended(self, rows_R3D: Tensor, keep_B1WP: Tensor | None, rotary: bool) -> Tensor:
        """Append keys and values of `rows_R3D` to the cache, and return the attention output of their queries over it;
        one kernel does both.
        """
        _, H, _, K = self._key_BHPK.shape
        query_RD, key_RD, value_RD = rows_R3D.tensor_split(3, -1)
        if rotary:
            both_RHK = rows_R3D[:, : 2 * H * K].view(-1, 2 * H, K)
            query_RD, key_RD = rotate_rows(both_RHK, *self._places.of_rows()).flatten(1).tensor_split(2, -1)
        new = key_RD, value_RD, self._places.step_B
        keep_BWP = None if keep_B1WP is None else keep_B1WP[:, 0]
        return loading.steps().attend(  # type: ignore[no-any-return]
            query_RD, self._key_BHPK, self._value_BHPK, keep_BWP, new
        )


Encode = Callable[[Tensor, Packing], Iterable[tuple[Tensor, Tensor]]]
"""Function that encodes packed sources and returns, for each decoder layer, keys and values of the memory as packed
rows with concatenated heads.
"""


class FixedState(DecoderState):
    """The state of B sentences with constant shapes, so that a step can be captured in a CUDA graph
    (`decoding/recorded.py`).
    """

    lineage_BWP: Tensor
    keep_B11S: Tensor

    def __init__(self, at: Places, source_room: int, layers: int, like_HK: Tensor, encode: Encode) -> None:
        """Allocate keys, values and masks.

        Args:
            at: Decoding step of each sentence, and numbers of hypotheses and steps.
            source_room: Maximum number of tokens of a source.
            layers: Number of decoder layers.
            like_HK: Tensor with the heads, width, dtype and device of the keys.
            encode: Function by which `fill_packed` encodes new sources.
        """
        B, W, S, T = len(at.step_B), at.width, source_room, at.steps
        device = like_HK.device
        super().__init__(
            [],
            torch.zeros(B, 1, 1, S, dtype=torch.bool, device=device),
            torch.zeros(B, W, W * T, dtype=torch.bool, device=device),
        )
        self.at, self._encode = at, encode
        H, K = like_HK.shape
        for _ in range(layers):
            past = FixedPast(like_HK.new_zeros(B, H, W * T, K), like_HK.new_zeros(B, H, W * T, K), at)
            self.layers.append(LayerState(like_HK.new_zeros(B, H, S, K), like_HK.new_zeros(B, H, S, K), past))

    @property
    def bytes(self) -> int:
        """Return the number of bytes of the keys and values of all layers; the masks are small and not counted."""
        memory_BHSK = self.layers[0].memory_key_BHSK
        places = memory_BHSK.shape[2] + self.at.width * self.at.steps
        return 2 * len(self.layers) * places * memory_BHSK[:, :, 0].numel() * memory_BHSK.element_size()

    def fill(self, sentences_b: Tensor, started: State) -> None:
        """Replace the sentences with the indices `sentences_b` by those of `started`, a state before the first step."""
        assert isinstance(started, DecoderState)
        S = started.layers[0].memory_key_BHSK.shape[2]
        for own, new in zip(self.layers, started.layers, strict=True):
            own.memory_key_BHSK[sentences_b, :, :S] = new.memory_key_BHSK
            own.memory_value_BHSK[sentences_b, :, :S] = new.memory_value_BHSK
        self.keep_B11S[sentences_b] = False
        self.keep_B11S[sentences_b, :, :, :S] = True if started.keep_B11S is None else started.keep_B11S
        self.lineage_BWP[sentences_b] = False

    def fill_packed(
        self,
        source_N: Tensor,
        places_N: Tensor,
        rows_F1: Tensor,
        starts_F: Tensor,
        lengths_F: Tensor,
        sentences_F: Tensor | None = None,
    ) -> None:
        """Replace sentences by new ones; shapes depend only on N and F, so that this can be captured in a CUDA graph.

        Args:
            source_N: tokens of the new sentences, end to end; rows after the last sentence may hold anything.
            places_N: position of each token in its sentence.
            rows_F1: F + 1 offsets of the new sentences in `source_N`; unused sentences are empty.
            starts_F: for each of the F sentences to replace, the row at which the new one begins.
            lengths_F: for each of the F sentences to replace, the number of tokens of the new one.
            sentences_F: indices of the F sentences to replace; an index may be repeated with the same new sentence. By
                default all sentences, in order.
        """
        F, S = len(starts_F), self.keep_B11S.shape[3]

        def put(kept: Tensor, new: Tensor) -> None:
            if sentences_F is None:
                kept.copy_(new)
            else:
                kept.index_copy_(0, sentences_F, new)

        memories = self._encode(source_N, Packing.fixed(rows_F1.to(torch.int32), places_N, S))
        place_S = torch.arange(S, device=rows_F1.device)
        rows_Q = torch.minimum(starts_F[:, None] + place_S, rows_F1[-1] - 1).flatten()  # padding is never attended to
        for own, new in zip(self.layers, memories, strict=True):
            for kept_BHSK, each_ND in zip((own.memory_key_BHSK, own.memory_value_BHSK), new, strict=True):
                picked_QD = each_ND.index_select(0, rows_Q)
                put(kept_BHSK, picked_QD.view(F, S, kept_BHSK.shape[1], -1).transpose(1, 2))
        put(self.keep_B11S, (place_S < lengths_F[:, None])[:, None, None])
        if sentences_F is None:
            self.lineage_BWP.zero_()
        else:
            self.lineage_BWP.index_fill_(0, sentences_F, False)

    def places(self, tokens_R: Tensor) -> tuple[Tensor, int]:
        return self.at.of_rows()

    def extend(self, width: int) -> Tensor | None:
        if width == 1 and self.at.step_B.is_cuda:  # our kernel reads no later place, and all earlier ones belong to it
            return None
        own_BW1 = self.at.here_BW[:, :, None]
        self.lineage_BWP.scatter_(2, own_BW1, torch.ones_like(own_BW1, dtype=torch.bool))
        return self.lineage_BWP[:, None]

    def select(self, parents_BW: Tensor) -> None:
        if self.at.width > 1:
            P = self.lineage_BWP.shape[2]
            self.lineage_BWP.copy_(self.lineage_BWP.gather(1, parents_BW[:, :, None].expand(-1, -1, P)))
