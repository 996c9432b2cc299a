"""Names of the weights of Transformer layers in other programs, and their order of columns.

The sinusoids of Marian have all sines first and then all cosines; ours alternate. A Marian model becomes one of ours by
reordering the axis of d_model in every weight, which changes no bit of any number.
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
"""Function that returns a weight of the foreign file as an array, given its name there and the shape it must have."""


class Name(NamedTuple):
    """Our name of a linear layer or layer norm, and its names in other programs, which may split it into parts."""

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
    """Return, for each of our weights of layers, the names of its parts in Hugging Face's Marian format."""
    return {
        f"{side}.{number}.{name.ours}.{kind}": tuple(
            f"model.{side}.layers.{number}.{part}.{kind}" for part in name.huggingface
        )
        for side, number, name, kind in _rows(model)
    }


def marian(model: Model) -> dict[str, tuple[str, ...]]:
    """Return, for each of our weights of layers, the names of its parts in Marian's own files."""

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
    """Return our weights of the layers, joined from the parts that another program stores.

    Args:
        names: For each of our weights, the names of its parts in the other program.
        own: The shape of each of our weights.
        order: For each of our d_model columns, the index of the same column in the other program.
    """
    import numpy as np

    found = {}
    for ours, parts in names.items():
        rows, *rest = own[ours]
        arrays = [read(part, (rows // len(parts), *rest)) for part in parts]
        found[ours] = reordered(ours, np.concatenate(arrays), order)
    return found


def parted(names: Mapping[str, tuple[str, ...]], weights: "Weights", order: "Order") -> "Weights":
    """Return the weights of the layers split and named as in another program: the inverse of `gathered`."""
    import numpy as np

    back = np.argsort(order)
    found: Weights = {}
    for ours, parts in names.items():
        arrays = np.split(reordered(ours, weights[ours], back), len(parts))
        found |= dict(zip(parts, arrays, strict=True))
    return found


def reordered(name: str, weight: Any, order: "Order") -> Any:
    """Reorder the axis of one of our weights that stands for d_model; the bias of w_qkv and of w_1 has none."""
    layer, kind = name.rsplit(".", 1)
    if layer.endswith((".w_o", ".w_2", ".norm")):
        return weight[order]
    return weight if kind == "bias" else weight[:, order]


def halves(d_model: int) -> "Order":
    """Return for each column of alternating sinusoids its index among sinusoids in halves (sines, then cosines)."""
    import numpy as np

    return np.arange(d_model).reshape(2, -1).T.reshape(-1)


def refuse(where: object, feature: str) -> RunError:
    """Return the error about a feature of another program that our models do not support."""
    return RunError(f"{where}: {feature}, which seq2see does not support. Choose another model")
