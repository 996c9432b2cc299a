"""Pictures of one translation (attention, all heads, predictions of each layer, the beam, the alignment), and of
statistics of heads over many translations.

Each function for a picture returns a line for the user if some characters have no font, else None.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Curve
from numpy.typing import NDArray

from seq2see.config import Place
from seq2see.display.wording import translated
from seq2see.lens.answers import Layers, Look, Tree
from seq2see.lens.heads import Habits, Statistics, Worth
from seq2see.lens.reading import ATTENTIONS
from seq2see.pictures import drawing, labels
from seq2see.pictures.drawing import BELOW_TO_ABOVE, BLUE, FRAME, INK, PAPER_TO_INK, QUIET, Picture

Box = tuple[float, float, float, float]
"""Left, bottom, width and height in inches."""

# --- attention -------------------------------------------------------------------------------------------------------

_GAP = 0.42  # inches between the large panel and the heads; also what the slanted labels need
_BETWEEN = 0.3  # inches between two heads, their titles included
_MANY = 30  # columns: among more of them even large weights are small, and colours follow the square root


def attention(
    weights_HLM: NDArray[np.floating[Any]],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    path: Path,
    where: str = "attention",
    row_name: str = "output",
    column_name: str = "input",
) -> str | None:
    """Draw the attention of one layer: the mean over heads large, each head small, on one colour scale from 0 to 1.

    Args:
        weights_HLM: one matrix per head; each row sums to 1.
        rows: the L tokens that attend, named `row_name` in the picture.
        columns: the M tokens attended to, named `column_name`.
        title: text above the picture.
        path: where to save; the suffix says the format, one of `drawing.SUFFIXES`.
        where: the name of the attention, with its layer.
    """
    H, L, M = weights_HLM.shape
    assert (len(rows), len(columns)) == (L, M), f"weights of {L} x {M} for {len(rows)} x {len(columns)} tokens"
    picture = Picture(path, title, labels.of(rows), labels.of(columns))
    rows, columns = picture.texts
    cell = min(max(10 / max(L, M), 0.2), 0.5)
    width, height = M * cell, L * cell
    picture.resize(width, height)
    large = picture.panel(0, 0, width, height)
    image = drawing.heat_map(large, weights_HLM.mean(axis=0), power=_power(M))
    drawing.label_cells(large, rows, columns, cell, picture.style)
    right = width
    for head, (x, y, w, h) in enumerate(places_of_heads(H, L, M, width, height) if H > 1 else []):
        small = picture.panel(x, y, w, h)
        drawing.heat_map(small, weights_HLM[head], power=_power(M))
        small.set_title(f"head {head + 1}", loc="left", fontsize=8, color=QUIET, pad=3)
        right = max(right, x + max(w, 0.5))  # a narrow panel's title is wider than the panel
    scale = min(height, 2.2)
    bar = picture.panel(right + 0.3, height - scale, 0.12, scale)
    drawing.colour_bar(image, bar, [0, 0.01, 0.1, 0.5, 1] if M > _MANY else [0, 0.5, 1])
    drawn = f"mean of {H} heads" if H > 1 else "1 head"
    meaning = f"a row: where one {row_name} token looks among the {column_name} tokens"
    return picture.finish(large, f"{translated(where)}, {translated(drawn)}  ·  {meaning}")


def _power(columns: int) -> float:
    return 0.5 if columns > _MANY else 1.0


def places_of_heads(H: int, L: int, M: int, width: float, height: float) -> list[Box]:
    """Return the positions of H small panels: to the right of the large panel or, if M >= 2 L, below it.

    The grid of small panels has no empty row or column, and is as high as the large panel (below it: as wide). In the
    other direction, it takes at most two thirds of the large panel or 4.5 inches, whichever is more. Of the grids that
    fit, the one with the largest panels is chosen; if none fits, a single line of panels.
    """
    beside = 2 * L > M
    along, across = (height, width) if beside else (width, height)
    panel_across = M / L if beside else L / M  # of a panel one inch along
    room = max(0.67 * across, 4.5)
    for lines in range(H, 0, -1):  # lines of panels, side by side in the direction "across"
        per_line = math.ceil(H / lines)
        size = (along - _BETWEEN * (per_line - 1)) / per_line
        fits = size > 0 and lines * (size * panel_across + _BETWEEN) <= room
        if lines == 1 or (fits and math.ceil(H / per_line) == lines):
            break
    w, h = (size * panel_across, size) if beside else (size, size * panel_across)
    left, top = (width + _GAP, height) if beside else (0.0, -_GAP)
    cells = [divmod(head, lines if beside else per_line) for head in range(H)]
    return [(left + column * (w + _BETWEEN), top - row * (h + _BETWEEN) - h, w, h) for row, column in cells]


# --- all heads -------------------------------------------------------------------------------------------------------

_SMALLEST = 5.0  # points of a label that can still be read on paper


def heads(
    layers: Sequence[NDArray[np.floating[Any]]],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    path: Path,
    where: str = "every layer and head",
) -> str | None:
    """Draw every head of every layer: a row of panels for each layer, a column for each head."""
    picture = Picture(path, title, labels.of(rows), labels.of(columns))
    rows, columns = picture.texts
    L, M, H = len(rows), len(columns), layers[0].shape[0]
    side, gap = min(max(12 / H, 1.2), 2.6), 0.16
    width, height = (side, side * L / M) if M >= L else (side * M / L, side)
    picture.resize(H * (width + gap) - gap, len(layers) * (height + gap) - gap)
    for number, weights_HLM in enumerate(layers):
        for head in range(H):
            y = (len(layers) - 1 - number) * (height + gap)
            axes = picture.panel(head * (width + gap), y, width, height)
            drawing.heat_map(axes, weights_HLM[head], power=_power(M))
            if not number:
                axes.set_title(f"head {head + 1}", fontsize=8.5, color=QUIET, pad=5)
            if not head:
                axes.set_ylabel(f"layer {number + 1}", fontsize=8.5, color=QUIET, labelpad=6)
                axes.set_yticks(*_some(rows, height / L), **_small(height / L, picture))
            if number == len(layers) - 1:
                axes.set_xticks(*_some(columns, width / M), rotation=90, **_small(width / M, picture))
            axes.tick_params(pad=2)
    scale = "colours by the square root, " if M > _MANY else ""
    subtitle = f"{where}  ·  a row: attention weights of one token; {scale}white is 0, the darkest blue 1"
    return picture.finish(picture.figure.axes[0], subtitle)


def _some(tokens: Sequence[str], cell: float) -> tuple[range, list[str]]:
    """Return indices and texts of the tokens that fit beside cells of `cell` inches: all, every second, and so on."""
    places = range(0, len(tokens), math.ceil(_SMALLEST / (cell * 72)))
    return places, [tokens[place] for place in places]


def _small(cell: float, picture: Picture) -> dict[str, Any]:
    return {**picture.style, "fontsize": min(max(cell * 72 * 0.75, _SMALLEST), 8), "color": INK}


# --- what each layer predicts ----------------------------------------------------------------------------------------


def layer_words(layers: Layers, said: Sequence[str], title: str, path: Path) -> str | None:
    """Draw a table of each layer's most probable token at each step, bold where it is the output token."""
    names = labels.of(said)
    count, T = layers.probability.shape
    words = [
        [names[t] if rank[t] == 1 else labels.visible(each[0].token) for t, each in enumerate(steps)]
        for rank, steps in zip(layers.rank, layers.candidates, strict=True)
    ]
    picture = Picture(path, title, names, *words)
    names, *words = picture.texts
    widths = [max(map(labels.columns_wide, column)) for column in zip(*picture.texts, strict=True)]
    edges = np.concatenate([[0], np.cumsum([max(0.42, 0.2 + 0.095 * each) for each in widths])])
    picture.resize(float(edges[-1]), 0.36 * count)
    axes = picture.panel(0, 0, float(edges[-1]), 0.36 * count)
    shown = np.array([[each[0].probability for each in steps] for steps in layers.candidates])
    lines: dict[str, Any] = {"edgecolor": "white", "linewidth": 1.5}
    axes.pcolormesh(edges, np.arange(count + 1), shown, cmap=PAPER_TO_INK, vmin=0, vmax=1.15, **lines)
    axes.set(xlim=(0, edges[-1]), ylim=(count, 0))
    style: dict[str, Any] = {**picture.style, "fontsize": 9.5}
    middles = (edges[:-1] + edges[1:]) / 2
    for row in range(count):
        for step in range(T):
            style |= {"color": "white" if shown[row][step] > 0.5 else INK}
            style |= {"fontweight": "bold" if layers.rank[row][step] == 1 else "normal"}
            axes.text(middles[step], row + 0.5, words[row][step], ha="center", va="center_baseline", **style)
    axes.set_xticks(middles, names, **style | {"color": INK, "fontweight": "normal"})
    axes.set_yticks(np.arange(count) + 0.5, [f"layer {row + 1}" for row in range(count)], fontsize=8.5, color=QUIET)
    axes.tick_params(length=0, pad=5, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    subtitle = "predictions of each layer, darker where more probable; bold: the final output (above)"
    return picture.finish(axes, subtitle)


# --- the beam --------------------------------------------------------------------------------------------------------

_ROW, _TALL = 0.41, 0.31  # inches from row to row, and of a box


def beam(tree: Tree, title: str, path: Path) -> str | None:
    """Draw the beam search, one column of hypotheses per step, best on top: kept and pruned ones, and the path to the
    output.
    """
    nodes = tree.nodes
    picture = Picture(path, title, [labels.visible(node.token) for node in nodes])
    (names,) = picture.texts
    columns: dict[int, list[int]] = {}
    for place, node in enumerate(nodes):
        columns.setdefault(node.step, []).append(place)
    height = max(map(len, columns.values())) * _ROW
    spots: dict[int, tuple[float, float, float]] = {}  # left edge, middle height, width
    x = 0.0
    for column in columns.values():
        column.sort(key=lambda place: (nodes[place].state == "pruned", -nodes[place].score))
        width = max(0.4, 0.18 + 0.092 * max(labels.columns_wide(names[place]) for place in column))
        for row, place in enumerate(column):
            spots[place] = x, height - (row + 0.5) * _ROW, width
        x += width + 0.34
    axes = picture.sheet(x, height)
    best = set(tree.path(tree.best))
    for place, node in enumerate(nodes):
        left, y, width = spots[place]
        alpha = 0.4 if node.state == "pruned" else 1.0
        if node.parent >= 0:
            begin, up, wide = spots[node.parent]
            colour, thick, above = (BLUE, 2.0, 2) if node in best else (QUIET, 0.8, 1)
            middle = (begin + wide + left) / 2
            points = [(begin + wide, up), (middle, up), (middle, y), (left, y)]
            _bow(axes, points, color=colour, linewidth=thick, alpha=alpha, zorder=above)
        face = "#dfe5ea" if node.state == "finished" else "#f6f8fa"
        edge, thick = (BLUE, 1.5) if node in best else (FRAME, 0.7)
        box = left, y - _TALL / 2, width, _TALL
        drawing.box(axes, box, 0.04, facecolor=face, edgecolor=edge, linewidth=thick, alpha=alpha, zorder=3)
        style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "alpha": alpha, "zorder": 4}
        lift = 0.055 if node.parent >= 0 else 0.0
        axes.text(left + width / 2, y + lift, names[place], fontsize=8.5, color=INK, **picture.style, **style)
        if node.parent >= 0:
            axes.text(left + width / 2, y - 0.09, f"{node.score + 0.0:.2f}", fontsize=5.5, color=QUIET, **style)
    finished = sum(node.state == "finished" for node in nodes)
    found = f"blue: the best of {finished} finished ones; pale: pruned; {len(nodes) - 1} tokens considered"
    return picture.finish(axes, f"{found}  ·  small: the score so far, log-probability over length penalty")


