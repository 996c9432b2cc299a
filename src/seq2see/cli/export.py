"""`seq2see export`: a format that other programs run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.messages import echo, write_line
from seq2see.cli.options import Debug, Folder, Json


def export(
    folder: Folder,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A new folder for the exported model.")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help="ctranslate2.")] = "ctranslate2",
    precision: Annotated[str, typer.Option(help="float32, float16 or int8.")] = "float32",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a model for another program, and check on the validation sentences that it says the same."""
    from seq2see.evaluation import metrics
    from seq2see.interop import export as room

    parity = room.export(Path(folder), Path(directory), to, precision, force)
    references = [[text] for text in parity.references]
    before, after = (metrics.one("bleu", texts, references) for texts in (parity.ours, parity.theirs))
    if as_json:
        facts = {"sentences": parity.sentences, "same": parity.same, "bleu_before": before, "bleu_after": after}
        write_line(json.dumps({"folder": directory, "to": to, "precision": precision, **facts}))
        return
    echo(f"{directory}: {to} {precision}")
    echo(
        f"{parity.same:,} of {parity.sentences:,} validation sentences have the same tokens as with our own engine; "
        f"BLEU {before:.2f} -> {after:.2f}"
    )
    if precision == "float32" and parity.share < 99:
        echo(f"{directory}: differs from our own engine more often than it should; please report it", err=True)
