"""What the Transformer replaced: recurrent encoder-decoders, without attention and with it.

An RNN reads one token after the other into a state of fixed width. Without attention (Sutskever et al., 2014) the
encoder's last state is all that the decoder knows of a sentence. With it (Bahdanau et al., 2015) an encoder that reads
in both directions keeps a vector for each token, and the decoder looks at all of them before each word.

Both keep the house's contract (`interface`): packed rows in and out, and `start` and `step` for every search.

Differs from the paper: Sutskever et al. stack four LSTM layers of 1,000 and turn the source round; the number of layers
is a setting here, and `source_reversed` is off unless asked for. What differs from Bahdanau et al. stands at
`RecurrentEncoder` and `RecurrentDecoder`.
"""

import contextlib
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from seq2see.model.interface import Memory, Seq2Seq
from seq2see.model.layers import Dropout
from seq2see.model.packing import Packing
from seq2see.model.recording import AttentionTensors, RecordingPoint
from seq2see.model.state import State

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}

Hidden = tuple[Tensor, ...]
"""What each layer of an RNN knows: the state of a GRU, or state and cell of an LSTM; layers x R x D."""


@dataclass(frozen=True)
class Understood(Memory):
    """With what the encoder knew at the end: where the decoder begins."""

    last: Hidden


class ByTime:
    """Packed rows as an RNN reads them: the first tokens of all sequences, then the second ones, and so on.

    The longest sequence comes first, so that those which have ended are always the last, and no padding is computed:
    sequences of 2, 1 and 3 rows are read 3, then 2, then 1 at a time.
    """

    def __init__(self, packing: Packing, backwards: bool = False) -> None:
        lengths, offsets = packing.lengths.numpy(), packing.offsets.numpy()
        order = np.argsort(-lengths, kind="stable")
        steps_T1 = np.arange(packing.longest)[:, None]
        there_TB = steps_T1 < lengths[order]
        rows_TB = offsets[1:][order] - 1 - steps_T1 if backwards else offsets[:-1][order] + steps_T1
        rows = rows_TB[there_TB]
        self.sizes = torch.from_numpy(there_TB.sum(1))
        """How many sequences each step has, on the CPU."""
        self._rows_N, self._places_N, self.order_B, self.back_B = (
            torch.from_numpy(each).to(packing.device, non_blocking=True)
            for each in (rows, np.argsort(rows), order, np.argsort(order))
        )

    def lay_out(self, x_ND: Tensor) -> Tensor:
        """Packed rows in the order of time."""
        return x_ND.index_select(0, self._rows_N)

    def pack(self, x_ND: Tensor) -> Tensor:
        """Back to sequence after sequence."""
        return x_ND.index_select(0, self._places_N)


def pick(hidden: Hidden, rows_R: Tensor) -> Hidden:
    """What is known of some rows, in this order."""
    return tuple(each.index_select(1, rows_R) for each in hidden)


def run(rnn: nn.RNNBase, x: Tensor | PackedSequence, hidden: Hidden | None = None) -> tuple[Tensor, Hidden]:
    """What the last layer says after each token, and what all layers know after the last one."""
    given = hidden if hidden is None or len(hidden) == 2 else hidden[0]
    with contextlib.ExitStack() as here:
        if (x.data if isinstance(x, PackedSequence) else x).is_cuda:
            here.enter_context(torch.autocast("cuda", enabled=False))  # cuDNN would take float16 for bfloat16
            if torch.is_grad_enabled() and not rnn.training:  # a gradient that cuDNN does not have, but the lens wants
                here.enter_context(torch.backends.cudnn.flags(enabled=False))
            x = x.to(next(rnn.parameters()).dtype)
        output, last = rnn(x, given)
    return output.data if isinstance(output, PackedSequence) else output, last if isinstance(last, tuple) else (last,)


def make_rnn(
    cell: str, d_input: int, d_hidden: int, layers: int, dropout: float, both_ways: bool = False
) -> nn.RNNBase:
    """Each gate begins by itself: Glorot for what comes in, orthogonal from step to step, and forgetting is off.

    A forget gate that begins with bias 1 lets an LSTM remember before it has learnt to (Jozefowicz et al., 2015).
    """
    between = dropout if layers > 1 else 0.0
    rnn = CELLS[cell](d_input, d_hidden, layers, dropout=between, bidirectional=both_ways)
    for name, weight in rnn.named_parameters():
        if name.startswith("weight"):
            start = nn.init.xavier_uniform_ if "_ih_" in name else nn.init.orthogonal_
            for gate in torch.split(weight, d_hidden):
                start(gate)
        else:
            nn.init.zeros_(weight)
            if cell == "lstm" and "_ih_" in name:
                nn.init.ones_(weight[d_hidden : 2 * d_hidden])
    return rnn


