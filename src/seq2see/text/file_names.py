"""What the names of files say: whether they are one file or two parallel ones, which format, and which languages."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from seq2see.errors import DataError, nearest
from seq2see.text import files, languages
from seq2see.text.files import Faults, without_gz

FORMATS: Final = ("tsv", "csv", "jsonl", "po", "mo", "tmx", "text")
EXPECTED: Final = (
    "Expected a .tsv, .csv, .jsonl, .po, .mo or .tmx file, two parallel files joined by a comma, "
    "or the name of a corpus."
)


def locate(pairs: str, format: str | None) -> tuple[Path, ...]:
    """One path, or two for parallel files, all of them existing files."""
    if format is not None and format not in FORMATS:
        raise DataError(f"unknown format '{format}'. {nearest(format, FORMATS)}")
    paths = split_names(pairs)
    is_text = format == "text" and not said_by(paths[0])
    wanted = 2 if is_text or len(paths) > 1 or pairs.endswith(",") else 1
    if len(paths) != wanted:
        raise DataError(f"{pairs}: expected two parallel files joined by a comma, such as train.en,train.ko")
    for path in paths:
        if not is_file(path):
            raise DataError(f"{path}: no such file or corpus. {EXPECTED}")
    return paths


def split_names(pairs: str) -> tuple[Path, ...]:
    """The files that a comma joins, or the one file that has a comma in its name."""
    if "," not in pairs or is_file(Path(pairs)):
        return (Path(pairs),)
    return tuple(Path(part) for part in map(str.strip, pairs.split(",")) if part)


def is_file(path: Path) -> bool:
    return files.is_file(path, EXPECTED)


def said_by(path: Path) -> str | None:
    """The format that the name of a file says."""
    suffix = without_gz(path).suffix.lower()[1:]
    return suffix if suffix in FORMATS[:-1] else None


def format_of(path: Path, given: str | None) -> str:
    """As the name says, else as given (it may be meant for another file), else by its tabs."""
    if known := said_by(path) or given:
        return known
    plain = without_gz(path)
    beginning = [line for line in islice(files.lines(path, Faults()), 20) if line.strip()]
    if beginning and all("\t" in line for line in beginning):  # a dictionary may be called words.train
        return "tsv"
    shown = f"the suffix '{plain.suffix}'" if plain.suffix else "a name without a suffix"
    raise DataError(f"{path}: {shown} does not say the format. Use --format {', '.join(FORMATS[:-2])} or {FORMATS[-2]}")


def language_of(path: Path) -> str | None:
    """`train.en` and `en.txt` tell it, `train.txt` does not."""
    plain = without_gz(path)
    return languages.known(plain.suffix[1:]) or languages.known(plain.stem)


def name_of_files(paths: Sequence[Path]) -> str:
    """ "pairs" for `dir/pairs.tsv.gz`, "train" for `train.en` and `train.ko`, "en-ko" for `en.txt` and `ko.txt`."""
    return "-".join(dict.fromkeys(without_gz(path).stem for path in paths))
