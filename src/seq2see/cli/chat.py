"""`seq2see chat`: a conversation in the terminal."""

import contextlib
import sys

import typer

from seq2see.cli.options import Beam, Debug, Folder, Sample, Seed, Temperature, TopK, TopP


def chat(
    folder: Folder,
    beam: Beam = None,
    sample: Sample = False,
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    debug: Debug = False,
) -> None:
    """Talk with a model: each line you type is answered. End with Ctrl-D."""
    from seq2see import api
    from seq2see.decoding import search

    run = api.load(folder)
    run.bundle  # noqa: B018  load before the first question, so that the first answer is quick
    choose = search.sampling(temperature, top_k, top_p, seed) if sample else None
    interactive = sys.stdin.isatty()
    if interactive:
        typer.echo(f"{folder}: type a line and press Enter; Ctrl-D ends.", err=True)
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  arrow keys and history
    while True:
        try:
            line = input("> " if interactive else "")
        except EOFError:
            break
        if line.strip():
            typer.echo(run.search([line], beam, choose=choose)[0].text)
    if interactive:
        typer.echo("", err=True)
