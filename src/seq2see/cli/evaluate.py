"""`seq2see evaluate`: scores of a run on pairs, with signatures."""

import json
from typing import Annotated

import typer

from seq2see.cli.options import (
    Beam,
    Debug,
    EngineOption,
    Folder,
    Format,
    Json,
    NBest,
    PairsName,
    PrecisionOption,
    SourceColumn,
    SourceLanguage,
    TargetColumn,
    TargetLanguage,
    To,
)


def evaluate(
    folder: Folder,
    pairs: PairsName,
    beam: Beam = None,
    n_best: NBest = 1,
    tokenize: Annotated[str, typer.Option(help="How BLEU cuts words: none, 13a, char or ko-mecab.")] = "13a",
    format: Format = None,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    to: To = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = "float32",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Translate the sources of PAIRS and score the translations. Columns after the second are further references."""
    from seq2see.data import corpora
    from seq2see.data.pair import Sides
    from seq2see.run import load

    run = load(folder)
    columns, languages = Sides(source_column, target_column), Sides(source_language, target_language)
    found = corpora.for_scoring(pairs, format, columns, languages)
    scored = list(found)
    for note in found.notes:
        typer.echo(note, err=True)
    if run.tags or to:
        scored = [pair._replace(source=run.tagged([pair.source], to or pair.language)[0]) for pair in scored]
    chosen = run.engine(engine, precision)
    scores, _ = run.evaluate(scored, beam, n_best, tokenize, chosen)
    width = max(n_best, beam or run.settings.decoding.beam)
    if as_json:
        facts = {"run": str(run.folder), "pairs": len(scored), "engine": chosen.name, "beam": width}
        typer.echo(json.dumps({**facts, "scores": scores.as_dict()}))
        return
    typer.echo(f"{len(scored):,} pairs of {pairs}, {chosen.name}, {f'beam {width}' if width > 1 else 'greedy'}")
    for score in scores:
        typer.echo(f"{score.name:<11}{score.value:>7.2f}  {score.signature}")
