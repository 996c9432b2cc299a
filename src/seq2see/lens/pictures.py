"""Pictures: attention as heat maps, training as curves, with every letter of every script drawn.

Figures are built from `matplotlib.figure.Figure`, never through pyplot, so nothing global is left behind. matplotlib
costs half a second: import this module where a picture is wanted.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from seq2see.lens import drawing, letters
from seq2see.lens.drawing import BLUE, FRAME, HAIRLINE, INK, ORANGE, PAPER_TO_INK, QUIET

# --- attention -------------------------------------------------------------------------------------------------------

_GAP = 0.42  # inches between the large panel and the heads; also what the slanted labels need
_BETWEEN = 0.3  # inches between two heads, their titles included


def attention(
    weights_HLM: NDArray[np.floating[Any]],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    path: Path,
    row_name: str = "output",
    column_name: str = "input",
) -> str | None:
    """Draw the attention of one layer: the mean over heads large, each head small, on one scale from 0 to 1.

    Args:
        weights_HLM: one matrix per head; each row sums to 1.
        rows: the L tokens that attend, named `row_name` in the picture.
        columns: the M tokens attended to, named `column_name`.
        title: one line above the picture.
        path: where to save; the suffix says the format: .png, .svg or .pdf.

    Returns:
        A line for the user where some letters have no font, else None.
    """
    H, L, M = weights_HLM.shape
    assert (len(rows), len(columns)) == (L, M), f"weights of {L} x {M} for {len(rows)} x {len(columns)} tokens"
    drawing.check_suffix(path)
    families = letters.font_families(title + "".join(rows) + "".join(columns))

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
    figure.colorbar(image, cax=bar, ticks=[0, 0.5, 1])
    bar.tick_params(labelsize=8, labelcolor=QUIET, length=0)
    bar.spines[:].set_color(HAIRLINE)

    drawn = f"mean of {H} heads" if H > 1 else "1 head"
    subtitle = f"{drawn}  ·  a row: where one {row_name} token looks among the {column_name} tokens"
    drawing.head(figure, large, letters.visible(title), subtitle, families)
    drawing.save(figure, path)
    return letters.note(title + "".join(rows) + "".join(columns))


def _heat_map(axes: Axes, weights_LM: NDArray[np.floating[Any]]) -> AxesImage:
    image = axes.imshow(weights_LM, cmap=PAPER_TO_INK, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
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
    slanted = max(letters.columns_wide(text) for text in columns) * style["fontsize"] * 0.62 > cell * 72
    turn: dict[str, Any] = {"rotation": 45, "ha": "left", "va": "center", "rotation_mode": "anchor"} if slanted else {}
    axes.set_yticks(range(len(rows)), [letters.visible(text) for text in rows], **style)
    axes.set_xticks(range(len(columns)), [letters.visible(text) for text in columns], **style, **turn)
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


# --- curves ----------------------------------------------------------------------------------------------------------

_AXIS_NAMES = {
    "loss": "loss per token",
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact": "exact match, %",
    "error_rate": "error rate, %",
    "rate": "learning rate",
}
Line = tuple[str, list[float], list[float]]


def curves(metrics: Sequence[Mapping[str, Any]], path: Path | None = None) -> str:
    """Training curves from the rows of `metrics.jsonl`, as inline SVG; with a path, as a picture file too.

    The SVG is one `<svg>` per panel, so that a page can put them side by side or below each other, without a
    background and in the text colour of the page (`currentColor`). Panels: training and validation loss, each further
    metric that validation measured, the learning rate. Nothing to draw gives an empty string and no file.
    """
    panels = _panels(metrics)
    if path is not None:
        drawing.check_suffix(path)
        if panels:
            figure = Figure(
                figsize=(3.7 * len(panels), 2.7), facecolor="white", layout=ConstrainedLayoutEngine(w_pad=0.12)
            )
            for place, (name, lines) in enumerate(panels.items(), start=1):
                _curve(figure.add_subplot(1, len(panels), place), name, lines)
            drawing.save(figure, path)
    return "\n".join(_inline(name, lines) for name, lines in panels.items())


def _panels(metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[Line]]:
    """The lines of each panel: `{"loss": [("training", steps, values), ("validation", ...)], ...}`."""
    trained = [row for row in metrics if "loss" in row]
    validated = [row for row in metrics if "validation" in row]
    further = dict.fromkeys(name for row in validated for name in row["validation"] if name != "loss")
    panels: dict[str, list[Line]] = {"loss": [_line("training", trained, "loss")]}
    for name in ("loss", *further):
        rows = [{"step": row["step"], **row["validation"]} for row in validated]
        panels.setdefault(name, []).append(_line("validation", rows, name))
    panels["rate"] = [_line("rate", trained, "rate")]
    drawn = {name: [line for line in lines if line[1]] for name, lines in panels.items()}
    return {name: lines for name, lines in drawn.items() if lines}


def _line(name: str, rows: Iterable[Mapping[str, Any]], key: str) -> Line:
    points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    return name, [float(step) for step, _ in points], [float(value) for _, value in points]


def _curve(axes: Axes, name: str, lines: list[Line]) -> None:
    for label, steps, values in lines:
        measured = label == "validation"
        axes.plot(
            steps,
            values,
            label=label,
            color=ORANGE if measured else BLUE,
            linewidth=1.8 if measured else 1.2,
            marker="o" if measured else None,
            markersize=3,
        )
    label, steps, values = lines[-1]
    if label == "validation" and math.isfinite(values[-1]):
        axes.annotate(
            f"{values[-1]:.4g}",
            (steps[-1], values[-1]),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=ORANGE,
            annotation_clip=False,
        )
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, handlelength=1.4)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.margins(x=0.02, y=0.08)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    drawing.dress(axes, _AXIS_NAMES.get(name, name), "step")


def _inline(name: str, lines: list[Line]) -> str:
    figure = Figure(figsize=(3.7, 2.7), facecolor="none", layout="constrained")
    _curve(figure.add_subplot(), name, lines)
    svg = drawing.inline(figure, f"{_AXIS_NAMES.get(name, name)} by step", tight=False)
    opening, rest = svg.split(">", maxsplit=1)
    # The page decides the size; viewBox keeps the proportions.
    return re.sub(r' (width|height)="[^"]*"', "", opening) + ">" + rest.replace(INK, "currentColor")


# --- lengths ---------------------------------------------------------------------------------------------------------


def lengths(source: NDArray[Any], target: NDArray[Any], path: Path) -> None:
    """How long the texts of a corpus are, and how the sides compare: a histogram of each on a scale of powers."""
    drawing.check_suffix(path)
    figure = Figure(figsize=(7.8, 2.9), facecolor="white", layout=ConstrainedLayoutEngine(w_pad=0.12))
    one, other = figure.subplots(1, 2)
    longest = max(10, int(source.max(initial=1)), int(target.max(initial=1)))
    # Lengths are whole numbers: a bin must not be narrower than one, or small ones leave gaps.
    bins = np.unique(np.geomspace(1, longest + 1, 60).round()) - 0.5
    for name, values, colour in (("source", source, BLUE), ("target", target, ORANGE)):
        label = f"{name}, median {np.median(values):,.0f}" if len(values) else name
        shares = np.histogram(values, bins)[0] / np.diff(bins) / max(1, len(values))
        one.stairs(100 * shares, bins, color=colour, linewidth=1.5, label=label)
    one.set_xscale("log")
    one.legend(frameon=False, fontsize=8.5, labelcolor=INK, handlelength=1.4)
    drawing.dress(one, "pairs by length, % per character", "characters")
    ratio = np.log2((target + 1.0) / (source + 1.0))
    other.hist(ratio, bins=60, weights=np.full(len(ratio), 100 / max(1, len(ratio))), color=BLUE)
    other.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    other.xaxis.set_major_formatter(lambda value, _: f"{2.0**value:g}" if value >= 0 else f"1/{2.0**-value:g}")
    drawing.dress(other, "pairs by ratio of lengths, %", "target / source")
    for axes in (one, other):
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    one.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    drawing.save(figure, path)
