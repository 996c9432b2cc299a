"""`seq2see doctor`: report problems of a corpus, and write a clean copy of it."""

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli import options
from seq2see.cli.data import Downloads
from seq2see.cli.messages import echo, write_line
from seq2see.display.wording import padded, translated
from seq2see.errors import visible

if TYPE_CHECKING:
    from seq2see.doctor.findings import Diagnosis, Example, Finding

ACTIONS = {"dropped": " (--write drops them)", "repaired": " (--write repairs them)", "kept": ""}
COLOURS = {"error": "bold red", "warning": "yellow", "note": "dim"}


def doctor(
    pairs: options.ManyPairs,
    against: Annotated[
        str | None,
        typer.Option(metavar="PAIRS", help="Test or validation set; report its pairs that are also in the corpus."),
    ] = None,
    write: Annotated[
        str | None,
        typer.Option(metavar="CLEAN.tsv", help="Write a clean copy, and beside it CLEAN.dropped.tsv with the reasons."),
    ] = None,
    picture: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw the distribution of text lengths (.png, .svg, .pdf).")
    ] = None,
    format: options.Format = None,
    source_column: options.SourceColumn = None,
    target_column: options.TargetColumn = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier clean copy or picture.")] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Report problems of PAIRS. Faults of the files are counted and shown, and do not end the command.

    Near-duplicates are texts that differ in capitals, punctuation and spaces only. Equal texts are found by 64-bit
    hashes: with 10 million different texts, the chance that any two are taken for equal is 3 in a million.
    """
    from seq2see.doctor import cleaning
    from seq2see.doctor.examination import examine
    from seq2see.doctor.raw import RawPairs
    from seq2see.text import corpora
    from seq2see.text.pair import Sides
    from seq2see.text.rows import ReadingOptions

    reading = ReadingOptions(format, Sides(source_column, target_column), Sides(source_language, target_language))
    with Downloads() as watch:
        corpus = corpora.open_corpus(pairs, reading, watch)
        others = RawPairs(*corpora.for_scoring(against, reading, watch).parts) if against else None
    rows = RawPairs(*corpus.train.parts)
    name = " ".join(pairs)
    if write:
        cleaning.check(Path(write), [*rows.paths, *(others.paths if others else [])], force)
    if picture:
        from seq2see.pictures import curves, drawing

        drawing.check_suffix(Path(picture))
        options.check_new(Path(picture), force)
    with _patience(f"examining {name}"):
        diagnosis = examine(rows, others)
    for note in corpus.train.notes:
        echo(note, err=True)
    if picture and (missing := curves.lengths(*diagnosis.lengths, Path(picture))):
        echo(missing, err=True)
    written = None
    if write:
        with _patience(f"writing {write}"):
            written = cleaning.write(rows, diagnosis, Path(write))
    if as_json:
        write_line(json.dumps({"pairs": pairs, **_facts(diagnosis), "written": written and written._asdict()}))
        return
    _print(name, diagnosis)
    if write and written:
        echo(
            f"{written.kept:,} pairs in {write}, {written.repaired:,} of them repaired; "
            f"{written.dropped:,} dropped, listed in {cleaning.dropped_beside(Path(write))}"
        )
    elif diagnosis.changes and diagnosis.kept and not {"shift", "order"} & {each.name for each in diagnosis.problems}:
        again = [word for word in sys.argv[1:] if word != "--force"]
        echo(f"Write a clean copy with: seq2see {shlex.join(again)} --write clean.tsv")


@contextlib.contextmanager
def _patience(what: str) -> Iterator[None]:
    """Show a spinner with the text `what` on a terminal while a corpus is examined or written, which may take
    minutes.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(what))):
        yield


def _facts(diagnosis: "Diagnosis") -> dict[str, object]:
    return {
        "rows": diagnosis.rows,
        "kept": diagnosis.kept,
        "problems": len(diagnosis.problems),
        "scripts": diagnosis.scripts,
        "median_lengths": _medians(diagnosis),
        "findings": [
            asdict(finding) | {"examples": [example._asdict() for example in finding.examples]}
            for finding in diagnosis.findings
        ],
    }


def _medians(diagnosis: "Diagnosis") -> list[float]:
    import numpy as np

    return [float(np.median(side)) if len(side) else 0.0 for side in diagnosis.lengths]


def _print(name: str, diagnosis: "Diagnosis") -> None:
    """Print a diagnosis: a table on a terminal, plain lines elsewhere; the last line is the overall result."""
    scripts = ", " + " -> ".join(script or "mixed" for script in diagnosis.scripts) if any(diagnosis.scripts) else ""
    lengths = " -> ".join(f"{length:,.0f}" for length in _medians(diagnosis))
    rows = f"{diagnosis.rows:,} row{'s' * (diagnosis.rows != 1)}"
    echo(f"{name}: {rows}{scripts}, {lengths} characters (median)")
    if sys.stdout.isatty():
        _table(diagnosis)
    else:
        for finding in diagnosis.findings:
            count = finding.pairs and f", {translated(finding.pairs)}"
            severity, action = padded(translated(finding.severity), 8), translated(ACTIONS[finding.action])
            echo(f"{severity} {finding.name}{count}: {_about(finding)}{action}")
            for example in finding.examples:
                echo(f"         {_shown(example)}")
    problems, notes = len(diagnosis.problems), len(diagnosis.findings) - len(diagnosis.problems)
    counts = [
        f"{count:,} {word}{'s' * (count > 1)}" for count, word in ((problems, "problem"), (notes, "note")) if count
    ]
    if not problems:
        counts.insert(0, "no problem" if diagnosis.changes else "clean")
    echo(", ".join(map(translated, counts)))


def _table(diagnosis: "Diagnosis") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not diagnosis.findings:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(translated("finding"), no_wrap=True)
    table.add_column(translated("pairs"), justify="right", no_wrap=True)
    table.add_column("--write", no_wrap=True)
    table.add_column(translated("problem and advice"), overflow="fold")
    for finding in diagnosis.findings:
        about = Text(visible(_about(finding)))
        for example in finding.examples:
            about.append(f"\n{_shown(example)}", "dim")
        name = Text(finding.name, COLOURS[finding.severity])
        count = finding.pairs.replace(" pairs", "").replace(" pair", "")
        action = {"dropped": "drops", "repaired": "repairs"}.get(finding.action, "")
        table.add_row(name, count, translated(action), about)
    Console(highlight=False).print(table)


def _about(finding: "Finding") -> str:
    what = translated(finding.what)
    return f"{what}{'' if what.endswith(('.', '?')) else '.'} {translated(finding.advice)}".rstrip()


def _shown(example: "Example") -> str:
    line = translated(f"line {example.line:,}") if isinstance(example.line, int) else visible(example.line)
    source, target = (visible(text, keep="") for text in (example.source, example.target))
    return f"{line}: {source} -> {target}"
