"""The interface of all models: training needs `encode`, `decode`, `output`; search needs `encode`, `start`, `step`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from seq2see.model.layers import Embedding
from seq2see.model.packing import Packing
from seq2see.model.state import FixedState, State


@dataclass(frozen=True)
class Memory:
    """The output of an encoder: one vector for each source token, as packed rows."""

    states_ND: Tensor
    packing: Packing


class Seq2Seq(nn.Module, ABC):
    """An encoder-decoder. Called with padded token ids it returns the logits of each next token, BTV; training and
    decoding use the packed `encode`, `decode`, `start` and `step`.
    """

    source_embedding: Embedding
    target_embedding: Embedding
    output: nn.Linear
    """Output layer, which computes logits over the vocabulary from the decoder's output, in the loss and in `step`."""
    decoder_norm: nn.Module
    """Module between the last decoder layer and `output`: layer norm in a pre-norm Transformer, a linear layer in a
    convolutional model, otherwise the identity.
    """

    def forward(self, source_BS: Tensor, inputs_BT: Tensor, padding: int = 0) -> Tensor:
        """Return logits BTV for padded source ids and decoder inputs; logits are 0 where `inputs_BT` is padding."""
        source_N, source_offsets = _pack_tokens(source_BS, padding)
        inputs_N, offsets = _pack_tokens(inputs_BT, padding)
        hidden_ND = self.decode(inputs_N, offsets, self.encode(source_N, source_offsets))
        logits_NV: Tensor = self.output(hidden_ND)
        logits_BTV = logits_NV.new_zeros(*inputs_BT.shape, logits_NV.shape[-1])
        return logits_BTV.masked_scatter((inputs_BT != padding)[:, :, None], logits_NV)

    @abstractmethod
    def encode(self, source_N: Tensor, offsets: Tensor | Packing) -> Memory:
        """Encode packed sources; sequence b begins at row `offsets[b]` (B + 1 numbers, on the CPU, or a `Packing`)."""

    @abstractmethod
    def decode(self, inputs_N: Tensor, offsets: Tensor | Packing, memory: Memory) -> Tensor:
        """Decode known targets (teacher forcing); return hidden states ND, from which `output` computes the logits of
        each next token.
        """

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """Return the decoder state before the first step."""

    @abstractmethod
    def step(self, tokens_R: Tensor, state: State) -> Tensor:
        """Append one token to each row of `state`, and return the logits RV of the next token.

        There are R = B x W tokens, with the W hypotheses of a sentence next to each other, at every step.
        """

    def has_step_kernels(self) -> bool:
        """Return whether `step` uses Triton kernels on the device of this model, so that capturing it in a CUDA graph
        is worth while.
        """
        return False

    def fixed_state(self, step_B: Tensor, width: int, source_room: int, target_room: int) -> FixedState | None:
        """Return a state for `step` with constant shapes, which a CUDA graph needs; None if this model has no such
        state.

        Args:
            step_B: number of steps that each of B sentences has made, updated by the search.
            width: number of hypotheses of each sentence.
            source_room, target_room: maximum number of tokens of a source, and of a hypothesis.
        """
        return None


def _pack_tokens(tokens_BL: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    keep_BL = tokens_BL != padding
    offsets = nn.functional.pad(keep_BL.sum(1).cumsum(0), (1, 0)).cpu()
    return tokens_BL[keep_BL], offsets
