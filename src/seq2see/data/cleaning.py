"""A clean copy of a corpus: the pairs that a diagnosis keeps, repaired where it says so; beside it all the others."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from seq2see.data import characters
from seq2see.data.findings import REASONS, Diagnosis
from seq2see.data.raw import Row
from seq2see.errors import DataError, SettingError


class Written(NamedTuple):
    kept: int
    repaired: int
    dropped: int


def dropped_beside(clean: Path) -> Path:
    """`clean.tsv` -> `clean.dropped.tsv`."""
    return clean.with_suffix(".dropped.tsv")


def check(clean: Path, originals: Iterable[Path], force: bool) -> None:
    """Refuse what would lose something, before the work begins."""
    if clean.suffix.lower() != ".tsv":
        raise SettingError(f"--write {clean}: a clean copy is a .tsv file (source<TAB>target)")
    for path in (clean, dropped_beside(clean)):
        if path.exists() and any(path.samefile(original) for original in originals):
            raise SettingError(f"--write {clean}: would replace what is examined. Choose another name")
        if path.exists() and not force:
            raise SettingError(f"{path}: exists already. Choose another name, or replace it with --force")
    if not clean.parent.is_dir():
        raise SettingError(f"--write {clean}: no folder {clean.parent}")


def write(rows: Iterable[Row], diagnosis: Diagnosis, clean: Path) -> Written:
    """Write `clean` and, with line and reason, what is dropped; each beside its place, and moved there when whole."""
    places = clean, dropped_beside(clean)
    parts = [place.with_name(f".{place.name}.part") for place in places]
    repaired = 0
    try:
        with parts[0].open("wb") as good, parts[1].open("wb") as bad:
            bad.write(_line("line", "reason", "source", "target"))
            verdicts = zip(diagnosis.reasons, diagnosis.mended, diagnosis.swapped, strict=True)
            for row, (reason, mended, swapped) in zip(rows, verdicts, strict=True):
                source, target = row.source, row.target
                if reason:
                    bad.write(_line(str(row.line), REASONS[reason], source, target, *row.further))
                    continue
                if mended:
                    source, target = characters.mend(source).text, characters.mend(target).text
                good.write(_line(target, source) if swapped else _line(source, target))
                repaired += bool(mended or swapped)
        for part, place in zip(parts, places, strict=True):
            part.replace(place)
    except ValueError:  # of zip: other rows than those that were examined
        raise DataError("the file has changed since it was examined: nothing is written") from None
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
    return Written(diagnosis.kept, repaired, diagnosis.rows - diagnosis.kept)


def _line(*cells: str) -> bytes:
    return "\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in cells).encode("utf-8", "replace") + b"\n"
