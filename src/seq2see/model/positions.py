"""Positional encoding: the sinusoids of the paper (section 3.5), and rotary positions (Su et al., 2021)."""

from functools import lru_cache

import torch
from torch import Tensor


def sinusoid(
    length: int, d_model: int, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return LD: sin(p / 10000^(2i/d)) in the even columns, the cosine of the same angle in the odd ones (3.5).

    Computed in float64: at position 1,000 a float32 angle is already off by 3e-5.
    """
    place_L1 = torch.arange(length, dtype=torch.float64, device=device)[:, None]
    column_D2 = torch.arange(0, d_model, 2, dtype=torch.float64, device=device)
    angle_LD2 = place_L1 / 10_000 ** (column_D2 / d_model)
    return torch.stack([angle_LD2.sin(), angle_LD2.cos()], -1).flatten(1)[:, :d_model].to(dtype)


def rotate(x_BHLK: Tensor, first: int = 0) -> Tensor:
    """Rotate each pair of columns by an angle that grows with the position (Su et al., 2021).

    The dot product of a rotated query and a rotated key then depends only on the distance between their positions. A
    pair of columns is one complex number, and its rotation is one multiplication.
    """
    *_, L, K = x_BHLK.shape
    dtype = torch.promote_types(x_BHLK.dtype, torch.float32)
    turns_LK2 = _turns(1 << (first + L).bit_length(), K, x_BHLK.device, dtype)[first : first + L]
    return _turned(x_BHLK, turns_LK2)


def rotate_rows(x_NHK: Tensor, places_N: Tensor, longest: int) -> Tensor:
    """Rotate packed rows by their positions, which are all below `longest`."""
    dtype = torch.promote_types(x_NHK.dtype, torch.float32)
    turns_N1K2 = _turns(1 << longest.bit_length(), x_NHK.shape[-1], x_NHK.device, dtype)[places_N, None]
    return _turned(x_NHK, turns_N1K2)


def _turned(x: Tensor, turns: Tensor) -> Tensor:
    """Multiply each pair of the last columns by its complex number, in the precision of the latter."""
    pairs = torch.view_as_complex(x.to(turns.real.dtype).reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # a table made while decoding is used in training, too
def _turns(length: int, d_key: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the complex numbers of length 1 that `rotate` multiplies by, made once for each power of two."""
    waves_LK = sinusoid(length, d_key, device, dtype)
    return torch.complex(waves_LK[:, 1::2].contiguous(), waves_LK[:, 0::2].contiguous())
