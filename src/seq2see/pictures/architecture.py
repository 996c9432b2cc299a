"""The architecture of a model: every stage with its shape and parameters, as a list, and as a picture like figure 1 of
the paper.

`S` is the number of source tokens and `T` that of target tokens; all other numbers are sizes of the model.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from seq2see.config import ALIGNMENTS, Model
from seq2see.model.build import build, without_weights
from seq2see.pictures import drawing
from seq2see.pictures.drawing import BLUE, FRAME, INK, ORANGE, QUIET, Picture

Stack = Literal["encoder", "decoder"]
Part = Literal["tokens", "embedding", "positions", "attention", "feed forward", "recurrent", "convolution"]
Kind = Part | Literal["add", "norm", "output"]


@dataclass(frozen=True)
class Stage:
    """One box of the architecture diagram."""

    stack: Stack
    kind: Kind
    name: str
    shape: str
    """The shape of the output, for one sentence: `S × 512`."""
    inside: tuple[str, ...] = ()
    """Lines of text in the box, such as the shapes of tensors inside the stage: `weights 8 × S × S`."""
    parameters: int = 0
    """Number of parameters of this stage in one layer; weights that several stages share are counted in the first of
    them.
    """
    layers: int = 0
    """Number of layers of the stack, each of which contains this stage; 0 if the stage is outside of the layers."""


def plan(model: Model, source_vocabulary: int, target_vocabulary: int) -> list[Stage]:
    """Return all stages in the order in which they are computed for a sentence, the encoder first."""
    with without_weights():  # so that the largest model is planned at once
        built: Any = build(model, source_vocabulary, target_vocabulary)
    stages: list[Stage] = []
    sides: list[tuple[Stack, str, int, Any]] = [
        ("encoder", "S", source_vocabulary, built.source_embedding),
        ("decoder", "T", target_vocabulary, built.target_embedding),
    ]
    for side, L, vocabulary, embedding in sides:
        encoder = side == "encoder"
        backwards = encoder and model.source_reversed
        name = "source tokens" if encoder else "target tokens so far"
        stages.append(Stage(side, "tokens", name, "S, the last first" if backwards else L))
        shared = not encoder and model.tie == "all"
        inside = [f"one of {vocabulary:,} rows, times √{model.d_model:,}"]
        inside += ["the encoder's own matrix"] if shared else []
        parameters = 0 if shared else weigh(embedding.tokens)
        stages.append(Stage(side, "embedding", "embedding", f"{L} × {model.d_model:,}", tuple(inside), parameters))
        kinds = {"transformer": _layers, "convolutional": _convolutions}
        stages += kinds.get(model.architecture, _recurrence)(model, built, side, L, embedding)
    tied, shape = model.tie != "none", f"T × {target_vocabulary:,}"
    again = ("the embedding's matrix again",) if tied else ()
    parameters = target_vocabulary * model.output_bias if tied else weigh(built.output)
    stages.append(Stage("decoder", "output", "linear", shape, again, parameters))
    return [*stages, Stage("decoder", "output", "softmax", shape, ("a probability for each next token",))]


def _layers(model: Model, built: Any, side: Stack, L: str, embedding: Any) -> Iterator[Stage]:
    """Yield the stages after the embedding in one stack of a Transformer: positions, one layer, a last norm, if any."""
    layers = getattr(built, side)
    layer, shape, encoder = layers[0], f"{L} × {model.d_model:,}", side == "encoder"
    H, K = model.heads, model.d_key or model.d_model // model.heads
    V = model.d_value or K

    def sublayer(kind: Kind, name: str, module: Any, around: Any, *inside: str) -> Iterator[Stage]:
        """Yield a sub-layer with its residual sum and norm, in the order of this model."""
        if model.norm == "pre":
            yield Stage(side, "norm", "norm", shape, (), weigh(around), len(layers))
        yield Stage(side, kind, name, shape, inside, weigh(module), len(layers))
        if model.norm == "pre":
            yield Stage(side, "add", "add", shape, (), 0, len(layers))
        else:
            yield Stage(side, "add", "add & norm", shape, (), weigh(around), len(layers))

    if model.positions == "sinusoid":
        yield Stage(side, "positions", "plus position waves", shape)
    elif model.positions == "learned":
        yield Stage(side, "positions", "plus learned positions", shape, (), weigh(embedding.places))
    heads = f"Q, K, V {H} × {L} × {K}" if K == V else f"Q, K {H} × {L} × {K}    V {H} × {L} × {V}"
    turned = ["queries and keys turned by position"] if model.positions == "rotary" else []
    name, around = "multi-head attention", layer.around_attention if encoder else layer.around_self
    name = name if encoder else f"masked {name}"
    yield from sublayer("attention", name, layer.self_attention, around, heads, f"weights {H} × {L} × {L}", *turned)
    if not encoder:
        memory = f"K, V {H} × S × {K}" if K == V else f"K {H} × S × {K}    V {H} × S × {V}"
        inside = f"Q {H} × T × {K}    {memory}", f"weights {H} × T × S"
        yield from sublayer("attention", "cross attention", layer.cross_attention, layer.around_cross, *inside)
    hidden = f"{L} × {model.d_ff:,} after {model.activation}"
    yield from sublayer("feed forward", "feed forward", layer.feed_forward, layer.around_feed_forward, hidden)
    if model.norm == "pre":
        yield Stage(side, "norm", "norm", shape, (), weigh(getattr(built, f"{side}_norm")))


def _recurrence(model: Model, built: Any, side: Stack, L: str, _: Any) -> Iterator[Stage]:
    """Yield the stages after the embedding in one stack of an RNN: all layers of a stack are one stage."""
    state, cell, count = model.d_hidden or model.d_model, model.cell.upper(), model.encoder_layers
    shape, layers = f"{L} × {state:,}", f"{count} layer{'' if count == 1 else 's'} of {state:,}"
    if side == "encoder":
        ways = "half of it for each direction, " if built.encoder[0].both_ways else ""
        inside = layers, f"{ways}end {count} × {state:,}"
        yield Stage(side, "recurrent", cell, shape, inside, weigh(built.encoder[0].rnn))
        return
    decoder, begins, kind = built.decoder[0], "starts from the encoder's last state", ALIGNMENTS.get(model.architecture)
    D = f"{model.d_model:,}"
    of = {None: "the state", "additive": "state, context and token"}.get(kind, "state and context")
    output = Stage(side, "feed forward", "read-out", f"T × {D}", (f"tanh of {of}",), weigh(decoder.w_r))
    if kind is None:
        yield Stage(side, "recurrent", cell, shape, (layers, begins), weigh(decoder.rnn))
        yield output
        return
    queries, keys = f"Q 1 × T × {state:,}", f"K 1 × S × {state:,}"
    scores = f"v · tanh({queries} + {keys})" if kind == "additive" else f"{queries} · {keys}"
    asked = "query: the previous state" if kind == "additive" else "query: the new state"
    seen = scores, "weights 1 × T × S", asked
    attention = Stage(side, "attention", "cross attention", shape, seen, weigh(decoder.cross_attention))
    reads = "reads token and context" if kind == "additive" else "reads token and the last read-out"
    recurrence = Stage(side, "recurrent", cell, shape, (layers, reads, begins), weigh(decoder.rnn))
    yield from (attention, recurrence, output) if kind == "additive" else (recurrence, attention, output)


def _convolutions(model: Model, built: Any, side: Stack, L: str, embedding: Any) -> Iterator[Stage]:
    """Yield the stages after the embedding in one stack of a convolutional model."""
    layers, width, D = getattr(built, side), model.d_hidden or model.d_model, f"{model.d_model:,}"
    layer, shape, encoder = layers[0], f"{L} × {width:,}", side == "encoder"
    enters, leaves = (getattr(built, f"{side}_{each}") for each in ("input", "norm"))
    yield Stage(side, "positions", "plus learned positions", f"{L} × {D}", (), weigh(embedding.places))
    yield Stage(side, "feed forward", "linear", shape, (), weigh(enters))
    reach = f"of {model.kernel} tokens" if encoder else f"of a token and the {model.kernel - 1} before it"
    gated = f"{reach}, {L} × {2 * width:,}", "half of it gates the other half"
    yield Stage(side, "convolution", "convolution", shape, gated, weigh(layer.convolution), len(layers))
    if not encoder:
        inside = f"Q 1 × T × {D}    K, V 1 × S × {D}", "weights 1 × T × S", "V: plus the source embedding"
        name, attention = "cross attention", layer.cross_attention
        yield Stage(side, "attention", name, shape, inside, weigh(attention), len(layers))
        yield Stage(side, "add", "add, times √0.5", shape, (), 0, len(layers))
    yield Stage(side, "add", "add, times √0.5", shape, (), 0, len(layers))
    yield Stage(side, "feed forward", "linear", f"{L} × {D}", (), weigh(leaves))


def weigh(module: Any) -> int:
    """Return the number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def count_parameters(stages: list[Stage]) -> int:
    """Return the number of parameters of the model with these stages."""
    return sum(stage.parameters * max(1, stage.layers) for stage in stages)


