"""Guided alignment: one cross-attention head learns which source token each target token translates.

Garg et al., "Jointly learning to align and translate" (2019), with one difference: the head learns the link of a token
at the position where the token is the decoder's *input*, not where it is predicted, since the source of a token is
easier to find once the token is known (Chen et al., "Accurate word alignment induction from neural machine
translation", 2020). The links come from an aligner (`tokens.aligner`). All other attention is computed by fused
kernels: only the weights of this head are computed a second time, for the loss.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from seq2see import special
from seq2see.model.attention import MultiHeadAttention
from seq2see.model.interface import Seq2Seq
from seq2see.model.packing import Reach
from seq2see.model.transformer import DecoderLayer, Transformer


@dataclass
class Observed:
    """The inputs, in one forward pass, of the cross-attention whose head number `head` learns to align."""

    attention: MultiHeadAttention
    head: int
    inputs: list[tuple[Tensor, Tensor, Reach]] = field(default_factory=list)
    """Arguments of each call of the attention: queries, memory, and what may be attended to (`Reach`)."""

    def loss(self, links_N: Tensor) -> Tensor:
        """Return the cross entropy of the head's attention weights and the links, summed over all rows with a link.

        Args:
            links_N: For each row of the queries, the position in the source of the token that it translates; -1 for no
                link.
        """
        ((query_ND, memory_MD, reach),) = self.inputs
        queries, keys, attention = reach.query, reach.key, self.attention
        assert queries is not None
        assert keys is not None
        K, width = attention.d_key, attention.widths[0]
        own = slice(self.head * K, (self.head + 1) * K)
        # All heads are projected: on a CPU, the rounding of one alone depends on the number of threads.
        query_NK = attention.w_qkv(query_ND, attention.query_rows)[:, own]
        key_MK = attention.w_qkv(memory_MD, slice(width, 2 * width))[:, own]
        scores_BLM = (queries.pad(query_NK) @ keys.pad(key_MK).mT).float() / math.sqrt(K)
        if keys.keep_BL is not None:
            hidden = torch.finfo(scores_BLM.dtype).min
            scores_BLM = scores_BLM.masked_fill(~keys.keep_BL[:, None, :], hidden)
        linked_BLM = queries.pad(links_N[:, None]) == torch.arange(scores_BLM.shape[-1], device=links_N.device)
        if queries.keep_BL is not None:
            linked_BLM = linked_BLM & queries.keep_BL[:, :, None]
        return -scores_BLM.log_softmax(-1).masked_fill(~linked_BLM, 0.0).sum()


@contextlib.contextmanager
def observed(model: Seq2Seq) -> Iterator[Observed]:
    """Yield an `Observed`; while the context lasts, it gets the inputs of the attention whose head learns to align.

    The model must be a Transformer; `special.alignment_head` says which head it is.
    """
    assert isinstance(model, Transformer)
    layer, head = special.alignment_head(len(model.decoder))
    seen = Observed(cast(DecoderLayer, model.decoder[layer]).cross_attention, head)

    def note(_: object, inputs: tuple[Tensor, Tensor, Reach]) -> None:
        seen.inputs.append(inputs)

    handle = seen.attention.register_forward_pre_hook(note)
    try:
        yield seen
    finally:
        handle.remove()
