"""`seq2see lab`: measure claims of "Attention Is All You Need" and related papers."""

import json
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.messages import echo, write_line
from seq2see.cli.options import Debug, Json
from seq2see.display.wording import translated
from seq2see.errors import visible
from seq2see.lab.catalogue import CLAIMS
from seq2see.lab.claim import QUICK_SEEDS, Outcome


def lab(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="CLAIM", help=f"Claims to measure; default: all. One or more of: {', '.join(CLAIMS)}."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run fewer and smaller trials, in under 25 minutes on two cores.")
    ] = False,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder for results and reports.")] = "runs/lab",
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            help="Number of seeds per trial; default: 3 to 8 with --quick, else 4 to 8.",
        ),
    ] = None,
    first_seed: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="First seed; another one checks the verdicts with new seeds.")
    ] = 1,
    pairs: Annotated[
        str, typer.Option(metavar="PAIRS", help="Corpus (file or name) for the claim `comparison`; default: dates.")
    ] = "",
    list_only: Annotated[bool, typer.Option("--list", help="List the claims without measuring them.")] = False,
    as_json: Json = False,
    force: Annotated[bool, typer.Option("--force", help="Measure all trials again.")] = False,
    debug: Debug = False,
) -> None:
    """Measure the claims of the paper: numbers, charts and verdicts in DIR/report.html and DIR/report.md.

    Finished trials are stored in DIR: the same command resumes where it was stopped.
    """
    if list_only:
        _list(as_json)
        return
    from seq2see.lab import report, runner

    with _Bar() as bar:
        told: list[Outcome] = []

        def tell(outcome: Outcome) -> None:
            if not as_json:
                bar.print(_row(outcome) if told else f"{_line('claim', 'verdict', 'what decided')}\n{_row(outcome)}")
            told.append(outcome)

        try:
            outcomes, facts = runner.measure_claims(
                names or [],
                out,
                quick=quick,
                seeds=seeds,
                first_seed=first_seed,
                pairs=pairs,
                force=force,
                command=shlex.join(["seq2see", *sys.argv[1:]]),
                watch=bar.show,
                tell=tell,
            )
        except KeyboardInterrupt:
            bar.stop()
            again = shlex.join(["seq2see", *(word for word in sys.argv[1:] if word != "--force")])
            echo(f"stopped; what was measured is kept in {out}. To resume: {again}", err=True)
            raise
    if as_json:
        write_line(json.dumps(report.as_json(outcomes, facts), ensure_ascii=False))
    if seeds is not None and seeds < QUICK_SEEDS:
        echo(f"few seeds give wide intervals: use --seeds {QUICK_SEEDS} or more", err=True)
    for page in ("report.html", "report.md"):
        echo(f"report {Path(out) / page}", err=True)


def _list(as_json: bool) -> None:
    if as_json:
        write_line(json.dumps([{"claim": name, "gist": gist} for name, gist in CLAIMS.items()]))
    else:
        for name, gist in CLAIMS.items():
            echo(f"{name:<{NAME_WIDTH}} {translated(gist)}")


NAME_WIDTH, VERDICT_WIDTH, WIDTH = 13, 14, 100


def _line(name: str, verdict: str, decided: str) -> str:
    return f"{name:<{NAME_WIDTH}} {verdict:<{VERDICT_WIDTH}} {decided}".rstrip()


def _row(outcome: Outcome) -> str:
    """Return a row of the table: claim, verdict, and the reason for the verdict; a long reason is wrapped."""
    first, *rest = textwrap.wrap(translated(outcome.reason), WIDTH - NAME_WIDTH - VERDICT_WIDTH - 2)
    head = _line(outcome.claim.name, translated(outcome.verdict), first)
    return "\n".join([head, *(_line("", "", more) for more in rest)])


class _Bar:
    """A progress bar of the trials on a terminal; rows of the table are printed above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.completed} of {task.total} trials"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> "_Bar":
        if self._bar.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._bar.live.is_started:
            self._bar.stop()

    def show(self, claim: str, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total, description=claim)

    def print(self, text: str) -> None:
        """Print above the progress bar: to stderr if both stderr and stdout are terminals, else to stdout."""
        if self._bar.console.is_terminal and sys.stdout.isatty():
            self._bar.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)
        else:
            echo(text)
