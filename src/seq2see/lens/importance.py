"""What each output token owes to each input token."""

from dataclasses import dataclass

import torch
from torch import Tensor

from seq2see.bundle import Bundle
from seq2see.lens.reading import AT_ONCE, Answer, Floats, Reading, target_logs


@dataclass(frozen=True)
class Importance(Answer):
    """What each output token (row) owes to each input token (column), in nats of its log-probability.

    JSON: `{"source_tokens": [S], "target_tokens": [T], "gradient": [T][S], "left_out": [T][S]}`.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    gradient: Floats
    """Gradient x input: of the log-probability, times the token's embedding (without its position)."""
    left_out: Floats
    """How much the log-probability falls when the token is left out of the source. Negative: it rises."""


def importance(bundle: Bundle, reading: Reading) -> Importance:
    """What each input token did for each output token, by its gradient and by leaving it out."""
    return Importance(
        reading.source_tokens,
        reading.target_tokens,
        gradient_times_input(bundle, reading),
        leave_out(bundle, reading),
    )


def gradient_times_input(bundle: Bundle, reading: Reading) -> Floats:
    """TS: for output token t, the gradient of its log-probability along each input token's own embedding.

    The sentence is read T times side by side, one reading for each output token: one backward pass for many.
    """
    S, T = len(reading.source_ids), len(reading.target_ids)
    held: list[Tensor] = []

    def hold(_: object, __: object, x_ND: Tensor) -> Tensor:
        held.append(x_ND.detach().requires_grad_())
        return held[-1]

    rows = []
    for places in _chunks(range(T), S + T):
        held.clear()
        handle = bundle.model.source_embedding.without_positions.register_forward_hook(hold)
        try:
            logs_N = target_logs(bundle, [reading.source_ids] * len(places), [reading.target_ids] * len(places))
        finally:
            handle.remove()
        total = logs_N.view(len(places), T)[range(len(places)), list(places)].sum()
        (slope,) = torch.autograd.grad(total, held[0])
        rows.append((slope * held[0].detach()).sum(-1).view(len(places), S))
    return torch.cat(rows).float().cpu().numpy()


@torch.inference_mode()
def leave_out(bundle: Bundle, reading: Reading) -> Floats:
    """TS: how far the log-probability of output token t falls without input token s. The end is never left out: 0."""
    S, T = len(reading.source_ids), len(reading.target_ids)
    full_T = target_logs(bundle, [reading.source_ids], [reading.target_ids])
    columns = [torch.zeros_like(full_T)]
    for places in _chunks(range(S - 1), S + T):
        shorter = [[*reading.source_ids[:place], *reading.source_ids[place + 1 :]] for place in places]
        columns[-1:-1] = full_T - target_logs(bundle, shorter, [reading.target_ids] * len(places)).view(-1, T)
    return torch.stack(columns, -1).float().cpu().numpy()


def _chunks(places: range, tokens: int) -> list[range]:
    """Places in groups that make passes of about `AT_ONCE` tokens."""
    size = max(1, AT_ONCE // tokens)
    return [places[first : first + size] for first in range(0, len(places), size)]
