"""What all pictures share: colours, axes in house style, and saving as PNG, SVG, PDF or a page of HTML.

Figures are built from `matplotlib.figure.Figure`, never through pyplot, so nothing global is left behind. matplotlib
costs half a second: import the modules that draw where a picture is wanted.
"""

import html
import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

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

    Text grows beyond the figure, and saving with bbox "tight" makes room; only a title needs a measured place.
    """
    width, height = figure.get_size_inches()
    with drawing():
        box = axes.get_tightbbox(FigureCanvasAgg(figure).get_renderer())  # type: ignore[no-untyped-call]
    assert box is not None
    x, y = box.x0 / figure.dpi / width, (box.y1 / figure.dpi + gap) / height
    style: dict[str, Any] = {"fontfamily": list(families), "parse_math": False}
    figure.text(x, y, subtitle, fontsize=9, color=QUIET, **(style | {"parse_math": math}))
    y += (0.3 if math else 0.24) / height
    figure.text(x, y, title, fontsize=13, fontweight="bold", color=INK, **style)


def save(figure: Figure, path: Path, title: str = "seq2see") -> None:
    """Write the picture; the suffix says as what. In HTML it is an SVG whose text can be searched and read aloud."""
    if path.suffix.lower() == ".html":
        page = f"<style>{_PAGE}</style><figure>{inline(figure, title)}</figure>"
        path.write_text(
            f'<!doctype html><meta charset="utf-8"><title>{html.escape(title)}</title>{page}\n', encoding="utf-8"
        )
        return
    with drawing():
        dpi = min(160.0, 8000 / max(figure.get_size_inches()))  # a thousand tokens still make a file that opens
        figure.savefig(path, dpi=dpi, bbox_inches="tight", pad_inches=0.25)


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
