"""The pages of the lab: `report.html`, one file with its pictures inside, and `report.md` with the same beside it."""

import html
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2see import storage
from seq2see.evaluation import report
from seq2see.lab import charts
from seq2see.lab.claim import Finding, Outcome, Row, Rows, combinations, show
from seq2see.lens import drawing

FEW_ROWS = 4
"""A table that is shown at once; longer ones are folded."""
SIGNS = {"held": "✓", "did not hold": "✗", "undecided": "?"}


def write(out: Path, outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> None:
    """Both pages, the pictures of the second, and `verdicts.json`."""
    pictures = out / "pictures"
    storage.own_folder(pictures)
    body, lines = [_header(facts, outcomes)], _markdown_head(facts, outcomes)
    for outcome in outcomes:
        name, svg = outcome.claim.name, ""
        if outcome.claim.charts and outcome.rows:
            figure = charts.draw(outcome.claim.charts, outcome.rows)
            svg = drawing.inline(figure, f"{name}, measured", tight=False)
            with storage.replacing(pictures / f"{name}.svg") as beside:
                beside.write_text(f"{svg}\n", encoding="utf-8")
        body.append(_section(outcome, svg))
        lines += _markdown(outcome, bool(svg))
    page = report.page("the paper's claims, measured", _STYLE, "\n".join(body))
    storage.write_text(out / "report.html", page)
    storage.write_text(out / "report.md", "\n".join(lines) + "\n")
    storage.write_text(out / "verdicts.json", json.dumps(as_json(outcomes, facts), ensure_ascii=False, indent=1) + "\n")


def as_json(outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> dict[str, Any]:
    """Verdicts, findings and every measured number."""
    return {"facts": dict(facts), "claims": [_outcome(outcome) for outcome in outcomes]}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    claim = outcome.claim
    return {
        "claim": claim.name,
        "words": claim.words,
        "source": claim.source,
        "measured": claim.measured,
        "verdict": outcome.verdict,
        "findings": [_plain(vars(finding)) for finding in outcome.findings],
        "rows": [_plain(vars(row)) for row in outcome.rows],
    }


def _plain(value: Any) -> Any:
    """JSON has no infinity, and no "not a number"."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- tables ----------------------------------------------------------------------------------------------------------


def table(rows: Rows) -> tuple[dict[str, Any], list[str], list[list[str]]]:
    """(conditions that are the same in all trials, heads of the columns, a line for each trial: mean ± deviation)."""
    conditions = list(dict.fromkeys(key for row in rows for key in row.conditions))
    varied = [key for key in conditions if len(rows.values(key)) > 1 or any(key not in row.conditions for row in rows)]
    fixed = {key: rows[0].conditions[key] for key in conditions if key not in varied}
    numbers = list(dict.fromkeys(key for row in rows for key in row.numbers))
    lines = []
    for values, own in combinations(rows, varied):
        cells = ["" if values[key] is None else charts.spell(values[key], "yes", "no") for key in varied]
        lines.append([*cells, *(_cell(own, number) for number in numbers)])
    return fixed, [charts.spoken(name) for name in (*varied, *numbers)], lines


def _cell(rows: Sequence[Row], number: str) -> str:
    values = [row.numbers[number] for row in rows if number in row.numbers]
    if not values:
        return ""
    if not all(map(math.isfinite, values)):
        return f"not finite in {sum(not math.isfinite(value) for value in values)} of {len(values)}"
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{show(statistics.fmean(values))} ± {show(deviation)}" if deviation else show(values[0])


def fixed_in_words(fixed: Mapping[str, Any]) -> str:
    return ", ".join(f"{charts.spoken(key)} {charts.spell(value, 'yes', 'no')}" for key, value in fixed.items())


# --- Markdown --------------------------------------------------------------------------------------------------------


def _markdown_head(facts: Mapping[str, str], outcomes: Sequence[Outcome]) -> list[str]:
    lines = ["# The paper's claims, measured", ""]
    lines += [f"- {name}: {f'`{value}`' if name == 'command' else value}" for name, value in facts.items()]
    lines += ["", "| claim | verdict | what decided |", "|---|---|---|"]
    return lines + [_bar(outcome.claim.name, outcome.verdict, outcome.reason) for outcome in outcomes]


def _markdown(outcome: Outcome, picture: bool) -> list[str]:
    claim = outcome.claim
    lines = ["", f"## {claim.name}: {outcome.verdict}", "", f"> {claim.words}", "", f"{claim.source}.", ""]
    lines += [f"Measured: {claim.measured}.", ""]
    lines += ["| | expected | number | mean | ± (95 %) | bounds |", "|---|---|---|---|---|---|"]
    lines += [_bar(*_cells(finding)) for finding in outcome.findings]
    if picture:
        lines += ["", f"![{claim.name}, measured](pictures/{claim.name}.svg)"]
    fixed, heads, rows = table(outcome.rows)
    lines += [
        "",
        f"Mean ± deviation over seeds {'; '.join(filter(None, [_seeds(outcome), fixed_in_words(fixed)]))}.",
        "",
    ]
    return [*lines, _bar(*heads), "|---" * len(heads) + "|", *(_bar(*row) for row in rows)]


def _bar(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cells(finding: Finding) -> tuple[str, ...]:
    sign = SIGNS[finding.verdict]
    return sign, finding.words, finding.label, show(finding.mean), show(finding.margin), finding.bounds


def _seeds(outcome: Outcome) -> str:
    return ", ".join(map(str, outcome.rows.seeds))


# --- HTML ------------------------------------------------------------------------------------------------------------


def _header(facts: Mapping[str, str], outcomes: Sequence[Outcome]) -> str:
    rows = "".join(
        f'<tr><th scope="row"><a href="#{outcome.claim.name}">{outcome.claim.name}</a></th>'
        f"<td>{_mark(outcome.verdict)} {outcome.verdict}</td><td>{html.escape(outcome.reason)}</td></tr>"
        for outcome in outcomes
    )
    known = "".join(f"<div><dt>{name}</dt><dd>{html.escape(value)}</dd></div>" for name, value in facts.items())
    return (
        '<header><p class="kicker">seq2see lab</p><h1>The paper’s claims, measured</h1>'
        f'<dl class="facts">{known}</dl></header><section class="wide"><table class="verdicts"><thead><tr>'
        f"<th>claim</th><th>verdict</th><th>what decided</th></tr></thead><tbody>{rows}</tbody></table></section>"
    )


def _mark(verdict: str) -> str:
    kind = {"held": "right", "did not hold": "differs"}.get(verdict, "open")
    return f'<span class="mark {kind}" aria-hidden="true">{SIGNS[verdict]}</span>'


def _section(outcome: Outcome, svg: str) -> str:
    claim = outcome.claim
    findings = "".join(
        f"<tr><td>{_mark(finding.verdict)}</td>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(finding)[1:])
        + "</tr>"
        for finding in outcome.findings
    )
    fixed, heads, rows = table(outcome.rows)
    unfolded = " open" if len(rows) <= FEW_ROWS else ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<section id="{claim.name}"><h2>{claim.name}: {_mark(outcome.verdict)} {outcome.verdict}</h2>'
        f"<blockquote>{html.escape(claim.words)}</blockquote><p>{html.escape(claim.source)}</p>"
        f"<p>Measured: {html.escape(claim.measured)}.</p>"
        '<div class="wide"><table class="findings"><thead><tr><td></td><th>expected</th><th>number</th><th>mean</th>'
        f"<th>± (95 %)</th><th>bounds</th></tr></thead><tbody>{findings}</tbody></table></div>"
        + (f"<figure>{svg}</figure>" if svg else "")
        + f"<details{unfolded}><summary>All numbers: mean ± deviation over seeds {_seeds(outcome)}</summary>"
        f"<p>{html.escape(fixed_in_words(fixed))}</p>"
        f'<div class="wide"><table class="numbers"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        "</details></section>"
    )


_STYLE = """
blockquote { margin: 0 0 0.8rem; padding-inline-start: 1rem; border-inline-start: 3px solid var(--line); }
section p { margin: 0.4rem 0; color: var(--quiet); font-size: 0.92rem; }
.verdicts td:nth-child(2) { white-space: nowrap; }
.mark.open { color: var(--quiet); }
.findings { margin-top: 1rem; }
.findings td:nth-child(n+4), .numbers td { font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1.5rem 0; padding: 0.5rem; background: #fff; border-radius: 6px; width: fit-content; max-width: 100%; }
figure svg { display: block; max-width: 100%; height: auto; }
.numbers { font-size: 0.85rem; }
.wide { overflow-x: auto; }
th, td { overflow-wrap: normal; }
.verdicts td:nth-child(3), .findings td:nth-child(-n+3) { min-width: 12rem; }
.findings td:first-child { min-width: 0; }
.facts { grid-template-columns: repeat(auto-fit, minmax(14rem, 1fr)); }
.facts dd { font-size: 0.95rem; }
a { color: inherit; }
"""
