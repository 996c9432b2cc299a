"""`seq2see chat`: a conversation in the terminal."""

import contextlib
import sys

import typer

from seq2see.cli.options import (
    Beam,
    Debug,
    EngineOption,
    Folder,
    PrecisionOption,
    Sample,
    Seed,
    Temperature,
    To,
    TopK,
    TopP,
    pick_engine,
)
from seq2see.cli.translate import read_lines


def chat(
    folder: Folder,
    to: To = None,
    beam: Beam = None,
    sample: Sample = False,
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = None,
    debug: Debug = False,
) -> None:
    """Talk with a model: each line you type is answered. End with Ctrl-D."""
    from seq2see.run import load

    run = load(folder)
    chosen = pick_engine(
        run, engine, precision, sample=sample, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    interactive = sys.stdin.isatty()
    if interactive:
        typer.echo(f"{folder}: type a line and press Enter; Ctrl-D ends.", err=True)
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  arrow keys and history
    for line in iter(_ask, None) if interactive else read_lines():
        if line.strip():
            typer.echo(run.search([line], beam, engine=chosen, to=to)[0].text)
    if interactive:
        typer.echo("", err=True)


def _ask() -> str | None:
    """The next line that is typed; None at the end."""
    try:
        return input("> ")
    except EOFError:
        return None