@dataclass(frozen=True)
class Looked:
    """A memory as attention looks at it: a row for each of B sentences."""

    key_BSK: Tensor
    value_BSD: Tensor
    keep_BS: Tensor | None
    """Which places are not padding; None where all are real."""

    def of(self, sentences_B: Tensor) -> "Looked":
        """The same for some of the sentences, in this order."""
        keep_BS = None if self.keep_BS is None else self.keep_BS.index_select(0, sentences_B)
        return Looked(self.key_BSK.index_select(0, sentences_B), self.value_BSD.index_select(0, sentences_B), keep_BS)

    def first(self, count: int) -> "Looked":
        keep_BS = None if self.keep_BS is None else self.keep_BS[:count]
        return Looked(self.key_BSK[:count], self.value_BSD[:count], keep_BS)


class AlignmentAttention(nn.Module):
    """softmax(v . tanh(W_q q + W_k k)): how well what is to be said fits what was read (Bahdanau et al., 2015, 3.1).

    One head, whose query is what the decoder knew before this step.
    """

    heads = 1

    def __init__(self, d_query: int, d_memory: int, d_key: int) -> None:
        super().__init__()
        self.d_value = d_memory
        self.w_q = nn.Linear(d_query, d_key, bias=False)
        self.w_k = nn.Linear(d_memory, d_key)
        self.v = nn.Parameter(torch.empty(d_key))
        self.w_o = nn.Identity()  # the one head goes on as it is; to be switched off where those of others are
        self.inside = RecordingPoint()
        for layer in (self.w_q, self.w_k):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.w_k.bias)
        nn.init.normal_(self.v, std=d_key**-0.5)

    def start(self, memory_ND: Tensor, packing: Packing) -> Looked:
        """Keys of a memory: computed once, looked at in every step."""
        return Looked(packing.pad(self.w_k(memory_ND)), packing.pad(memory_ND), packing.keep_BL)

    def forward(self, known_BWD: Tensor, looked: Looked) -> tuple[Tensor, AttentionTensors]:
        """BWD, what W queries of each sentence saw, and how."""
        query_BWK = self.w_q(known_BWD)
        scores_BWS = torch.tanh(query_BWK[:, :, None] + looked.key_BSK[:, None]) @ self.v
        if looked.keep_BS is None:
            weights_BWS = scores_BWS.softmax(-1)
        else:
            keep_B1S, hidden = looked.keep_BS[:, None], torch.finfo(scores_BWS.dtype).min
            weights_BWS = scores_BWS.masked_fill(~keep_B1S, hidden).softmax(-1).masked_fill(~keep_B1S, 0.0)
        context_BWD = self.w_o(weights_BWS.to(looked.value_BSD.dtype) @ looked.value_BSD)
        seen = query_BWK, looked.key_BSK, looked.value_BSD, weights_BWS, scores_BWS
        return context_BWD, AttentionTensors(*(each[:, None] for each in seen))


class RecurrentEncoder(nn.Module):
    """Reads from the begin, or from the end, which leaves the first word the freshest (Sutskever et al., 3.3), or in
    both directions, each of which has half of the width.

    Differs from the paper: in Bahdanau et al. each direction is as wide as the decoder, and both are GRUs. Here the two
    together are, and cells are LSTMs unless `cell` says "gru".
    """

    def __init__(
        self,
        cell: str,
        d_model: int,
        d_hidden: int,
        layers: int,
        dropout: float,
        both_ways: bool = False,
        backwards: bool = False,
    ) -> None:
        super().__init__()
        self.both_ways, self.backwards = both_ways, backwards
        width = d_hidden // 2 if both_ways else d_hidden
        self.rnn = make_rnn(cell, d_model, width, layers, dropout, both_ways)
        self.states = RecordingPoint()

    def forward(self, x_ND: Tensor, packing: Packing) -> Understood:
        by_time = ByTime(packing, self.backwards)
        states_ND, last = run(self.rnn, PackedSequence(by_time.lay_out(x_ND), by_time.sizes))
        last = pick(last, by_time.back_B)
        if self.both_ways:  # a layer's two directions side by side
            last = tuple(torch.cat([each[0::2], each[1::2]], -1) for each in last)
        return Understood(self.states(by_time.pack(states_ND)), packing, last)


