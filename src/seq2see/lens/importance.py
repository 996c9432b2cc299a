"""What each output token owes to each input token."""

from dataclasses import dataclass

import torch
from torch import Tensor

from seq2see.bundle import Bundle
from seq2see.lens.reading import AT_ONCE, Answer, Floats, Reading, Watch, target_logs, unwatched


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


def importance(bundle: Bundle, reading: Reading, watch: Watch = unwatched) -> Importance:
    """What each input token did for each output token, by its gradient and by leaving it out."""
    return Importance(
        reading.source_tokens,
        reading.target_tokens,
        gradient_times_input(bundle, reading, watch),
        leave_out(bundle, reading, watch),
    )


def gradient_times_input(bundle: Bundle, reading: Reading, watch: Watch = unwatched) -> Floats:
    """TS: for output token t, the gradient of its log-probability along each input token's own embedding.

    The sentence is read once; what is repeated is the way back, once for each output token.
    """
    held: list[Tensor] = []

    def hold(_: object, __: object, x_SD: Tensor) -> Tensor:
        held.append(x_SD.detach().requires_grad_())
        return held[-1]

    handle = bundle.model.source_embedding.without_positions.register_forward_hook(hold)
    try:
        logs_T = target_logs(bundle, [reading.source_ids], [reading.target_ids])
    finally:
        handle.remove()
    (x_SD,), rows = held, []
    for number, log in enumerate(logs_T, start=1):
        (slope_SD,) = torch.autograd.grad(log, x_SD, retain_graph=number < len(logs_T))
        rows.append((slope_SD * x_SD.detach()).sum(-1))
        watch("gradients of output tokens", number, len(logs_T))
    return torch.stack(rows).float().cpu().numpy()


@torch.inference_mode()
def leave_out(bundle: Bundle, reading: Reading, watch: Watch = unwatched) -> Floats:
    """TS: how far the log-probability of output token t falls without input token s. The end is never left out: 0.

    As many of these readings as make a pass of `AT_ONCE` tokens stand side by side.
    """
    S, T = len(reading.source_ids), len(reading.target_ids)
    full_T = target_logs(bundle, [reading.source_ids], [reading.target_ids])
    columns = [torch.zeros_like(full_T)]
    size = max(1, AT_ONCE // (S + T))
    for first in range(0, S - 1, size):
        places = range(first, min(first + size, S - 1))
        shorter = [[*reading.source_ids[:place], *reading.source_ids[place + 1 :]] for place in places]
        columns[-1:-1] = full_T - target_logs(bundle, shorter, [reading.target_ids] * len(places)).view(-1, T)
        watch("leaving out input tokens", places.stop, S - 1)
    return torch.stack(columns, -1).float().cpu().numpy()
