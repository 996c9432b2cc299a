"""The plan of a model: every step with its shape and its parameters, as a list and as figure 1 of the paper.

`S` is the number of source tokens and `T` that of target tokens; all other numbers are the model's own.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from seq2see.config import Model
from seq2see.lens import drawing, letters
from seq2see.lens.drawing import BLUE, FRAME, INK, ORANGE, QUIET
from seq2see.model.build import build

Stack = Literal["encoder", "decoder"]
Kind = Literal["tokens", "embedding", "positions", "attention", "feed forward", "recurrent", "add", "norm", "output"]


@dataclass(frozen=True)
class Step:
    """One box of the plan."""

    stack: Stack
    kind: Kind
    name: str
    shape: str
    """Of what leaves it, for one sentence: `S × 512`."""
    inside: tuple[str, ...] = ()
    """What can be seen inside: `weights 8 × S × S`."""
    parameters: int = 0
    """Of one layer. Weights that several steps share are counted at the first."""
    layers: int = 0
    """How many layers repeat it; 0: it stands outside of them."""


def steps(model: Model, source_vocabulary: int, target_vocabulary: int) -> list[Step]:
    """The whole path of a sentence, in the order in which it is computed; the encoder first."""
    with torch.device("meta"):  # weights without memory: the largest model is planned at once
        built: Any = build(model, source_vocabulary, target_vocabulary)
    if model.architecture != "transformer":
        return _recurrent_steps(model, built, source_vocabulary, target_vocabulary)
    D, H = model.d_model, model.heads
    K = model.d_key or D // H
    V = model.d_value or K
    plan: list[Step] = []

    def stack(side: Stack, L: str, vocabulary: int, embedding: Any, layer: Any, count: int, last: Any) -> None:
        def add(kind: Kind, name: str, shape: str = f"{L} × {D:,}", *inside: str, **numbers: int) -> None:
            plan.append(Step(side, kind, name, shape, inside, **numbers))

        def wrap(around: Any, kind: Kind, name: str, *inside: str, parameters: int) -> None:
            """A sub-layer with its residual sum and norm, in the order of this model."""
            if model.norm == "pre":
                add("norm", "norm", parameters=weigh(around), layers=count)
            add(kind, name, f"{L} × {D:,}", *inside, parameters=parameters, layers=count)
            if model.norm == "pre":
                add("add", "add", layers=count)
            else:
                add("add", "add & norm", parameters=weigh(around), layers=count)

        add("tokens", "source tokens" if side == "encoder" else "target tokens so far", L)
        shared = side == "decoder" and model.tie == "all"
        plan.append(_embedding(side, L, D, vocabulary, embedding, shared))
        if model.positions == "sinusoid":
            add("positions", "plus position waves")
        elif model.positions == "learned":
            add("positions", "plus learned positions", parameters=weigh(embedding.places))
        turned = ["queries and keys turned by position"] if model.positions == "rotary" else []
        name = "multi-head attention" if side == "encoder" else "masked multi-head attention"
        around = layer.around_attention if side == "encoder" else layer.around_self
        heads = f"Q, K, V {H} × {L} × {K}" if K == V else f"Q, K {H} × {L} × {K}    V {H} × {L} × {V}"
        weights = f"weights {H} × {L} × {L}"
        wrap(around, "attention", name, heads, weights, *turned, parameters=weigh(layer.self_attention))
        if side == "decoder":
            memory = f"K, V {H} × S × {K}" if K == V else f"K {H} × S × {K}    V {H} × S × {V}"
            heads, weights = f"Q {H} × T × {K}    {memory}", f"weights {H} × T × S"
            parameters = weigh(layer.cross_attention)
            wrap(layer.around_cross, "attention", "cross attention", heads, weights, parameters=parameters)
        inner = f"{L} × {model.d_ff:,} after {model.activation}"
        wrap(layer.around_feed_forward, "feed forward", "feed forward", inner, parameters=weigh(layer.feed_forward))
        if model.norm == "pre":
            add("norm", "norm", parameters=weigh(last))

    layers = model.encoder_layers, model.decoder_layers
    stack("encoder", "S", source_vocabulary, built.source_embedding, built.encoder[0], layers[0], built.encoder_norm)
    stack("decoder", "T", target_vocabulary, built.target_embedding, built.decoder[0], layers[1], built.decoder_norm)
    return [*plan, *_output(model, built, target_vocabulary)]


def _recurrent_steps(model: Model, built: Any, source_vocabulary: int, target_vocabulary: int) -> list[Step]:
    """An RNN's: all layers of a stack are one step, as none but the RNN itself comes between them."""
    D, state, cell = model.d_model, model.d_hidden or model.d_model, model.cell.upper()
    encoder, decoder = built.encoder[0], built.decoder[0]
    both_ways, count = encoder.both_ways, model.encoder_layers
    layers = f"{count} layer{'' if count == 1 else 's'} of {state:,}"
    ways = f"half of it for each direction, end {count} × {state:,}" if both_ways else f"end {count} × {state:,}"
    plan = [
        Step("encoder", "tokens", "source tokens", "S, the last first" if encoder.backwards else "S"),
        _embedding("encoder", "S", D, source_vocabulary, built.source_embedding, False),
        Step("encoder", "recurrent", cell, f"S × {state:,}", (layers, ways), weigh(encoder.rnn)),
        Step("decoder", "tokens", "target tokens so far", "T"),
        _embedding("decoder", "T", D, target_vocabulary, built.target_embedding, model.tie == "all"),
    ]
    begins = "begins where the encoder ended"
    if decoder.cross_attention is not None:
        inside = (
            f"v · tanh(Q 1 × T × {state:,} + K 1 × S × {state:,})",
            "weights 1 × T × S",
            "asked by the state before",
        )
        seen = Step("decoder", "attention", "cross attention", f"T × {state:,}", inside, weigh(decoder.cross_attention))
        inside = layers, "reads token and what was seen", begins
        taken = Step("decoder", "recurrent", cell, f"T × {state:,}", inside, weigh(decoder.rnn))
        plan += [seen, taken]
        read = "of state, what was seen, and token"
    else:
        plan.append(Step("decoder", "recurrent", cell, f"T × {state:,}", (layers, begins), weigh(decoder.rnn)))
        read = "of the state"
    plan.append(Step("decoder", "feed forward", "read-out", f"T × {D:,}", (f"tanh {read}",), weigh(decoder.w_r)))
    return [*plan, *_output(model, built, target_vocabulary)]


