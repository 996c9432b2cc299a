"""Read files of pairs leniently: yield every row with its faults, and raise no error about the contents of a file."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from seq2see.errors import DataError
from seq2see.text.corpora import Pairs
from seq2see.text.pair import NOTHING, Pair, Sides
from seq2see.text.rows import NOT_JSON, CutShortError, Faults, Row, without_gz


class Tolerated(Faults):
    """Collects problems of whole files instead of raising them; rows hold their own faults."""

    lenient = True

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        """Messages about problems of a file as a whole."""
        self.about: dict[str, tuple[str, str]] = {}
        """For some kinds of findings, by name, a description of the rows and advice."""

    def add(self, path: Path, line: int, fault: str, hint: str = "") -> None:
        """Do nothing, since the row itself records the fault."""

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
        if undecoded := self._faults.undecoded.values():
            told["encoding"] = "", " ".join(dict.fromkeys(lines.advice for lines in undecoded))
        return told


def _labels(part: Pairs) -> Sides:
    suffixes = [without_gz(path).suffix[1:].lower() for path in part.paths] if len(part.paths) == 2 else ["", ""]
    return Sides(*(known or suffix or None for known, suffix in zip(part.languages, suffixes, strict=True)))
