"""Pictures of one translation: attention, all heads, what each layer would say, the beam, alignment; and of what
heads are for, over many.

Each returns a line for the user where some letters have no font, else None.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import FancyBboxPatch, PathPatch, Rectangle
from matplotlib.path import Path as Curve
from numpy.typing import NDArray

from seq2see.config import Place
from seq2see.lens import drawing, labels, letters
from seq2see.lens.answers import Layers, Look
from seq2see.lens.drawing import BELOW_TO_ABOVE, BLUE, FRAME, HAIRLINE, INK, PAPER_TO_INK, QUIET
from seq2see.lens.heads import Habits, Statistics, Worth
from seq2see.lens.reading import ATTENTIONS
from seq2see.lens.tree import Tree

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
    """Draw the attention of one layer: the mean over heads large, each head small, on one scale from 0 to 1.

    Args:
        weights_HLM: one matrix per head; each row sums to 1.
        rows: the L tokens that attend, named `row_name` in the picture.
        columns: the M tokens attended to, named `column_name`.
        title: one line above the picture.
        path: where to save; the suffix says the format, one of `drawing.SUFFIXES`.
        where: which attention it is, in which layer.

    Returns:
        A line for the user where some letters have no font, else None.
    """
    H, L, M = weights_HLM.shape
    assert (len(rows), len(columns)) == (L, M), f"weights of {L} x {M} for {len(rows)} x {len(columns)} tokens"
    drawing.check_suffix(path)
    text = "".join((title, *rows, *columns))
    families = letters.font_families(text)
    (title,), rows, columns = (letters.drawn(each, path) for each in ([title], labels.of(rows), labels.of(columns)))

    cell = min(max(10 / max(L, M), 0.2), 0.5)
    width, height = M * cell, L * cell
    figure = Figure(figsize=(width, height), facecolor="white")

    large = figure.add_axes((0, 0, 1, 1))
    image = _heat_map(large, weights_HLM.mean(axis=0))
    _label(large, rows, columns, cell, families)
    right = width
    if H > 1:
        for head, (x, y, w, h) in enumerate(_places(H, L, M, width, height)):
            small = figure.add_axes((x / width, y / height, w / width, h / height))
            _heat_map(small, weights_HLM[head])
            small.set_title(f"head {head + 1}", loc="left", fontsize=8, color=QUIET, pad=3)
            right = max(right, x + max(w, 0.5))  # a narrow panel's title is wider than the panel

    bar_height = min(height, 2.2)
    bar = figure.add_axes(((right + 0.3) / width, 1 - bar_height / height, 0.12 / width, bar_height / height))
    figure.colorbar(image, cax=bar, ticks=[0, 0.01, 0.1, 0.5, 1] if M > _MANY else [0, 0.5, 1])
    bar.tick_params(labelsize=8, labelcolor=QUIET, length=0)
    bar.spines[:].set_color(HAIRLINE)

    drawn = f"mean of {H} heads" if H > 1 else "1 head"
    subtitle = f"{where}, {drawn}  ·  a row: where one {row_name} token looks among the {column_name} tokens"
    drawing.head(figure, large, labels.visible(title), subtitle + labels.about_blanks(text), families)
    drawing.save(figure, path, title)
    return letters.note(text)


def _heat_map(axes: Axes, weights_LM: NDArray[np.floating[Any]]) -> AxesImage:
    norm = PowerNorm(0.5 if weights_LM.shape[1] > _MANY else 1.0, 0, 1)
    image = axes.imshow(weights_LM, cmap=PAPER_TO_INK, norm=norm, aspect="auto", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color(FRAME)
    axes.spines[:].set_linewidth(0.6)
    return image


def _label(axes: Axes, rows: Sequence[str], columns: Sequence[str], cell: float, families: list[str]) -> None:
    """Tokens beside the rows and above the columns, and hairlines between them to lead the eye."""
    style: dict[str, Any] = {
        "fontsize": min(max(cell * 72 * 0.48, 7), 11),
        "color": INK,
        "fontfamily": families,
        "parse_math": False,
    }
    slanted = max(drawing.wide(text, fontsize=style["fontsize"], fontfamily=families) for text in columns) > 0.9 * cell
    turn: dict[str, Any] = {"rotation": 45, "ha": "left", "va": "center", "rotation_mode": "anchor"} if slanted else {}
    axes.set_yticks(range(len(rows)), rows, **style)
    axes.set_xticks(range(len(columns)), columns, **style, **turn)
    axes.tick_params(length=0, pad=4, top=False, bottom=False, labeltop=True, labelbottom=False)
    for i in range(1, len(rows)):
        axes.axhline(i - 0.5, color=HAIRLINE, linewidth=0.4)
    for i in range(1, len(columns)):
        axes.axvline(i - 0.5, color=HAIRLINE, linewidth=0.4)


def _places(H: int, L: int, M: int, width: float, height: float) -> list[tuple[float, float, float, float]]:
    """Where the small panels go, in inches: right of the large one, or below it where that is wide.

    Of all grids without an empty line that fill the large panel's side, the one with the largest panels that takes
    up to two thirds of its other side, and 4.5 inches in any case.
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
    places = []
    for head in range(H):
        if beside:
            w, h = size * panel_across, size
            row, column = divmod(head, lines)
            x, y = width + _GAP + column * (w + _BETWEEN), height - row * (h + _BETWEEN) - h
        else:
            w, h = size, size * panel_across
            row, column = divmod(head, per_line)
            x, y = column * (w + _BETWEEN), -_GAP - row * (h + _BETWEEN) - h
        places.append((x, y, w, h))
    return places


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
    """Every head of every layer side by side: what there is to choose from, and which heads have found a task."""
    drawing.check_suffix(path)
    text = "".join((title, *rows, *columns))
    families = letters.font_families(text)
    (title,), rows, columns = (letters.drawn(each, path) for each in ([title], labels.of(rows), labels.of(columns)))
    L, M, H = len(rows), len(columns), layers[0].shape[0]
    side = min(max(12 / H, 1.2), 2.6)
    width, height = (side, side * L / M) if M >= L else (side * M / L, side)
    gap = 0.16
    total = H * (width + gap) - gap, len(layers) * (height + gap) - gap
    figure = Figure(figsize=total, facecolor="white")
    for number, weights_HLM in enumerate(layers):
        for head in range(H):
            x, y = head * (width + gap), total[1] - number * (height + gap) - height
            axes = figure.add_axes((x / total[0], y / total[1], width / total[0], height / total[1]))
            _heat_map(axes, weights_HLM[head])
            if not number:
                axes.set_title(f"head {head + 1}", fontsize=8.5, color=QUIET, pad=5)
            if not head:
                axes.set_ylabel(f"layer {number + 1}", fontsize=8.5, color=QUIET, labelpad=6)
                axes.set_yticks(*_some(rows, height / L), **_small(height / L, families))
            if number == len(layers) - 1:
                axes.set_xticks(*_some(columns, width / M), rotation=90, **_small(width / M, families))
            axes.tick_params(length=0, pad=2)
    scale = "colours by the square root, " if M > _MANY else ""
    subtitle = f"{where}  ·  a row: where one token looks; {scale}white is 0, the darkest blue 1"
    drawing.head(figure, figure.axes[0], labels.visible(title), subtitle + labels.about_blanks(text), families)
    drawing.save(figure, path, title)
    return letters.note(text)


