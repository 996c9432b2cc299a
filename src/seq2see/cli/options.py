"""Options and arguments that several verbs share, and the choice of the engine."""

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see.cli.messages import echo
from seq2see.config import Overlay
from seq2see.distributed import ranks
from seq2see.errors import INSTALL_ALL, SettingError
from seq2see.machine import has_torch, keep_freed_memory

if TYPE_CHECKING:
    from seq2see.decoding.hypothesis import Engine
    from seq2see.run import Run

Folder = Annotated[str, typer.Argument(metavar="RUN", help="The folder that train wrote, such as runs/dates.")]
_PAIRS_HELP = (
    "A file (.tsv .csv .jsonl .po .mo .tmx, also .gz), two parallel files (train.en,train.ko), or a corpus name."
)
PairsName = Annotated[str, typer.Argument(metavar="PAIRS", help=_PAIRS_HELP)]
ManyPairs = Annotated[list[str], typer.Argument(metavar="PAIRS", help=f"{_PAIRS_HELP} Several are concatenated.")]
Format = Annotated[
    str | None, typer.Option(help="Format of the files if their names do not tell: tsv, csv, jsonl, po, mo or tmx.")
]
SourceColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Source column: name or number in CSV and TSV, key (a.b) in JSONL."),
]
TargetColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Target column: name, number or key, as for --source-column.")
]
SourceLanguage = Annotated[
    str | None, typer.Option(metavar="CODE", help="Source language, if the file does not tell or has several.")
]
TargetLanguage = Annotated[
    str | None, typer.Option(metavar="CODE", help="Target language, if the file does not tell or has several.")
]
ForExport = Annotated[
    str | None,
    typer.Option("--for", metavar="FORMAT", help="Train a model that can be exported to this format: huggingface."),
]
To = Annotated[str | None, typer.Option(metavar="CODE", help="Language to translate to, for a run trained with --tag.")]
Beam = Annotated[
    int | None, typer.Option(min=1, help="Beam width; 1 is greedy search. Default: decoding.beam of the run.")
]
NBest = Annotated[int, typer.Option(min=1, metavar="K", help="Number of translations for each line, best first.")]
Sample = Annotated[
    bool, typer.Option("--sample", help="Sample each token from its probabilities instead of searching.")
]
Temperature = Annotated[
    float,
    typer.Option(min=0.01, help="With --sample: sampling temperature; outputs vary less below 1, and more above 1."),
]
TopK = Annotated[int, typer.Option(min=0, help="With --sample: sample from the k most probable tokens; 0: from all.")]
TopP = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=1.0,
        help="With --sample: sample from the most probable tokens that together have this probability.",
    ),
]
Seed = Annotated[int | None, typer.Option(help="With --sample: random seed, for the same output each time.")]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Inference engine: auto, torch or ctranslate2; auto: ctranslate2 on a CPU if it is installed, else torch.",
        autocompletion=lambda: ["auto", "torch", "ctranslate2"],
    ),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision",
        help="Precision: float32, int8, bfloat16 (torch on a GPU). Default: int8 with ctranslate2, float32 with torch.",
        autocompletion=lambda: ["float32", "int8", "bfloat16"],
    ),
]
ScoringPrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision",
        help="Precision: float32, int8, bfloat16 (torch on a GPU).",
        autocompletion=lambda: ["float32", "int8", "bfloat16"],
    ),
]
Text = Annotated[
    bool,
    typer.Option("--text", help="Translate a whole document: find its sentences, and keep everything between them."),
]
Markup = Annotated[
    str, typer.Option(help="With --text, format of the document: auto, plain, html or xml.", metavar="FORMAT")
]
GlossaryOption = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        metavar="TERMS",
        help="File of terms and the translations that they must have: .tsv, .csv (term, translation) or .tbx.",
    ),
]
Cache = Annotated[
    bool, typer.Option("--cache", help="Store translations in the user's cache, and reuse those that are there.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def open_run(folder: str) -> "Run":
    """Open a run folder, and tell the user if its training is not finished."""
    from seq2see import bundle
    from seq2see.run import load

    run = load(folder)
    if (
        bundle.is_unfinished(run.manifest)
        and (run.folder / "model.safetensors").exists()
        and not ranks.from_torchrun()[0]
    ):
        again = bundle.resume_command(run.folder, run.manifest)
        echo(f"{folder}: not finished, this is its best model so far. To resume its training: {again}", err=True)
    return run


def check_new(path: Path, force: bool) -> None:
    """Raise an error if a new file cannot be written at a path: it exists, even as a dangling link (unless `force` is
    set), it is a folder, or its folder does not exist.
    """
    if path.is_dir():
        raise SettingError(f"{path}: is a folder. Give the name of a file in it")
    if os.path.lexists(path) and not force:
        raise SettingError(f"{path}: exists already. Choose another name, or replace it with --force")
    if not path.absolute().parent.is_dir():
        raise SettingError(f"{path}: there is no folder {path.parent}. Create it first")


def check_torch(option: str) -> None:
    """Raise an error if PyTorch, which `option` needs, is not installed; an empty `option` needs nothing."""
    if option and not has_torch():
        raise SettingError(f"{option} needs PyTorch: {INSTALL_ALL}")


def sampling(
    sample: bool, temperature: float, top_k: int, top_p: float, seed: int | None
) -> tuple[float, int, float, int | None] | None:
    """Return the options of --sample for `pick_engine`, None without it; raise an error if it is missing."""
    given = {
        "--temperature": temperature != 1,
        "--top-k": top_k != 0,
        "--top-p": top_p != 1,
        "--seed": seed is not None,
    }
    if sample:
        return temperature, top_k, top_p, seed
    if names := [name for name, is_given in given.items() if is_given]:
        raise SettingError(f"{', '.join(names)}: only with --sample. Add --sample, or leave it out")
    return None


def with_cache(run: "Run", engine: "Engine") -> "Engine":
    """Return an engine that stores its translations in the user's cache folder, and reuses those that are there."""
    from seq2see import storage
    from seq2see.decoding.running_text import CachedEngine

    return CachedEngine(
        engine, run.folder / "model.safetensors", storage.cache_folder() / "seq2see" / "translations.sqlite"
    )


def pick_engine(
    run: "Run", engine: str, precision: str | None, sampling: tuple[float, int, float, int | None] | None
) -> "Engine":
    """Return the engine for the options; with `sampling` (temperature, top_k, top_p, seed), one that samples."""
    check_torch("--sample" if sampling else "--engine torch" if engine == "torch" else "")
    keep_freed_memory()  # CTranslate2, too, allocates again and again
    if not sampling:
        return run.engine(engine, precision)
    if engine not in ("auto", "torch"):
        raise SettingError("--sample needs the torch engine: leave --engine out")
    from seq2see.decoding import search

    return run.sampler(search.sampling(*sampling), precision or "float32")


def parse_assignments(assignments: Iterable[str]) -> Overlay:
    """Return settings from options: `["model.d_model=64"]` -> `{"model": {"d_model": 64}}`; a value that is not TOML is
    text.
    """
    overlay: dict[str, dict[str, Any]] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        section, dot, key = name.strip().partition(".")
        if not equals or not dot:
            raise SettingError(f"--set {assignment}: expected section.key=value, such as model.d_model=256")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):  # not TOML, a number of thousands of digits, or nested very deep
            value = text
        overlay.setdefault(section, {})[key] = value
    return overlay
