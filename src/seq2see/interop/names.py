"""Names of weights in other programs: one table for each layer of a Transformer, and the order of its columns.

The sinusoids of Marian have all sines first and then all cosines; ours alternate. A model of Marian becomes one of ours
if the columns of width d_model are reordered in every weight, which changes no bit of any number.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2see.config import Model
from seq2see.errors import RunError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]
    Order = NDArray[np.int64]

Shapes = Mapping[str, tuple[int, ...]]
Read = Callable[[str, tuple[int, ...]], Any]
"""Returns a weight of a file as an array, by its name and the shape that it must have."""


class Name(NamedTuple):
    """A layer's weight and bias: our name, and those of other programs, which may keep them in several parts."""

    ours: str
    huggingface: tuple[str, ...]
    marian: tuple[str, ...]


def _attention(ours: str, around: str, theirs: str, short: str) -> list[Name]:
    parts = tuple(f"{theirs}.{part}_proj" for part in "qkv")
    return [
        Name(f"{ours}.w_qkv", parts, tuple(f"{short}_W{part}" for part in "qkv")),
        Name(f"{ours}.w_o", (f"{theirs}.out_proj",), (f"{short}_Wo",)),
        Name(f"{around}.norm", (f"{theirs}_layer_norm",), (f"{short}_Wo_ln",)),
    ]


FEED_FORWARD = [
    Name("feed_forward.w_1", ("fc1",), ("ffn_W1",)),
    Name("feed_forward.w_2", ("fc2",), ("ffn_W2",)),
    Name("around_feed_forward.norm", ("final_layer_norm",), ("ffn_ffn_ln",)),
]
LAYERS = {
    "encoder": [*_attention("self_attention", "around_attention", "self_attn", "self"), *FEED_FORWARD],
    "decoder": [
        *_attention("self_attention", "around_self", "self_attn", "self"),
        *_attention("cross_attention", "around_cross", "encoder_attn", "context"),
        *FEED_FORWARD,
    ],
}


def _rows(model: Model) -> Iterator[tuple[str, int, Name, str]]:
    for side, layers in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        for number in range(layers):
            for name in LAYERS[side]:
                for kind in ("weight", "bias"):
                    yield side, number, name, kind


def huggingface(model: Model) -> dict[str, tuple[str, ...]]:
    """Return the names that Hugging Face's Marian gives to the parts of each of our layers' weights."""
    return {
        f"{side}.{number}.{name.ours}.{kind}": tuple(
            f"model.{side}.layers.{number}.{part}.{kind}" for part in name.huggingface
        )
        for side, number, name, kind in _rows(model)
    }


def marian(model: Model) -> dict[str, tuple[str, ...]]:
    """Return the names that Marian's own files give to the parts of each of our layers' weights."""

    def spelled(part: str, kind: str) -> str:
        if part.endswith("_ln"):
            return f"{part}_{'scale' if kind == 'weight' else 'bias'}"
        return part if kind == "weight" else part.replace("_W", "_b")

    return {
        f"{side}.{number}.{name.ours}.{kind}": tuple(
            f"{side}_l{number + 1}_{spelled(part, kind)}" for part in name.marian
        )
        for side, number, name, kind in _rows(model)
    }


def gathered(names: Mapping[str, tuple[str, ...]], own: Shapes, read: Read, order: "Order") -> "Weights":
    """Read the layers' weights of another program, part by part, as ours.

    Args:
        own: The shape of each of our weights.
        order: Which of their columns of width d_model becomes each of ours.
    """
    import numpy as np

    found = {}
    for ours, parts in names.items():
        rows, *rest = own[ours]
        arrays = [read(part, (rows // len(parts), *rest)) for part in parts]
        found[ours] = reordered(ours, np.concatenate(arrays), order)
    return found


def parted(names: Mapping[str, tuple[str, ...]], weights: "Weights", order: "Order") -> "Weights":
    """Return the layers' weights as another program names them: the inverse of `gathered`."""
    import numpy as np

    back = np.argsort(order)
    found: Weights = {}
    for ours, parts in names.items():
        arrays = np.split(reordered(ours, weights[ours], back), len(parts))
        found |= dict(zip(parts, arrays, strict=True))
    return found


def reordered(name: str, weight: Any, order: "Order") -> Any:
    """Reorder the axis of one of our weights that has the width d_model."""
    layer, kind = name.rsplit(".", 1)
    if layer.endswith((".w_o", ".w_2", ".norm")):
        return weight[order]
    return weight if kind == "bias" else weight[:, order]


def halves(d_model: int) -> "Order":
    """Return which column of sinusoids in two halves is each column of alternating ones."""
    import numpy as np

    return np.arange(d_model).reshape(2, -1).T.reshape(-1)


def refuse(where: object, feature: str) -> RunError:
    """Return the error about a feature of another program that our models do not have."""
    return RunError(f"{where}: {feature}, which seq2see does not support. Choose another model")
