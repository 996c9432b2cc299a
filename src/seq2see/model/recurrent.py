"""The models that the Transformer replaced: recurrent encoder-decoders, without attention and with it.

An RNN reads one token after the other into a state of fixed width. Without attention (Sutskever et al., 2014) the
encoder's last state is all that the decoder receives. With it (Bahdanau et al., 2015; Luong et al., 2015) a
bidirectional encoder keeps a vector for each token, and the decoder attends to all of them at each output token.

Differs from the paper: Sutskever et al. stack four LSTM layers of 1,000 and reverse the source; the number of layers
is a setting here, and `source_reversed` is off by default. The differences from Bahdanau et al. and Luong et al. are
described at `RecurrentEncoder`, `RecurrentDecoder` and `FeedingDecoder`.
"""

import contextlib
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seq2see.model.interface import Memory, Seq2Seq
from seq2see.model.layers import Dropout, make_embeddings, make_output
from seq2see.model.packing import Packing
from seq2see.model.recording import AttentionTensors, RecordingPoint
from seq2see.model.state import State

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}

Hidden = tuple[Tensor, ...]
"""The states of an RNN for R sequences, layers x R x D: one tensor for a GRU, hidden and cell states for an LSTM."""
Rows = TypeVar("Rows", Tensor, PackedSequence)


@dataclass(frozen=True)
class RecurrentShape:
    """Widths and other settings that the encoder and the decoder of an RNN share."""

    attention: str = "additive"
    """Function that scores encoder states against a decoder state: a name in `ATTENTIONS`, or "none" for no
    attention.
    """
    bidirectional: bool = True
    """Whether the encoder reads in both directions."""
    cell: str = "lstm"
    d_model: int = 256
    """Width of the embeddings."""
    d_hidden: int = 0
    """Width of the hidden states; 0 means that it is equal to d_model."""
    dropout: float = 0.1

    @property
    def width(self) -> int:
        return self.d_hidden or self.d_model


@dataclass(frozen=True)
class RecurrentMemory(Memory):
    """The output of a recurrent encoder, with the final states of its layers, from which the decoder starts."""

    last: Hidden


def by_time(x_ND: Tensor, packing: Packing) -> PackedSequence:
    """Return packed rows in the order in which an RNN reads them: the first tokens of all sequences, then all second
    ones, and so on.

    Sequences are sorted, the longest first, so that the ones that have ended are last and no padding is computed:
    sequences of 2, 1 and 3 rows are read 3, then 2, then 1 at a time.
    """
    order_B = packing.lengths.argsort(descending=True, stable=True)
    longest_first_BLD = packing.pad(x_ND).index_select(0, order_B.to(x_ND.device))
    rows = pack_padded_sequence(longest_first_BLD, packing.lengths[order_B], batch_first=True)
    return PackedSequence(rows.data, rows.batch_sizes, order_B.to(x_ND.device))


def by_sentence(rows: PackedSequence, packing: Packing) -> Tensor:
    """Invert `by_time`: return its rows as packed rows, sequence after sequence."""
    return packing.pack(pad_packed_sequence(rows, batch_first=True)[0])


def mirrored(x_ND: Tensor, packing: Packing) -> Tensor:
    """Return packed rows with each sequence reversed."""
    ends_N = (packing.offsets[:-1] + packing.offsets[1:] - 1).repeat_interleave(packing.lengths)
    return x_ND.index_select(0, (ends_N - torch.arange(len(x_ND))).to(x_ND.device))


def pick(hidden: Hidden, rows_R: Tensor) -> Hidden:
    """Return the states of the given rows, in this order."""
    return tuple(each.index_select(1, rows_R) for each in hidden)


def run(rnn: nn.RNNBase, x: Rows, hidden: Hidden | None = None) -> tuple[Rows, Hidden]:
    """Run an RNN from the states `hidden`, or from zeros; return the output of the last layer after each token, and the
    states of all layers after the last token.
    """
    given = hidden if hidden is None or len(hidden) == 2 else hidden[0]
    with contextlib.ExitStack() as here:
        if x.is_cuda:
            here.enter_context(torch.autocast("cuda", enabled=False))  # cuDNN would use float16 for bfloat16
            if torch.is_grad_enabled() and not rnn.training:  # cuDNN has no such gradient, and the lens needs it
                here.enter_context(torch.backends.cudnn.flags(enabled=False))
            x = x.to(next(rnn.parameters()).dtype)
        output, last = rnn(x, given)
    return output, last if isinstance(last, tuple) else (last,)