def _some(tokens: Sequence[str], cell: float) -> tuple[range, list[str]]:
    """As many labels as there is room for beside small cells: all, or every other, or every third..."""
    places = range(0, len(tokens), math.ceil(_SMALLEST / (cell * 72)))
    return places, [tokens[place] for place in places]


def _small(cell: float, families: list[str]) -> dict[str, Any]:
    size = min(max(cell * 72 * 0.75, _SMALLEST), 8)
    return {"fontsize": size, "color": INK, "fontfamily": families, "parse_math": False}


# --- what each layer would say ---------------------------------------------------------------------------------------


def layer_words(layers: Layers, said: Sequence[str], title: str, path: Path) -> str | None:
    """A table: each layer's likeliest token at each step, the darker the surer, bold where it is what was said."""
    drawing.check_suffix(path)
    names = labels.of(said)
    count, T = layers.probability.shape
    words = [
        [names[t] if rank[t] == 1 else labels.visible(each[0].token) for t, each in enumerate(steps)]
        for rank, steps in zip(layers.rank, layers.candidates, strict=True)
    ]
    text = title + "".join(names) + "".join(map("".join, words))
    families = letters.font_families(text)
    (title,), names, *words = (letters.drawn(each, path) for each in ([title], names, *words))
    widths = [max(labels.columns_wide(column) for column in (names[t], *(row[t] for row in words))) for t in range(T)]
    edges = np.concatenate([[0], np.cumsum([max(0.42, 0.2 + 0.095 * each) for each in widths])])
    height = 0.36
    figure = Figure(figsize=(float(edges[-1]), height * count), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    shown = np.array([[each[0].probability for each in steps] for steps in layers.candidates])
    axes.pcolormesh(
        edges, np.arange(count + 1), shown, cmap=PAPER_TO_INK, vmin=0, vmax=1.15, edgecolor="white", linewidth=1.5
    )
    axes.set(xlim=(0, edges[-1]), ylim=(count, 0))
    style: dict[str, Any] = {"fontfamily": families, "parse_math": False, "fontsize": 9.5}
    middles = (edges[:-1] + edges[1:]) / 2
    for row in range(count):
        for step in range(T):
            same = layers.rank[row][step] == 1
            colour = "white" if shown[row][step] > 0.5 else INK
            weight = "bold" if same else "normal"
            axes.text(
                middles[step],
                row + 0.5,
                words[row][step],
                color=colour,
                fontweight=weight,
                ha="center",
                va="center_baseline",
                **style,
            )
    axes.set_xticks(middles, names, color=INK, **style)
    axes.set_yticks(np.arange(count) + 0.5, [f"layer {row + 1}" for row in range(count)], fontsize=8.5, color=QUIET)
    axes.tick_params(length=0, pad=5, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    subtitle = "what each layer would say next, the darker the surer; bold: what was said in the end (above)"
    drawing.head(figure, axes, labels.visible(title), subtitle + labels.about_blanks(text), families)
    drawing.save(figure, path, title)
    return letters.note(text)


# --- the beam --------------------------------------------------------------------------------------------------------


def beam(tree: Tree, title: str, path: Path) -> str | None:
    """The search as columns of steps, best on top: what was kept, what was given up, and the way to the translation."""
    drawing.check_suffix(path)
    nodes = tree.nodes
    names = [labels.visible(node.token) for node in nodes]
    text = title + "".join(names)
    families = letters.font_families(text)
    (title,), names = (letters.drawn(each, path) for each in ([title], names))
    columns: dict[int, list[int]] = {}
    for place, node in enumerate(nodes):
        columns.setdefault(node.step, []).append(place)
    spots: dict[int, tuple[float, float, float]] = {}  # x, y, width
    x, high, tall = 0.0, 0.41, 0.31  # inches: from row to row, and of a box
    for column in columns.values():
        column.sort(key=lambda place: (nodes[place].state == "pruned", -nodes[place].score))
        width = max(0.4, 0.18 + 0.092 * max(labels.columns_wide(names[place]) for place in column))
        for row, place in enumerate(column):
            spots[place] = x, -row * high, width
        x += width + 0.34
    height = max(map(len, columns.values())) * high
    figure = Figure(figsize=(x, height), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, x), ylim=(-height + high / 2, high / 2))
    axes.set_axis_off()
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
        fill = "#dfe5ea" if node.state == "finished" else "#f6f8fa"
        box = FancyBboxPatch(
            (left, y - tall / 2),
            width,
            tall,
            boxstyle="round,pad=0,rounding_size=0.04",
            facecolor=fill,
            edgecolor=BLUE if node in best else FRAME,
            linewidth=1.5 if node in best else 0.7,
            alpha=alpha,
            clip_on=False,
            zorder=3,
        )
        axes.add_patch(box)
        style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "alpha": alpha, "zorder": 4}
        token: dict[str, Any] = {"fontfamily": families, "parse_math": False, "fontsize": 8.5}
        middle = left + width / 2
        if node.parent < 0:
            axes.text(middle, y, names[place], color=INK, **token, **style)
            continue
        axes.text(middle, y + 0.055, names[place], color=INK, **token, **style)
        axes.text(middle, y - 0.09, f"{node.score + 0.0:.2f}", fontsize=5.5, color=QUIET, **style)
    finished = sum(node.state == "finished" for node in nodes)
    subtitle = (
        f"blue: the best of {finished} finished ones; pale: given up; {len(nodes) - 1} tokens looked at  ·  "
        "small: the score so far, log-probability over length penalty"
    )
    drawing.head(figure, axes, labels.visible(title), subtitle + labels.about_blanks(text), families)
    drawing.save(figure, path, title)
    return letters.note(text)