def _bow(axes: Axes, points: Sequence[tuple[float, float]], **style: Any) -> None:
    """Draw a Bezier curve with four control points."""
    axes.add_patch(PathPatch(Curve(points, [Curve.MOVETO, *[Curve.CURVE4] * 3]), fill=False, clip_on=False, **style))


# --- alignment -------------------------------------------------------------------------------------------------------

_LONGEST_LINE = 14.0  # inches


def alignment(look: Look, title: str, path: Path) -> str | None:
    """Draw the sentence above its translation, and a line from each output token to its input tokens.

    A sentence that is too long for one line is drawn beside its translation, one token below the other.
    """
    ends_left_out = look.source_tokens[:-1], look.target_tokens[:-1]  # they come from nowhere
    picture = Picture(path, title, *map(labels.of, ends_left_out))
    sides = list(zip(picture.texts, (look.source, look.translation), strict=True))
    rows = [_line_up(names, labels.right_to_left(whole)) for names, whole in sides]
    upright = max((left + wide for row in rows for left, wide in row), default=0.0) > _LONGEST_LINE
    if upright:  # the same seen from the side: one token below the other, the sentence on the left
        rows = [[(0.22 * place, 0.22) for place in range(len(names))] for names, _ in sides]
    lengths = [max((left + wide for left, wide in row), default=0.0) for row in rows]
    length = max(*lengths, drawing.LEAST_WIDE)
    depth = 3.2 if upright else min(max(0.9, length / 7), 2.2)
    axes = picture.sheet(*((depth, length) if upright else (length, depth)))

    def spot(along: float, across: float) -> tuple[float, float]:
        return (across, length - along) if upright else (along, depth - across)

    middles = [  # of each token; both rows stand in the middle
        [left + wide / 2 + (0 if upright else (length - own) / 2) for left, wide in row]
        for row, own in zip(rows, lengths, strict=True)
    ]
    style: dict[str, Any] = {**picture.style, "color": INK, "fontsize": 9 if upright else 11}
    for names, places, across, turned, level in zip(
        picture.texts, middles, (-0.06, depth + 0.06), ("right", "left"), ("bottom", "top"), strict=True
    ):
        style |= {"ha": turned, "va": "center"} if upright else {"ha": "center", "va": level}
        for name, along in zip(names, places, strict=True):
            x, y = spot(along, across)
            axes.text(x, y, name, **style)
    for source, target in look.linked:
        upper, lower = middles[0][source], middles[1][target]
        ways = (lower, depth - 0.02), (lower, depth / 2), (upper, depth / 2), (upper, 0.02)
        _bow(axes, [spot(*way) for way in ways], color=BLUE, linewidth=1.3, alpha=0.75)
    return picture.finish(axes, f"from each output token to what it comes from, {look.method.in_words}", gap=0.45)