def make_rnn(
    cell: str, d_input: int, d_hidden: int, layers: int, dropout: float, both_ways: bool = False
) -> nn.RNNBase:
    """Return an RNN in which each gate is initialised separately: input weights by Glorot, recurrent ones orthogonal.

    Biases are 0, except 1 for the forget gate of an LSTM, so that it remembers from the start (Jozefowicz et al.,
    2015).
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
class AttendedMemory:
    """Keys and values of an encoder output, padded, one row per sentence."""

    key_BSK: Tensor
    value_BSD: Tensor
    keep_BS: Tensor | None
    """Padding mask: true where a position is not padding; None if there is no padding."""

    def of(self, sentences_B: Tensor) -> "AttendedMemory":
        """Return the memories of the given sentences, in this order."""
        keep_BS = None if self.keep_BS is None else self.keep_BS.index_select(0, sentences_B)
        return AttendedMemory(
            self.key_BSK.index_select(0, sentences_B), self.value_BSD.index_select(0, sentences_B), keep_BS
        )

    def first(self, count: int) -> "AttendedMemory":
        keep_BS = None if self.keep_BS is None else self.keep_BS[:count]
        return AttendedMemory(self.key_BSK[:count], self.value_BSD[:count], keep_BS)


class AlignmentAttention(nn.Module):
    """Attention of an RNN: the weights are the softmax of the scores of a decoder state and each encoder state.

    It has one head. Subclasses differ in how they compute scores, which are not scaled.
    """

    heads = 1

    def __init__(self, width: int) -> None:
        super().__init__()
        self.d_value = width
        self.w_o = nn.Identity()  # the lens switches heads off here, as in multi-head attention
        self.inside = RecordingPoint()

    def queries(self, known_BWD: Tensor) -> Tensor:
        return known_BWD

    def keys(self, memory_ND: Tensor) -> Tensor:
        return memory_ND

    def scores(self, query_BWK: Tensor, key_BSK: Tensor) -> Tensor:
        return query_BWK @ key_BSK.transpose(1, 2)

    def start(self, memory_ND: Tensor, packing: Packing) -> AttendedMemory:
        """Return keys and values of an encoder output, padded; all decoding steps use them."""
        return AttendedMemory(packing.pad(self.keys(memory_ND)), packing.pad(memory_ND), packing.keep_BL)

    def forward(self, known_BWD: Tensor, attended: AttendedMemory) -> tuple[Tensor, AttentionTensors]:
        """Return the context vectors BWD for W queries per sentence, and the tensors of the attention for recording."""
        query_BWK = self.queries(known_BWD)
        scores_BWS = self.scores(query_BWK, attended.key_BSK)
        if attended.keep_BS is None:
            weights_BWS = scores_BWS.softmax(-1)
        else:
            keep_B1S, hidden = attended.keep_BS[:, None], torch.finfo(scores_BWS.dtype).min
            weights_BWS = scores_BWS.masked_fill(~keep_B1S, hidden).softmax(-1).masked_fill(~keep_B1S, 0.0)
        context_BWD = self.w_o(weights_BWS.to(attended.value_BSD.dtype) @ attended.value_BSD)
        seen = query_BWK, attended.key_BSK, attended.value_BSD, weights_BWS, scores_BWS
        return context_BWD, AttentionTensors(*(each[:, None] for each in seen))


class AdditiveAttention(AlignmentAttention):
    """Scores v . tanh(W_q q + W_k k + b) (Bahdanau et al., 2015, section 3.1)."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.w_q = nn.Linear(width, width, bias=False)
        self.w_k = nn.Linear(width, width)
        self.v = nn.Parameter(torch.empty(width))
        for layer in (self.w_q, self.w_k):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.w_k.bias)
        nn.init.normal_(self.v, std=width**-0.5)

    def queries(self, known_BWD: Tensor) -> Tensor:
        return self.w_q(known_BWD)  # type: ignore[no-any-return]

    def keys(self, memory_ND: Tensor) -> Tensor:
        return self.w_k(memory_ND)  # type: ignore[no-any-return]

    def scores(self, query_BWK: Tensor, key_BSK: Tensor) -> Tensor:
        return torch.tanh(query_BWK[:, :, None] + key_BSK[:, None]) @ self.v


