"""Charts of the training of a run, of pruned heads, and of the lengths of texts of a corpus."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from seq2see.lens.pruning import TOLERANCE, Pruning
from seq2see.pictures import drawing, labels
from seq2see.pictures.drawing import BLUE, INK, ORANGE, QUIET, Picture
from seq2see.pictures.sublayers import NAMES

_AXIS_NAMES = {
    "loss": "loss per token",
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact": "exact match, %",
    "error_rate": "error rate, %",
    "rate": "learning rate",
}
_LEAST = 0.5
"""Lower end of a logarithmic axis of counts, so that a bar of one is visible."""
Line = tuple[str, list[float], list[float]]
"""A curve: its name, the steps, and the value at each step."""


def curves(metrics: Sequence[Mapping[str, Any]], path: Path | None = None, title: str = "") -> str:
    """Return training curves from the rows of `metrics.jsonl` as inline SVG; with a path, save them as a picture, too.

    The SVG is one `<svg>` per panel, so that a page can put them side by side or below each other, without a
    background and in the text colour of the page (`currentColor`). Panels: training and validation loss, each further
    metric of the validation, the learning rate. If there is nothing to draw, the text is empty and no
    file is written. The title is only drawn in the file.
    """
    panels = _panels(metrics)
    if path is not None:
        drawing.check_suffix(path)
        if panels:
            figure = drawing.row_of_panels(len(panels))
            for place, (name, lines) in enumerate(panels.items(), start=1):
                _curve(figure.add_subplot(1, len(panels), place), name, lines)
            if title:
                style: dict[str, Any] = {"fontsize": 13, "fontweight": "bold", "color": INK, "parse_math": False}
                style["fontfamily"] = labels.font_families(title)
                figure.suptitle(labels.drawn([title], path)[0], x=0.01, ha="left", **style)
            drawing.save(figure, path, title or "seq2see")
    return "\n".join(_inline(name, lines) for name, lines in panels.items())


def _panels(metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[Line]]:
    """Return the lines of each panel: `{"loss": [("training", steps, values), ("validation", ...)], ...}`."""
    trained = [row for row in metrics if "loss" in row]
    validated = [{"step": row["step"], **row["validation"]} for row in metrics if "validation" in row]
    panels: dict[str, list[Line]] = {"loss": [_line("training", trained, "loss")]}
    for name in dict.fromkeys(["loss", *(name for row in validated for name in row if name != "step")]):
        panels.setdefault(name, []).append(_line("validation", validated, name))
    panels["rate"] = [_line("rate", trained, "rate")]
    drawn = {name: [line for line in lines if line[1]] for name, lines in panels.items()}
    return {name: lines for name, lines in drawn.items() if lines}


def _line(name: str, rows: Iterable[Mapping[str, Any]], key: str) -> Line:
    points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    return name, [float(step) for step, _ in points], [float(value) for _, value in points]


def _curve(axes: Axes, name: str, lines: list[Line]) -> None:
    for label, steps, values in lines:
        style: dict[str, Any] = {"color": BLUE, "linewidth": 1.2}
        if label == "validation":
            style = {"color": ORANGE, "linewidth": 1.8, "marker": "o", "markersize": 3}
            if math.isfinite(values[-1]):
                beside: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
                beside |= {"fontsize": 9, "color": ORANGE, "annotation_clip": False}
                axes.annotate(f"{values[-1]:.4g}", (steps[-1], values[-1]), **beside)
        axes.plot(steps, values, label=label, **style)
    if len(lines) > 1:
        drawing.legend(axes)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.margins(x=0.02, y=0.08)
    axes.set_xlim(left=0)
    values = [value for _, _, values in lines for value in values if math.isfinite(value)]
    if min(values, default=-1) >= 0 > axes.get_ylim()[0]:
        axes.set_ylim(bottom=0, top=None if max(values) else 1)
    _number(axes)
    drawing.dress(axes, _AXIS_NAMES.get(name, name), "step")


def _number(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ticks = axes.get_yticks()
    gap = abs(ticks[1] - ticks[0]) if len(ticks) > 1 else 0.0

    def shown(value: float, _: object) -> str:
        """Return the value with three digits, or as many more as distinguish it from its neighbours."""
        digits = math.ceil(math.log10(abs(value) / gap)) + 1 if value and gap else 0
        return f"{value:.{min(8, max(3, digits))}g}"

    axes.yaxis.set_major_formatter(shown)


def _inline(name: str, lines: list[Line]) -> str:
    figure = Figure(figsize=(3.7, 2.7), facecolor="none", layout="constrained")
    _curve(figure.add_subplot(), name, lines)
    return _for_page(figure, f"{_AXIS_NAMES.get(name, name)} by step")


def _for_page(figure: Figure, description: str) -> str:
    svg = drawing.inline(figure, description, tight=False)
    opening, rest = svg.split(">", maxsplit=1)
    # The page decides the size; viewBox keeps the proportions.
    return re.sub(r' (width|height)="[^"]*"', "", opening) + ">" + rest.replace(INK, "currentColor")


def reliability(curve: Sequence[tuple[float, float, int]]) -> str:
    """Return a reliability curve as inline SVG: predicted and observed quality, and the line on which both are equal.

    Args:
        curve: predicted quality, observed quality (each from 0 to 1) and number of translations of each point; points
            with more translations are drawn larger.
    """
    figure = Figure(figsize=(3.7, 2.7), facecolor="none", layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    predicted, observed, translations = ([point[column] for point in curve] for column in range(3))
    axes.plot(predicted, observed, color=BLUE, linewidth=1.2)
    largest = max(translations, default=1)
    axes.scatter(predicted, observed, s=[10 + 20 * count / largest for count in translations], color=BLUE, zorder=3)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    drawing.dress(axes, "observed", "predicted")
    return _for_page(figure, "observed quality by predicted quality")


def pruning(found: Pruning, title: str, path: Path) -> str | None:
    """Draw loss and score against the number of removed heads: a column for each kind of attention, and one for all
    heads.

    Returns:
        A line for the user if some characters have no font, else None.
    """
    picture = Picture(path, title)
    width, height, gap, names = 2.2, 1.7, 0.6, {**NAMES, "all": "all heads together"}
    picture.resize(len(found.parts) * (width + gap) - gap, 2 * height + gap)
    losses = [loss for each in found.curves for loss in each.loss]
    for place, part in enumerate(found.parts):
        loss, score = (picture.panel(place * (width + gap), y, width, height) for y in (height + gap, 0))
        lines = [*found.random(part), found.curve(part)]
        for axes, name in ((loss, "loss"), (score, "score")):
            for each in lines:
                style: dict[str, Any] = {"color": ORANGE, "linewidth": 0.9, "alpha": 0.8, "label": "random order"}
                if each.order == "importance":
                    style = {"color": BLUE, "linewidth": 1.8, "marker": "o", "markersize": 3}
                    style["label"] = "least important first"
                axes.plot(each.removed, getattr(each, name), **style)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        loss.set_yscale("log")
        loss.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        loss.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        loss.yaxis.set_minor_locator(NullLocator())
        loss.set_ylim(0.9 * max(min(losses), 1e-6), 1.15 * max(losses))
        loss.axhline((1 + TOLERANCE) * lines[-1].loss[0], color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
        drawing.dress(loss, names[part], "")
        drawing.dress(score, "", "removed heads")
        if not place:
            for axes, name in ((loss, "loss"), (score, found.metric)):
                axes.set_ylabel(_AXIS_NAMES.get(name, name), fontsize=8.5, color=INK)
    handles, texts = picture.figure.axes[0].get_legend_handles_labels()
    drawing.legend(picture.figure.axes[0], handles=handles[-2:], labels=texts[-2:], loc="upper left")
    meaning = "dashed: a tenth above the loss of the whole model"
    pairs = f"{found.pairs:,} pairs, heads ranked on {found.ranked_on:,} others"
    return picture.finish(picture.figure.axes[0], f"{pairs}  ·  {meaning}")


def lengths(source: NDArray[Any], target: NDArray[Any], path: Path) -> str | None:
    """Draw histograms of the lengths of texts in characters on a logarithmic scale, and of the length ratio of the two
    sides. Numbers of pairs are on a logarithmic scale, too, if a few very long texts could not be seen otherwise.

    Returns:
        A line for the user if some characters have no font, else None.
    """
    drawing.check_suffix(path)
    figure = drawing.row_of_panels(2, 2.9)
    one, other = figure.subplots(1, 2)
    longest = max(10, int(source.max(initial=1)), int(target.max(initial=1)))
    # Lengths are whole numbers: a bin must not be narrower than one, or small ones leave gaps.
    bins = np.unique(np.geomspace(1, longest + 1, 60).round()) - 0.5
    counts = [np.histogram(values, bins)[0] for values in (source, target)]
    for name, values, each, colour in zip(("source", "target"), (source, target), counts, (BLUE, ORANGE), strict=True):
        if name == "source":  # an area, which remains visible where the other side has the same lengths
            one.stairs(each, bins, color=colour, fill=True, alpha=0.3)
        most = int(values.max(initial=0))
        longer = " or more" if most == 0xFFFF else ""  # the doctor does not count beyond
        label = f"{name}, median {np.median(values):,.0f}, longest {most:,}{longer}" if len(values) else name
        one.stairs(each, bins, color=colour, linewidth=1.2, label=label)
    one.set_xscale("log")
    drawing.legend(one, loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0)  # below, where no bars are
    drawing.dress(one, "pairs by length" + _scale(one, *counts), "characters")
    ratio = np.log2((target + 1.0) / (source + 1.0))
    times, edges = np.histogram(ratio, 60)
    other.stairs(times, edges, color=BLUE, fill=True)
    drawing.dress(other, "pairs by ratio of lengths" + _scale(other, times), "target / source")
    for axes in (one, other):
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    other.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    other.xaxis.set_major_formatter(lambda value, _: f"{2.0**value:.3g}" if value >= 0 else f"1/{2.0**-value:.3g}")
    drawing.save(figure, path)
    return labels.note("".join(text.get_text() for text in figure.findobj(Text)))


def _scale(axes: Axes, *counts: NDArray[Any]) -> str:
    """Make the y axis of histograms logarithmic if a bar would be lower than 2 % of the highest one, and return text
    for the title of the chart; empty if the axis is linear.
    """
    seen = np.concatenate(counts)
    if not seen.any() or 50 * seen[seen > 0].min() >= seen.max():
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_ylim(bottom=0)
        return ""
    axes.set_yscale("log")
    axes.set_ylim(bottom=_LEAST)
    axes.yaxis.set_minor_locator(NullLocator())
    return ", logarithmic scale"
