"""`seq2see export`: write a run in the format of another program."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from seq2see.cli.messages import echo, write_line
from seq2see.cli.options import Debug, Folder, Json, SourceLanguage, TargetLanguage

NOTES = {"huggingface": ", both greedy", "onnx": ", both greedy", "argos": ", both with the search of Argos Translate"}
"""By export format, a note on the search that `export` uses for both models when it compares their translations. With
other formats, both search with the settings of the run, and there is no note.
"""


def export(
    folder: Folder,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="New folder for the exported model.")],
    to: Annotated[
        str, typer.Option(metavar="FORMAT", help="Format: ctranslate2, huggingface, onnx or argos.")
    ] = "ctranslate2",
    precision: Annotated[str, typer.Option(help="Precision of the weights: float32, float16 or int8.")] = "float32",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Export a model to the format of another program, and check that it gives the same translations."""
    from seq2see.evaluation import metrics
    from seq2see.interop import export as room
    from seq2see.text.pair import Sides

    parity = room.export(Path(folder), Path(directory), to, precision, force, Sides(source_language, target_language))
    references = [[text] for text in parity.references]
    names: tuple[str, ...] = ("exact",) if metrics.why_not_bleu(references) else ("bleu", "exact")
    names = names if references else ()
    before, after = (
        {name: metrics.one(name, texts, references) for name in names} for texts in (parity.ours, parity.theirs)
    )
    if as_json:
        facts: dict[str, Any] = {"sentences": parity.sentences, "same": parity.same}
        for name in ("bleu", "exact"):  # null: BLEU does not apply to targets of fewer than four words
            facts |= {f"{name}_before": before.get(name), f"{name}_after": after.get(name)}
        write_line(json.dumps({"folder": directory, "to": to, "precision": precision, **facts}))
        return
    echo(f"{directory}: {to} {precision}")
    echo(
        f"{parity.same:,} of {parity.sentences:,} {'validation' if names else 'random'} sentences have the same tokens "
        + "; ".join(
            [
                f"as with the torch engine{NOTES.get(to, '')}",
                *(f"{name} {before[name]:.2f} -> {after[name]:.2f}" for name in names),
            ]
        )
    )
    if precision == "float32" and parity.share < 99:
        echo(
            f"{directory}: differs from the torch engine in more than 1 % of the sentences, which is not expected: "
            "please report it as a bug",
            err=True,
        )
