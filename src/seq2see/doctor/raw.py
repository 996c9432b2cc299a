"""Read files of pairs leniently: yield every row with its faults, and raise no error about the contents of a file."""

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from seq2see.errors import DataError
from seq2see.text.corpora import Pairs
from seq2see.text.pair import NOTHING, Pair, Sides
from seq2see.text.rows import NOT_JSON, CutShortError, Faults, Row, without_gz

_GUESSED_BY: Final = 1 << 16
"""Maximum number of bytes, of the first lines that are not UTF-8, from which the encoding of a file is guessed."""


class Tolerated(Faults):
    """Collects problems of whole files instead of raising them; rows hold their own faults."""

    lenient = True

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        """Messages about problems of a file as a whole."""
        self.foreign_lines: list[bytes] = []
        """The beginnings of the first lines that are not UTF-8."""
        self._room = _GUESSED_BY
        self.about: dict[str, tuple[str, str]] = {}
        """For some kinds of findings, by name, a description of the rows and advice."""

    def add(self, path: Path, line: int, fault: str, hint: str = "") -> None:
        """Do nothing, since the row itself records the fault."""

    def foreign(self, path: Path, number: int, line: bytes, charset: str) -> None:
        if self._room:
            self.foreign_lines.append(line[: self._room])
            self._room -= len(self.foreign_lines[-1])

    def tell(self, kind: str, what: str, advice: str) -> None:
        if self.about.get(kind, NOT_JSON) == NOT_JSON:
            self.about[kind] = what, advice

    def refuse(self, problem: DataError) -> None:
        stop = "" if str(problem).endswith("?") else "."
        rest = f"{stop} The rows before it are examined" if isinstance(problem, CutShortError) else ""
        self.problems.append(f"{problem}{rest}")


class RawPairs:
    """The rows of a corpus, read again at each iteration: those of files with their faults, other pairs as they are."""

    def __init__(self, *parts: Iterable[Pair]) -> None:
        self._parts = parts
        self._faults = Tolerated()
        self.paths = [path for part in parts if isinstance(part, Pairs) for path in part.paths]

    @property
    def problems(self) -> list[str]:
        """Return messages about problems of whole files; complete after an iteration."""
        return self._faults.problems

    def __iter__(self) -> Iterator[Row]:
        faults = self._faults = Tolerated()
        for part in self._parts:
            rows = part.rows(faults) if isinstance(part, Pairs) else self._as_read(part)
            if len(self._parts) == 1 or not isinstance(part, Pairs):
                yield from rows
                continue
            place = ",".join(map(str, part.paths))
            for row in rows:
                line = f"line {row.line}" if isinstance(row.line, int) else row.line
                yield row._replace(line=f"{place}, {line}")

    def _as_read(self, pairs: Iterable[Pair]) -> Iterator[Row]:
        try:
            for pair in pairs:
                yield Row(pair.where, pair.source.strip(), pair.target.strip())
        except DataError as problem:
            self._faults.refuse(problem)

    @property
    def labels(self) -> Sides:
        """Return the names of the sides (languages, or suffixes of parallel files); `NOTHING` if files differ, or if
        there are none.
        """
        labels = {_labels(part) for part in self._parts if isinstance(part, Pairs)}
        return labels.pop() if len(labels) == 1 else NOTHING

    def about(self) -> dict[str, tuple[str, str]]:
        """Return, for some kinds of findings by name, a description and advice from the last iteration."""
        told = dict(self._faults.about)
        if self.problems:
            told["file"] = "; ".join(self.problems), ""
        if encoding := guess_encoding(self._faults.foreign_lines):
            told["encoding"] = f"not UTF-8, probably {encoding}", f"Convert it: iconv -f {encoding} -t UTF-8"
        return told


def _labels(part: Pairs) -> Sides:
    suffixes = [without_gz(path).suffix[1:].lower() for path in part.paths] if len(part.paths) == 2 else ["", ""]
    return Sides(*(known or suffix or None for known, suffix in zip(part.languages, suffixes, strict=True)))


_ENCODINGS: Final = (
    ("euc_kr", "가", "힣", 0.9),
    ("cp932", "\u3040", "\u30ff", 0.2),
    ("euc_jp", "\u3040", "\u30ff", 0.2),
    ("cp949", "가", "힣", 0.9),
    ("cp1251", "А", "я", 0.9),
    ("gb18030", "一", "\u9fff", 0.7),
    ("big5", "一", "\u9fff", 0.7),
)
"""Encodings to try on sequences of bytes over 127: name, range of letters, and the share of decoded characters that
must be in that range.
"""


def guess_encoding(lines: list[bytes]) -> str | None:
    """Return the name of the encoding for `iconv -f`, guessed from the decoded letters; None if no guess is
    convincing.
    """
    whole = b"\n".join(lines)
    runs = re.findall(rb"[\x80-\xff]+", whole)
    if not runs:
        return None
    if sum(map(len, runs)) < 1.7 * len(runs):  # single letters within words of ASCII
        return "CP1252"
    for name, first, last, share in _ENCODINGS:
        try:
            text = codecs.getincrementaldecoder(name)().decode(whole)  # the last letter may be cut in two
            letters = [character for character in text if not character.isascii()]
        except UnicodeDecodeError:
            continue
        if sum(first <= character <= last for character in letters) > share * len(letters):
            return {"euc_kr": "CP949"}.get(name, name.upper().replace("_", "-"))
    return None
