"""The reports of the lab in the language of the user: `report.html`, with its pictures inside, and `report.md`.

`results.md` and `results.ko.md` contain only verdicts, intervals and controls, for the page of results in the docs.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2

from seq2see import storage
from seq2see.display.wording import language, translated
from seq2see.evaluation import report
from seq2see.lab import charts
from seq2see.lab.claim import Judgement, Measurement, Measurements, Outcome, show
from seq2see.pictures import drawing

SIGNS: Final = {"held": "✓", "did not hold": "✗", "undecided": "?", "not trusted": "!"}
_TEMPLATES: Final = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=jinja2.select_autoescape(["html"]),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.globals["SIGNS"] = SIGNS
_TEMPLATES.filters |= {
    "show": show,
    "cell": lambda text: text.replace("|", "\\|"),
    "in_words": translated,
    "interval": lambda found: "" if math.isnan(found.mean) else _interval(found),
    "per_cent": lambda share: "" if math.isnan(share) else f"{100 * share:.0f} %",
}


def write(out: Path, outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> None:
    """Write both reports, the pictures of `report.md`, the page of results in two languages, and `verdicts.json`."""
    pictures = out / "pictures"
    storage.own_folder(pictures)
    svgs = {}
    for outcome in outcomes:
        name = outcome.claim.name
        if outcome.claim.charts and outcome.measured:
            figure = charts.draw(outcome.claim.charts, outcome.measured)
            svgs[name] = drawing.inline(figure, f"{name}, measured", tight=False)
            with storage.replacing(pictures / f"{name}.svg") as beside:
                beside.write_text(f"{svgs[name]}\n", encoding="utf-8")
    given: dict[str, Any] = {"outcomes": [(outcome, *table(outcome.measured)) for outcome in outcomes]}
    style = (Path(__file__).with_name("templates") / "report.css").read_text(encoding="utf-8")
    given |= {"facts": facts, "svgs": svgs, "to": language()}
    body = _TEMPLATES.get_template("report.html").render(given)
    title = translated("the paper's claims, measured")
    storage.write_text(out / "report.html", report.page(title, style, body))
    storage.write_text(out / "report.md", _TEMPLATES.get_template("report.md").render(given))
    for to, name in (("en", "results.md"), ("ko", "results.ko.md")):
        storage.write_text(out / name, _TEMPLATES.get_template("results.md").render(given | {"to": to}))
    storage.write_text(out / "verdicts.json", json.dumps(as_json(outcomes, facts), ensure_ascii=False, indent=1) + "\n")


def as_json(outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> dict[str, Any]:
    """Return verdicts, judgements and every measured number as JSON data."""
    claims = [
        {
            "claim": outcome.claim.name,
            "words": outcome.claim.words,
            "source": outcome.claim.source,
            "measured": outcome.claim.measured,
            "verdict": outcome.verdict,
            "findings": [_plain(vars(judgement)) for judgement in outcome.judgements],
            "controls": [_plain(vars(control)) for control in outcome.controls],
            "rows": [_plain(vars(row)) for row in outcome.measured],
        }
        for outcome in outcomes
    ]
    return {"facts": dict(facts), "claims": claims}


def _interval(found: Judgement) -> str:
    """Return the 95 % confidence interval of a number as text: `unknown` if it is unbounded, the number alone if it is
    exact.
    """
    if not math.isfinite(found.margin):
        return show(math.inf)
    return (
        f"{show(found.mean - found.margin)} … {show(found.mean + found.margin)}" if found.margin else show(found.mean)
    )


def _plain(value: Any) -> Any:
    """Return a value, with infinity and NaN in it replaced by None, since JSON does not have them."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(rows: Measurements) -> tuple[str, list[str], list[list[str]]]:
    """Return the conditions that all trials share, as text, the column names, and the rows of a table.

    There is a row for each combination of the other conditions, with each number as mean ± standard deviation.
    """
    conditions = list(dict.fromkeys(key for row in rows for key in row.conditions))
    varied = [key for key in conditions if len(rows.values(key)) > 1 or any(key not in row.conditions for row in rows)]
    fixed = ", ".join(
        f"{charts.spoken(key)} {charts.spell(rows[0].conditions[key], 'yes', 'no')}"
        for key in conditions
        if key not in varied
    )
    numbers = list(dict.fromkeys(key for row in rows for key in row.numbers))
    lines = []
    for values, own in rows.parted(varied):
        cells = ["" if values[key] is None else charts.spell(values[key], "yes", "no") for key in varied]
        lines.append([*cells, *(_cell(own, number) for number in numbers)])
    return fixed, [charts.spoken(name) for name in (*varied, *numbers)], lines


def _cell(rows: Sequence[Measurement], number: str) -> str:
    """Return the mean ± standard deviation of a number over the seeds, as text; "" if it was not measured."""
    values = [row.numbers[number] for row in rows if number in row.numbers]
    if not values:
        return ""
    if not all(map(math.isfinite, values)):
        return f"not finite in {sum(not math.isfinite(value) for value in values)} of {len(values)}"
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{show(statistics.fmean(values))} ± {show(deviation)}" if deviation else show(values[0])
