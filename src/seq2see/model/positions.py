"""How a token knows its place: the paper's waves (section 3.5), and the rotation of later work."""

import torch
from torch import Tensor


def sinusoid(length: int, d_model: int, first: int = 0, device: torch.device | None = None) -> Tensor:
    """LD: sin(p / 10000^(2i/d)) in the even columns, the cosine of the same angle in the odd ones.

    Computed in float64: at position 1,000 a float32 angle is already off by 3e-5.
    """
    place_L1 = torch.arange(first, first + length, dtype=torch.float64, device=device)[:, None]
    column_D2 = torch.arange(0, d_model, 2, dtype=torch.float64, device=device)
    angle_LD2 = place_L1 / 10_000 ** (column_D2 / d_model)
    return torch.stack([angle_LD2.sin(), angle_LD2.cos()], -1).flatten(1).float()


def rotate(x_BHLK: Tensor, first: int = 0) -> Tensor:
    """Turn each pair of columns by an angle that grows with the position (Su et al., 2021).

    The dot product of a turned query and a turned key then depends on the distance between their places alone.
    """
    *_, L, K = x_BHLK.shape
    waves_LK = sinusoid(L, K, first, x_BHLK.device).to(x_BHLK.dtype)
    sine_LK, cosine_LK = waves_LK[:, 0::2], waves_LK[:, 1::2]
    even, odd = x_BHLK[..., 0::2], x_BHLK[..., 1::2]
    return torch.stack([even * cosine_LK - odd * sine_LK, even * sine_LK + odd * cosine_LK], -1).flatten(-2)
