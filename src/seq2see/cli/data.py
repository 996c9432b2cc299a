"""`seq2see data`: corpora by name."""

import json

import typer

from seq2see.cli.options import Debug, Json


def data_list(as_json: Json = False, debug: Debug = False) -> None:
    """List the corpora that have a name."""
    from seq2see.data.corpora import catalogue

    entries = catalogue()
    if as_json:
        typer.echo(json.dumps([entry._asdict() for entry in entries]))
        return
    for entry in entries:
        typer.echo(f"{entry.name:<12}{entry.pairs:>10,} pairs  {entry.description} ({entry.licence})")
