"""Write a clean copy of a corpus: the pairs that the diagnosis keeps, repaired. Dropped pairs go to a second file."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from seq2see import storage
from seq2see.doctor import characters
from seq2see.doctor.findings import REASONS, Diagnosis
from seq2see.errors import DataError, SettingError
from seq2see.text.rows import Row


class Written(NamedTuple):
    """Numbers of pairs of the corpus: kept, repaired (which are also kept), and dropped."""

    kept: int
    repaired: int
    dropped: int


def dropped_beside(clean: Path) -> Path:
    """Return the file for the dropped pairs: `clean.tsv` -> `clean.dropped.tsv`."""
    return clean.with_suffix(".dropped.tsv")


def check(clean: Path, originals: Iterable[Path], force: bool) -> None:
    """Raise an error, before the work begins, if `clean` is not a .tsv file in an existing folder, or if it or the file
    of dropped pairs would replace an examined file, or, without `force`, any file.
    """
    if clean.suffix.lower() != ".tsv":
        raise SettingError(f"--write {clean}: a clean copy is a .tsv file (source<TAB>target)")
    for path in (clean, dropped_beside(clean)):
        if path.exists() and any(path.samefile(original) for original in originals):
            raise SettingError(f"--write {clean}: would replace an examined file. Choose another name")
        if os.path.lexists(path) and not force:
            raise SettingError(f"{path}: exists already. Choose another name, or replace it with --force")
    if not clean.parent.is_dir():
        raise SettingError(f"--write {clean}: there is no folder {clean.parent}. Create it first")


def write(rows: Iterable[Row], diagnosis: Diagnosis, clean: Path) -> Written:
    """Write the kept pairs to `clean`, and dropped pairs with line and reason to `dropped_beside(clean)`; both
    atomically.
    """
    repaired = 0
    try:
        with (
            storage.replacing(dropped_beside(clean), storage.REPEAT) as bad_part,
            storage.output(clean) as good_part,
            good_part.open("wb") as good,
            bad_part.open("wb") as bad,
        ):
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
    except ValueError:  # of zip: other rows than those that were examined
        raise DataError(
            f"{clean}: not written, the corpus has changed since it was examined. Run the command again"
        ) from None
    return Written(diagnosis.kept, repaired, diagnosis.rows - diagnosis.kept)


def _line(*cells: str) -> bytes:
    return "\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in cells).encode("utf-8", "replace") + b"\n"
