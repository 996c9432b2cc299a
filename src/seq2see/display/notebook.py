"""Display in notebooks: tables, whole pages in a frame, a progress bar. IPython is imported only in notebooks."""

import html
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final

from seq2see.display.wording import translated

PAUSE: Final = 0.2
"""Minimum seconds between two updates of a progress bar in a notebook."""
HEIGHT: Final = 760
"""Height in pixels of the frame in which a notebook shows an HTML page."""


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which can show HTML."""
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table; the first cell of each row is its heading. Everything is escaped."""
    head = "".join(f"<th scope='col' style='text-align:start'>{_text(translated(name))}</th>" for name in columns)
    body = "".join(
        f"<tr><th scope='row' style='text-align:start'>{_text(translated(str(first)))}</th>"
        + "".join(f"<td style='text-align:start' dir='auto'>{_text(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in rows
    )
    header = f"<thead><tr>{head}</tr></thead>" if columns else ""
    style = "caption-side:top;text-align:start;font-weight:bold;padding:.3em 0"
    return f"<table><caption style='{style}'>{_text(caption)}</caption>{header}<tbody>{body}</tbody></table>"


def frame(page: str) -> str:
    """Return a whole HTML page in a frame of its own, so that its style and scripts stay apart from the notebook."""
    style = f"width:100%;height:{HEIGHT}px;border:1px solid #c5ced8;border-radius:6px"
    return f'<iframe style="{style}" sandbox="allow-scripts" srcdoc="{html.escape(page)}"></iframe>'


def _text(value: object) -> str:
    return html.escape(f"{value:,.2f}" if isinstance(value, float) else str(value))


class Bar:
    """A progress bar below the cell of a notebook, with one line of text beside it."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = 0.0

    def show(self, done: int, total: int, text: str, last: bool = False) -> None:
        """Show the progress, at most five times in a second; the last state is always shown."""
        now = time.monotonic()
        if not last and now - self._shown < PAUSE:
            return
        self._shown = now
        share = 100 * done / max(1, total)
        ends = "font-family:monospace;font-size:.9em;white-space:pre-wrap"
        bar = f"<progress value='{share:.1f}' max='100' style='width:14em'></progress>"
        self._display(f"<div style='{ends}'>{bar} {done:,}/{total:,}  {_text(text)}</div>")

    def _display(self, page: str) -> None:
        shell: Any = import_module("IPython.display")
        if self._handle is None:
            self._handle = shell.display(shell.HTML(page), display_id=True)
        else:
            self._handle.update(shell.HTML(page))


def watch() -> Callable[[str, int, int], None]:
    """Return a function that shows the progress of slow computations in a notebook, and does nothing elsewhere."""
    if not is_notebook():
        return lambda what, done, total: None
    bars: dict[str, Bar] = {}

    def show(what: str, done: int, total: int) -> None:
        bars.setdefault(what, Bar()).show(done, total, translated(what), last=done == total)

    return show