def _bow(axes: Axes, points: Sequence[tuple[float, float]], **style: Any) -> None:
    """From the first of four points towards the second, and on to the last as if from the third."""
    axes.add_patch(PathPatch(Curve(points, [Curve.MOVETO, *[Curve.CURVE4] * 3]), fill=False, clip_on=False, **style))


# --- alignment -------------------------------------------------------------------------------------------------------

_LONGEST_LINE = 14.0  # inches


def alignment(look: Look, title: str, path: Path) -> str | None:
    """The sentence above, its translation below, and a line from each output token to what it comes from."""
    drawing.check_suffix(path)
    above, below = labels.of(look.source_tokens[:-1]), labels.of(look.target_tokens[:-1])  # the ends come from nowhere
    text = title + "".join(above) + "".join(below)
    families = letters.font_families(text)
    (title,), above, below = (letters.drawn(each, path) for each in ([title], above, below))
    sides = (above, look.source), (below, look.translation)
    rows = [_line_up(names, labels.right_to_left(whole)) for names, whole in sides]
    upright = max((left + wide for row in rows for left, wide in row), default=0.0) > _LONGEST_LINE
    if upright:  # the same seen from the side: one token below the other, the sentence on the left
        rows = [[(0.22 * place, 0.22) for place in range(len(names))] for names, _ in sides]
    lengths = [max((left + wide for left, wide in row), default=0.0) for row in rows]
    length = max(*lengths, drawing.LEAST_WIDE)
    depth = 3.2 if upright else min(max(0.9, length / 7), 2.2)

    def spot(along: float, across: float) -> tuple[float, float]:
        return (across, length - along) if upright else (along, depth - across)

    figure = Figure(figsize=(depth, length) if upright else (length, depth), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, figure.get_figwidth()), ylim=(0, figure.get_figheight()))
    axes.set_axis_off()
    style: dict[str, Any] = {
        "fontfamily": families,
        "parse_math": False,
        "color": INK,
        "fontsize": 9 if upright else 11,
    }
    middles = [  # of each token; both rows stand in the middle
        [left + wide / 2 + (0 if upright else (length - own) / 2) for left, wide in row]
        for row, own in zip(rows, lengths, strict=True)
    ]
    for (names, _), places, across, before in zip(sides, middles, (-0.06, depth + 0.06), (True, False), strict=True):
        turned: dict[str, Any] = {"ha": "right" if before else "left", "va": "center"}
        level: dict[str, Any] = {"ha": "center", "va": "bottom" if before else "top"}
        for name, along in zip(names, places, strict=True):
            x, y = spot(along, across)
            axes.text(x, y, name, **style, **(turned if upright else level))
    for source, target in look.linked:
        upper, lower = middles[0][source], middles[1][target]
        ways = (lower, depth - 0.02), (lower, depth / 2), (upper, depth / 2), (upper, 0.02)
        _bow(axes, [spot(*way) for way in ways], color=BLUE, linewidth=1.3, alpha=0.75)
    subtitle = f"from each output token to what it comes from, {look.method.in_words}"
    drawing.head(figure, axes, labels.visible(title), subtitle + labels.about_blanks(text), families, gap=0.45)
    drawing.save(figure, path, title)
    return letters.note(text)


