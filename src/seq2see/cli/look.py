"""`seq2see look`: what goes on inside one translation, drawn."""

from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.options import Debug, Folder, To
from seq2see.errors import SettingError, nearest

PLACES = ("cross", "encoder", "decoder")


def look(
    folder: Folder,
    sentence: Annotated[str, typer.Argument(help="The source to translate and look into.")],
    output: Annotated[str, typer.Option("-o", "--output", help="A .png, .svg or .pdf file.")] = "attention.png",
    place: Annotated[str, typer.Option(help="Which attention: cross, encoder or decoder.")] = "cross",
    layer: Annotated[int, typer.Option(help="Which layer, counted from 1; 0: the last.")] = 0,
    to: To = None,
    debug: Debug = False,
) -> None:
    """Translate a sentence and draw where each token looked, head by head."""
    if place not in PLACES:
        raise SettingError(f"--place {place}: unknown. {nearest(place, PLACES)}")
    if not sentence.strip():
        raise SettingError("the sentence is empty: there is nothing to look at")
    from seq2see.lens import pictures
    from seq2see.run import load

    run = load(folder)
    seen = run.look(sentence, to)
    layers, rows, columns, row_name, column_name = {
        "cross": (seen.cross, seen.target_tokens, seen.source_tokens, "output", "input"),
        "encoder": (seen.encoder, seen.source_tokens, seen.source_tokens, "input", "input"),
        "decoder": (seen.decoder, seen.input_tokens, seen.input_tokens, "output", "output"),
    }[place]
    if not 0 <= layer <= len(layers):
        raise SettingError(f"--layer {layer}: the model has {len(layers)} layers there")
    number = layer or len(layers)
    title = f"{_shortened(seen.source)} → {_shortened(seen.translation)}"
    note = pictures.attention(layers[number - 1], rows, columns, title, Path(output), row_name, column_name)
    typer.echo(seen.translation)
    typer.echo(f"{place} attention of layer {number}: {output}", err=True)
    if note:
        typer.echo(note, err=True)


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