def _line_up(names: Sequence[str], backwards: bool) -> list[tuple[float, float]]:
    """Return left edge and width of each label on one line, in inches; `backwards` is for text from right to left."""
    places = [(0.0, 0.12 + 0.115 * max(1, labels.columns_wide(name))) for name in names]
    x = 0.0
    for place in labels.in_order(names, backwards):
        places[place] = x, places[place][1]
        x += places[place][1]
    return places


# --- what heads do ---------------------------------------------------------------------------------------------------

_CELL = 0.66, 0.42  # inches
_HABIT = 0.4  # of all weight: from here on a head is named after it


def head_worth(worth: Worth, statistics: Statistics, metric: str, title: str, path: Path) -> str | None:
    """Draw every head twice: how much the loss rises without it, and where it attends.

    Args:
        worth: results for each head switched off by itself.
        metric: the name of the scores in `worth`.
    """
    picture = Picture(path, title)
    H = 1 + max(each.head for each in statistics.heads)
    depths = {
        place: 1 + max(each.layer for each in statistics.heads if each.place == place)
        for place in ATTENTIONS
        if any(each.place == place for each in statistics.heads)
    }
    gap, wide = 0.3, H * _CELL[0]
    height = sum(depths.values()) * _CELL[1] + (len(depths) - 1) * gap
    picture.resize(2 * wide + gap, height)
    panels: dict[tuple[Place, int], Axes] = {}
    bottom = height + gap
    for place, depth in depths.items():
        bottom -= depth * _CELL[1] + gap
        for side, name in enumerate(("loss without it", "where it looks")):
            axes = panels[place, side] = picture.panel(side * (wide + gap), bottom, wide, depth * _CELL[1])
            axes.set(xlim=(-0.5, H - 0.5), ylim=(depth - 0.5, -0.5), xticks=[], yticks=[])
            axes.tick_params(length=0, pad=4, labelsize=8, labelcolor=QUIET, labeltop=True, labelbottom=False)
            axes.spines[:].set_color(FRAME)
            if place == next(iter(depths)):
                axes.set_xticks(range(H), [f"head {head + 1}" for head in range(H)])
                axes.set_title(name, loc="left", fontsize=10, color=INK, pad=8)
            if side == 0:
                axes.set_yticks(range(depth), [f"layer {layer + 1}" for layer in range(depth)])
                axes.set_ylabel(place, fontsize=10, color=INK, labelpad=8)
    without = {tuple(head): each for each in worth.without for head in each.heads}
    most = max(abs(each.loss - worth.whole.loss) for each in worth.without) or 1.0
    for each in statistics.heads:
        found = without[each[:3]]
        rise = found.loss - worth.whole.loss
        # A few heads carry most of it: the root makes the others visible, and the number says how much it is.
        share = math.copysign(math.sqrt(abs(rise) / most), rise)
        lines = f"{round(rise, 3) + 0.0:+.3f}", f"{found.changed:.0%}"
        _cell(panels[each.place, 0], each.head, each.layer, BELOW_TO_ABOVE((share + 1) / 2), lines)
        lines = _habit(each), f"{each.peak:.2f}"
        _cell(panels[each.place, 1], each.head, each.layer, PAPER_TO_INK(0.8 * (1 - each.spread)), lines)
    meaning = (
        "left: how much the loss rises without the head, and how many translations change\n"
        "right: what it looks at most, or how many tokens away, and its largest weight; the darker the sharper"
    )
    picture.figure.text(0, -0.14 / height, meaning, fontsize=8, color=QUIET, va="top", linespacing=1.5)
    whole = f"with all heads: loss {worth.whole.loss:.3f}, {metric} {worth.whole.score:.2f}"
    return picture.finish(picture.figure.axes[0], f"{worth.pairs:,} pairs  ·  {whole}")


def _cell(axes: Axes, x: int, y: int, colour: Box, lines: tuple[str, str]) -> None:
    """Draw the cell of one head, filled with `colour` (RGBA): a line of text, and a smaller second one below it."""
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=1))
    red, green, blue, _ = colour
    ink = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.55 else INK
    axes.text(x, y - 0.14, lines[0], fontsize=7.5, color=ink, ha="center", va="center")
    axes.text(x, y + 0.24, lines[1], fontsize=6, color=ink, ha="center", va="center")


def _habit(of: Habits) -> str:
    """Return a word for where a head attends, or its mean distance if no word fits."""
    there = "diagonal" if of.place == "cross" else "itself"
    edge = "begin" if of.place == "decoder" else "end"
    weight, name = max((of.end, edge), (of.same, there), (of.previous, "before"), (of.following, "after"))
    return name if weight >= _HABIT else f"± {of.distance:.1f}"
