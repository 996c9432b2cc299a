"""Points inside a model at which activations can be recorded, and the tensors that an attention passes to its point."""

from typing import NamedTuple

from torch import Tensor, nn


class RecordingPoint(nn.Identity):
    """A module that returns its input, an activation; forward hooks record or replace it (`lens.capture`)."""


class AttentionTensors(NamedTuple):
    """The tensors of one attention as its heads used them, that is, after rotation if positions are rotary."""

    query_BHLK: Tensor
    key_BHMK: Tensor
    value_BHMK: Tensor
    weights_BHLM: Tensor
    scores_BHLM: Tensor | None = None
    """Attention scores in RNNs, where they are not dot products divided by sqrt(K); None in other models."""
