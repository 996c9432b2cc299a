"""The page of `bench.systems` keeps every table that was not measured again."""

import json
from pathlib import Path
from typing import Any

from bench import systems


def row(budget: str, exact: float, **other: Any) -> dict[str, Any]:
    scores, sizes = {"exact": exact}, {"parameters": 1000, "layers": [2, 2], "width": 8, "batch_tokens": 512}
    found = {"corpus": "dates", "system": "rnn", "seed": 1, "budget": budget, "machine": "one GPU", "metric": "exact"}
    return found | sizes | {"scores": scores, "training_seconds": 1.0, "test_pairs": 10} | other


def page_of(folder: Path, *rows: dict[str, Any]) -> str:
    """Write the page again, from these results only."""
    results, page = folder / "results.jsonl", folder / "page.md"
    results.write_text("".join(f"{json.dumps(each)}\n" for each in rows), encoding="utf-8")
    systems.write_page([results], page)
    return page.read_text(encoding="utf-8")


def test_tables_of_other_budgets_and_machines_stay(tmp_path: Path) -> None:
    page_of(tmp_path, row("100 steps", 11.0), row("200 steps", 22.0))
    page_of(tmp_path, row("100 steps", 33.0, machine="a CPU"))
    text = page_of(tmp_path, row("200 steps", 44.0))
    assert [score in text for score in ("11.0", "22.0", "33.0", "44.0")] == [True, False, True, True]
    assert text.count("## Published figures") == 1


def test_the_cpu_time_of_an_update_has_a_table_for_each_corpus(tmp_path: Path) -> None:
    dates = row("timed", 0.0, update_seconds=1.25)
    page_of(tmp_path, row("100 steps", 11.0), dates)
    text = page_of(tmp_path, dates | {"corpus": "captions", "update_seconds": 2.5})
    assert "## CPU time of one update, dates, one GPU" in text
    assert "## CPU time of one update, captions, one GPU" in text
    assert "| RNN (2014) | 1,000 | 1.25 |" in text
    assert "| RNN (2014) | 1,000 | 2.50 |" in text
    assert "11.0" in text
