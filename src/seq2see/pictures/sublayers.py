"""Pictures of one attention sub-layer (scores before and after the softmax, heads merged by W_O, residual sum and
norm), and of one word in two contexts.

Each function for a picture returns a line for the user if some characters have no font, else None.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from seq2see.lens.sublayers import Sublayer, WordInContexts
from seq2see.pictures import drawing, labels
from seq2see.pictures.drawing import BELOW_TO_ABOVE, BLUE, INK, ORANGE, QUIET, Picture

NAMES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
HIDDEN = "#d5dbe1"
MOST_WRITTEN = 14
"""Maximum number of queries, and of keys, of a heat map whose cells have their numbers written in them."""
MOST_ROWS = 24
"""Maximum number of heads, in all layers together, that a picture shows one by one; with more, it shows the mean of
each layer.
"""


def scores(of: Sublayer, head: int, title: str, path: Path) -> str | None:
    """Draw the scores of one head before the softmax, and the weights after it; with up to `MOST_WRITTEN` queries and
    keys, numbers are written in the cells.
    """
    scores_LM, weights_LM = of.scores[head], of.weights[head]
    picture = Picture(path, title, labels.of(of.queries), labels.of(of.keys))
    rows, columns = picture.texts
    L, M = scores_LM.shape
    cell = min(max(8 / max(L, M), 0.2), 0.46)
    width, height = M * cell, L * cell
    picture.resize(width, height)
    most = float(np.abs(scores_LM[of.keep]).max()) or 1.0
    panels = (
        ("before the softmax: Q · K / √d_k", scores_LM, BELOW_TO_ABOVE, -most, most),
        ("after the softmax: each row sums to 1", weights_LM, drawing.PAPER_TO_INK, 0.0, 1.0),
    )
    left = 0.0
    for name, values_LM, colours, low, high in panels:
        axes = picture.panel(left, 0, width, height)
        axes.set_facecolor(HIDDEN)
        image = drawing.heat_map(axes, np.ma.masked_array(values_LM, ~of.keep), colours, low, high)
        widest, highest = drawing.label_cells(axes, rows, columns, cell, picture.style)
        axes.text(0, 1 + (highest + 0.2) / height, name, transform=axes.transAxes, fontsize=10, color=INK)
        if max(L, M) <= MOST_WRITTEN:
            _write_numbers(axes, values_LM, of.keep, low, high)
        tall = min(height, 2.2)
        bar = picture.panel(left + width + 0.12, height - tall, 0.1, tall)
        drawing.colour_bar(image, bar, [low, (low + high) / 2, high] if high == 1.0 else [-most, 0, most])
        if high != 1.0:
            bar.set_yticks([-most, 0, most], [f"{-most:.1f}", "0", f"{most:.1f}"])
        left += max(width + widest + 1.1, 3.4)
    masked = "; grey: masked" if not of.keep.all() else ""
    where = f"{NAMES[of.place]}, layer {of.layer + 1}, head {head + 1}"
    return picture.finish(picture.figure.axes[0], f"{where}  ·  a row: the scores of one query{masked}", gap=0.36)


def _write_numbers(axes: Axes, values_LM: NDArray[Any], keep_LM: NDArray[Any], low: float, high: float) -> None:
    """Write each number that is not masked into its cell, white on dark colours."""
    for (row, column), value in np.ndenumerate(values_LM):
        if keep_LM[row, column]:
            share = (value - low) / (high - low)
            dark = share > 0.55 if low == 0 else abs(share - 0.5) > 0.32
            number = round(float(value), 2) + 0.0
            text = f"{number:.2f}" if low == 0 or abs(number) < 1 else f"{number:.1f}"
            axes.text(column, row, text, fontsize=5.6, ha="center", va="center", color="white" if dark else INK)


def merge(of: Sublayer, title: str, path: Path) -> str | None:
    """Draw the outputs of all heads concatenated, the matrix W_O, and their product."""
    H, L, V = of.heads.shape
    D = of.output.shape[1]
    picture = Picture(path, title, labels.of(of.queries))
    (rows,) = picture.texts
    width, height = 7.6, min(max(0.17 * L, 0.9), 3.2)
    square, gap = 2.5, 0.14
    lower = max(square, height)  # height of the last row: W_O and the product
    picture.resize(width, 2 * height + lower + 1.0)
    style: dict[str, Any] = {**picture.style, "fontsize": min(max(height / L * 72 * 0.7, 4.5), 8), "color": INK}
    each = (width - gap * (H - 1)) / H
    largest = float(np.abs(of.heads).max()) or 1.0
    top = height + lower + 1.0
    for head in range(H):
        axes = picture.panel(head * (each + gap), top, each, height)
        drawing.heat_map(axes, of.heads[head], BELOW_TO_ABOVE, -largest, largest)
        axes.set_title(f"head {head + 1}: {L} × {V}" if H <= 6 else f"{head + 1}", loc="left", fontsize=8, color=QUIET)
        if not head:
            axes.set_yticks(range(L), rows, **style)
    first = picture.figure.axes[0]
    merged = picture.panel(0, lower + 0.5, width, height)
    drawing.heat_map(merged, np.concatenate(list(of.heads), 1), BELOW_TO_ABOVE, -largest, largest)
    merged.set_title(f"side by side: {L} × {H * V}", loc="left", fontsize=9, color=INK)
    merged.set_yticks(range(L), rows, **style)
    for head in range(1, H):
        merged.axvline(head * V - 0.5, color="white", linewidth=1.2)
    matrix = picture.panel(0, (lower - square) / 2, square, square)
    most = float(np.abs(of.w_o).max()) or 1.0
    drawing.heat_map(matrix, of.w_o, BELOW_TO_ABOVE, -most, most)
    matrix.set_title(f"times W_O: {H * V} × {D}", loc="left", fontsize=9, color=INK)
    for head in range(1, H):
        matrix.axhline(head * V - 0.5, color="white", linewidth=1.2)
    result = picture.panel(square + 1.0, (lower - height) / 2, width - square - 1.0, height)
    most = float(np.abs(of.output).max()) or 1.0
    drawing.heat_map(result, of.output, BELOW_TO_ABOVE, -most, most)
    result.set_title(f"= output of the sub-layer: {L} × {D}", loc="left", fontsize=9, color=INK)
    result.set_yticks(range(L), rows, **style)
    meaning = "a row: one token; white is 0, blue positive, orange negative; a band of W_O belongs to one head"
    return picture.finish(first, f"{NAMES[of.place]}, layer {of.layer + 1}, {H} heads  ·  {meaning}", gap=0.2)


def residual(of: Sublayer, title: str, path: Path) -> str | None:
    """Draw the input of a sub-layer, its output, the residual sum and the layer norm, on the same colour scale."""
    steps = [("sub-layer's output", of.output), ("sum: x + output", of.sum)]
    if of.pre_norm:
        steps = [("x, before", of.before), ("layer norm of x", of.normed), *steps]
    else:
        steps = [("x, before", of.before), *steps, ("layer norm of the sum", of.normed)]
    picture = Picture(path, title, labels.of(of.queries))
    (rows,) = picture.texts
    L = len(rows)
    width, height, gap = 2.3, min(max(0.2 * L, 1.0), 6.0), 0.25
    picture.resize(4 * (width + gap), height)
    style: dict[str, Any] = {**picture.style, "fontsize": min(max(height / L * 72 * 0.7, 4.5), 8.5), "color": INK}
    most = float(np.quantile(np.abs([values for _, values in steps]), 0.995)) or 1.0
    for place, (name, values_LD) in enumerate(steps):
        axes = picture.panel(place * (width + gap), 0, width, height)
        image = drawing.heat_map(axes, values_LD, BELOW_TO_ABOVE, -most, most)
        axes.set_title(name, loc="left", fontsize=9.5, color=INK)
        if not place:
            axes.set_yticks(range(L), rows, **style)
        means, deviations = values_LD.mean(1), values_LD.std(1)
        numbers = f"mean {_range(means)}\nstandard deviation {_range(deviations)}"
        axes.text(0, -0.08 / height, numbers, transform=axes.transAxes, fontsize=7.5, color=QUIET, va="top")
    tall = min(height, 2.0)
    bar = picture.panel(4 * (width + gap), height - tall, 0.1, tall)
    drawing.colour_bar(image, bar, [])
    bar.set_yticks([-most, 0, most], [f"{-most:.1f}", "0", f"{most:.1f}"])
    kind = "pre-norm" if of.pre_norm else "post-norm, as in the paper"
    meaning = "a row: one token, a column: one dimension; below: over the tokens"
    return picture.finish(
        picture.figure.axes[0], f"{NAMES[of.place]}, layer {of.layer + 1}, {kind}  ·  {meaning}", gap=0.2
    )


def _range(values: NDArray[Any]) -> str:
    low, high = (round(float(each), 2) + 0.0 for each in (values.min(), values.max()))
    return f"{low:.2f} to {high:.2f}"


def word(of: WordInContexts, path: Path) -> str | None:
    """Draw where a word attends in two sentences, and the cosine similarity of its two vectors at each stage.

    Attention is drawn for each head or, if there are more than `MOST_ROWS` heads, as the mean of each layer.
    """
    names = [labels.of(each) for each in of.tokens]
    picture = Picture(path, f"“{of.word}” in two contexts", *names, list(of.sentences))
    *columns, _ = picture.texts
    layers, H = len(of.weights[0]), len(of.weights[0][0])
    every = layers * H <= MOST_ROWS
    count = layers * H if every else layers
    cell, row = 0.42, 0.2
    widths = [len(each) * cell for each in columns]
    height, left = count * row, 0.0
    picture.resize(sum(widths) + 4, height)
    for tokens, chosen, weights, width in zip(columns, of.places, of.weights, widths, strict=True):
        axes = picture.panel(left, 0, width, height)
        rows_NS = np.concatenate(weights) if every else np.stack([layer_HS.mean(0) for layer_HS in weights])
        drawing.heat_map(axes, rows_NS)
        lines = [f"layer {n // H + 1} head {n % H + 1}" if every else f"layer {n + 1}" for n in range(count)]
        drawing.label_cells(axes, [""] * count, tokens, cell, picture.style)
        axes.set_yticks(range(count), lines if not left else [""] * count, fontsize=7, color=QUIET)
        for tick, place in zip(axes.get_xticklabels(), range(len(tokens)), strict=True):
            tick.set_color(ORANGE if place in chosen else INK)
        left += width + 0.5
    curve = picture.panel(left + 0.5, 0.1, 2.6, max(height - 0.2, 1.2))
    _similarity(curve, of.stages, of.similarity)
    meaning = "left: where the word attends in each sentence; right: cosine of its two vectors, 1 is the same direction"
    return picture.finish(picture.figure.axes[0], meaning)


def _similarity(axes: Axes, stages: Sequence[str], values: Sequence[float]) -> None:
    axes.plot(range(len(stages)), values, "o-", color=BLUE, linewidth=1.6, markersize=4)
    drawing.dress(axes, "similarity of its two vectors", "")
    axes.set_xticks(range(len(stages)), stages, rotation=30, ha="right", fontsize=7.5)
    axes.set_ylim(min(0.0, *values) - 0.08, 1.08)
    for place, value in enumerate(values):
        axes.annotate(f"{value:.2f}", (place, value), (0, 6), textcoords="offset points", fontsize=7, ha="center")
