"""Points inside a model at which activations can be recorded, and the tensors that an attention passes to its point."""

from typing import NamedTuple

from torch import Tensor, nn


class RecordingPoint(nn.Identity):
    """A named point through which an activation passes unchanged; `lens.capture` records it with a forward hook."""


class AttentionTensors(NamedTuple):
    """The tensors of one attention as its heads used them, that is, after rotation if positions are rotary."""

    query_BHLK: Tensor
    key_BHMK: Tensor
    value_BHMK: Tensor
    weights_BHLM: Tensor
    scores_BHLM: Tensor | None = None
    """Attention scores, if they are not scaled dot products (additive attention of an RNN); else None."""