def _line_up(names: Sequence[str], backwards: bool) -> list[tuple[float, float]]:
    """Left edge and width of each label on one line, in inches; from the right where the text goes that way."""
    places = [(0.0, 0.12 + 0.115 * max(1, labels.columns_wide(name))) for name in names]
    x = 0.0
    for place in labels.in_order(names, backwards):
        places[place] = x, places[place][1]
        x += places[place][1]
    return places


# --- what heads are for ----------------------------------------------------------------------------------------------

_CELL = 0.66, 0.42  # inches
_HABIT = 0.4  # of all weight: from here on a head is named after it


def head_worth(worth: Worth, statistics: Statistics, metric: str, title: str, path: Path) -> str | None:
    """Every head twice: how much the loss rises without it, and where it looks.

    Args:
        worth: of each head by itself.
        metric: the name of its scores.
    """
    drawing.check_suffix(path)
    without = {tuple(head): each for each in worth.without for head in each.heads}
    most = max(abs(each.loss - worth.whole.loss) for each in worth.without) or 1.0
    H = 1 + max(each.head for each in statistics.heads)
    places = [place for place in ATTENTIONS if any(each.place == place for each in statistics.heads)]
    depths = [1 + max(each.layer for each in statistics.heads if each.place == place) for place in places]
    gap = 0.3
    wide, high = H * _CELL[0], [depth * _CELL[1] for depth in depths]
    width, height = 2 * wide + gap, sum(high) + (len(places) - 1) * gap
    figure = Figure(figsize=(width, height), facecolor="white")
    panels: dict[tuple[Place, int], Axes] = {}
    bottom = height + gap
    for place, depth, tall in zip(places, depths, high, strict=True):
        bottom -= tall + gap
        for side, name in enumerate(("loss without it", "where it looks")):
            box = side * (wide + gap) / width, bottom / height, wide / width, tall / height
            axes = panels[place, side] = figure.add_axes(box)
            axes.set(xlim=(-0.5, H - 0.5), ylim=(depth - 0.5, -0.5), xticks=[], yticks=[])
            axes.tick_params(length=0, pad=4, labelsize=8, labelcolor=QUIET, labeltop=True, labelbottom=False)
            axes.spines[:].set_color(FRAME)
            if place == places[0]:
                axes.set_xticks(range(H), [f"head {head + 1}" for head in range(H)])
                axes.set_title(name, loc="left", fontsize=10, color=INK, pad=8)
            if side == 0:
                axes.set_yticks(range(depth), [f"layer {layer + 1}" for layer in range(depth)])
                axes.set_ylabel(place, fontsize=10, color=INK, labelpad=8)
    for each in statistics.heads:
        found = without[each[:3]]
        rise = found.loss - worth.whole.loss
        # A few heads carry most of it: the root lets the others be seen, and the number says how much it is.
        share = math.copysign(math.sqrt(abs(rise) / most), rise)
        lines = f"{round(rise, 3) + 0.0:+.3f}", f"{found.changed:.0%}"
        _cell(panels[each.place, 0], each.head, each.layer, BELOW_TO_ABOVE((share + 1) / 2), lines)
        lines = _habit(each), f"{each.peak:.2f}"
        _cell(panels[each.place, 1], each.head, each.layer, PAPER_TO_INK(0.8 * (1 - each.spread)), lines)
    meaning = (
        "left: how much the loss rises without the head, and how many translations change\n"
        "right: what it looks at most, or how many tokens away, and its largest weight; the darker the sharper"
    )
    figure.text(0, -0.14 / height, meaning, fontsize=8, color=QUIET, va="top", linespacing=1.5)
    subtitle = (
        f"{worth.pairs:,} pairs  ·  with all heads: loss {worth.whole.loss:.3f}, {metric} {worth.whole.score:.2f}"
    )
    (drawn,) = letters.drawn([labels.visible(title)], path)
    drawing.head(figure, figure.axes[0], drawn, subtitle, letters.font_families(title))
    drawing.save(figure, path, title)
    return letters.note(title)


def _cell(axes: Axes, x: int, y: int, colour: tuple[float, float, float, float], lines: tuple[str, str]) -> None:
    """One head: what matters, and below it, smaller, what comes second."""
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=1))
    red, green, blue, _ = colour
    ink = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.55 else INK
    axes.text(x, y - 0.14, lines[0], fontsize=7.5, color=ink, ha="center", va="center")
    axes.text(x, y + 0.24, lines[1], fontsize=6, color=ink, ha="center", va="center")


def _habit(of: Habits) -> str:
    """Where a head looks, in a word, or how far away where no word fits."""
    there = "diagonal" if of.place == "cross" else "itself"
    edge = "begin" if of.place == "decoder" else "end"
    weight, name = max((of.end, edge), (of.same, there), (of.previous, "before"), (of.following, "after"))
    return name if weight >= _HABIT else f"± {of.distance:.1f}"
