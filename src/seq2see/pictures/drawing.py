"""Functions that all pictures share: colours, axes, heat maps, titles, and saving as PNG, SVG, PDF or an HTML page.

Figures are built from `matplotlib.figure.Figure`, never through pyplot, so that no global state is left behind.
Importing matplotlib takes half a second: import the modules that draw only when a picture is needed.
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
from matplotlib.colors import Colormap, LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text
from numpy.typing import NDArray

from seq2see import storage
from seq2see.display.wording import language, translated
from seq2see.errors import SettingError
from seq2see.pictures import labels

INK = "#1d2733"
QUIET = "#6b7785"
HAIRLINE = "#e3e8ee"
FRAME = "#c5ced8"
BLUE = "#2f7ebc"
ORANGE = "#d9792b"
SERIES = ("#08366b", BLUE, ORANGE, "#8a3d06", "#5d6b2f", "#7a4a86", "#3d8c80", "#7fb6da")
"""Colours of the curves in a panel that has several."""
PAPER_TO_INK = LinearSegmentedColormap.from_list(
    "paper_to_ink", ["#ffffff", "#d6e6f4", "#8fc1de", "#3f8fc5", "#15599d", "#08264f"]
)
"""Colour map for values from 0 to 1."""
BELOW_TO_ABOVE = LinearSegmentedColormap.from_list(
    "below_to_above", ["#8a3d06", "#d9792b", "#f6cfa8", "#ffffff", "#a9d0e8", "#2f7ebc", "#08366b"]
)
"""Colour map for values from -1 to 1; 0 is white."""
LEAST_WIDE = 5.5
"""Minimum width in inches at which titles are wrapped; they may be wider than the picture below them."""
SUFFIXES = (".png", ".svg", ".pdf", ".html")
_RC: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "seq2see", "pdf.fonttype": 42}


def check_suffix(path: Path) -> None:
    """Raise a SettingError if the suffix of `path` is none of `SUFFIXES`, before anything is computed or drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise SettingError(f"{path}: unknown picture format '{path.suffix}'. Choose from: {', '.join(SUFFIXES)}.")


class Picture:
    """One picture file, with a title and labels whose characters may come from any script.

        picture = Picture(path, title, rows, columns)
        rows, columns = picture.texts
        axes = picture.panel(0, 0, width, height)
        return picture.finish(axes, "what the picture shows")

    Args:
        texts: lists of labels; `picture.texts` has the same labels, prepared for drawing.
    """

    def __init__(self, path: Path, title: str, *texts: Sequence[str]) -> None:
        check_suffix(path)
        self.path, self.title = path, title
        self.figure = Figure(facecolor="white")
        self.texts = [labels.drawn(each, path) for each in texts]
        self._letters = title + "".join(map("".join, texts))
        self.style: dict[str, Any] = {"fontfamily": labels.font_families(self._letters), "parse_math": False}
        """Matplotlib settings for labels: fonts, and `$` as a plain dollar sign."""

    def resize(self, width: float, height: float) -> None:
        """Set the size in inches. Labels and titles may extend beyond it: saving enlarges the picture."""
        self.figure.set_size_inches(width, height)

    def panel(self, x: float, y: float, width: float, height: float) -> Axes:
        """Add axes at a position given in inches from the lower left corner."""
        across, up = self.figure.get_size_inches()
        return self.figure.add_axes((x / across, y / up, width / across, height / up))

    def sheet(self, width: float, height: float) -> Axes:
        """Resize the picture, and return axes without ticks or frame whose unit is the inch."""
        self.resize(width, height)
        axes = self.panel(0, 0, width, height)
        axes.set(xlim=(0, width), ylim=(0, height))
        axes.set_axis_off()
        return axes

    def finish(self, axes: Axes, subtitle: str, math: bool = False, gap: float = 0.16) -> str | None:
        """Put title and subtitle above `axes` and its labels, and save the picture.

        Both are wrapped to the width of the picture, except that with `math` the subtitle is TeX in one line.

        Returns:
            A line for the user if some characters have no font, else None.
        """
        width, height = self.figure.get_size_inches()
        in_language(self.figure)
        title, subtitle = translated(self.title), subtitle if math else translated(subtitle)
        self._letters += title + subtitle
        self.style["fontfamily"] = labels.font_families(self._letters)
        with matplotlib_settings():
            renderer = FigureCanvasAgg(self.figure).get_renderer()  # type: ignore[no-untyped-call]
            box, around = axes.get_tightbbox(renderer), self.figure.get_tightbbox(renderer)
            assert box is not None
        room = max(around.x1 - box.x0 / self.figure.dpi, LEAST_WIDE)
        small: dict[str, Any] = {"fontsize": 9, "color": QUIET, **self.style, "parse_math": math}
        large: dict[str, Any] = {"fontsize": 13, "color": INK, "fontweight": "bold", **self.style}
        subtitle += translated(labels.about_blanks(self._letters))
        below = [subtitle] if math else wrapped(subtitle, lambda line: wide(line, **small) <= room)
        (title,) = labels.drawn([labels.visible(title)], self.path)
        above = wrapped(title, lambda line: wide(line, **large) <= room)
        x, y = box.x0 / self.figure.dpi / width, box.y1 / self.figure.dpi + gap
        for lines, step, style in ((below, 0.23 if math else 0.17, small), (above, 0.24, large)):
            for line in reversed(lines):
                self.figure.text(x, y / height, line, **style)
                y += step
            y += 0.07
        save(self.figure, self.path, self.title)
        return labels.note(self._letters)


