"""Pictures of the paper that need no trained model: positional encodings, their dot products, masks, warm-up.

Each is drawn from the functions that the model itself uses, so that a picture shows what the code does. Each drawing
function returns a line for the user if some characters have no font, else None.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from seq2see.model.attention import keep_padding, keep_past
from seq2see.model.layers import sinusoid
from seq2see.pictures import drawing, labels
from seq2see.pictures.drawing import BELOW_TO_ABOVE, BLUE, INK, ORANGE, PAPER_TO_INK, QUIET, SERIES, Picture
from seq2see.training import schedule

Numbers = NDArray[np.float64]
HIDDEN = "#e9edf1"
PALE = "#a6b0ba"

# --- positions -------------------------------------------------------------------------------------------------------


def waves(length: int, d_model: int) -> Numbers:
    """Return the positional encoding, length x d_model, that is added to the embeddings (paper, section 3.5)."""
    waves_LD: Numbers = sinusoid(length, d_model, dtype=torch.float64).numpy()
    return waves_LD


def draw_waves(length: int, d_model: int, path: Path) -> str | None:
    """Draw the positional encoding as a heat map, one row per position, and a few of its columns as curves."""
    waves_LD = waves(length, d_model)
    picture = Picture(path, f"Position waves, {length} × {d_model}")
    picture.resize(8.4, 6.4)
    map_axes = picture.panel(0, 2.37, 7.81, 4.03)
    image = drawing.heat_map(map_axes, waves_LD, BELOW_TO_ABOVE, -1, 1)
    _number(map_axes, "column of the vector", "position in the sentence")
    drawing.colour_bar(image, picture.panel(7.98, 4.22, 0.11, 2.18), [-1, 0, 1])

    curve_axes = picture.panel(0, 0, 7.81, 1.41)
    fine = np.linspace(0, max(length - 1, 1), 800)
    for colour, column in zip(SERIES, _telling_columns(length, d_model), strict=False):
        curve_axes.plot(fine, np.sin(fine / 10_000 ** (column / d_model)), color=colour, linewidth=1.1, alpha=0.6)
        curve_axes.plot(waves_LD[:, column], "o", color=colour, markersize=2.6, label=f"column {column}")
        map_axes.plot(column, -0.5, marker=7, color=colour, markersize=7, clip_on=False, zorder=5)
    drawing.dress(curve_axes, "the marked columns", "position in the sentence")
    curve_axes.set(xlim=(-0.5, length - 0.5), ylim=(-1.12, 1.12))
    curve_axes.yaxis.set_major_locator(MaxNLocator(2))
    curve_axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    above: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.01, 0.98), "ncols": 5}
    drawing.legend(curve_axes, **above, markerscale=1.6, handletextpad=0, columnspacing=1.2)
    equation = r"$PE_{pos,\,2i}=\sin(pos/10000^{\,2i/d_{model}})$,   $PE_{pos,\,2i+1}=\cos(pos/10000^{\,2i/d_{model}})$"
    return picture.finish(map_axes, equation, math=True)


def _telling_columns(length: int, d_model: int) -> list[int]:
    """Return up to five even columns of the encoding, with wavelengths from about a tenth to four times the length."""
    columns = set()
    for share in (0.12, 0.3, 0.6, 1.2, 4.0):
        period = max(share * length, math.tau)
        columns.add(2 * round(d_model / 2 * math.log(period / math.tau, 10_000)))
    return sorted(column for column in columns if column < d_model)


def dot_products(length: int, d_model: int) -> Numbers:
    """Return the dot products of the encodings of every two positions, length x length. They depend only on the
    distance between the positions.
    """
    waves_LD = waves(length, d_model)
    return waves_LD @ waves_LD.T


def draw_dot_products(length: int, d_model: int, path: Path) -> str | None:
    """Draw the dot products of all pairs of positions, and those of the middle position as a curve."""
    products_LL = dot_products(length, d_model)
    lowest, middle = min(0.0, float(products_LL.min())), length // 2
    picture = Picture(path, f"Dot products of {length} positions, d_model {d_model}")
    picture.resize(9.2, 4.3)
    map_axes = picture.panel(0, 0, 4.3, 4.3)
    image = drawing.heat_map(map_axes, products_LL, PAPER_TO_INK, lowest, d_model / 2)
    _number(map_axes, "position", "position")
    drawing.colour_bar(image, picture.panel(4.42, 2.15, 0.11, 2.15), [0, d_model / 4, d_model / 2])
    map_axes.axhspan(middle - 0.5, middle + 0.5, fill=False, edgecolor=ORANGE, linewidth=1)

    curve_axes = picture.panel(5.52, 0.5, 3.68, 3.35)
    curve_axes.plot(products_LL[middle], color=ORANGE, linewidth=1.6, marker="o", markersize=2.6)
    drawing.dress(curve_axes, f"the marked row: position {middle} with each other", "position")
    curve_axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    curve_axes.set_xlim(-0.5, length - 0.5)
    curve_axes.set_ylim(bottom=1.1 * lowest)
    equation = r"$PE_p\cdot PE_q=\sum_i\,\cos\left((p-q)/10000^{\,2i/d_{model}}\right)$: only the distance counts"
    return picture.finish(map_axes, equation, math=True, gap=0.24)


def _number(axes: Axes, along: str, down: str) -> None:
    """Add numbers and the names `along` (x) and `down` (y) to the axes of a heat map."""
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel(along, fontsize=9, color=INK)
    axes.set_ylabel(down, fontsize=9, color=INK)


# --- masks -----------------------------------------------------------------------------------------------------------


def masks(padding: Sequence[bool]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return two square masks, true where a token may attend: that of the encoder, which hides padding, and that of the
    decoder, which also hides the future.
    """
    L = len(padding)
    tokens_1L = 1 - torch.tensor([list(padding)]).int()  # 0 is padding
    return keep_padding(tokens_1L)[0, 0].expand(L, L).numpy(), keep_past(tokens_1L)[0, 0].numpy()


