"""Packed sequences: rows of several sequences end to end, without padding, and which rows may attend to which.

`Packing` says where each sequence begins, and lays rows out as a padded rectangle for operations that need one.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Division of packed rows into sequences: sequence b has the rows from offsets[b] to offsets[b + 1] (exclusive).

    Three sentences of 2, 1 and 3 tokens have offsets [0, 2, 3, 6]; `pad` lays their six rows out as 3 x 3.
    """

    offsets: Tensor
    """B + 1 row numbers: the first row of each sequence, and the number of all rows. They are on the CPU, because
    tensor shapes are computed from them; only those of a `FixedPacking` are on the GPU.
    """
    device: torch.device

    @staticmethod
    def of(offsets: "Tensor | Packing", rows: Tensor) -> "Packing":
        """Return the packing of `rows` by `offsets`; if these are a packing already, it is returned unchanged."""
        return offsets if isinstance(offsets, Packing) else Packing(offsets, rows.device)

    @staticmethod
    def fixed(offsets: Tensor, places_N: Tensor, longest: int) -> "Packing":
        """Return a packing with constant shapes for a CUDA graph: its offsets are on the GPU and may change there.

        Args:
            places_N: Position of each row in its sequence.
            longest: Maximum number of rows of a sequence. Unused sequences, at the end, are empty.
        """
        packing = FixedPacking(offsets, places_N.device)
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
        """Return whether all sequences have the same length, so that no padding is needed."""
        return self.count * self.longest == int(self.offsets[-1])

    @cached_property
    def places_N(self) -> Tensor:
        """Return the position of each row in its sequence."""
        offsets, lengths = self.offsets.numpy(), self.lengths.numpy()
        places_N = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return torch.from_numpy(places_N).to(self.device, non_blocking=True)

    @cached_property
    def slots_N(self) -> Tensor:
        """Return the index of each packed row in the padded tensor, flattened to B x L rows."""
        firsts_N = np.repeat(np.arange(self.count) * self.longest, self.lengths.numpy())
        return torch.from_numpy(firsts_N).to(self.device, non_blocking=True) + self.places_N

    @cached_property
    def keep_BL(self) -> Tensor | None:
        """Return the padding mask of the padded tensor, true where a row is not padding; None if there is no
        padding.
        """
        if self.even:
            return None
        return (torch.arange(self.longest) < self.lengths[:, None]).to(self.device, non_blocking=True)

    @cached_property
    def rows_of_slots(self) -> Tensor:
        """Return, for each of the B x L padded rows, the index of its packed row; for padding, of an arbitrary row."""
        places_BL = self.offsets[:-1, None] + torch.arange(self.longest)
        return places_BL.clamp_(max=int(self.offsets[-1]) - 1).flatten().to(self.device, non_blocking=True)

    def pad(self, x_ND: Tensor) -> Tensor:
        """Return N packed rows as a padded tensor BLD. The padding holds copies of other rows and must be masked."""
        rectangle = x_ND if self.even else _Pad.apply(x_ND, self.rows_of_slots, self.slots_N)  # type: ignore[no-untyped-call]
        return rectangle.view(self.count, self.longest, x_ND.shape[-1])

    def pack(self, x_BLD: Tensor) -> Tensor:
        """Return the rows of a padded tensor as N packed rows, without the padding."""
        rows = x_BLD.reshape(-1, x_BLD.shape[-1])
        return rows if self.even else _Pick.apply(rows, self.slots_N)  # type: ignore[no-untyped-call]


class FixedPacking(Packing):
    """A packing with offsets on the GPU: shapes depend only on the numbers of rows and sequences, and `longest`."""

    @property
    def even(self) -> bool:
        return False

    @cached_property
    def slots_N(self) -> Tensor:
        rows_N = torch.arange(len(self.places_N), device=self.device)
        sequence_N = torch.searchsorted(self.offsets, rows_N.to(self.offsets.dtype), right=True) - 1
        return sequence_N * self.longest + self.places_N

    @cached_property
    def keep_BL(self) -> Tensor:
        return torch.arange(self.longest, device=self.device) < self.lengths[:, None]

    @cached_property
    def rows_of_slots(self) -> Tensor:
        places_BL = self.offsets[:-1, None] + torch.arange(self.longest, device=self.device)
        return places_BL.clamp_(max=len(self.places_N) - 1).flatten()


class _Pad(torch.autograd.Function):
    """Copy packed rows to a padded tensor; padding gets copies of rows, since zeros would need one more operation."""

    @staticmethod
    def forward(ctx, x_ND: Tensor, rows_of_slots: Tensor, slots_N: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(slots_N)
        return x_ND.index_select(0, rows_of_slots)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        (slots_N,) = ctx.saved_tensors
        return grad.index_select(0, slots_N), None, None


class _Pick(torch.autograd.Function):
    """Select rows, each at most once, like index_select, but with a gradient that is a copy and so several times
    faster.
    """

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
    """Which queries may attend to which keys: a mask over padded tensors, or the packings of queries and keys."""

    keep: Tensor | None = None
    """Boolean mask that broadcasts to BHLM; true where a key may be attended to."""
    causal: bool = False
    """Whether position t attends only to positions up to t. No padding mask is needed then: padding is at the end."""
    query: Packing | None = None
    key: Packing | None = None

    @staticmethod
    def packed(query: Packing, key: Packing, causal: bool = False) -> "Reach":
        return Reach(None, causal, query, key)

    @cached_property
    def mask(self) -> Tensor | None:
        """Return the padding mask B11M of packed keys if attention is not causal and there is padding; else `keep`."""
        if self.key is None or self.causal or self.key.keep_BL is None:
            return self.keep
        return self.key.keep_BL[:, None, None, :]


EVERYWHERE = Reach()