@dataclass
class RecurrentState:
    """What a decoder keeps between steps: what its RNN knows, and the memory it looks at, if it does."""

    hidden: Hidden
    """Layers x R x D. Before the first step there is one hypothesis of each sentence: R = B."""
    sentences: int
    looked: Looked | None

    def widen(self, rows: int) -> None:
        """R rows from the first step on: a sentence's hypotheses all begin alike."""
        width = rows // self.sentences
        if self.hidden[0].shape[1] != rows:
            self.hidden = tuple(each.repeat_interleave(width, 1) for each in self.hidden)

    def select(self, parents_BW: Tensor) -> None:
        first_B1 = torch.arange(len(parents_BW), device=parents_BW.device)[:, None] * parents_BW.shape[1]
        self.hidden = pick(self.hidden, (first_B1 + parents_BW).flatten())

    def keep_sentences(self, sentences_B: Tensor) -> None:
        width = self.hidden[0].shape[1] // self.sentences
        rows_BW = sentences_B[:, None] * width + torch.arange(width, device=sentences_B.device)
        self.hidden = pick(self.hidden, rows_BW.flatten())
        self.sentences = len(sentences_B)
        if self.looked is not None:
            self.looked = self.looked.of(sentences_B)


class RecurrentDecoder(nn.Module):
    """An RNN that begins with what the encoder knew at the end; with attention it is told what to look at in each step.

    What it says is tanh(W [state, seen, token]) (Bahdanau et al., A.2.2); without attention, tanh(W state).

    Differs from the paper: the first state is what both directions of the encoder knew at their ends, side by side,
    where Bahdanau et al. have tanh(W_s h_1) of the backward one alone. A word is read off the state after this step,
    s_i, as is usual since, not off s_{i-1}, and through tanh instead of maxout.
    """

    def __init__(self, cell: str, d_model: int, d_hidden: int, layers: int, dropout: float, attention: bool) -> None:
        super().__init__()
        seen = d_hidden if attention else 0
        self.rnn = make_rnn(cell, d_model + seen, d_hidden, layers, dropout)
        self.cross_attention = AlignmentAttention(d_hidden, d_hidden, d_hidden) if attention else None
        self.w_r = nn.Linear(d_hidden + (seen + d_model if attention else 0), d_model)
        self.states = RecordingPoint()
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.w_r.weight)
        nn.init.zeros_(self.w_r.bias)

    def forward(self, x_ND: Tensor, packing: Packing, memory: Understood) -> Tensor:
        """All positions of known targets; with attention still step by step, as each hangs on the one before."""
        by_time = ByTime(packing)
        hidden = pick(memory.last, by_time.order_B)
        x_ND = by_time.lay_out(x_ND)
        if self.cross_attention is None:
            states_ND, _ = run(self.rnn, PackedSequence(x_ND, by_time.sizes), hidden)
            return self._read_out(by_time.pack(states_ND))
        looked = self.cross_attention.start(memory.states_ND, memory.packing).of(by_time.order_B)
        steps, seen = [], []
        for x_RD in torch.split(x_ND, by_time.sizes.tolist()):
            if len(x_RD) < len(looked.key_BSK):  # some have ended
                looked, hidden = looked.first(len(x_RD)), tuple(each[:, : len(x_RD)] for each in hidden)
            step_RD, hidden, inside = self._advance(self.cross_attention, x_RD, hidden, looked)
            steps.append(step_RD)
            if self.cross_attention.inside.is_recording:
                seen.append(inside)
        if seen:
            self.cross_attention.inside(_joined(seen, by_time, packing))
        return self._read_out(by_time.pack(torch.cat(steps)))

    def start(self, memory: Understood) -> RecurrentState:
        looked = None
        if self.cross_attention is not None:
            looked = self.cross_attention.start(memory.states_ND, memory.packing)
        return RecurrentState(memory.last, memory.packing.count, looked)

    def step(self, x_RD: Tensor, state: RecurrentState) -> Tensor:
        state.widen(len(x_RD))
        if self.cross_attention is None or state.looked is None:
            states_1RD, state.hidden = run(self.rnn, x_RD[None], state.hidden)
            return self._read_out(states_1RD[0])
        step_RD, state.hidden, inside = self._advance(self.cross_attention, x_RD, state.hidden, state.looked)
        if self.cross_attention.inside.is_recording:
            self.cross_attention.inside(inside)
        return self._read_out(step_RD)

    def _advance(
        self, attention: AlignmentAttention, x_RD: Tensor, hidden: Hidden, looked: Looked
    ) -> tuple[Tensor, Hidden, AttentionTensors]:
        """Look, then take a step: state, what was seen, and the token, side by side."""
        known_BWD = hidden[0][-1].unflatten(0, (len(looked.key_BSK), -1))  # type: ignore[no-untyped-call]
        context_BWD, inside = attention(known_BWD, looked)
        context_RD = context_BWD.flatten(0, 1)
        states_1RD, hidden = run(self.rnn, torch.cat([x_RD, context_RD], -1)[None], hidden)
        return torch.cat([states_1RD[0], context_RD, x_RD], -1), hidden, inside

    def _read_out(self, x_ND: Tensor) -> Tensor:
        return self.dropout(self.states(torch.tanh(self.w_r(x_ND))))  # type: ignore[no-any-return]