def in_language(figure: Figure) -> None:
    """Translate the texts of a figure into the language of the user, except those with a font of their own, such as
    tokens.
    """
    if language() == "en":
        return
    for text in figure.findobj(Text):
        said = text.get_text()
        if said and text.get_fontfamily() == ["sans-serif"] and (korean := translated(said)) != said:
            text.set(text=korean, fontfamily=labels.font_families(korean))


@contextmanager
def matplotlib_settings() -> Iterator[None]:
    """Apply the matplotlib settings for measuring and drawing text, without warnings about missing glyphs; restore the
    previous settings afterwards.
    """
    fonts = logging.getLogger("matplotlib.font_manager")
    level = fonts.level
    fonts.setLevel(logging.ERROR)  # that a rare script has no bold face is nobody's concern
    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        # `labels.note` tells the user once, in words, which characters have no font.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from", category=UserWarning)
        try:
            yield
        finally:
            fonts.setLevel(level)


def row_of_panels(count: int, height: float = 2.7) -> Figure:
    """Return a figure for charts side by side; `add_subplot` adds their axes."""
    return Figure(figsize=(3.7 * count, height), facecolor="white", layout=ConstrainedLayoutEngine(w_pad=0.12))


def dress(axes: Axes, title: str, along: str) -> None:
    """Apply the common style to a chart: a title, a name for the x axis, light grid lines, and no frame except
    below.
    """
    axes.set_title(title, loc="left", fontsize=10, color=INK, pad=8)
    axes.set_xlabel(along, fontsize=8.5, color=INK)
    axes.tick_params(which="both", length=0, labelsize=8.5, labelcolor=INK)
    axes.grid(axis="y", color=QUIET, alpha=0.22, linewidth=0.7)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set(color=QUIET, alpha=0.5)
    axes.set_facecolor("none")


def legend(axes: Axes, **style: Any) -> None:
    axes.legend(**{"frameon": False, "fontsize": 8.5, "labelcolor": INK, "handlelength": 1.4, **style})


def heat_map(
    axes: Axes,
    values_LM: NDArray[Any],
    colours: Colormap = PAPER_TO_INK,
    low: float = 0.0,
    high: float = 1.0,
    power: float = 1.0,
) -> AxesImage:
    """Draw a matrix in colours, without ticks; with `power` 0.5 the colours follow the square root of the values."""
    # "none" lets SVG and PDF hold each number as one pixel, to be scaled sharp, instead of a smooth copy.
    norm = PowerNorm(power, low, high)
    image = axes.imshow(values_LM, cmap=colours, norm=norm, aspect="auto", interpolation="none")
    axes.set(xticks=[], yticks=[])
    axes.tick_params(length=0, labelsize=8.5, labelcolor=INK)
    axes.spines[:].set(color=FRAME, linewidth=0.6)
    return image


def colour_bar(image: AxesImage, bar: Axes, ticks: Sequence[float]) -> None:
    """Draw the scale of a heat map."""
    bar.figure.colorbar(image, cax=bar, ticks=ticks)
    bar.tick_params(labelsize=8, labelcolor=QUIET, length=0)
    bar.spines[:].set(color=FRAME, linewidth=0.6, visible=True)