def weigh(*modules: Any) -> int:
    """Parameters of some modules together."""
    return sum(parameter.numel() for each in modules for parameter in each.parameters())


def _embedding(side: Stack, L: str, D: int, vocabulary: int, embedding: Any, shared: bool) -> Step:
    inside = [f"one of {vocabulary:,} rows, times √{D:,}", *(["the encoder's own matrix"] if shared else [])]
    parameters = 0 if shared else weigh(embedding.tokens)
    return Step(side, "embedding", "embedding", f"{L} × {D:,}", tuple(inside), parameters)


def _output(model: Model, built: Any, vocabulary: int) -> list[Step]:
    tied = model.tie != "none"
    again = ("the embedding's matrix again",) if tied else ()
    parameters = vocabulary * model.output_bias if tied else weigh(built.output)
    return [
        Step("decoder", "output", "linear", f"T × {vocabulary:,}", again, parameters),
        Step("decoder", "output", "softmax", f"T × {vocabulary:,}", ("a probability for each next token",)),
    ]


def count_parameters(plan: list[Step]) -> int:
    """All parameters of the model."""
    return sum(step.parameters * max(1, step.layers) for step in plan)


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
    "add": "#eef1f4",
    "norm": "#eef1f4",
    "output": "#e8dcee",
}


@dataclass(frozen=True)
class _Box:
    step: Step
    left: float
    bottom: float
    height: float

    @property
    def top(self) -> float:
        return self.bottom + self.height

    @property
    def centre(self) -> tuple[float, float]:
        return self.left + _WIDTH / 2, self.bottom + self.height / 2


def draw(plan: list[Step], title: str, path: Path) -> str | None:
    """Figure 1 of the paper, with the shape at each arrow and the parameters in each box.

    Returns a line for the user where some letters of the title have no font, else None.
    """
    drawing.check_suffix(path)
    encoder, decoder = _pile(plan, "encoder"), _pile(plan, "decoder")
    width, height = _LEFT["decoder"] + _WIDTH + 0.8, max(encoder[-1].top, decoder[-1].top) + _GAP
    figure = Figure(figsize=(width, height), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))  # inches; all is drawn beyond the edges, too
    axes.set_axis_off()
    for boxes, outside in ((encoder, -1), (decoder, 1)):
        _frame(axes, boxes, outside)
        for box in boxes:
            _draw_box(axes, box)
        for below, above in itertools.pairwise(boxes):
            _arrow(axes, [(below.centre[0], below.top), (above.centre[0], above.bottom)], BLUE)
            _shape(axes, below, above.bottom - _GAP / 2 if below.step.layers else below.top + _GAP / 2, outside)
        _residuals(axes, boxes, outside)
    readers = [box for box in decoder if box.step.name == "cross attention"]
    begun = [box for box in decoder if box.step.kind == "recurrent"]  # by the encoder's end, where nothing looks at it
    _memory(axes, encoder[-1], (readers or begun)[0])
    _shape(axes, encoder[-1], encoder[-1].top + _EDGE + _GAP / 2, -1)
    _shape(axes, decoder[-1], decoder[-1].top + _GAP / 2, 1)
    _arrow(axes, [(decoder[-1].centre[0], decoder[-1].top), (decoder[-1].centre[0], decoder[-1].top + _GAP)], BLUE)
    subtitle = f"{count_parameters(plan):,} parameters  ·  S: source tokens, T: target tokens  ·  grey: what passes"
    y = 1 + 0.3 / height
    x = min(0.0, -0.75 / width)
    figure.text(x, y, subtitle, fontsize=9, color=QUIET)
    style: dict[str, Any] = {"fontfamily": letters.font_families(title), "parse_math": False}
    (drawn,) = letters.drawn([title], path)
    figure.text(x, y + 0.24 / height, drawn, fontsize=13, fontweight="bold", color=INK, **style)
    drawing.save(figure, path, title)
    return letters.note(title)