def _joined(seen: list[AttentionTensors], by_time: ByTime, packing: Packing) -> AttentionTensors:
    """The steps of a known target as one passing: sentences as they came, their steps as rows, zeros in the padding."""

    def rows(each: list[Tensor]) -> Tensor:
        padded_BTX = packing.pad(by_time.pack(torch.cat([step[:, 0, 0] for step in each])))
        if packing.keep_BL is not None:
            padded_BTX = padded_BTX.masked_fill(~packing.keep_BL[:, :, None], 0.0)
        return padded_BTX[:, None]

    def sentences(x_BHSD: Tensor) -> Tensor:
        return x_BHSD.index_select(0, by_time.back_B)

    queries, weights, scores = (
        [getattr(step, name) for step in seen] for name in ("query_BHLK", "weights_BHLM", "scores_BHLM")
    )
    return AttentionTensors(
        rows(queries), sentences(seen[0].key_BHMK), sentences(seen[0].value_BHMK), rows(weights), rows(scores)
    )


class Recurrent(Seq2Seq):
    """An RNN encoder-decoder, with alignment attention or without.

    Encoder and decoder are stacks of one block each, which has all layers inside: names are those of the Transformer.
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        attention: bool = True,
        cell: str = "lstm",
        encoder_layers: int = 1,
        decoder_layers: int = 1,
        d_model: int = 256,
        d_hidden: int = 0,
        source_reversed: bool = False,
        dropout: float = 0.1,
        tie: str = "all",
        output_bias: bool = False,
    ) -> None:
        super().__init__()
        d_hidden = d_hidden or d_model
        self.make_embeddings(source_vocabulary, target_vocabulary, d_model, dropout, tie)
        sizes = cell, d_model, d_hidden
        encoder = RecurrentEncoder(*sizes, encoder_layers, dropout, attention, source_reversed)
        self.encoder = nn.ModuleList([encoder])
        self.decoder = nn.ModuleList([RecurrentDecoder(*sizes, decoder_layers, dropout, attention)])
        self.decoder_norm = nn.Identity()
        self.make_output(tie, output_bias)

    def encode(self, source_N: Tensor, offsets: Tensor | Packing) -> Understood:
        packing = offsets if isinstance(offsets, Packing) else Packing(offsets, source_N.device)
        return cast(Understood, self.encoder[0](self.source_embedding(source_N), packing))

    def decode(self, inputs_N: Tensor, offsets: Tensor | Packing, memory: Memory) -> Tensor:
        packing = offsets if isinstance(offsets, Packing) else Packing(offsets, inputs_N.device)
        return cast(Tensor, self.decoder[0](self.target_embedding(inputs_N), packing, memory))

    def start(self, memory: Memory) -> RecurrentState:
        assert isinstance(memory, Understood)
        return cast(RecurrentDecoder, self.decoder[0]).start(memory)

    def step(self, tokens_R: Tensor, state: State) -> Tensor:
        assert isinstance(state, RecurrentState)
        x_RD = self.target_embedding(tokens_R)
        return self.output(cast(RecurrentDecoder, self.decoder[0]).step(x_RD, state))  # type: ignore[no-any-return]