def label_cells(
    axes: Axes, rows: Sequence[str], columns: Sequence[str], cell: float, style: dict[str, Any], line: str = HAIRLINE
) -> tuple[float, float]:
    """Write tokens beside the rows and above the columns of a heat map, and draw lines between its cells.

    Column labels are slanted if one of them is too wide for a cell, whose side is `cell` inches. Returns the width of
    the widest column label, and the height that the column labels take, in inches.
    """
    style = {"fontsize": min(max(cell * 72 * 0.48, 7), 11), "color": INK, **style}
    widest = max(wide(text, fontsize=style["fontsize"], fontfamily=style["fontfamily"]) for text in columns)
    slanted = widest > 0.9 * cell
    turn: dict[str, Any] = {"rotation": 45, "ha": "left", "va": "center", "rotation_mode": "anchor"} if slanted else {}
    axes.set_yticks(range(len(rows)), rows, **style)
    axes.set_xticks(range(len(columns)), columns, **style, **turn)
    axes.tick_params(length=0, pad=4, top=False, bottom=False, labeltop=True, labelbottom=False)
    for draw, count in ((axes.axhline, len(rows)), (axes.axvline, len(columns))):
        for place in range(1, count):
            draw(place - 0.5, color=line, linewidth=0.4 if line == HAIRLINE else style["fontsize"] / 8)
    return widest, widest * 0.71 if slanted else style["fontsize"] / 72


def box(axes: Axes, place: tuple[float, float, float, float], radius: float, **style: Any) -> None:
    """Draw a box with round corners; `place` is left, bottom, width and height."""
    x, y, width, height = place
    shape = f"round,pad=0,rounding_size={radius}"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=shape, clip_on=False, **style))


def wide(text: str, **style: Any) -> float:
    """Return the width of a text in inches when it is drawn in a style: `fontsize=9, fontfamily=[...]`."""
    canvas = _canvas()
    measured = Text(0, 0, text, **(style | {"parse_math": False}))
    measured.set_figure(canvas.figure)
    with matplotlib_settings():
        box = measured.get_window_extent(canvas.get_renderer())  # type: ignore[no-untyped-call]
    return float(box.width) / canvas.figure.dpi


@cache
def _canvas() -> FigureCanvasAgg:
    return FigureCanvasAgg(Figure())


_ISOLATES = "\u2066\u2067\u2068"
_END_OF_ISOLATE = "\u2069"


def _begin(line: str, fits: Callable[[str], bool]) -> str:
    """Return the longest beginning of a line that fits, at least one character."""
    most = bisect_left(range(1, len(line)), True, key=lambda count: not fits(line[:count]))
    return line[: max(1, most)]


def wrapped(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Break a text into lines that fit, at spaces, or within words that are too long.

    A bidirectional isolate that continues on the next line is closed at the end of the line and opened again.
    """
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
    """Write the picture in the format of the suffix. In HTML it is an SVG with text that can be searched and read
    aloud.
    """
    in_language(figure)
    if path.suffix.lower() == ".html":
        page = f"<style>{_PAGE}</style><figure>{inline(figure, title)}</figure>"
        text = f'<!doctype html><meta charset="utf-8"><title>{html.escape(title)}</title>{page}\n'
        with storage.output(path) as file:
            file.write_text(text, encoding="utf-8")
        return
    with matplotlib_settings(), storage.output(path) as file:
        dpi = min(160.0, 8000 / max(figure.get_size_inches()))  # a thousand tokens still make a file that opens
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=dpi, bbox_inches="tight", pad_inches=0.25)


# Pictures are dark on white: on a dark page they stay white.
_PAGE = (
    "body{margin:0;background:light-dark(#fff,#14191f);color-scheme:light dark}"
    "figure{margin:2rem auto;max-width:75rem;width:fit-content;background:#fff;border-radius:6px;overflow:hidden}"
    "svg{display:block;max-width:100%;height:auto}"
)


def inline(figure: Figure, label: str, tight: bool = True) -> str:
    """Return the picture as an `<svg>` element for a page, without styles that would affect the rest of the page."""
    written = io.StringIO()
    in_language(figure)
    options: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.25} if tight else {}
    with matplotlib_settings():
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")), **options)
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    opening, rest = svg.split(">", maxsplit=1)
    opening = re.sub(r' version="[^"]*"', "", opening)
    return f'{opening} role="img" aria-label="{html.escape(label)}">{rest}'.strip()
