"""The convolutional encoder-decoder (Gehring et al., 2017, "Convolutional Sequence to Sequence Learning").

Each layer sees the few tokens around a position: in the encoder on both sides, in the decoder only the position itself
and those before it. Like attention, and unlike an RNN, it computes all positions of known targets at once; unlike
attention it needs several layers to connect positions that are far apart. Every decoder layer attends to the encoder
(multi-step attention).

The order of operations is that of the authors' program, fairseq.

Differs from the paper: weights are not normalised by `g v / |v|`, since Adam, which all models here are trained with,
does not need it (docs/log.md). Token embeddings have variance 1 as in the Transformer, and not 0.01 as in the paper; so
scores are divided by sqrt(d_model), and weights before a gate begin smaller (`GATED_GAIN`, 4 in the paper). Position
embeddings begin a tenth as large as those of tokens, whereas in the paper both are equally large: dates are learned in
half the steps. Gradients of the encoder are not divided by the number of attentions, as Adam would undo that.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.model.attention import attend
from seq2see.model.interface import Memory, Seq2Seq
from seq2see.model.layers import Dropout, make_embeddings, make_output
from seq2see.model.packing import Packing, Reach
from seq2see.model.recording import RecordingPoint
from seq2see.model.state import State

HALF = math.sqrt(0.5)
"""Factor by which the sum of two tensors of equal variance is multiplied to have that variance (paper, section 3.5)."""
GATED_GAIN = 3.0
"""Variance that initial weights give to the input of a gated linear unit a * sigmoid(b), so that its output has about
variance 1: 3 times the mean of sigmoid(b)^2 is 1 if b has variance 3.
"""
POSITION_DEVIATION = 0.1
"""Standard deviation of initial position embeddings; that of the scaled token embeddings is 1."""


@dataclass(frozen=True)
class Window:
    """The neighbouring packed rows that a convolution reads for each row, at fixed distances."""

    distances: range
    """Distances of the rows that are read: `range(-1, 2)` is the row before, the row itself and the row after it."""
    keeps: list[Tensor]
    """For each distance, a mask of the rows that have a neighbour at that distance within their own sequence."""

    @staticmethod
    def of(packing: Packing, distances: range) -> "Window":
        places_N = packing.places_N
        lengths_N = packing.lengths.repeat_interleave(packing.lengths).to(packing.device, non_blocking=True)
        keeps = [(places_N + each >= 0) & (places_N + each < lengths_N) for each in distances]
        return Window(distances, [keep_N[:, None] for keep_N in keeps])

    def around(self, x_ND: Tensor) -> Tensor:
        """Return the neighbours of each row, concatenated; neighbours outside the sequence are zeros."""
        return torch.cat([self._shifted(x_ND, *each) for each in zip(self.distances, self.keeps, strict=True)], -1)

    @staticmethod
    def _shifted(x_ND: Tensor, distance: int, keep_N1: Tensor) -> Tensor:
        if distance == 0:
            return x_ND
        N = len(x_ND)
        moved_ND = (
            F.pad(x_ND, (0, 0, 0, distance))[distance:] if distance > 0 else F.pad(x_ND, (0, 0, -distance, 0))[:N]
        )
        return moved_ND.masked_fill(~keep_N1, 0.0)


def make_linear(d_input: int, d_output: int, keep: float = 1.0, gain: float = 1.0) -> nn.Linear:
    """Return a linear layer whose output has at first `gain` times the variance of its input (section 3.5, appendix A).

    Args:
        keep: probability with which dropout keeps an element of the input.
    """
    linear = nn.Linear(d_input, d_output)
    nn.init.normal_(linear.weight, std=math.sqrt(gain * keep / d_input))
    nn.init.zeros_(linear.bias)
    return linear


class GatedConvolution(nn.Module):
    """A convolution with 2 x `width` outputs, of which one half gates the other: a * sigmoid(b) (section 3.2)."""

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.w = make_linear(kernel * width, 2 * width, 1 - dropout, GATED_GAIN)
        self.gate = RecordingPoint()

    def forward(self, around_NC: Tensor) -> Tensor:
        """Compute rows of width D from `around_NC`: for each row, all inputs that the kernel reads, concatenated."""
        value_ND, gate_ND = self.w(around_NC).chunk(2, -1)
        return value_ND * self.gate(torch.sigmoid(gate_ND))  # type: ignore[no-any-return]


class ConvolutionalEncoderLayer(nn.Module):
    """One gated convolution with a residual connection."""

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.convolution = GatedConvolution(width, kernel, dropout)
        self.states = RecordingPoint()

    def forward(self, x_ND: Tensor, window: Window) -> Tensor:
        around_NC = window.around(self.convolution.dropout(x_ND))
        return self.states((self.convolution(around_NC) + x_ND) * HALF)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ConvolutionalMemory(Memory):
    """The output of the encoder: keys, and as values the scaled sum of keys and source embeddings (section 3.3)."""

    values_ND: Tensor


@dataclass(frozen=True)
class AttendedSource:
    """Keys and values of the encoder output, to which all decoder layers attend, padded, one row per sentence."""

    key_BSK: Tensor
    value_BSK: Tensor
    keep_B11S: Tensor | None
    """Padding mask: true where a position is not padding; None if there is no padding."""
    scale_B11: Tensor
    """Square root of the number of source tokens, which offsets the small variance of a mean of that many vectors."""

    @staticmethod
    def of(memory: ConvolutionalMemory) -> "AttendedSource":
        keep_BS, packing, states_ND = memory.packing.keep_BL, memory.packing, memory.states_ND
        lengths_B = packing.lengths.to(states_ND.device, states_ND.dtype, non_blocking=True)
        keep_B11S = None if keep_BS is None else keep_BS[:, None, None, :]
        key_BSK, value_BSK = packing.pad(states_ND), packing.pad(memory.values_ND)
        return AttendedSource(key_BSK, value_BSK, keep_B11S, lengths_B.sqrt()[:, None, None])

    def sentences(self, sentences_B: Tensor) -> "AttendedSource":
        """Return keys and values of the given sentences, in this order."""
        keep = None if self.keep_B11S is None else self.keep_B11S.index_select(0, sentences_B)
        key, value, scale = (x.index_select(0, sentences_B) for x in (self.key_BSK, self.value_BSK, self.scale_B11))
        return AttendedSource(key, value, keep, scale)


class StepAttention(nn.Module):
    """The attention of one decoder layer, with one head (section 3.3): one step of a multi-step attention.

    The query is a projection of the state of the layer, plus the embedding of the last output token.
    """

    heads = 1

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.d_value = d_model
        self.w_q = make_linear(width, d_model)
        self.w_o = make_linear(d_model, width)
        self.inside = RecordingPoint()

    def forward(
        self, x_ND: Tensor, embedded_NK: Tensor, attended: AttendedSource, packing: Packing | None = None
    ) -> Tensor:
        """Compute attention of packed rows or, if `packing` is None, of equally many rows for each sentence."""
        query_NK = (self.w_q(x_ND) + embedded_NK) * HALF
        B = len(attended.key_BSK)
        query_BLK = query_NK.view(B, -1, query_NK.shape[-1]) if packing is None else packing.pad(query_NK)
        key_BHSK, value_BHSK = attended.key_BSK[:, None], attended.value_BSK[:, None]
        context_BHLK = attend(query_BLK[:, None], key_BHSK, value_BHSK, Reach(attended.keep_B11S), self.inside)
        context_BLK = context_BHLK[:, 0] * attended.scale_B11
        return self.w_o(context_BLK.flatten(0, 1) if packing is None else packing.pack(context_BLK))  # type: ignore[no-any-return]


class ConvolutionalDecoderLayer(nn.Module):
    """A gated convolution over a position and those before it, attention to the source, and a residual connection."""

    def __init__(self, d_model: int, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.convolution = GatedConvolution(width, kernel, dropout)
        self.cross_attention = StepAttention(d_model, width)
        self.states = RecordingPoint()

    def forward(
        self, x_ND: Tensor, around_NC: Tensor, embedded_NK: Tensor, attended: AttendedSource, packing: Packing | None
    ) -> Tensor:
        """Compute all positions of known targets or, if `packing` is None, one position per hypothesis.

        Args:
            x_ND: inputs of the layer at these positions.
            around_NC: for each position, all inputs that the kernel reads, concatenated.
            embedded_NK: embeddings of the target tokens at these positions.
        """
        convolved_ND = self.convolution(around_NC)
        context_ND = self.cross_attention(convolved_ND, embedded_NK, attended, packing)
        return self.states(((convolved_ND + context_ND) * HALF + x_ND) * HALF)  # type: ignore[no-any-return]


@dataclass
class ConvolutionalState:
    """State of a decoder between steps: the last kernel - 1 inputs of each layer, and the encoder output."""

    attended: AttendedSource
    pasts: list[Tensor]
    """For each layer, the inputs of the last kernel - 1 positions, R x (kernel - 1) x D, zeros before the first token;
    R is 0 before the first step.
    """
    length: int = 0

    @property
    def sentences(self) -> int:
        return len(self.attended.key_BSK)

    def append(self, layer: int, x_RD: Tensor) -> Tensor:
        """Return the last inputs of a layer and the new one, concatenated; store those that the next step needs."""
        past_RKD = self.pasts[layer]
        if len(past_RKD) != len(x_RD):
            past_RKD = x_RD.new_zeros(len(x_RD), *past_RKD.shape[1:])
        around_RKD = torch.cat([past_RKD, x_RD[:, None]], 1)
        self.pasts[layer] = around_RKD[:, 1:]
        return around_RKD.flatten(1)

    def select(self, parents_BW: Tensor) -> None:
        first_B1 = torch.arange(len(parents_BW), device=parents_BW.device)[:, None] * parents_BW.shape[1]
        self._pick((first_B1 + parents_BW).flatten())

    def keep_sentences(self, sentences_B: Tensor) -> None:
        width = len(self.pasts[0]) // self.sentences
        self._pick((sentences_B[:, None] * width + torch.arange(width, device=sentences_B.device)).flatten())
        self.attended = self.attended.sentences(sentences_B)

    def _pick(self, rows_R: Tensor) -> None:
        self.pasts = [past_RKD.index_select(0, rows_R) for past_RKD in self.pasts]


class Convolutional(Seq2Seq):
    """A convolutional encoder-decoder with learned positions.

    Args:
        d_model: width of the embeddings, and of keys and values of the attention.
        d_hidden: width of the convolutions; 0 means d_model.
        kernel: number of positions that a convolution reads.
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        encoder_layers: int = 4,
        decoder_layers: int = 3,
        d_model: int = 256,
        d_hidden: int = 0,
        kernel: int = 3,
        max_positions: int = 1024,
        dropout: float = 0.1,
        tie: str = "all",
        output_bias: bool = False,
    ) -> None:
        super().__init__()
        self.kernel, self.width = kernel, d_hidden or d_model
        D, keep = self.width, 1 - dropout
        self.source_embedding, self.target_embedding = make_embeddings(
            (source_vocabulary, target_vocabulary), d_model, dropout, tie, "learned", max_positions
        )
        self.encoder_input = make_linear(d_model, D, keep)
        self.encoder = nn.ModuleList(ConvolutionalEncoderLayer(D, kernel, dropout) for _ in range(encoder_layers))
        self.decoder_input = make_linear(d_model, D, keep)
        self.decoder = nn.ModuleList(
            ConvolutionalDecoderLayer(d_model, D, kernel, dropout) for _ in range(decoder_layers)
        )
        # Back to the width of the embeddings, where a Transformer has its last norms.
        self.encoder_norm = make_linear(D, d_model)
        self.decoder_norm = nn.Sequential(make_linear(D, d_model), Dropout(dropout))
        self.output = make_output(self.source_embedding, self.target_embedding, tie, output_bias)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.places.weight, std=POSITION_DEVIATION)

    def encode(self, source_N: Tensor, offsets: Tensor | Packing) -> ConvolutionalMemory:
        packing = Packing.of(offsets, source_N)
        window = Window.of(packing, range(-((self.kernel - 1) // 2), self.kernel // 2 + 1))
        embedded_ND = self.source_embedding(source_N, packing.places_N, packing.longest)
        x_ND = self.encoder_input(embedded_ND)
        for layer in self.encoder:
            x_ND = layer(x_ND, window)
        states_ND = self.encoder_norm(x_ND)
        return ConvolutionalMemory(states_ND, packing, (states_ND + embedded_ND) * HALF)

    def decode(self, inputs_N: Tensor, offsets: Tensor | Packing, memory: Memory) -> Tensor:
        assert isinstance(memory, ConvolutionalMemory)
        packing, attended = Packing.of(offsets, inputs_N), AttendedSource.of(memory)
        window = Window.of(packing, range(1 - self.kernel, 1))
        embedded_ND = self.target_embedding(inputs_N, packing.places_N, packing.longest)
        x_ND = self.decoder_input(embedded_ND)
        for layer in map(_decoder_layer, self.decoder):
            around_NC = window.around(layer.convolution.dropout(x_ND))
            x_ND = layer(x_ND, around_NC, embedded_ND, attended, packing)
        return self.decoder_norm(x_ND)  # type: ignore[no-any-return]

    def start(self, memory: Memory) -> ConvolutionalState:
        assert isinstance(memory, ConvolutionalMemory)
        empty = memory.states_ND.new_zeros(0, self.kernel - 1, self.width)
        return ConvolutionalState(AttendedSource.of(memory), [empty for _ in self.decoder])

    def step(self, tokens_R: Tensor, state: State) -> Tensor:
        assert isinstance(state, ConvolutionalState)
        places_R, state.length = torch.full_like(tokens_R, state.length), state.length + 1
        embedded_RD = self.target_embedding(tokens_R, places_R, state.length)
        x_RD = self.decoder_input(embedded_RD)
        for number, layer in enumerate(map(_decoder_layer, self.decoder)):
            around_RC = state.append(number, layer.convolution.dropout(x_RD))
            x_RD = layer(x_RD, around_RC, embedded_RD, state.attended, None)
        return self.output(self.decoder_norm(x_RD))  # type: ignore[no-any-return]


def _decoder_layer(module: nn.Module) -> ConvolutionalDecoderLayer:
    return cast(ConvolutionalDecoderLayer, module)
