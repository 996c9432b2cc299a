"""One self-contained page about one sentence and two runs, side by side, made of the components of the `look` page.

`gather` returns the parts (`SHOWN`) of both runs as in `look`, with the letter of the run before their names
(`A/summary`), and the comparison of the two under `comparison`.
"""

from typing import Any, Protocol

from seq2see.display import notebook
from seq2see.lens import side_by_side
from seq2see.lens.answers import Look
from seq2see.lens.side_by_side import SideBySide
from seq2see.look import page

LETTERS = ("A", "B")
"""Letters for the two runs on the page, as in `seq2see evaluate --against`."""
SHOWN = ("summary", "candidates", "importance", "attention/cross/", "inside/cross/")
"""Beginnings of the names of those parts of the `look` page that this page shows for each run."""


class Looks(page.Translates, Protocol):
    """Protocol with the methods of a run that a comparison needs."""

    @property
    def tags(self) -> list[str]: ...
    def look(self, sentence: str, to: str | None = None, target: str | None = None) -> Look: ...


def compare(first: Looks, second: Looks, sentence: str, to: str | None = None, target: str | None = None) -> SideBySide:
    """Translate one sentence with two runs (or take `target` as its translation), and return the comparison."""
    one, other = (run.look(sentence, _language(run, to, (first, second)), target) for run in (first, second))
    found = side_by_side.compare(_names(first, second), (first.bundle, second.bundle), (one, other))
    if notebook.is_notebook():
        vars(found)["page"] = lambda: notebook.frame(render(gather(first, second, sentence, to, target)))
    return found


def gather(
    first: Looks, second: Looks, sentence: str, to: str | None = None, target: str | None = None
) -> dict[str, Any]:
    """Translate one sentence with two runs (or take `target` as its translation), and return the parts of the page."""
    one, other = (page.Inside(run, sentence, _language(run, to, (first, second)), target) for run in (first, second))
    names, looks = _names(first, second), (one.look, other.look)
    found = side_by_side.compare(names, (first.bundle, second.bundle), looks)
    at = None if found.difference is None else found.difference.character
    given: dict[str, Any] = {
        "comparison": {
            "sentence": sentence,
            "runs": names,
            "translations": found.translations,
            "common": found.translations[0][:at],
            "rest": [text[len(text) if at is None else at :] for text in found.translations],
            "log_probability": found.log_probability,
            "difference": None if found.difference is None else found.difference._asdict(),
            "links": side_by_side.links(*looks),
            "has_attention": [bool(look.cross) for look in looks],
        }
    }
    for letter, inside in zip(LETTERS, (one, other), strict=True):
        given |= {f"{letter}/{name}": inside.part(name) for name in inside.names if name.startswith(SHOWN)}
    return given


def render(given: dict[str, Any]) -> str:
    """Return the page with the parts that `gather` returned as one HTML text that loads no other file."""
    return page.render(given, "beside.html", "beside.js")


def _names(first: Looks, second: Looks) -> tuple[str, str]:
    """Return the names of the folders of two runs; their paths, if the names are equal."""
    one, other = first.folder.resolve(), second.folder.resolve()
    return (one.name, other.name) if one.name != other.name else (str(first.folder), str(second.folder))


def _language(run: Looks, to: str | None, runs: tuple[Looks, Looks]) -> str | None:
    """Return `to`, the target language; None for a run without language tags if the other run has them."""
    return to if run.tags or not any(each.tags for each in runs) else None
