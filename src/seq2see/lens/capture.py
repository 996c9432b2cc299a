"""Listen to a model while it works.

    with capture(model) as seen:
        model.encode(...)
    seen["encoder.0.self_attention.weights"][-1]        # BHLM, the last time it passed by

Every `Point` in a model is a named place; while somebody listens there, attention is computed in its written-out form,
which is the only one that has weights to show.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from seq2see.model.attention import Point

Seen = dict[str, list[Tensor]]


@contextmanager
def capture(model: nn.Module) -> Iterator[Seen]:
    """Collect what passes each point, in order, detached and on the CPU."""
    seen: Seen = defaultdict(list)

    def listen(name: str, point: Point) -> None:
        handles.append(point.register_forward_hook(lambda _, __, tensor: seen[name].append(tensor.detach().cpu())))

    handles: list[object] = []
    try:
        for name, module in model.named_modules():
            if isinstance(module, Point):
                listen(name, module)
        yield seen
    finally:
        for handle in handles:
            handle.remove()  # type: ignore[attr-defined]
