"""`report.html`: the story of one training on one page that needs nothing else, no network and no script."""

import html
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from seq2see import storage


class ScoredSet(NamedTuple):
    """The scores of a model on one set of pairs."""

    name: str
    how: str
    """How many pairs were scored and how they were translated: `200 of 1,000 pairs, greedy search`."""
    scores: Sequence[tuple[str, float | None, str]]
    """Name, value and signature of each score; without a value, the reason why it does not apply."""


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
) -> None:
    """Write the page; a part with nothing in it is left out.

    Args:
        path: the file, overwritten.
        title: the run's name.
        facts: what stands in the header: pairs, parameters, time, device.
        settings: the resolved tree, section by section.
        scores: those on the validation set.
        samples: (source, reference, translation); a translation equal to its reference is marked as right.
        curves_svg: inline SVG from our own pictures: the only argument that is not escaped.
        data: the summary of the corpus: pairs kept, dropped and why, lengths.
        findings: what is wrong with the model.
    """
    parts = [
        _header(title, facts),
        _section("What went wrong", "".join(f"<p>{_text(line)}</p>" for line in findings)),
        _section("Curves", f'<div class="curves">{curves_svg}</div>' if curves_svg else ""),
        _section("Scores", _scored(scores) + _MORE_SCORES if scores else ""),
        _section("Sample translations", _samples(samples)),
        _section("Data", _two_columns(data or {})),
        _section("Settings", _settings(settings)),
    ]
    storage.write_text(path, page(title, "", "\n".join(part for part in parts if part)))


def sample(count: int, most: int) -> list[int]:
    """Return at most `most` of the numbers below `count`, in order, drawn at random but always the same.

    Pairs at the beginning of a file are often alike: the shortest, or all of one language.
    """
    return sorted(random.Random(0).sample(range(count), min(most, count)))


def add_scores(path: Path, scored: ScoredSet) -> bool:
    """Add the scores on another set to a report, in place of earlier ones on a set of the same name.

    Return whether that was possible: not every run has a report, and those of release 0.1.0 have no place for it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    before, marker, after = text.partition(_MORE_SCORES)
    if not marker:
        return False
    part = _scored(scored)
    opening = part[: part.index(">") + 1]
    before = re.sub(rf"{re.escape(opening)}.*?</div>", "", before, flags=re.DOTALL)
    storage.write_text(path, before + part + marker + after)
    return True


def page(title: str, style: str, body: str) -> str:
    """A whole page around `body` in the look of all reports; `style` comes after theirs."""
    return _PAGE.format(title=_text(title), style=_STYLE + style, body=body)


def _text(value: object) -> str:
    """Escaped for the page; true and false as `settings.toml` spells them."""
    return html.escape(str(value).lower() if isinstance(value, bool) else str(value))


def _section(heading: str, content: str) -> str:
    return f"<section><h2>{heading}</h2>{content}</section>" if content else ""


def _header(title: str, facts: Mapping[str, str]) -> str:
    shown = [f'<div><dt>{_text(name)}</dt><dd dir="auto">{_text(value)}</dd></div>' for name, value in facts.items()]
    return (
        f'<header><p class="kicker">seq2see training report</p><h1 dir="auto">{_text(title)}</h1>'
        f'<dl class="facts">{"".join(shown)}</dl></header>'
    )


_MORE_SCORES = "<!-- further sets -->"


def _scored(scored: ScoredSet) -> str:
    """One set with its scores. Nothing inside is a `div`: `add_scores` finds the end by that."""
    rows = [
        f'<th scope="row">{_text(name)}</th><td class="number">{"-" if value is None else f"{value:.2f}"}</td>'
        f"<td>{_text(about) if value is None else f'<code>{_breakable(about)}</code>'}</td>"
        for name, value, about in scored.scores
    ]
    return (
        f'<div class="scored" data-set="{_text(scored.name)}"><h3 dir="auto">{_text(scored.name)}</h3>'
        f"<p>{_text(scored.how)}</p>{_table(('score', 'value', 'signature'), rows, 'scores')}</div>"
    )


def _samples(samples: Sequence[tuple[str, str, str]]) -> str:
    rows = []
    for source, reference, translation in samples:
        sign, word = ("✓", "right") if translation == reference else ("✗", "differs")
        mark = f'<span class="mark {word}" role="img" aria-label="{word}" title="{word}">{sign}</span>'
        cells = zip(("source", "reference", "translation"), (source, reference, translation), strict=True)
        texts = "".join(
            f'<td data-name="{name}"><bdi dir="auto" lang="">{_text(text)}</bdi></td>' for name, text in cells
        )
        rows.append(f'<td class="sign">{mark}</td>{texts}')
    table = _table(("", "source", "reference", "translation"), rows, "samples")
    if not table:
        return ""
    right = sum(translation == reference for _, reference, translation in samples)
    return f'<p class="quiet">{right} of {len(samples)} equal to the reference</p>{table}'


def _settings(settings: Mapping[str, Mapping[str, object]]) -> str:
    groups = "".join(f"<div><h3>{_text(name)}</h3>{_two_columns(values)}</div>" for name, values in settings.items())
    return f'<details><summary>All settings</summary><div class="settings">{groups}</div></details>' if groups else ""


def _two_columns(values: Mapping[str, object]) -> str:
    rows = [f'<th scope="row">{_text(name)}</th><td dir="auto">{_text(value)}</td>' for name, value in values.items()]
    return _table((), rows, "pairs")


def _table(heads: Sequence[str], rows: Iterable[str], kind: str) -> str:
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    if not body:
        return ""
    head = "".join(f'<th scope="col">{name}</th>' if name else "<td></td>" for name in heads)
    return f'<table class="{kind}">{f"<thead><tr>{head}</tr></thead>" if head else ""}<tbody>{body}</tbody></table>'


def _breakable(signature: str) -> str:
    """A signature that may wrap after each of its parts."""
    return _text(signature).replace("|", "|<wbr>")


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title} · seq2see</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

_STYLE = """
:root { --paper: #fdfdfc; --ink: #1d2733; --quiet: #66717e; --line: #e4e7ea; --right: #1f7a4d; --wrong: #b4452c; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14181d; --ink: #dde3ea; --quiet: #8e99a6; --line: #2a323b; --right: #5fc795; --wrong: #ef8a70; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "Apple SD Gothic Neo", "Malgun Gothic",
    "Noto Sans CJK KR", "Noto Sans KR", sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 3rem 1.5rem 5rem; }
