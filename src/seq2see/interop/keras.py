"""Convert weights of the Keras tutorial "Transformer chatbot", from `model.get_weights()`, without TensorFlow."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from seq2see import bundle, config
from seq2see.errors import DataError, SettingError
from seq2see.model.transformer import Transformer

PER_LAYER = 16 + 26
"""Number of weight arrays of one encoder layer (16) and one decoder layer (26) together."""


class _Slot(NamedTuple):
    """One array of `get_weights()`: its name in the tutorial, its axes, and the name of our weight that it becomes.

    Axes: S and T vocabularies, D d_model, H all heads concatenated, F dff. Arrays of slots with the same `name` are
    concatenated.
    """

    what: str
    axes: str
    name: str


def from_keras(
    weights: Sequence[Any],
    heads: int = 4,
    dropout: float = 0.3,
    positions: Literal["alternating", "halves"] = "alternating",
) -> Transformer:
    """Return a Transformer, in evaluation mode, with the weights of the tutorial's `transformer(...)`.

    The number of layers, the widths and the vocabulary are read from the shapes of the arrays.

    Args:
        weights: the list of numpy arrays that `model.get_weights()` returns.
        heads: the tutorial's `num_heads`, which cannot be read from the shapes.
        dropout: used if the model is trained further; it has no effect otherwise.
        positions: how the tutorial's `PositionalEncoding` orders its columns. "alternating": a sine, a cosine, a sine,
            ... as in the paper. "halves": all sines, then all cosines (`tf.concat([sines, cosines], -1)`).
    """
    arrays = [np.asarray(each) for each in weights]
    layers, rest = divmod(len(arrays) - 4, PER_LAYER)
    if layers < 1 or rest:
        raise DataError(
            f"{len(arrays)} arrays: expected 4 + {PER_LAYER} x num_layers, which is {4 + 4 * PER_LAYER} for 4 layers. "
            "Use get_weights() of the whole transformer, not of its encoder or of a model with further layers"
        )
    slots = list(_slots(layers))
    sizes = _sizes(arrays, slots)
    _check(arrays, slots, sizes)
    D, F = sizes["D"], sizes["F"]
    if heads < 1 or D % heads:
        raise SettingError(f"heads = {heads}: d_model of the weights is {D}, which is not divisible by heads")
    if positions not in ("alternating", "halves"):
        raise SettingError(f"positions = {positions!r}: unknown. Choose from: alternating, halves")
    kept = config.resolve(config.preset("tutorial-small")).model
    model = Transformer(
        sizes["S"],
        sizes["T"],
        encoder_layers=layers,
        decoder_layers=layers,
        tie="none",
        output_bias=True,
        d_model=D,
        heads=heads,
        d_ff=F,
        dropout=dropout,
        norm_epsilon=kept.norm_epsilon,
    )
    order = np.arange(D) if positions == "alternating" else np.append(np.arange(0, D, 2), np.arange(1, D, 2)).argsort()
    parts: dict[str, list[np.ndarray]] = {}
    for array, (_, axes, name) in zip(arrays, slots, strict=True):
        for axis, letter in enumerate(axes):
            if letter == "D":
                array = array.take(order, axis)
        is_kernel = len(axes) == 2 and "embedding" not in name  # Keras has inputs x outputs, PyTorch outputs x inputs
        parts.setdefault(name, []).append(array.T if is_kernel else array)
    stacked = {name: torch.from_numpy(np.concatenate(each).astype(np.float32)) for name, each in parts.items()}
    bundle.load_weights(model, stacked)
    return model.eval()


def _slots(layers: int) -> Iterator[_Slot]:
    """Yield the arrays in the order of Keras: sub-models in the order of the data flow, layers as they were created."""
    attentions = {
        "encoder": {"attention": ("self_attention", "around_attention")},
        "decoder": {
            "attention_1": ("self_attention", "around_self"),
            "attention_2": ("cross_attention", "around_cross"),
        },
    }
    for side, embedding, vocabulary in (("encoder", "source", "S"), ("decoder", "target", "T")):
        yield _Slot(f"{side}: embedding", f"{vocabulary}D", f"{embedding}_embedding.tokens.weight")
        for number in range(layers):
            at, ours = f"{side}_layer_{number}", f"{side}.{number}"
            for theirs, (attention, around) in attentions[side].items():
                for dense in ("query_dense", "key_dense", "value_dense"):
                    yield from _linear(f"{at}: {theirs}.{dense}", "DH", f"{ours}.{attention}.w_qkv")
                yield from _linear(f"{at}: {theirs}.dense", "HD", f"{ours}.{attention}.w_o")
                yield from _norm(f"{at}: layer normalization after {theirs}", f"{ours}.{around}.norm")
            yield from _linear(f"{at}: first feed-forward layer", "DF", f"{ours}.feed_forward.w_1")
            yield from _linear(f"{at}: second feed-forward layer", "FD", f"{ours}.feed_forward.w_2")
            yield from _norm(f"{at}: last layer normalization", f"{ours}.around_feed_forward.norm")
    yield from _linear("outputs", "DT", "output")


def _linear(what: str, axes: str, name: str) -> Iterator[_Slot]:
    yield _Slot(f"{what}, kernel", axes, f"{name}.weight")
    yield _Slot(f"{what}, bias", axes[1], f"{name}.bias")


def _norm(what: str, name: str) -> Iterator[_Slot]:
    yield _Slot(f"{what}, gamma", "D", f"{name}.weight")
    yield _Slot(f"{what}, beta", "D", f"{name}.bias")


def _sizes(arrays: list[np.ndarray], slots: list[_Slot]) -> dict[str, int]:
    """Return the size of each axis (see `_Slot`), read from the embeddings and the first feed-forward layer."""
    sizes: dict[str, int] = {}
    for axes in ("SD", "TD", "DF"):
        place = next(number for number, slot in enumerate(slots) if slot.axes == axes)
        if arrays[place].ndim == 2:
            sizes = dict(zip(axes, arrays[place].shape, strict=True)) | sizes
    return sizes | {"H": sizes.get("D", 0)}


def _check(arrays: list[np.ndarray], slots: list[_Slot], sizes: dict[str, int]) -> None:
    """Raise an error if an array has the wrong shape for its position, or numbers that are not finite."""
    for place, (array, slot) in enumerate(zip(arrays, slots, strict=True)):
        expected = tuple(sizes.get(letter, 0) for letter in slot.axes)
        if array.shape != expected:
            raise DataError(
                f"weights[{place}] has shape {array.shape}, expected {expected} ({slot.what}). Is the model built by "
                "the tutorial's transformer(), and the list in the order of get_weights()?"
            )
        if array.dtype.kind != "f":
            raise DataError(f"weights[{place}] ({slot.what}) is {array.dtype}, expected floating-point numbers")
        if not np.isfinite(array).all():
            raise DataError(
                f"weights[{place}] ({slot.what}) has values that are not finite (NaN or infinity). "
                "Did the training diverge?"
            )