# --- the picture -----------------------------------------------------------------------------------------------------

_WIDTH = 2.9  # of a box; all in inches
_LINE = 0.165  # height of a line of small text
_GAP = 0.32  # between boxes, for the arrow and its shape
_EDGE = 0.14  # more where the frame around the layers ends
_LEFT: dict[Stack, float] = {"encoder": 0.0, "decoder": 4.7}
_FILL: dict[Kind, str] = {
    "tokens": "#ffffff",
    "embedding": "#fbe3cd",
    "positions": "#fdf3e7",
    "attention": "#cfe3f2",
    "feed forward": "#dfead0",
    "recurrent": "#f7d9d9",
    "convolution": "#f7d9d9",
    "add": "#eef1f4",
    "norm": "#eef1f4",
    "output": "#e8dcee",
}


class _Box(NamedTuple):
    stage: Stage
    left: float
    bottom: float
    height: float

    @property
    def top(self) -> float:
        return self.bottom + self.height

    @property
    def centre(self) -> tuple[float, float]:
        return self.left + _WIDTH / 2, self.bottom + self.height / 2


def draw(stages: list[Stage], title: str, path: Path) -> str | None:
    """Draw the architecture like figure 1 of the paper, with the shape at each arrow and the parameters in each box.

    Returns a line for the user if some characters of the title have no font, else None.
    """
    picture = Picture(path, title)
    encoder, decoder = _pile(stages, "encoder"), _pile(stages, "decoder")
    end = decoder[-1]
    axes = picture.sheet(_LEFT["decoder"] + _WIDTH + 0.8, max(encoder[-1].top, end.top) + _GAP)
    for boxes, outside in ((encoder, -1), (decoder, 1)):
        _frame(axes, boxes, outside)
        for box in boxes:
            _draw_box(axes, box)
        for below, above in itertools.pairwise(boxes):
            _arrow(axes, [(below.centre[0], below.top), (above.centre[0], above.bottom)], BLUE)
            _shape(axes, below, above.bottom - _GAP / 2 if below.stage.layers else below.top + _GAP / 2, outside)
        _residuals(axes, boxes, outside)
    readers = [box for box in decoder if box.stage.name == "cross attention"]
    begun = [box for box in decoder if box.stage.kind == "recurrent"]  # by the encoder's end, without attention
    _memory(axes, encoder[-1], (readers or begun)[0], ("K", "V") if readers else ("",))
    if readers:
        _write(axes, readers[0].centre[0] + 0.06, readers[0].bottom - 0.055, "Q", 7.5, BLUE)
    _shape(axes, encoder[-1], encoder[-1].top + _EDGE + _GAP / 2, -1)
    _shape(axes, end, end.top + _GAP / 2, 1)
    _arrow(axes, [(end.centre[0], end.top), (end.centre[0], end.top + _GAP)], BLUE)
    subtitle = f"{count_parameters(stages):,} parameters  ·  S: source tokens, T: target tokens  ·  grey: tensor shapes"
    return picture.finish(axes, subtitle, gap=0.26)


