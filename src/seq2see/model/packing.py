"""Packed sequences: how rows without padding fall into sentences, and which rows may see which.

Sequences travel end to end, without padding; `Packing` says where each begins, and lays rows out as a rectangle for
those operations that need one. `Reach` says what attention may see: a mask over a rectangle, or two packings.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """How packed rows fall into sequences: sequence b owns rows offsets[b] up to offsets[b + 1].

    Three sentences of 2, 1 and 3 tokens have offsets [0, 2, 3, 6]; `pad` lays their six rows out as 3 x 3.
    """

    offsets: Tensor
    """B + 1 row numbers, on the CPU: their values become shapes."""
    device: torch.device

    @staticmethod
    def of(offsets: "Tensor | Packing", rows: Tensor) -> "Packing":
        """Return the packing of rows from their offsets, or the packing itself where that is given."""
        return offsets if isinstance(offsets, Packing) else Packing(offsets, rows.device)

    @staticmethod
    def fixed(offsets: Tensor, places_N: Tensor, longest: int) -> "Packing":
        """One of fixed shapes, for a step that is recorded once: its numbers stay on the card and may change there.

        Only kernels that need no padding can use it: its offsets are on the card, and `longest` is as long as a
        sequence may become.
        """
        packing = Packing(offsets, places_N.device)
        vars(packing).update(offsets_on_device=offsets, places_N=places_N, longest=longest)
        return packing

    @cached_property
    def offsets_on_device(self) -> Tensor:
        return self.offsets.to(self.device, torch.int32, non_blocking=True)

    @cached_property
    def lengths(self) -> Tensor:
        return self.offsets.diff()

    @cached_property
    def count(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def longest(self) -> int:
        return int(self.lengths.max()) if self.count else 0

    @cached_property
    def even(self) -> bool:
        """All of one length: the packed rows already are the rectangle."""
        return self.count * self.longest == int(self.offsets[-1])

    @cached_property
    def places_N(self) -> Tensor:
        """Each row's position in its own sequence."""
        offsets, lengths = self.offsets.numpy(), self.lengths.numpy()
        places_N = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return torch.from_numpy(places_N).to(self.device, non_blocking=True)

    @cached_property
    def slots_N(self) -> Tensor:
        """Each row's place in the rectangle, counted along its rows."""
        firsts_N = np.repeat(np.arange(self.count) * self.longest, self.lengths.numpy())
        return torch.from_numpy(firsts_N).to(self.device, non_blocking=True) + self.places_N

    @cached_property
    def keep_BL(self) -> Tensor | None:
        """The padding mask of the rectangle; None where there is no padding."""
        if self.even:
            return None
        return (torch.arange(self.longest) < self.lengths[:, None]).to(self.device, non_blocking=True)

    @cached_property
    def rows_S(self) -> Tensor:
        """The row for each place of the rectangle; in the padding any row will do."""
        places_BL = self.offsets[:-1, None] + torch.arange(self.longest)
        return places_BL.clamp_(max=int(self.offsets[-1]) - 1).flatten().to(self.device, non_blocking=True)

    def pad(self, x_ND: Tensor) -> Tensor:
        """N rows -> B x L rows. The padding holds what other rows do: nobody may look at it."""
        rectangle = x_ND if self.even else _Pad.apply(x_ND, self.rows_S, self.slots_N)  # type: ignore[no-untyped-call]
        return rectangle.view(self.count, self.longest, x_ND.shape[-1])

    def pack(self, x_BLD: Tensor) -> Tensor:
        """B x L rows -> N rows, the padding left out."""
        rows = x_BLD.reshape(-1, x_BLD.shape[-1])
        return rows if self.even else _Pick.apply(rows, self.slots_N)  # type: ignore[no-untyped-call]


class _Pad(torch.autograd.Function):
    """Rows to their slots; one pass, as zeros in the padding would take two. The gradient picks them again."""

    @staticmethod
    def forward(ctx, x_ND: Tensor, rows_S: Tensor, slots_N: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(slots_N)
        return x_ND.index_select(0, rows_S)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        (slots_N,) = ctx.saved_tensors
        return grad.index_select(0, slots_N), None, None


class _Pick(torch.autograd.Function):
    """index_select for rows that are picked once each: its gradient is a copy, several times faster than adding up."""

    @staticmethod
    def forward(ctx, rows: Tensor, slots_N: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(slots_N)
        ctx.count = len(rows)
        return rows.index_select(0, slots_N)

    @staticmethod
    def backward(ctx, grad_ND: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        (slots_N,) = ctx.saved_tensors
        return grad_ND.new_zeros(ctx.count, grad_ND.shape[-1]).index_copy_(0, slots_N, grad_ND), None


@dataclass(frozen=True)
class Reach:
    """Who may look at whom: a mask over rectangles, or the packings of queries and keys."""

    keep: Tensor | None = None
    """True: may be seen. Broadcasts to BHLM."""
    causal: bool = False
    """Position t sees up to t. For packed sequences this needs no mask: padding comes after every real position."""
    query: Packing | None = None
    key: Packing | None = None

    @staticmethod
    def packed(query: Packing, key: Packing, causal: bool = False) -> "Reach":
        return Reach(None, causal, query, key)

    @cached_property
    def mask(self) -> Tensor | None:
        """`keep`, or the padding of the keys' rectangle. A triangle needs none: what is padded comes last."""
        if self.key is None or self.causal or self.key.keep_BL is None:
            return self.keep
        return self.key.keep_BL[:, None, None, :]


EVERYWHERE = Reach()
