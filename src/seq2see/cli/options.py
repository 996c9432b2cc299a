"""Options and arguments that several verbs share, and the engine that they ask for."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.errors import SettingError
from seq2see.machine import keep_freed_memory

if TYPE_CHECKING:
    from seq2see.decoding.hypothesis import Engine
    from seq2see.run import Run

Folder = Annotated[str, typer.Argument(metavar="RUN", help="The folder that train wrote, such as runs/dates.")]
_PAIRS_HELP = (
    "A file (.tsv .csv .jsonl .po .mo .tmx, each also .gz), two parallel files (train.en,train.ko), "
    "or a corpus by name."
)
PairsName = Annotated[
    str,
    typer.Argument(
        metavar="PAIRS",
        help=_PAIRS_HELP,
    ),
]
ManyPairs = Annotated[list[str], typer.Argument(metavar="PAIRS", help=f"{_PAIRS_HELP} Several are put together.")]
Format = Annotated[
    str | None, typer.Option(help="tsv, csv, jsonl, po, mo or tmx, where the file's name does not tell.")
]
SourceColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The source, by name or number in CSV and TSV, by key (a.b) in JSONL."),
]
TargetColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="The same for the target.")]
SourceLanguage = Annotated[
    str | None, typer.Option(metavar="CODE", help="Of the source, where a file does not say it or has more than two.")
]
TargetLanguage = Annotated[str | None, typer.Option(metavar="CODE", help="The same for the target.")]
To = Annotated[
    str | None, typer.Option(metavar="CODE", help="Language to translate to, with a run trained with --tag.")
]
Beam = Annotated[
    int | None, typer.Option(min=1, help="Hypotheses kept at each step; 1: greedy. The run's if not given.")
]
NBest = Annotated[int, typer.Option(min=1, metavar="K", help="Translations for each line, best first.")]
Sample = Annotated[bool, typer.Option("--sample", help="Draw each token by its probability instead of searching.")]
Temperature = Annotated[float, typer.Option(min=0.01, help="With --sample: below 1 safer, above 1 wilder.")]
TopK = Annotated[int, typer.Option(min=0, help="With --sample: draw from the k likeliest tokens; 0: from all.")]
TopP = Annotated[
    float, typer.Option(min=0.01, max=1.0, help="With --sample: draw from the likeliest that hold this much.")
]
Seed = Annotated[int | None, typer.Option(help="With --sample: draw the same each time.")]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine", help="auto, torch or ctranslate2. auto: ctranslate2 on a CPU where installed, else torch."
    ),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision",
        help="float32, int8, or bfloat16 (torch on a card); if not given: int8 with ctranslate2, float32 with torch.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")]
Debug = Annotated[bool, typer.Option("--debug", help="On an error show the trace.")]


def check_new(path: Path, force: bool) -> None:
    """Refuse to write where there is already something, be it a link to nothing."""
    if path.is_dir():
        raise SettingError(f"{path}: a folder. Name a file in it")
    if os.path.lexists(path) and not force:
        raise SettingError(f"{path}: exists already. Choose another name, or replace it with --force")
    if not path.absolute().parent.is_dir():
        raise SettingError(f"{path}: there is no folder {path.parent}")


def pick_engine(
    run: "Run",
    engine: str,
    precision: str | None,
    *,
    sample: bool,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int | None,
) -> "Engine":
    """What the options above ask for: our own engine drawing its words, or one that searches."""
    keep_freed_memory()  # CTranslate2, too, asks for it over and over
    if not sample:
        return run.engine(engine, precision)
    if engine not in ("auto", "torch"):
        raise SettingError("--sample draws with our own engine: leave --engine out")
    from seq2see.decoding.search import sampling

    return run.sampler(sampling(temperature, top_k, top_p, seed), precision or "float32")
