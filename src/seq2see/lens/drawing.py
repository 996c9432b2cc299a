"""What all pictures share: colours, axes in house style, and saving as PNG, SVG, PDF or a page of HTML.

Figures are built from `matplotlib.figure.Figure`, never through pyplot, so nothing global is left behind. matplotlib
costs half a second: import the modules that draw where a picture is wanted.
"""

import html
import io
import logging
import re
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.text import Text

from seq2see import storage
from seq2see.errors import SettingError

INK = "#1d2733"
QUIET = "#6b7785"
HAIRLINE = "#e3e8ee"
FRAME = "#c5ced8"
BLUE = "#2f7ebc"
ORANGE = "#d9792b"
PAPER_TO_INK = LinearSegmentedColormap.from_list(
    "paper_to_ink", ["#ffffff", "#d6e6f4", "#8fc1de", "#3f8fc5", "#15599d", "#08264f"]
)
"""From 0 to 1."""
BELOW_TO_ABOVE = LinearSegmentedColormap.from_list(
    "below_to_above", ["#8a3d06", "#d9792b", "#f6cfa8", "#ffffff", "#a9d0e8", "#2f7ebc", "#08366b"]
)
"""From -1 over 0, which is paper, to 1."""
LEAST_WIDE = 5.5
"""Inches that a title may take, however narrow a picture is."""
SUFFIXES = (".png", ".svg", ".pdf", ".html")
_RC: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "seq2see", "pdf.fonttype": 42}


def check_suffix(path: Path) -> None:
    """Refuse a picture of an unknown format before anything is drawn, or even computed."""
    if path.suffix.lower() not in SUFFIXES:
        raise SettingError(f"{path}: unknown picture format '{path.suffix}'. Choose from: {', '.join(SUFFIXES)}.")


@contextmanager
def drawing() -> Iterator[None]:
    """matplotlib's settings while text is measured or drawn, restored afterwards."""
    fonts = logging.getLogger("matplotlib.font_manager")
    level = fonts.level
    fonts.setLevel(logging.ERROR)  # that a rare script has no bold face is nobody's concern
    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        # The user hears of letters without a font once, in words, from `letters.note`.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from", category=UserWarning)
        try:
            yield
        finally:
            fonts.setLevel(level)


def dress(axes: Axes, title: str, along: str) -> None:
    """The look of all panels with axes: a title, a name for x, quiet lines and no frame."""
    axes.set_title(title, loc="left", fontsize=10, color=INK, pad=8)
    axes.set_xlabel(along, fontsize=8.5, color=INK)
    axes.tick_params(which="both", length=0, labelsize=8.5, labelcolor=INK)
    axes.grid(axis="y", color=QUIET, alpha=0.22, linewidth=0.7)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set(color=QUIET, alpha=0.5)
    axes.set_facecolor("none")


def wide(text: str, **style: Any) -> float:
    """Inches that a text takes, as drawn in a style: `fontsize=9, fontfamily=[...]`."""
    canvas = _canvas()
    measured = Text(0, 0, text, **(style | {"parse_math": False}))
    measured.set_figure(canvas.figure)
    with drawing():
        box = measured.get_window_extent(canvas.get_renderer())  # type: ignore[no-untyped-call]
    return float(box.width) / canvas.figure.dpi


@cache
def _canvas() -> FigureCanvasAgg:
    return FigureCanvasAgg(Figure())


def head(
    figure: Figure,
    axes: Axes,
    title: str,
    subtitle: str,
    families: Sequence[str] = ("DejaVu Sans",),
    math: bool = False,
    gap: float = 0.16,
) -> None:
    """Title and subtitle above and left of all that `axes` and its labels take; with `math` the latter is TeX.

    Text grows beyond the figure, and saving with bbox "tight" makes room; only a title needs a measured place. It is as
    wide as the picture, in as many lines as that takes.
    """
    width, height = figure.get_size_inches()
    with drawing():
        renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
        box, around = axes.get_tightbbox(renderer), figure.get_tightbbox(renderer)
        assert box is not None
    room = max(around.x1 - box.x0 / figure.dpi, LEAST_WIDE)
    small: dict[str, Any] = {"fontsize": 9, "fontfamily": list(families)}
    large: dict[str, Any] = {"fontsize": 13, "fontfamily": list(families), "fontweight": "bold", "parse_math": False}
    below = [subtitle] if math else _wrapped(subtitle, lambda line: wide(line, **small) <= room)
    above = _wrapped(title, lambda line: wide(line, **large) <= room)
    x, y = box.x0 / figure.dpi / width, (box.y1 / figure.dpi + gap) / height
    for line in reversed(below):
        figure.text(x, y, line, color=QUIET, parse_math=math, **small)
        y += (0.23 if math else 0.17) / height
    y += 0.07 / height
    for line in reversed(above):
        figure.text(x, y, line, color=INK, **large)
        y += 0.24 / height


_ISOLATES = "\u2066\u2067\u2068"
_END_OF_ISOLATE = "\u2069"


def _begin(line: str, fits: Callable[[str], bool]) -> str:
    """As much of a line as fits, a character at least."""
    most = bisect_left(range(1, len(line)), True, key=lambda count: not fits(line[:count]))
    return line[: max(1, most)]


def _wrapped(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Lines that fit, broken at blanks, or anywhere in what has none. What is kept apart by direction stays so."""
    lines, line = [], ""
    for piece in re.findall(r"\s*\S+", text):
        if line and not fits(line + piece):
            lines.append(line)
            line = piece.lstrip()
        else:
            line += piece
        while not fits(line) and len(line) > 1:
            begin = _begin(line, fits)
            lines.append(begin)
            line = line[len(begin) :]
    whole, opened = [], ""
    for each in [*lines, line]:
        begin = opened
        for character in each:
            if character in _ISOLATES:
                opened += character
            elif character == _END_OF_ISOLATE:
                opened = opened[:-1]
        whole.append(begin + each + _END_OF_ISOLATE * len(opened))
    return whole


def save(figure: Figure, path: Path, title: str = "seq2see") -> None:
    """Write the picture; the suffix says as what. In HTML it is an SVG whose text can be searched and read aloud."""
    if path.suffix.lower() == ".html":
        page = f"<style>{_PAGE}</style><figure>{inline(figure, title)}</figure>"
        text = f'<!doctype html><meta charset="utf-8"><title>{html.escape(title)}</title>{page}\n'
        with storage.output(path) as file:
            file.write_text(text, encoding="utf-8")
        return
    with drawing(), storage.output(path) as file:
        dpi = min(160.0, 8000 / max(figure.get_size_inches()))  # a thousand tokens still make a file that opens
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=dpi, bbox_inches="tight", pad_inches=0.25)


# Pictures are drawn in ink on white paper: where the screen is dark, they stay a sheet of paper.
_PAGE = (
    "body{margin:0;background:light-dark(#fff,#14191f);color-scheme:light dark}"
    "figure{margin:2rem auto;max-width:75rem;width:fit-content;background:#fff;border-radius:6px;overflow:hidden}"
    "svg{display:block;max-width:100%;height:auto}"
)


def inline(figure: Figure, label: str, tight: bool = True) -> str:
    """The picture as an `<svg>` for a page, which is not to be styled from inside a picture."""
    written = io.StringIO()
    options: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.25} if tight else {}
    with drawing():
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")), **options)
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    opening, rest = svg.split(">", maxsplit=1)
    opening = re.sub(r' version="[^"]*"', "", opening)
    return f'{opening} role="img" aria-label="{html.escape(label)}">{rest}'.strip()