def _pile(plan: list[Step], stack: Stack) -> list[_Box]:
    """The boxes of one stack from the bottom up, each as high as its text."""
    boxes: list[_Box] = []
    bottom = 0.0
    for step in plan:
        if step.stack == stack:
            if boxes and boxes[-1].step.layers != step.layers:  # the frame around the layers needs its edge
                bottom += _EDGE
            height = 0.27 + _LINE * len(step.inside) + (0.05 if step.inside else 0)
            boxes.append(_Box(step, _LEFT[stack], bottom, height))
            bottom += height + _GAP
    return boxes


def _draw_box(axes: Axes, box: _Box) -> None:
    style = "round,pad=0,rounding_size=0.06"
    step = box.step
    axes.add_patch(
        FancyBboxPatch(
            (box.left, box.bottom),
            _WIDTH,
            box.height,
            boxstyle=style,
            facecolor=_FILL[step.kind],
            edgecolor="#aab5c0",
            linewidth=0.7,
            clip_on=False,
        )
    )
    _write(axes, box.left + 0.1, box.top - 0.135, step.name, 9, INK)
    if step.parameters:
        _write(axes, box.left + _WIDTH - 0.1, box.top - 0.135, f"{step.parameters:,}", 7.5, QUIET, ha="right")
    for line, text in enumerate(step.inside):
        _write(axes, box.left + 0.1, box.top - 0.36 - line * _LINE, text, 7.5, "#475360")


def _write(axes: Axes, x: float, y: float, text: str, size: float, colour: str, ha: str = "left") -> None:
    axes.text(x, y, text, fontsize=size, color=colour, ha=ha, va="center_baseline", parse_math=False)


def _shape(axes: Axes, box: _Box, y: float, outside: int) -> None:
    """Beside the arrow that leaves a box, on the side where no residual passes."""
    _write(axes, box.centre[0] - outside * 0.08, y, box.step.shape, 7.5, QUIET, ha="left" if outside < 0 else "right")


def _arrow(axes: Axes, points: list[tuple[float, float]], colour: str) -> None:
    """Along the points, with a tip at the last."""
    axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.1, solid_joinstyle="round", clip_on=False)
    tip = FancyArrowPatch(
        points[-2], points[-1], arrowstyle="-|>", mutation_scale=8, color=colour, linewidth=0.1, shrinkA=0, shrinkB=0
    )
    tip.set_clip_on(False)
    axes.add_patch(tip)


def _frame(axes: Axes, boxes: list[_Box], outside: int) -> None:
    """Around what the layers repeat, and how often they do."""
    inner = [box for box in boxes if box.step.layers]
    if not inner:
        return
    first, last = inner[0], inner[-1]
    bottom, top = first.bottom - _GAP * 0.62, last.top + 0.13
    axes.add_patch(
        FancyBboxPatch(
            (first.left - 0.42, bottom),
            _WIDTH + 0.84,
            top - bottom,
            boxstyle="round,pad=0,rounding_size=0.1",
            facecolor="none",
            edgecolor=FRAME,
            linewidth=1.0,
            linestyle=(0, (4, 2)),
            clip_on=False,
        )
    )
    x = first.left - 0.5 if outside < 0 else first.left + _WIDTH + 0.5
    count = f"× {last.step.layers}"
    axes.text(x, (bottom + top) / 2, count, fontsize=12, color=INK, ha="right" if outside < 0 else "left", va="center")


def _residuals(axes: Axes, boxes: list[_Box], outside: int) -> None:
    """Around each sub-layer the stream itself, into the sum."""
    edge = boxes[0].left if outside < 0 else boxes[0].left + _WIDTH
    start = next((number for number, box in enumerate(boxes) if box.step.kind in ("norm", "attention")), 0)
    for number, box in enumerate(boxes):
        if box.step.kind == "add":
            below = boxes[start].bottom - _GAP * 0.38
            centre, side = box.centre[0], edge + outside * 0.24
            points = [(centre, below), (side, below), (side, box.centre[1]), (edge, box.centre[1])]
            _arrow(axes, points, "#9aa7b4")
            start = number + 1


def _memory(axes: Axes, last: _Box, across: _Box) -> None:
    """From the encoder's end to the decoder's attention over it."""
    middle = (last.left + _WIDTH + across.left) / 2
    x, above = last.centre[0], last.top + _EDGE + _GAP
    y = across.centre[1]
    _arrow(axes, [(x, last.top), (x, above), (middle, above), (middle, y), (across.left, y)], ORANGE)
    axes.text(x + 0.08, above + 0.06, "memory", fontsize=9, color=ORANGE, ha="left", va="bottom")
