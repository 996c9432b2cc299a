"""`report.html`: one training on one page that needs no network; only the attention during training needs a script.

The page is made from the Jinja templates beside this module: `page.html` around `report.html`, with `scores.html` for
each set that was scored, in the style of `report.css`.
"""

import base64
import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seq2see import storage
from seq2see.display.wording import language, translated
from seq2see.evaluation.confidence import Calibration

if TYPE_CHECKING:
    from jinja2 import Environment

_MORE_SCORES = "<!-- further sets -->"


class ScoredSet(NamedTuple):
    """The scores of a model on one set of pairs."""

    name: str
    how: str
    """Number of pairs that were scored and how they were translated: `200 of 1,000 pairs, greedy search`."""
    scores: Sequence[tuple[str, float | None, str]]
    """Name, value and signature of each score; if a score does not apply, None and the reason."""


class Interactive(NamedTuple):
    """A part of the page with its own style and script; nothing in it is escaped."""

    html: str
    style: str
    script: str


def write(
    path: Path,
    *,
    title: str,
    facts: Mapping[str, str],
    settings: Mapping[str, Mapping[str, object]],
    scores: ScoredSet | None,
    samples: Sequence[tuple[str, str, str]],
    curves_svg: str,
    data: Mapping[str, str] | None = None,
    findings: Sequence[str] = (),
    reliability: tuple[Calibration, str, str] | None = None,
    attention: Interactive | None = None,
) -> None:
    """Write the page; a part with nothing in it is left out.

    Args:
        path: the file, overwritten.
        title: the run's name.
        facts: names and values for the header, such as pairs, parameters, time and device.
        settings: all settings of the run, by section and name.
        scores: those on the validation set.
        samples: (source, reference, translation); a translation equal to its reference is marked as right.
        curves_svg: inline SVG from our own pictures, not escaped.
        data: the summary of the corpus: pairs kept, dropped and why, lengths.
        findings: problems of the training, see `Assessment.findings`.
        reliability: how the confidence was calibrated, and inline SVG from our own pictures, not escaped either: the
            reliability curve of the model's own probability, and that of the confidence.
        attention: the attention during training, if it was recorded; not escaped either.
    """
    body = _templates().get_template("report.html")
    text = body.render(
        title=title,
        facts=facts,
        settings=settings,
        scores=scores,
        marker=_MORE_SCORES,
        samples=samples,
        right=sum(translation == reference for _, reference, translation in samples),
        curves_svg=curves_svg,
        data=data,
        findings=findings,
        reliability=reliability,
        attention=attention,
    )
    style, script = (attention.style, attention.script) if attention else ("", "")
    storage.write_text(path, page(title, style, text, script))


def sample(count: int, most: int) -> list[int]:
    """Return indices of at most `most` of `count` pairs, in order, drawn at random with a fixed seed.

    Pairs at the beginning of a file are often alike: the shortest, or all of one language.
    """
    return sorted(random.Random(0).sample(range(count), min(most, count)))


def add_scores(path: Path, scored: ScoredSet) -> bool:
    """Add the scores on another set to a report, replacing earlier ones on a set of the same name.

    Return whether that was possible: not every run has a report, and those of release 0.1.0 do not mark the place for
    more scores.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    before, marker, after = text.partition(_MORE_SCORES)
    if not marker:
        return False
    part = _templates().get_template("scores.html").render(set=scored)
    opening = part[: part.index(">") + 1]
    before = re.sub(rf"{re.escape(opening)}.*?</div>\s*", "", before, flags=re.DOTALL)
    storage.write_text(path, before + part + marker + after)
    return True


def page(title: str, style: str, body: str, script: str = "") -> str:
    """Return a whole HTML page around `body`, which is not escaped; `style` is added to the style of all reports.

    Its content security policy allows the browser to run `script`, by its hash, and no other script.
    """
    templates = _templates()
    shared = templates.loader.get_source(templates, "report.css")[0]  # type: ignore[union-attr]
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return templates.get_template("page.html").render(
        title=title, style=shared + style, body=body, language=language(), script=script, checksum=checksum
    )


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("seq2see", "evaluation")
    found = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    found.filters["in_words"] = translated
    return found