h1 { font-size: 2.1rem; font-weight: 650; letter-spacing: -0.015em; line-height: 1.2; margin: 0 0 1.75rem;
  overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; font-weight: 650; margin: 0 0 1rem; }
h3 { font-size: 0.95rem; font-weight: 650; margin: 1.25rem 0 0.35rem; }
section { margin-top: 3.25rem; }
.kicker { margin: 0 0 0.3rem; color: var(--quiet); font-size: 0.9rem; }
.quiet { margin: -0.6rem 0 1rem; color: var(--quiet); font-size: 0.92rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 1.25rem 1.5rem; margin: 0;
  padding: 1.25rem 0; border-block: 1px solid var(--line); }
.facts dt { color: var(--quiet); font-size: 0.82rem; }
.facts dd { margin: 0; font-size: 1.12rem; font-weight: 550; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(19rem, 100%), 1fr)); gap: 1rem 1.5rem; }
.curves svg { width: 100%; height: auto; overflow: visible; }
.curves text { font-family: inherit !important; }
table { width: 100%; border-collapse: collapse; font-size: 0.95rem; }
th, td { text-align: start; vertical-align: baseline; font-weight: inherit; overflow-wrap: anywhere;
  padding: 0.5rem 0; padding-inline-end: 1.25rem; border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-inline-end: 0; }
thead th { color: var(--quiet); font-size: 0.82rem; }
.scores th[scope=row] { font-weight: 550; white-space: nowrap; }
.scores .number { text-align: end; font-variant-numeric: tabular-nums; font-weight: 550; }
.scores thead th:nth-child(2) { text-align: end; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 0.82rem;
  color: var(--quiet); }
.samples .sign { width: 1.75rem; padding-inline-end: 0.5rem; }
.samples td[data-name] { width: 33%; }
.samples bdi { display: block; white-space: pre-wrap; }
.mark { font-weight: 700; }
.mark.right { color: var(--right); }
.mark.differs { color: var(--wrong); }
.pairs th { width: 15rem; color: var(--quiet); }
.pairs td { font-variant-numeric: tabular-nums; }
summary { cursor: pointer; color: var(--quiet); }
.settings { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); gap: 0 3rem; }
.settings table { font-size: 0.88rem; }
.settings th, .settings td { padding-block: 0.28rem; }
.settings th { width: 55%; }
@media (max-width: 40rem) {
  main { padding: 1.75rem 1.1rem 3rem; }
  h1 { font-size: 1.6rem; }
  section { margin-top: 2.5rem; }
  .facts { grid-template-columns: 1fr 1fr; gap: 0.9rem 1rem; }
  .scores thead, .samples thead { display: none; }
  .scores tr { display: grid; grid-template-columns: 1fr auto; padding: 0.5rem 0;
    border-bottom: 1px solid var(--line); }
  .scores th, .scores td { border: 0; padding: 0; }
  .scores td:last-child { grid-column: 1 / -1; }
  .samples tr { display: block; position: relative; padding: 0.7rem 0 0.7rem 1.75rem;
    border-bottom: 1px solid var(--line); }
  .samples td { display: block; width: auto !important; border: 0; padding: 0 0 0.3rem; }
  .samples td.sign { position: absolute; inset-inline-start: 0; }
  .samples td[data-name]::before { content: attr(data-name); display: block; color: var(--quiet); font-size: 0.78rem; }
  .pairs th { width: 50%; }
}
@media print { details > * { display: block; } section { break-inside: avoid; } }
"""