def _pile(stages: list[Stage], stack: Stack) -> list[_Box]:
    """Return the boxes of one stack from the bottom up, each as high as its text."""
    boxes: list[_Box] = []
    bottom = 0.0
    for stage in stages:
        if stage.stack == stack:
            if boxes and boxes[-1].stage.layers != stage.layers:  # the frame around the layers needs its edge
                bottom += _EDGE
            height = 0.27 + _LINE * len(stage.inside) + (0.05 if stage.inside else 0)
            boxes.append(_Box(stage, _LEFT[stack], bottom, height))
            bottom += height + _GAP
    return boxes


def _draw_box(axes: Axes, box: _Box) -> None:
    stage, place = box.stage, (box.left, box.bottom, _WIDTH, box.height)
    drawing.box(axes, place, 0.06, facecolor=_FILL[stage.kind], edgecolor="#aab5c0", linewidth=0.7)
    _write(axes, box.left + 0.1, box.top - 0.135, stage.name, 9, INK)
    if stage.parameters:
        _write(axes, box.left + _WIDTH - 0.1, box.top - 0.135, f"{stage.parameters:,}", 7.5, QUIET, ha="right")
    for line, text in enumerate(stage.inside):
        _write(axes, box.left + 0.1, box.top - 0.36 - line * _LINE, text, 7.5, "#475360")


