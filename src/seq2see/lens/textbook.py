"""The pictures of the paper that need no trained model: waves, their dot products, masks, warm-up.

Each is drawn from the functions that the model itself uses, so that a picture shows what the code does.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from seq2see.lens import drawing, labels, letters
from seq2see.lens.drawing import BELOW_TO_ABOVE, BLUE, FRAME, INK, ORANGE, PAPER_TO_INK, QUIET
from seq2see.model.attention import keep_padding, keep_past
from seq2see.model.positions import sinusoid
from seq2see.training import schedule

Numbers = NDArray[np.float64]
SERIES = ("#08366b", BLUE, ORANGE, "#8a3d06", "#5d6b2f", "#7a4a86", "#3d8c80", "#7fb6da")

HIDDEN = "#e9edf1"

# --- positions -------------------------------------------------------------------------------------------------------


def waves(length: int, d_model: int) -> Numbers:
    """LD: what is added to the embedding at each position (section 3.5)."""
    waves_LD: Numbers = sinusoid(length, d_model, dtype=torch.float64).numpy()
    return waves_LD


def draw_waves(length: int, d_model: int, path: Path) -> None:
    """The waves as a map, one row for each position, and a few columns as the curves they are."""
    drawing.check_suffix(path)
    waves_LD = waves(length, d_model)
    figure = Figure(figsize=(8.4, 6.4), facecolor="white")
    map_axes = figure.add_axes((0.0, 0.37, 0.93, 0.63))
    image = _map(map_axes, waves_LD, BELOW_TO_ABOVE, -1, 1)
    map_axes.set_xlabel("column of the vector", fontsize=9, color=INK)
    map_axes.set_ylabel("position in the sentence", fontsize=9, color=INK)
    _scale(figure, image, (0.95, 0.66, 0.013, 0.34), [-1, 0, 1])

    curve_axes = figure.add_axes((0.0, 0.0, 0.93, 0.22))
    fine = np.linspace(0, max(length - 1, 1), 800)
    for colour, column in zip(SERIES, _telling_columns(length, d_model), strict=False):
        curve_axes.plot(fine, np.sin(fine / 10_000 ** (column / d_model)), color=colour, linewidth=1.1, alpha=0.6)
        curve_axes.plot(waves_LD[:, column], "o", color=colour, markersize=2.6, label=f"column {column}")
        map_axes.plot(column, -0.5, marker=7, color=colour, markersize=7, clip_on=False, zorder=5)
    drawing.dress(curve_axes, "the marked columns", "position in the sentence")
    curve_axes.set(xlim=(-0.5, length - 0.5), ylim=(-1.12, 1.12))
    curve_axes.yaxis.set_major_locator(MaxNLocator(2))
    curve_axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    curve_axes.legend(
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        loc="lower right",
        bbox_to_anchor=(1.01, 0.98),
        ncols=5,
        markerscale=1.6,
        handletextpad=0,
        columnspacing=1.2,
    )
    title = f"Position waves, {length} × {d_model}"
    equation = r"$PE_{pos,\,2i}=\sin(pos/10000^{\,2i/d_{model}})$,   $PE_{pos,\,2i+1}=\cos(pos/10000^{\,2i/d_{model}})$"
    drawing.head(figure, map_axes, title, equation, math=True)
    drawing.save(figure, path, title)


def _telling_columns(length: int, d_model: int) -> list[int]:
    """Even columns whose waves are from a tenth of the picture to four times as long."""
    columns = set()
    for share in (0.12, 0.3, 0.6, 1.2, 4.0):
        period = max(share * length, math.tau)
        columns.add(2 * round(d_model / 2 * math.log(period / math.tau, 10_000)))
    return sorted(column for column in columns if column < d_model)


def dot_products(length: int, d_model: int) -> Numbers:
    """LL: how alike two positions are. It depends on their distance alone, which is why the paper chose waves."""
    waves_LD = waves(length, d_model)
    return waves_LD @ waves_LD.T


def draw_dot_products(length: int, d_model: int, path: Path) -> None:
    """The dot product of every two positions, and of the middle one with all others as a curve."""
    drawing.check_suffix(path)
    products_LL = dot_products(length, d_model)
    figure = Figure(figsize=(9.2, 4.3), facecolor="white")
    map_axes = figure.add_axes((0.0, 0.0, 0.467, 1.0))
    image = _map(map_axes, products_LL, PAPER_TO_INK, min(0.0, float(products_LL.min())), d_model / 2)
    map_axes.set_xlabel("position", fontsize=9, color=INK)
    map_axes.set_ylabel("position", fontsize=9, color=INK)
    _scale(figure, image, (0.48, 0.5, 0.012, 0.5), [0, d_model / 4, d_model / 2])
    middle = length // 2
    map_axes.axhspan(middle - 0.5, middle + 0.5, fill=False, edgecolor=ORANGE, linewidth=1)

    curve_axes = figure.add_axes((0.6, 0.115, 0.4, 0.78))
    curve_axes.plot(products_LL[middle], color=ORANGE, linewidth=1.6, marker="o", markersize=2.6)
    drawing.dress(curve_axes, f"the marked row: position {middle} with each other", "position")
    curve_axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    curve_axes.set_xlim(-0.5, length - 0.5)
    curve_axes.set_ylim(bottom=min(0.0, float(products_LL.min()) * 1.1))
    title = f"Dot products of {length} positions, d_model {d_model}"
    drawing.head(
        figure,
        map_axes,
        title,
        r"$PE_p\cdot PE_q=\sum_i\,\cos\left((p-q)/10000^{\,2i/d_{model}}\right)$: only the distance counts",
        math=True,
        gap=0.24,
    )
    drawing.save(figure, path, title)


# --- masks -----------------------------------------------------------------------------------------------------------


def masks(padding: Sequence[bool]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """LL twice: what a token may see in the encoder, where only padding is hidden, and in the decoder. True: seen."""
    L = len(padding)
    tokens_1L = 1 - torch.tensor([list(padding)]).int()  # 0 is padding
    return keep_padding(tokens_1L)[0, 0].expand(L, L).numpy(), keep_past(tokens_1L)[0, 0].numpy()


def draw_masks(tokens: Sequence[str], padding: Sequence[bool], path: Path) -> None:
    """Both masks side by side, cell by cell: who may look at whom."""
    drawing.check_suffix(path)
    L = len(tokens)
    cell = min(max(7 / L, 0.16), 0.5)
    side = L * cell
    figure = Figure(figsize=(side, side), facecolor="white")
    names = letters.drawn(map(labels.visible, tokens), path)
    size = min(max(cell * 72 * 0.42, 6), 11)
    families = letters.font_families("".join(tokens))
    longest = max(drawing.wide(each, fontsize=size, fontfamily=families) for each in names)
    upright = longest > 0.9 * cell
    above = 0.22 + (longest if upright else size / 72)
    step = max(1 + (longest + 0.5) / side, 2.9 / side)
    titles = ("padding mask", "encoder, and decoder looking across"), ("look-ahead mask", "decoder looking at itself")
    for place, (keep_LL, (name, where)) in enumerate(zip(masks(padding), titles, strict=True)):
        axes = figure.add_axes((place * step, 0, 1, 1))
        _cells(axes, keep_LL, names, padding, size, upright)
        for text, inches, size_of_text, colour in ((name, 0.2, 10, INK), (where, 0.0, 8.5, QUIET)):
            y = 1 + (above + inches) / side
            axes.text(0, y, text, transform=axes.transAxes, fontsize=size_of_text, color=colour)
    drawing.head(
        figure,
        figure.axes[0],
        "Masks: who may see whom",
        "a row: one token that looks; blue may be seen, grey is hidden: its weight is exactly 0",
        gap=0.3,
    )
    drawing.save(figure, path, "Padding mask and look-ahead mask")


def _cells(
    axes: Axes, keep_LL: NDArray[np.bool_], names: Sequence[str], padding: Sequence[bool], size: float, upright: bool
) -> None:
    L = len(names)
    edges = np.arange(L + 1) - 0.5
    axes.pcolormesh(edges, edges, keep_LL, cmap=ListedColormap([HIDDEN, BLUE]), vmin=0, vmax=1)
    for edge in edges:
        axes.axhline(edge, color="white", linewidth=size / 8)
        axes.axvline(edge, color="white", linewidth=size / 8)
    axes.set(xlim=(-0.5, L - 0.5), ylim=(L - 0.5, -0.5))
    axes.spines[:].set_color(FRAME)
    style: dict[str, Any] = {
        "fontsize": size,
        "parse_math": False,
        "fontfamily": letters.font_families("".join(names)),
    }
    axes.set_xticks(range(L), names, rotation=90 if upright else 0, **style)
    axes.set_yticks(range(L), names, **style)
    axes.tick_params(length=0, pad=4, labeltop=True, labelbottom=False)
    for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
        for tick, is_padding in zip(ticks, padding, strict=True):
            tick.set_color("#a6b0ba" if is_padding else INK)


# --- warm-up ---------------------------------------------------------------------------------------------------------


def steps_to_draw(warmup_steps: int, max_steps: int) -> list[int]:
    """A thousand steps or so, the peak and the last among them."""
    steps = {*range(1, max_steps + 1, max(1, max_steps // 1000)), min(warmup_steps, max_steps), max_steps}
    return sorted(steps)


def draw_warm_up(choices: Sequence[tuple[int, int]], max_steps: int, path: Path) -> None:
    """The learning rate over the steps, one curve for each pair of d_model and warm-up steps."""
    drawing.check_suffix(path)
    figure = Figure(figsize=(8.0, 4.3), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    widths = list(dict.fromkeys(d_model for d_model, _ in choices))
    ends = dict.fromkeys(widths, 0.0)
    peaks: dict[int, list[str]] = {d_model: [] for d_model in widths}
    for d_model, warmup_steps in choices:
        colour = SERIES[widths.index(d_model)]
        steps = steps_to_draw(warmup_steps, max_steps)
        rates = [schedule.noam(step, d_model, warmup_steps) for step in steps]
        axes.plot(steps, rates, color=colour, linewidth=1.8)
        ends[d_model] = max(ends[d_model], rates[-1])
        if warmup_steps <= max_steps:
            peak = schedule.noam(warmup_steps, d_model, warmup_steps)
            axes.plot(warmup_steps, peak, "o", color=colour, markersize=4.5)
            peaks[d_model].append(f"peak {peak:.4g} at step {warmup_steps:,}")
    drawing.dress(axes, "", "step")
    top = max(schedule.noam(min(warm, max_steps), d_model, warm) for d_model, warm in choices)
    axes.set(xlim=(0, max_steps), ylim=(0, top * 1.1))
    # Names at the ends of the curves, kept apart, each with its peaks: beside these, curves would cross them.
    line, places, below = top * 0.045, {}, math.inf
    for d_model in sorted(widths, key=lambda each: -ends[each]):
        below = min(ends[d_model] + line / 2, below)
        places[d_model] = below
        below -= (len(peaks[d_model]) + 1.4) * line
    lift = max(0.0, -below)
    for d_model, y in places.items():
        style: dict[str, Any] = {"color": SERIES[widths.index(d_model)], "va": "top", "annotation_clip": False}
        for row, text in enumerate((f"d_model {d_model:,}", *peaks[d_model])):
            place: dict[str, Any] = {"xytext": (1.015, y + lift - row * line), "textcoords": ("axes fraction", "data")}
            axes.annotate(text, (max_steps, ends[d_model]), fontsize=8 if row else 9.5, **place, **style)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    drawing.head(
        figure,
        axes,
        "Learning rate: up in a line, down with the square root",
        r"$rate = d_{model}^{-0.5}\cdot\min\left(step^{-0.5},\ step\cdot warmup^{-1.5}\right)$",
        math=True,
    )
    drawing.save(figure, path, "Learning rate with warm-up")


# --- shared ----------------------------------------------------------------------------------------------------------


def _map(axes: Axes, values_LM: Numbers, colours: Colormap, low: float, high: float) -> AxesImage:
    # "none" lets SVG and PDF hold each number as one pixel, to be scaled sharp, instead of a smooth copy.
    image = axes.imshow(values_LM, cmap=colours, vmin=low, vmax=high, aspect="auto", interpolation="none")
    axes.tick_params(length=0, labelsize=8.5, labelcolor=INK)
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.spines[:].set_color(FRAME)
    axes.spines[:].set_linewidth(0.6)
    return image


def _scale(figure: Figure, image: AxesImage, place: tuple[float, float, float, float], ticks: list[float]) -> None:
    bar = figure.add_axes(place)
    figure.colorbar(image, cax=bar, ticks=ticks)
    bar.tick_params(labelsize=8.5, labelcolor=QUIET, length=0)
    bar.spines[:].set(color=FRAME, linewidth=0.6, visible=True)
