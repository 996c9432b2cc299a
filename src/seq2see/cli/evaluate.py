"""`seq2see evaluate`: scores of a run on pairs, with signatures."""

import json
from typing import Annotated

import typer

from seq2see.cli.options import Beam, Debug, Folder, Format, Json, NBest, PairsName


def evaluate(
    folder: Folder,
    pairs: PairsName,
    beam: Beam = None,
    n_best: NBest = 1,
    tokenize: Annotated[str, typer.Option(help="How BLEU cuts words: none, 13a, char or ko-mecab.")] = "13a",
    format: Format = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Translate the sources of PAIRS and score the translations. Columns after the second are further references."""
    from seq2see import api
    from seq2see.data import corpora

    run = api.load(folder)
    scored = list(corpora.for_scoring(pairs, format))
    scores, _ = run.evaluate(scored, beam, n_best, tokenize)
    if as_json:
        typer.echo(json.dumps({"pairs": len(scored), "run": str(run.folder), "scores": scores.as_dict()}))
        return
    typer.echo(f"{len(scored):,} pairs of {pairs}")
    for score in scores:
        typer.echo(f"{score.name:<11}{score.value:>7.2f}  {score.signature}")