def _write(axes: Axes, x: float, y: float, text: str, size: float, colour: str, ha: str = "left") -> None:
    axes.text(x, y, text, fontsize=size, color=colour, ha=ha, va="center_baseline", parse_math=False)


def _shape(axes: Axes, box: _Box, y: float, outside: int) -> None:
    """Write the shape beside the arrow that leaves a box, at height `y`, on the side without residual connection.

    Args:
        outside: Side of the residual connections: -1 is left (encoder), 1 is right (decoder).
    """
    _write(axes, box.centre[0] - outside * 0.08, y, box.stage.shape, 7.5, QUIET, ha="left" if outside < 0 else "right")


def _arrow(axes: Axes, points: list[tuple[float, float]], colour: str) -> None:
    """Draw an arrow along the points, with a tip at the last."""
    axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.1, solid_joinstyle="round", clip_on=False)
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 8, "color": colour, "linewidth": 0.1}
    axes.add_patch(FancyArrowPatch(points[-2], points[-1], shrinkA=0, shrinkB=0, clip_on=False, **style))


def _frame(axes: Axes, boxes: list[_Box], outside: int) -> None:
    """Draw a frame around the stages of a layer; write the number of layers to its left (`outside` -1) or right (1)."""
    inner = [box for box in boxes if box.stage.layers]
    if not inner:
        return
    left, bottom, top = inner[0].left, inner[0].bottom - _GAP * 0.62, inner[-1].top + 0.13
    style: dict[str, Any] = {"facecolor": "none", "edgecolor": FRAME, "linewidth": 1.0, "linestyle": (0, (4, 2))}
    drawing.box(axes, (left - 0.42, bottom, _WIDTH + 0.84, top - bottom), 0.1, **style)
    x, side = (left - 0.5, "right") if outside < 0 else (left + _WIDTH + 0.5, "left")
    axes.text(x, (bottom + top) / 2, f"× {inner[0].stage.layers}", fontsize=12, color=INK, ha=side, va="center")


def _residuals(axes: Axes, boxes: list[_Box], outside: int) -> None:
    """Draw the residual connection of each sub-layer, up to the sum: left (`outside` -1) or right (1) of the boxes."""
    edge = boxes[0].left if outside < 0 else boxes[0].left + _WIDTH
    for start, box, distance in _sums(boxes):
        below = start.bottom - _GAP * 0.38
        centre, side = box.centre[0], edge + outside * distance
        points = [(centre, below), (side, below), (side, box.centre[1]), (edge, box.centre[1])]
        _arrow(axes, points, "#9aa7b4")


def _sums(boxes: list[_Box]) -> Iterator[tuple[_Box, _Box, float]]:
    """Yield, for each residual connection, the box below which it begins, the sum at which it ends, and its distance
    from the boxes in inches.

    The residual connections of a Transformer follow each other. That of a convolution encloses that of the attention.
    """
    sums = [box for box in boxes if box.stage.kind == "add"]
    convolutions = [box for box in boxes if box.stage.kind == "convolution"]
    if convolutions:
        attentions = [box for box in boxes if box.stage.kind == "attention"]
        yield from zip([*attentions, *convolutions], sums, (0.16, 0.3) if attentions else (0.24,), strict=True)
        return
    starts = [next((box for box in boxes if box.stage.kind in ("norm", "attention")), boxes[0])]
    starts += [boxes[boxes.index(box) + 1] for box in sums[:-1]]
    yield from ((start, box, 0.24) for start, box in zip(starts, sums, strict=False))


def _memory(axes: Axes, last: _Box, across: _Box, names: tuple[str, ...]) -> None:
    """Draw arrows from the end of the encoder to the box `across` of the decoder, one for each name, such as "K" and
    "V".
    """
    middle = (last.left + _WIDTH + across.left) / 2
    x, above = last.centre[0], last.top + _EDGE + _GAP
    for place, name in enumerate(names):
        y = across.centre[1] + (0.14 - 0.28 * place if len(names) > 1 else 0.0)
        _arrow(axes, [(x, last.top), (x, above), (middle, above), (middle, y), (across.left, y)], ORANGE)
        _write(axes, across.left - 0.26, y + 0.08, name, 8, ORANGE)
    axes.text(x + 0.08, above + 0.06, "memory", fontsize=9, color=ORANGE, ha="left", va="bottom")
