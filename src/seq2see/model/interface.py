"""What a model promises: training needs `encode`, `decode` and `output`; search needs `start` and `step`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from seq2see.model.attention import Packing


@dataclass(frozen=True)
class Memory:
    """What the encoder understood: one vector for each source token, packed."""

    states_ND: Tensor
    packing: Packing


class State(Protocol):
    """What a decoder keeps between steps, for B sentences with W hypotheses each: R = B x W rows."""

    def select(self, parents_BW: Tensor) -> None:
        """Hypothesis w of sentence b goes on from hypothesis parents_BW[b, w] of the same sentence."""

    def keep_sentences(self, sentences_B: Tensor) -> None:
        """Drop all sentences but these, with all that is kept of them."""


class Seq2Seq(nn.Module, ABC):
    """An encoder-decoder; no caller asks which."""

    output: nn.Linear
    """From the decoder's vectors to scores of the vocabulary: part of the loss in training, of `step` in search."""

    @abstractmethod
    def encode(self, source_N: Tensor, offsets: Tensor | Packing) -> Memory:
        """Read packed sources; `offsets` (B + 1, on the CPU) say where each begins."""

    @abstractmethod
    def decode(self, inputs_N: Tensor, offsets: Tensor | Packing, memory: Memory) -> Tensor:
        """Teacher forcing: ND, the vector at each position from which `output` makes the next token's scores."""

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """What must be kept before the first step."""

    @abstractmethod
    def step(self, tokens_R: Tensor, state: State) -> Tensor:
        """RV: scores of the next token after one more of each row's; `state` grows by it.

        R = B x W tokens, those of a sentence's W hypotheses side by side; every step has as many.
        """
