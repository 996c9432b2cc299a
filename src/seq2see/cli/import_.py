"""`seq2see import`: turn a model of another program into a run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.messages import echo, write_line
from seq2see.cli.options import Debug, Json


def import_(
    source: Annotated[
        str, typer.Argument(metavar="FOLDER|NAME", help="Folder of a Marian model (OPUS-MT), or its name on the Hub.")
    ],
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run folder to write, such as runs/en-de.")],
    valid: Annotated[
        str | None,
        typer.Option(
            metavar="PAIRS",
            help="Validation pairs for this model: to check exports, and to measure what fine-tuning forgets.",
        ),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="Branch, tag or commit of a model on the Hub. Default: newest.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Import a Hugging Face Marian model, such as OPUS-MT, as a run: to translate, look inside, serve and fine-tune."""
    from seq2see import storage
    from seq2see.interop import importing
    from seq2see.text import corpora

    pairs = [] if valid is None else list(corpora.for_scoring(valid))
    found = importing.import_model(source, Path(run), valid=pairs, force=force, revision=revision)
    facts = storage.read_manifest(Path(run))
    for note in found.notes:
        echo(f"{run}: {note}, so outputs may differ from those of transformers", err=True)
    if as_json:
        write_line(json.dumps({"run": run, **facts}, ensure_ascii=False))
        return
    languages = found.settings.data.tags.split()
    echo(f"{run}: {facts['parameters']:,} parameters, {len(found.tokenizers.target):,} target tokens")
    if languages:
        some = " ".join(languages[:20]) + " ..." * (len(languages) > 20)
        echo(f"{run}: translates to {len(languages)} languages; choose one with translate --to: {some}")