class DotAttention(AlignmentAttention):
    """Scores q . k of the states themselves, without parameters (Luong et al., 2015, section 3.1, "dot")."""


class GeneralAttention(AlignmentAttention):
    """Scores q . W_k k (Luong et al., 2015, section 3.1, "general")."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.w_k = nn.Linear(width, width, bias=False)
        nn.init.xavier_uniform_(self.w_k.weight)

    def keys(self, memory_ND: Tensor) -> Tensor:
        return self.w_k(memory_ND)  # type: ignore[no-any-return]


ATTENTIONS: dict[str, type[AlignmentAttention]] = {
    "additive": AdditiveAttention,
    "dot": DotAttention,
    "general": GeneralAttention,
}


class RecurrentEncoder(nn.Module):
    """An RNN that reads from the first token, from the last (`backwards`; Sutskever et al., 3.3), or in both
    directions.

    Differs from the paper: in Bahdanau et al. each direction is as wide as the decoder, and both are GRUs. Here the two
    together are as wide as the decoder, and cells are LSTMs unless `cell` is "gru". In Luong et al. the encoder reads
    the reversed source in one direction; here every encoder whose states are attended to reads in both directions.
    """

    def __init__(self, shape: RecurrentShape, layers: int, backwards: bool = False) -> None:
        super().__init__()
        self.both_ways, self.backwards = shape.bidirectional, backwards
        width = shape.width // 2 if self.both_ways else shape.width
        self.rnn = make_rnn(shape.cell, shape.d_model, width, layers, shape.dropout, self.both_ways)
        self.states = RecordingPoint()

    def forward(self, x_ND: Tensor, packing: Packing) -> RecurrentMemory:
        states, last = run(self.rnn, by_time(mirrored(x_ND, packing) if self.backwards else x_ND, packing))
        states_ND = by_sentence(states, packing)
        if self.backwards:
            states_ND = mirrored(states_ND, packing)
        if self.both_ways:  # the two directions of a layer side by side
            last = tuple(torch.cat([each[0::2], each[1::2]], -1) for each in last)
        return RecurrentMemory(self.states(states_ND), packing, last)


@dataclass
class RecurrentState:
    """State of a decoder between steps: the states of its RNN, and the memory if it has attention."""

    hidden: Hidden
    """The states of all layers, layers x R x D. Before the first step each sentence has one hypothesis: R = B."""
    sentences: int
    attended: AttendedMemory | None
    fed_RD: Tensor | None = None
    """The last attentional state, for decoders that take it as an input of the next step (input feeding)."""

    def widen(self, rows: int) -> None:
        """Before the first step, copy the states of each sentence to all its hypotheses, so that R becomes `rows`."""
        width = rows // self.sentences
        if self.hidden[0].shape[1] != rows:
            self.hidden = tuple(each.repeat_interleave(width, 1) for each in self.hidden)

    def _pick(self, rows_R: Tensor) -> None:
        self.hidden = pick(self.hidden, rows_R)
        if self.fed_RD is not None:
            self.fed_RD = self.fed_RD.index_select(0, rows_R)

    def keep_first(self, sentences: int) -> None:
        """Drop all but the first `sentences` sentences, each of which has one hypothesis."""
        self.sentences, self.hidden = sentences, tuple(each[:, :sentences] for each in self.hidden)
        self.attended = None if self.attended is None else self.attended.first(sentences)
        self.fed_RD = None if self.fed_RD is None else self.fed_RD[:sentences]

    def select(self, parents_BW: Tensor) -> None:
        first_B1 = torch.arange(len(parents_BW), device=parents_BW.device)[:, None] * parents_BW.shape[1]
        self._pick((first_B1 + parents_BW).flatten())

    def keep_sentences(self, sentences_B: Tensor) -> None:
        width = self.hidden[0].shape[1] // self.sentences
        rows_BW = sentences_B[:, None] * width + torch.arange(width, device=sentences_B.device)
        self._pick(rows_BW.flatten())
        self.sentences = len(sentences_B)
        if self.attended is not None:
            self.attended = self.attended.of(sentences_B)


class RecurrentDecoder(nn.Module):
    """An RNN that begins with the last states of the encoder; with attention each step receives a context vector.

    Its output is tanh(W [state, context, token]) (Bahdanau et al., A.2.2); without attention, tanh(W state).

    Differs from the paper: the first state is the last states of both directions of the encoder, side by side, where
    Bahdanau et al. have tanh(W_s h_1) of the backward one alone. The output is computed from the state after this step,
    s_i, as has become usual, not from s_{i-1}, and through tanh instead of maxout.
    """

    def __init__(self, shape: RecurrentShape, layers: int, extra: int | None = None, read: int | None = None) -> None:
        """Make a decoder; `extra` is the width of the input of the RNN besides the token, and `read` that of the input
        of the linear layer after the RNN. None stands for the widths that the class describes.
        """
        super().__init__()
        D, attends = shape.width, shape.attention != "none"
        extra = D * attends if extra is None else extra
        read = D + (D + shape.d_model) * attends if read is None else read
        self.rnn = make_rnn(shape.cell, shape.d_model + extra, D, layers, shape.dropout)
        self.cross_attention = ATTENTIONS[shape.attention](D) if attends else None
        self.w_r = nn.Linear(read, shape.d_model)
        self.states = RecordingPoint()
        self.dropout = Dropout(shape.dropout)
        nn.init.xavier_uniform_(self.w_r.weight)
        nn.init.zeros_(self.w_r.bias)

    def forward(self, x_ND: Tensor, packing: Packing, memory: RecurrentMemory) -> Tensor:
        """Decode all positions of known targets; with attention step by step, since each step needs the one before."""
        rows = by_time(x_ND, packing)
        if self.cross_attention is None:
            states, _ = run(self.rnn, rows, memory.last)
            return self._read_out(by_sentence(states, packing))
        order_B = cast(Tensor, rows.sorted_indices)
        attended = self.cross_attention.start(memory.states_ND, memory.packing).of(order_B)
        state = RecurrentState(pick(memory.last, order_B), packing.count, attended)
        steps, seen = [], []
        for x_RD in torch.split(rows.data, rows.batch_sizes.tolist()):
            if len(x_RD) < state.sentences:  # some have ended
                state.keep_first(len(x_RD))
            step_RD, inside = self.advance(x_RD, state)
            steps.append(step_RD)
            if self.cross_attention.inside._forward_hooks:
                seen.append(inside)
        if seen:
            self.cross_attention.inside(_joined(seen, rows))
        return self._read_out(by_sentence(rows._replace(data=torch.cat(steps)), packing))

    def start(self, memory: RecurrentMemory) -> RecurrentState:
        attended = None
        if self.cross_attention is not None:
            attended = self.cross_attention.start(memory.states_ND, memory.packing)
        return RecurrentState(memory.last, memory.packing.count, attended)

    def step(self, x_RD: Tensor, state: RecurrentState) -> Tensor:
        state.widen(len(x_RD))
        if self.cross_attention is None:
            states_1RD, state.hidden = run(self.rnn, x_RD[None], state.hidden)
            return self._read_out(states_1RD[0])
        step_RD, inside = self.advance(x_RD, state)
        if self.cross_attention.inside._forward_hooks:
            self.cross_attention.inside(inside)
        return self._read_out(step_RD)

    def advance(self, x_RD: Tensor, state: RecurrentState) -> tuple[Tensor, AttentionTensors]:
        """Attend with the state before this step, then do the step; return the input of the linear layer after the RNN,
        and the tensors of the attention.
        """
        context_RD, inside = self.attend(state)
        states_1RD, state.hidden = run(self.rnn, torch.cat([x_RD, context_RD], -1)[None], state.hidden)
        return torch.cat([states_1RD[0], context_RD, x_RD], -1), inside

    def attend(self, state: RecurrentState) -> tuple[Tensor, AttentionTensors]:
        """Return the context vectors RD, computed from the states of the last layer, and the tensors of the
        attention.
        """
        assert self.cross_attention is not None
        known_BWD = state.hidden[0][-1].unflatten(0, (state.sentences, -1))  # type: ignore[no-untyped-call]
        context_BWD, inside = self.cross_attention(known_BWD, state.attended)
        return context_BWD.flatten(0, 1), inside

    def _read_out(self, x_ND: Tensor) -> Tensor:
        return self.dropout(self.states(torch.tanh(self.w_r(x_ND))))  # type: ignore[no-any-return]


class FeedingDecoder(RecurrentDecoder):
    """A decoder with the global attention of Luong et al. (2015): step, then attend with the new state.

    Its output is the attentional state tanh(W_c [context, state]) (equation 5), which is also an input of the next
    step, beside the token (input feeding, section 3.3). So no step can begin before the output of the step before
    is known, and known targets are decoded step by step; without attention, PyTorch's fused RNN decodes them in one
    call.

    Differs from the paper: attentional states are as wide as the embeddings, to which the output layer may be tied.
    Dropout of an attentional state reaches the output layer, and not the next step.
    """

    def __init__(self, shape: RecurrentShape, layers: int) -> None:
        super().__init__(shape, layers, extra=shape.d_model, read=2 * shape.width)

    def advance(self, x_RD: Tensor, state: RecurrentState) -> tuple[Tensor, AttentionTensors]:
        fed_RD = torch.zeros_like(x_RD) if state.fed_RD is None else state.fed_RD
        _, state.hidden = run(self.rnn, torch.cat([x_RD, fed_RD], -1)[None], state.hidden)
        context_RD, inside = self.attend(state)
        state.fed_RD = torch.tanh(self.w_r(torch.cat([context_RD, state.hidden[0][-1]], -1)))
        return state.fed_RD, inside

    def _read_out(self, x_ND: Tensor) -> Tensor:
        return self.dropout(self.states(x_ND))  # type: ignore[no-any-return]


def _joined(seen: list[AttentionTensors], order: PackedSequence) -> AttentionTensors:
    """Join the attention tensors of single steps into padded tensors with a row for each position; padding is zeros."""

    def rows(name: str) -> Tensor:
        steps_NX = torch.cat([getattr(step, name)[:, 0, 0] for step in seen])
        return pad_packed_sequence(order._replace(data=steps_NX), batch_first=True)[0][:, None]

    back_B = cast(Tensor, order.unsorted_indices)
    keys, values = (x.index_select(0, back_B) for x in (seen[0].key_BHMK, seen[0].value_BHMK))
    return AttentionTensors(rows("query_BHLK"), keys, values, rows("weights_BHLM"), rows("scores_BHLM"))


class Recurrent(Seq2Seq):
    """An RNN encoder-decoder; encoder and decoder are one module each, which contains all its layers.

    Args:
        widths: the fields of `RecurrentShape`, such as `attention="dot", cell="lstm", d_model=256, dropout=0.1`.
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        encoder_layers: int = 1,
        decoder_layers: int = 1,
        source_reversed: bool = False,
        tie: str = "all",
        output_bias: bool = False,
        **widths: Any,
    ) -> None:
        super().__init__()
        shape = RecurrentShape(**widths)
        self.source_embedding, self.target_embedding = make_embeddings(
            (source_vocabulary, target_vocabulary), shape.d_model, shape.dropout, tie
        )
        self.encoder = nn.ModuleList([RecurrentEncoder(shape, encoder_layers, source_reversed)])
        feeding = shape.attention in ("dot", "general")
        self.decoder = nn.ModuleList([(FeedingDecoder if feeding else RecurrentDecoder)(shape, decoder_layers)])
        self.decoder_norm = nn.Identity()
        self.output = make_output(self.source_embedding, self.target_embedding, tie, output_bias)

    def encode(self, source_N: Tensor, offsets: Tensor | Packing) -> RecurrentMemory:
        packing = Packing.of(offsets, source_N)
        return cast(RecurrentMemory, self.encoder[0](self.source_embedding(source_N), packing))

    def decode(self, inputs_N: Tensor, offsets: Tensor | Packing, memory: Memory) -> Tensor:
        packing = Packing.of(offsets, inputs_N)
        return cast(Tensor, self.decoder[0](self.target_embedding(inputs_N), packing, memory))

    def start(self, memory: Memory) -> RecurrentState:
        assert isinstance(memory, RecurrentMemory)
        return cast(RecurrentDecoder, self.decoder[0]).start(memory)

    def step(self, tokens_R: Tensor, state: State) -> Tensor:
        assert isinstance(state, RecurrentState)
        x_RD = self.target_embedding(tokens_R)
        return self.output(cast(RecurrentDecoder, self.decoder[0]).step(x_RD, state))  # type: ignore[no-any-return]