def draw_masks(tokens: Sequence[str], padding: Sequence[bool], path: Path) -> str | None:
    """Draw both masks side by side, cell by cell: which token may attend to which."""
    picture = Picture(path, "Masks: who may see whom", [labels.visible(token) for token in tokens])
    (names,) = picture.texts
    cell = min(max(7 / len(tokens), 0.16), 0.5)
    side = len(tokens) * cell
    picture.resize(side, side)
    titles = ("padding mask", "encoder self-attention, cross-attention"), ("look-ahead mask", "decoder self-attention")
    left = 0.0
    for keep_LL, (name, where) in zip(masks(padding), titles, strict=True):
        axes = picture.panel(left, 0, side, side)
        drawing.heat_map(axes, keep_LL, ListedColormap([HIDDEN, BLUE]))
        widest, highest = drawing.label_cells(axes, names, names, cell, picture.style, line="white")
        for tick, is_padding in zip([*axes.get_xticklabels(), *axes.get_yticklabels()], [*padding] * 2, strict=True):
            tick.set_color(PALE if is_padding else INK)
        for text, lift, size, colour in ((name, 0.42, 10, INK), (where, 0.22, 8.5, QUIET)):
            y = 1 + (highest + lift) / side
            axes.text(0, y, text, transform=axes.transAxes, fontsize=size, color=colour)
        left = max(side + widest + 0.5, 2.9)
    subtitle = "a row: one query token; blue: may be attended to, grey: masked, its weight is exactly 0"
    return picture.finish(picture.figure.axes[0], subtitle, gap=0.3)


# --- warm-up ---------------------------------------------------------------------------------------------------------


def steps_to_draw(warmup_steps: int, max_steps: int) -> list[int]:
    """Return 1,000 to 2,000 steps to draw (all if there are fewer), with the end of the warm-up and the last step."""
    steps = {*range(1, max_steps + 1, max(1, max_steps // 1000)), min(warmup_steps, max_steps), max_steps}
    return sorted(steps)


def draw_warm_up(choices: Sequence[tuple[int, int]], max_steps: int, path: Path) -> str | None:
    """Draw the learning rate over the steps, one curve for each pair of d_model and warm-up steps."""
    picture = Picture(path, "Learning rate: up in a line, down with the square root")
    picture.resize(8.0, 4.3)
    axes = picture.panel(0, 0, 8.0, 4.3)
    colours = dict(zip(dict.fromkeys(d_model for d_model, _ in choices), SERIES, strict=False))
    ends = dict.fromkeys(colours, 0.0)
    peaks: dict[int, list[str]] = {d_model: [] for d_model in colours}
    for d_model, warmup_steps in choices:
        steps = steps_to_draw(warmup_steps, max_steps)
        rates = [schedule.noam(step, d_model, warmup_steps) for step in steps]
        axes.plot(steps, rates, color=colours[d_model], linewidth=1.8)
        ends[d_model] = max(ends[d_model], rates[-1])
        if warmup_steps <= max_steps:
            axes.plot(warmup_steps, max(rates), "o", color=colours[d_model], markersize=4.5)
            peaks[d_model].append(f"peak {max(rates):.4g} at step {warmup_steps:,}")
    drawing.dress(axes, "", "step")
    top = max(schedule.noam(min(warm, max_steps), d_model, warm) for d_model, warm in choices)
    axes.set(xlim=(0, max_steps), ylim=(0, top * 1.1))
    # Names at the ends of the curves, kept apart, each with its peaks: beside these, curves would cross them.
    line, places, below = top * 0.045, {}, math.inf
    for d_model in sorted(ends, key=lambda each: -ends[each]):
        places[d_model] = below = min(ends[d_model] + line / 2, below)
        below -= (len(peaks[d_model]) + 1.4) * line
    lift = max(0.0, -below)
    for d_model, y in places.items():
        style: dict[str, Any] = {"color": colours[d_model], "va": "top", "annotation_clip": False}
        for row, text in enumerate((f"d_model {d_model:,}", *peaks[d_model])):
            place: dict[str, Any] = {"xytext": (1.015, y + lift - row * line), "textcoords": ("axes fraction", "data")}
            axes.annotate(text, (max_steps, ends[d_model]), fontsize=8 if row else 9.5, **place, **style)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    equation = r"$rate = d_{model}^{-0.5}\cdot\min\left(step^{-0.5},\ step\cdot warmup^{-1.5}\right)$"
    return picture.finish(axes, equation, math=True)
