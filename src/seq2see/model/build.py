"""Build a model from its settings. No other module turns settings into layers."""

import bisect
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from seq2see.config import ALIGNMENTS, Data, Model, foreign
from seq2see.model.convolutional import Convolutional
from seq2see.model.interface import Seq2Seq
from seq2see.model.recurrent import Recurrent
from seq2see.model.transformer import Transformer

RNN_LAYERS, CONVOLUTION_LAYERS = 1, 2
"""Default number of layers of the encoder, and of the decoder, of an RNN; and default number of convolutional layers
for each layer of the Transformer that is suggested for the same corpus (docs/log.md).
"""


def build(settings: Model, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """Return a freshly initialised model for vocabularies of these sizes."""
    unused = ("architecture", *foreign(settings.architecture))
    options = {key: value for key, value in asdict(settings).items() if key not in unused}
    if settings.architecture == "transformer":
        return Transformer(source_vocabulary, target_vocabulary, **options)
    if settings.architecture == "convolutional":
        return Convolutional(source_vocabulary, target_vocabulary, **options)
    options["attention"] = ALIGNMENTS.get(settings.architecture, "none")
    options["bidirectional"] = settings.architecture != "rnn"
    return Recurrent(source_vocabulary, target_vocabulary, **options)


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """In this context, `build` makes models on PyTorch's meta device: their weights have shapes, but no values.

    That takes neither memory nor random numbers, and hardly any time.
    """
    with torch.device("meta"), _Uninitialised():
        yield


class _Uninitialised(TorchFunctionMode):
    """Skips the initialisation of tensors by the functions of `torch.nn.init`, and by `normal_` and `uniform_`.

    On the meta device, PyTorch imports its compiler and SymPy for the first random numbers, 800 modules that take
    seconds (docs/log.md).
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        fills = function in (torch.Tensor.normal_, torch.Tensor.uniform_)
        if fills or getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def count_parameters(settings: Model, source_vocabulary: int, target_vocabulary: int) -> int:
    """Return the number of parameters of the model that `build` would make, without making it."""
    D = settings.d_model
    kinds = {"transformer": _transformer_stacks, "convolutional": _convolutional_stacks}
    stacks = kinds.get(settings.architecture, _recurrent_stacks)(settings)
    tables = {"all": source_vocabulary, "decoder": source_vocabulary + target_vocabulary}
    embeddings = D * tables.get(settings.tie, source_vocabulary + 2 * target_vocabulary)
    return stacks + embeddings + target_vocabulary * settings.output_bias


def linear_parameters(settings: Model) -> int:
    """Return the number of parameters in the linear layers of a Transformer, without its output layer."""
    D, F, H = settings.d_model, settings.d_ff, settings.heads
    K = settings.d_key or D // H
    width = settings.d_value or K
    attention = (D + 1) * H * (2 * K + width) + (H * width + 1) * D
    feed_forward = (D + 1) * F + (F + 1) * D
    encoder, decoder = attention + feed_forward, 2 * attention + feed_forward
    return settings.encoder_layers * encoder + settings.decoder_layers * decoder


def as_large(settings: Model, parameters: int, widths: Sequence[int] = range(4, 8192, 4)) -> Model:
    """Return `settings` with the `d_hidden` from `widths` that makes the number of parameters closest to `parameters`.

    Token embeddings and the output layer are not counted.
    """

    def excess(width: int) -> int:
        return count_parameters(replace(settings, d_hidden=width), 0, 0) - parameters

    above = bisect.bisect_left(widths, 0, key=excess)
    nearest = min(widths[max(0, above - 1) : above + 1], key=lambda width: abs(excess(width)))
    return replace(settings, d_hidden=nearest)


def replaced(transformer: Model, chosen: Mapping[str, Any], longest: int) -> dict[str, Any]:
    """Return suggested settings for an RNN or a convolutional model with about as many parameters as a Transformer.

    Token embeddings and the output layer are not counted.

    Args:
        transformer: settings of the Transformer that it replaces.
        chosen: settings of the model that the user has chosen, including its architecture.
        longest: bytes of the longest text of the corpus, an upper bound of its number of tokens. A convolutional model
            learns about as many positions, at least `Data.max_length` and at most the default: positions that no text
            has would be parameters never trained.
    """
    found = {name: getattr(transformer, name) for name in ("d_model", "dropout", "tie")}
    if chosen["architecture"] == "convolutional":
        for stack in ("encoder_layers", "decoder_layers"):
            found[stack] = chosen.get(stack, CONVOLUTION_LAYERS * getattr(transformer, stack))
        found["max_positions"] = min(Model.max_positions, max(Data.max_length, longest) + 16)
    else:
        layers = chosen.get("encoder_layers", chosen.get("decoder_layers", RNN_LAYERS))
        found |= {"encoder_layers": layers, "decoder_layers": layers}
    asked = Model(**found | dict(chosen))
    return found | {"d_hidden": as_large(asked, count_parameters(transformer, 0, 0)).d_hidden}


def _transformer_stacks(settings: Model) -> int:
    D = settings.d_model
    norms = 2 * settings.encoder_layers + 3 * settings.decoder_layers + 2 * (settings.norm == "pre")
    positions = 2 * settings.max_positions if settings.positions == "learned" else 0
    return linear_parameters(settings) + (2 * norms + positions) * D


def _recurrent_stacks(settings: Model) -> int:
    D, state = settings.d_model, settings.d_hidden or settings.d_model
    gates = 4 if settings.cell == "lstm" else 3
    attention = ALIGNMENTS.get(settings.architecture, "none")

    def layers(count: int, d_input: int, directions: int) -> int:
        width = state // directions
        inputs = [d_input, *[state] * (count - 1)]
        return sum(directions * gates * width * (each + width + 2) for each in inputs)

    extra, read = {"none": (0, state), "additive": (state, 2 * state + D)}.get(attention, (D, 2 * state))
    scores = {"additive": 2 * state * state + 2 * state, "general": state * state}
    stacks = layers(settings.encoder_layers, D, 1 if settings.architecture == "rnn" else 2)
    stacks += layers(settings.decoder_layers, D + extra, 1)
    return stacks + (read + 1) * D + scores.get(attention, 0)


def _convolutional_stacks(settings: Model) -> int:
    D, width = settings.d_model, settings.d_hidden or settings.d_model
    convolution = (settings.kernel * width + 1) * 2 * width
    around = (D + 1) * width + (width + 1) * D  # into a stack and out of it; of an attention: queries and contexts
    stacks = settings.encoder_layers * convolution + settings.decoder_layers * (convolution + around)
    return stacks + 2 * around + 2 * D * settings.max_positions
