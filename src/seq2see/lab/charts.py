"""Charts of a claim: means over the seeds with their standard deviations."""

import math
import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from seq2see.lab.claim import Chart, Conditions, Measurements
from seq2see.pictures import drawing
from seq2see.pictures.drawing import INK, QUIET, SERIES

FITS = 36
"""Maximum total number of characters of the labels of an axis that are written horizontally; if there are more, the
labels are slanted.
"""


def draw(charts: Sequence[Chart], rows: Measurements) -> Figure:
    """Draw the charts of a claim, at most three in a row. A chart is left out if its number was not measured, unless
    that is so for all charts.
    """
    charts = [chart for chart in charts if any(chart.number in row.numbers for row in rows)] or charts
    columns = min(3, len(charts))
    lines = math.ceil(len(charts) / columns)
    size = (3.7 * columns, 2.9 * lines)
    figure = Figure(figsize=size, facecolor="white", layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
    for place, chart in enumerate(charts, start=1):
        _draw(figure.add_subplot(lines, columns, place), chart, rows.where(**chart.only))
    return figure


def _draw(axes: Axes, chart: Chart, rows: Measurements) -> None:
    named = rows.values(chart.along)
    in_words = not all(isinstance(value, int | float) and not isinstance(value, bool) for value in named)
    series = list(rows.parted(chart.by))
    for number, (conditions, own) in enumerate(series):
        spreads = [(value, _spread(own.where(**{chart.along: value}), chart.number)) for value in named]
        points = [(value, spread) for value, spread in spreads if spread is not None]
        across = [float(named.index(value)) if in_words else float(value) for value, _ in points]
        if in_words and len(series) > 1:  # side by side, because their bars would cover each other
            across = [x + 0.12 * (number - (len(series) - 1) / 2) for x in across]
        axes.errorbar(
            across,
            [mean for _, (mean, _) in points],
            yerr=[deviation for _, (_, deviation) in points],
            label=label(conditions),
            color=SERIES[(number * 2 + 1) % len(SERIES)] if len(series) <= 4 else SERIES[number % len(SERIES)],
            linestyle="none" if in_words else "-",
            linewidth=1.6,
            marker="o",
            markersize=5 if in_words else 3.5,
            capsize=3,
            elinewidth=1.1,
        )
    if in_words:
        words = [spell(value) for value in named]
        axes.set_xticks(range(len(named)), words)
        if sum(map(len, words)) > FITS:
            axes.tick_params(axis="x", rotation=35)
            for name in axes.get_xticklabels():
                name.set(ha="right", rotation_mode="anchor")
        axes.set_xlim(-0.5, len(named) - 0.5)
    if chart.log_x:
        axes.set_xscale("log", base=2)
        axes.set_xticks(named, [f"{value:g}" for value in named], minor=False)
        axes.minorticks_off()
    axes.margins(y=0.1)
    if chart.log_y:
        axes.set_yscale("log")
    elif all(row.numbers.get(chart.number, 0.0) >= 0 for row in rows):
        axes.set_ylim(bottom=0.0)
    if len(series) > 1:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK, handlelength=1.4)
    drawing.dress(axes, chart.title, spoken(chart.along))
    axes.xaxis.label.set_color(QUIET)


def _spread(rows: Measurements, number: str) -> tuple[float, float] | None:
    """Return mean and standard deviation of a number over the seeds for which it is finite; None if there are none."""
    of_seeds = (rows.of_seed(seed).get(number) for seed in rows.seeds)
    values = [value for value in of_seeds if math.isfinite(value)]
    if not values:
        return None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def label(conditions: Conditions) -> str:
    """Return conditions as text: `{"norm": "post", "warm_up": True}` -> `post, warm up`; False -> `not scaled`, `no
    mask`.
    """
    words = []
    for key, value in conditions.items():
        if isinstance(value, bool):
            negation = "not " if key.endswith("ed") else "no "
            words.append(f"{'' if value else negation}{spoken(key)}")
        else:
            words.append(value if isinstance(value, str) else f"{spoken(key)} {spell(value)}")
    return ", ".join(words)


def spoken(name: str) -> str:
    """Return the name of a condition or a number in words: spaces for `_` (except in `d_k`), `BLEU` for `bleu`."""
    return {"d_k": "d_k", "bleu": "BLEU"}.get(name, name.replace("_", " "))


def spell(value: object, yes: str = "with", no: str = "without") -> str:
    """Return the value of a condition as text for an axis or a table: `yes` for True, `no` for False."""
    if isinstance(value, bool):
        return yes if value else no
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
