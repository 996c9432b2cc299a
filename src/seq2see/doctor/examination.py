"""Find what is wrong with a corpus, and which pairs to drop.

One pass measures every pair and stores 48 bytes for it; `Examination.diagnose` then judges all pairs at once, since
whether a pair is odd depends on what is usual in the corpus. Equal texts are found by 64-bit hashes: with 10 million
different pairs, the chance that any two are taken for the same is 3 in a million (n² / 2⁶⁵).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from seq2see.doctor import characters, line_shifts, side_words
from seq2see.doctor.findings import KINDS, SHOWN, Book, Diagnosis, Example, Mask
from seq2see.doctor.raw import RawPairs
from seq2see.text.pair import NOTHING, Sides
from seq2see.text.rows import FOREIGN, NAMES, NARROW, QUOTED, RECORD, UNPAIRED, WIDE

BLOCK: Final = 2048
"""Maximum number of consecutive pairs that the doctor measures together as one block."""
CHARACTERS: Final = 1 << 20
"""Number of characters, of both sides, at which a block ends even if it has fewer than `BLOCK` pairs."""
LEARN: Final = 5
"""Number of blocks, from the first, from which the words typical of the source and of the target are learned."""
_CROWD: Final = 33
_STRETCH: Final = 100
"""Number of consecutive rows within which more than `_CROWD` marked pairs are too many to be single accidents; see
`are_sparse`."""
_MANY: Final = 1 / 5
"""Share of marked pairs (with exchanged sides, for example) above which they are taken for intended, as in a corpus for
translation in both directions.
"""
_LONGEST_VALUE: Final = 1000
"""Number of leading characters of the texts of one side that are compared to count how many different texts it has."""
_FEW: Final = 20
"""Minimum number of pairs for deciding what is usual in a corpus; and maximum number of different values of a side that
is reported as labels, if all its values are numbers.
"""

_EMPTY, _MOJIBAKE, _BREAKS, _CONTROLS, _LOST, _COPY, _SAME_WORD, _PURE_SOURCE, _PURE_TARGET, _EXCHANGED = (
    1 << bit for bit in range(7, 17)
)
_BROKEN: Final = FOREIGN | RECORD | NARROW | UNPAIRED | _EMPTY
_ROW: Final = np.dtype(
    [(name, "u8") for name in ("source", "pair", "near_source", "near_pair")]
    + [(f"{side}_{name}", "u2") for side in ("source", "target") for name in ("length", "digits")]
    + [(f"{side}_{name}", "u1") for side in ("source", "target") for name in ("script", "signs")]
    + [("flags", "u4")]
)


def examine(rows: RawPairs, against: RawPairs | None = None) -> Diagnosis:
    """Read all rows and return the diagnosis; faults raise no error. For its examples, the rows are read a second time,
    up to the last example.

    Args:
        against: another set, such as the test set, whose pairs must not be among `rows`.
    """
    seen = Examination()
    for row in rows:
        seen.add(row.source, row.target, row.faults)
    other = None
    if against is not None:
        other = Examination()
        for row in against:
            other.add(row.source, row.target, row.faults)
    diagnosis = seen.diagnose(other, rows.labels, rows.about(), ("this corpus", "the --against set"))
    wanted = {row for finding in diagnosis.findings for row in finding.rows}
    examples: dict[int, Example] = {}
    for number, row in enumerate(rows):
        if len(examples) == len(wanted):
            break
        if number in wanted:
            examples[number] = Example(row.line, _shortened(row.source), _shortened(row.target))
    findings = (
        replace(finding, examples=tuple(examples[row] for row in finding.rows if row in examples))
        for finding in diagnosis.findings
    )
    return replace(diagnosis, findings=tuple(findings))


def short(diagnosis: Diagnosis, most: int = 6) -> list[str]:
    """Return up to `most` problems, without mere notes, one line each, for `train` to print."""
    lines = []
    for finding in diagnosis.problems[:most]:
        since = f", from pair {finding.rows[0] + 1:,} on" if finding.name == "shift" else ""
        lines.append(": ".join(filter(None, (finding.pairs, finding.what))) + since)
    return lines


def _shortened(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class Examination:
    """Collects measures of pairs: call `add` for each pair, then `diagnose`.

    Args:
        share: 1 if all pairs of the corpus are added. If only one in `share` is, in stretches of consecutive pairs,
            call `skip_to` before each stretch.
    """

    def __init__(self, share: int = 1) -> None:
        self._share = share
        self._texts: list[str] = []
        """Sources and targets in alternation, until a block is full."""
        self._characters = 0
        """The number of characters in `_texts`."""
        self._faults: list[int] = []
        self._blocks: list[NDArray[Any]] = []
        self._starts: list[int] = []
        """For each block, the number of pairs of the corpus before it, including those left out of the sample."""
        self._next = 0
        """Number of pairs of the corpus before the next block, including those left out of the sample."""
        self._first = ("", "")
        self._values: tuple[set[str], set[str]] = set(), set()
        self._counts_up = [True, True]
        self._shared: list[float] = []
        """For some sources, the share of their words that also occur in the target."""
        self._odds: side_words.Odds | None = None
        """Log-odds of words that distinguish the sides; None until `LEARN` blocks have been added."""
        self._heard: list[list[str]] = []
        """Texts of the first blocks, kept until the words of each side are learned."""

    def add(self, source: str, target: str, faults: int = 0) -> None:
        """Add a pair; `faults` are the bit flags of its row (`rows.Row`)."""
        self._texts += (source, target)
        self._characters += len(source) + len(target)
        self._faults.append(faults)
        if len(self._faults) == BLOCK or self._characters >= CHARACTERS:
            self._measure()

    def skip_to(self, start: int) -> None:
        """Continue at pair number `start`; the pairs since the last one that was added are left out of the sample."""
        self._measure()
        self._next = start

    def _measure(self) -> None:
        texts, faults = self._texts, self._faults
        self._texts, self._faults, self._characters = [], [], 0
        if not faults:
            return
        if not self._blocks:
            self._first = texts[0], texts[1]
        self._look_at_columns(texts, self._next)
        rows, texts = measure(texts, faults)
        self._blocks.append(rows)
        self._starts.append(self._next)
        self._next += len(rows)
        if self._odds is not None:
            mark_exchanged(rows, texts, self._odds)
        else:
            self._heard.append(texts)
            if len(self._heard) == LEARN:
                self._tell_sides()

    def _tell_sides(self) -> None:
        """Learn from the first blocks which words are typical of which side; mark the exchanged pairs in them."""
        pairs = [pair for texts in self._heard for pair in zip(texts[::2], texts[1::2], strict=True)]
        self._odds = side_words.learn(pairs)
        for rows, texts in zip(self._blocks, self._heard, strict=True):
            mark_exchanged(rows, texts, self._odds)
        self._heard = []

    def _look_at_columns(self, texts: list[str], before: int) -> None:
        """Collect facts about both sides: different values, whether they count up by one, and the share of words that
        sources have in common with targets."""
        for side in (0, 1):
            column = texts[side::2]
            if len(self._values[side]) <= _FEW:
                values = {text[:_LONGEST_VALUE] for text in column}
                self._values[side].update(islice(values, _FEW + 1))  # more need not be remembered
            if self._counts_up[side]:
                first = self._first[side]
                start = int(first) if first.isdecimal() and len(first) < 18 else 0
                expected = map(str, range(start + before, start + before + len(column)))
                self._counts_up[side] = all(map(str.__eq__, column, expected))
        if len(self._shared) < 1000:
            for source, target in zip(texts[:200:2], texts[1:200:2], strict=True):
                words = set(source.split())
                if source != target and len(words) > 1:
                    self._shared.append(len(words.intersection(target.split())) / len(words))

    def column(self, name: str) -> NDArray[Any]:
        """Return one measure (a field of `_ROW`) of all pairs, in the order of the pairs."""
        return np.concatenate([block[name] for block in self._blocks] or [np.empty(0, _ROW[name])])

    def _place(self, row: int) -> int:
        """Convert an index of the measures to the index among all pairs, including those left out of the sample."""
        for start, block in zip(self._starts, self._blocks, strict=True):
            if row < len(block):
                return start + row
            row -= len(block)
        raise IndexError(row)

    def diagnose(
        self,
        against: "Examination | None" = None,
        labels: Sides = NOTHING,
        about: Mapping[str, tuple[str, str]] | None = None,
        called: tuple[str, str] = ("the training pairs", "the validation set"),
    ) -> Diagnosis:
        """Judge the pairs that were added.

        Args:
            against: another set, such as the test set, whose pairs must not be among those that were added.
            labels: names of the two sides, such as `en` and `ko`.
            about: for some kinds of findings, a description and advice that replace the general ones.
            called: how messages call this set and the other one.
        """
        self._measure()
        if self._odds is None:
            self._tell_sides()
        flags = self.column("flags")
        book = Book(len(flags), about or {})
        wide = (flags & WIDE) > 0
        mostly_wide = 2 * wide.sum() > len(flags)
        book.add("file", None)
        book.add("encoding", (flags & FOREIGN) > 0)
        book.add("record", (flags & RECORD) > 0)
        book.add("unpaired", (flags & UNPAIRED) > 0)
        book.add("columns", (flags & (NARROW if mostly_wide else NARROW | WIDE)) > 0)
        if mostly_wide:
            book.add("further", wide)
        book.add("empty", ((flags & _EMPTY) > 0) & ((flags & _BROKEN) == _EMPTY))
        good = book.reasons == 0
        if not good.any():
            book.add("file", None, what="no usable pair", advice="A pair needs text on both sides.")
        if good[:1].any() and side_words.is_header(*self._first):
            labels = Sides(self._first[0].lower(), self._first[1].lower())
            book.add("header", np.arange(len(flags)) == 0)
        book.add("quotes", good & ((flags & QUOTED) > 0))
        book.add("first line", good & (book.reasons == 0) & ((flags & NAMES) > 0))
        for name, flag in (("lost", _LOST), ("mojibake", _MOJIBAKE), ("breaks", _BREAKS), ("controls", _CONTROLS)):
            book.add(name, good & ((flags & flag) > 0))

        sides = self.column("source_script")[good], self.column("target_script")[good]
        scripts = usual_script(sides[0]), usual_script(sides[1])
        names = characters.script_name(scripts[0]), characters.script_name(scripts[1])
        if side_words.have_exchanged_names(labels, names):
            book.add("order", None, what=f"{labels.source} and {labels.target} seem to be exchanged")
        turned = self._turned(scripts if all(scripts) else usual_pair(*sides), flags) & good
        swapped = turned if are_sparse(turned) else np.zeros_like(turned)
        book.add("swapped" if swapped.any() else "directions", turned)
        if against is not None:
            self._compare(against, good, book, *called)
        book.add("script", self._foreign(scripts, flags) & good & ~turned)
        self._same_texts(good, flags, scripts, book)
        self._odd_lengths(good, turned, book)
        for side, name in enumerate(("source", "target")):
            if problem := self._no_text(side, len(flags)):
                book.add("column", None, what=f"the {name} {problem}")
        self._out_of_step(book)
        book.add("same word", good & ((flags & _SAME_WORD) > 0))
        kept = book.reasons == 0
        return Diagnosis(
            len(flags),
            book.findings(),
            names,
            (self.column("source_length")[good], self.column("target_length")[good]),
            book.reasons,
            swapped & kept,
            kept & ((flags & (QUOTED | _MOJIBAKE | _BREAKS | _CONTROLS)) > 0),
        )

    def _turned(self, scripts: tuple[int, int], flags: NDArray[np.uint32]) -> Mask:
        """Mark pairs whose source and target are exchanged: by the usual scripts of the sides if these are known and
        differ, else by their words."""
        source, target = scripts
        if not source or not target or source == target:
            return (flags & _EXCHANGED) > 0
        pure = (flags & (_PURE_SOURCE | _PURE_TARGET)) > 0  # one is enough: Korean has Latin names in it
        found: Mask = pure & (self.column("source_script") == target) & (self.column("target_script") == source)
        return found

    def _foreign(self, scripts: tuple[int, int], flags: NDArray[np.uint32]) -> Mask:
        """Mark pairs with a text whose script, that of nine in ten letters, is unusual on its side, except texts of
        fewer than 5 characters, or fewer than 40 in Latin letters: names and commands occur everywhere."""
        names = characters.tables().scripts
        latin, han, kana = map(names.index, ("Latin", "Han", "Kana"))
        found = np.zeros(len(flags), np.bool_)
        for side, usual, pure in (("source", scripts[0], _PURE_SOURCE), ("target", scripts[1], _PURE_TARGET)):
            if usual:
                script = self.column(f"{side}_script")
                accepted = (script == usual) | (script == 0) | ((usual == kana) & (script == han))
                enough = self.column(f"{side}_length") >= np.where(script == latin, 40, 5)
                found |= ~accepted & enough & ((flags & pure) > 0)
        return found

    def _compare(self, other: "Examination", good: Mask, book: "Book", here: str, there: str) -> None:
        other._measure()
        usable = (other.column("flags") & _BROKEN) == 0
        total = int(usable.sum())
        before = np.zeros(len(good), np.bool_)
        for name, prefix in (("overlap", ""), ("near overlap", "near_")):
            theirs = other.column(f"{prefix}source")
            found = good & ~before & _among(self.column(f"{prefix}source"), theirs[usable])
            ours = self.column(f"{prefix}source")[found]
            hit = int(_among(theirs[usable], ours).sum())
            pairs = int(_among(self.column(f"{prefix}pair")[found], other.column(f"{prefix}pair")[usable]).sum())
            least = "at least " if self._share > 1 else ""
            what = (
                f"{KINDS[name].what.replace('the other set', there)}: {least}{hit:,} of the {total:,} sources of that "
                f"set are in {here}, so that scores on it are higher than on new texts; pairs with the same target: "
                f"{pairs:,}"
            )
            book.add(name, found, what=what, gravity=self._share * hit / max(1, total))
            before |= found

    def _same_texts(self, good: Mask, flags: NDArray[np.uint32], scripts: tuple[int, int], book: "Book") -> None:
        copies = good & ((flags & _COPY) > 0)
        # Where sides share many words (spelling, normalisation) a copy is an answer like any other.
        related = scripts[0] == scripts[1] and (not self._shared or float(np.mean(self._shared)) > 0.2)
        if related:
            book.add(
                "copies",
                copies,
                severity="note",
                action="kept",
                advice="This is fine if source and target are similar by nature.",
            )
        else:
            book.add("copies", copies)
        again = repeated(self.column("pair"), good)
        book.add("duplicates", again)
        nearly = repeated(self.column("near_pair"), good) & ~again
        book.add("near duplicates", nearly)
        book.add("targets", repeated(self.column("source"), good & ~again & ~nearly))

    def _odd_lengths(self, good: Mask, turned: Mask, book: "Book") -> None:
        """Report pairs with an unusual ratio of lengths, compared with median and median absolute deviation, or
        unusually long texts.
        """
        if good.sum() < _FEW:
            return
        source, target = self.column("source_length"), self.column("target_length")
        source[turned], target[turned] = target[turned], source[turned]
        ratio = np.log1p(target.astype(np.float32)) - np.log1p(source.astype(np.float32))
        middle = float(np.median(ratio[good]))
        ratio -= middle
        np.abs(ratio, out=ratio)
        spread = 1.4826 * float(np.median(ratio[good]))
        # A word may well need a sentence: a few letters more or less are not odd, whatever the ratio.
        excess = np.abs(target - np.exp(middle) * source.astype(np.float32))
        usual = f"usually {np.exp(middle):.2g} target characters per source character"
        odd = good & (ratio > max(6 * spread, np.log(3))) & (excess > 50)
        book.add("ratio", odd, what=f"{KINDS['ratio'].what} ({usual})")
        limits = [max(500.0, 5 * float(np.percentile(lengths[good], 99))) for lengths in (source, target)]
        book.add("long", good & ((source > limits[0]) | (target > limits[1])))

    def _no_text(self, side: int, rows: int) -> str | None:
        values = self._values[side]
        if rows < _FEW:
            return None
        if len(values) == 1 and any(values):
            return f"is always '{_shortened(next(iter(values)), 30)}'"
        if self._counts_up[side] and not self._counts_up[1 - side]:
            return "counts up by one: line numbers?"
        if len(values) <= _FEW and rows >= 10 * _FEW and all(value.isdecimal() for value in values):
            return f"has only {len(values)} different numbers: labels?"
        return None

    def _out_of_step(self, book: "Book") -> None:
        source, target = (
            line_shifts.SideNumbers(*(self.column(f"{side}_{name}") for name in ("length", "digits", "signs")))
            for side in ("source", "target")
        )
        found = line_shifts.shifts(source, target)
        if found:
            lag = found[0].lag
            place = f"{abs(lag)} line{'s' * (abs(lag) > 1)} {'further down' if lag > 0 else 'further up'}"
            what = f"{KINDS['shift'].what}: the matching target is {place}"
            count = sum(shift.end - shift.start for shift in found)
            rows = tuple(self._place(shift.start) for shift in found[:SHOWN])
            book.add("shift", None, what=what, count=count, rows=rows)


def measure(texts: list[str], faults: Sequence[int]) -> tuple[NDArray[Any], list[str]]:
    """Measure each pair of a block; return the measures, and the mended texts (source, target, source, ...)."""
    measured = [_measure(texts[2 * start : 2 * end], faults[start:end]) for start, end in _pieces(texts)]
    return np.concatenate([rows for rows, _ in measured]), [text for _, mended in measured for text in mended]


def _pieces(texts: list[str]) -> Iterator[tuple[int, int]]:
    """Yield ranges of pairs with about `CHARACTERS` characters, since measuring takes more memory than the texts."""
    start = size = 0
    for number, (source, target) in enumerate(zip(texts[::2], texts[1::2], strict=True), 1):
        size += len(source) + len(target)
        if size >= CHARACTERS or 2 * number == len(texts):
            yield start, number
            start, size = number, 0


def _measure(texts: list[str], faults: Sequence[int]) -> tuple[NDArray[Any], list[str]]:
    flags = np.array(faults, np.uint32)
    measures = characters.measure(texts)
    changed = False
    for place in np.flatnonzero(measures.damaged):
        mended = characters.mend(texts[place])
        for flag, holds in zip((_MOJIBAKE, _BREAKS, _CONTROLS, _LOST), mended[1:], strict=True):
            flags[place // 2] |= flag * holds
        changed |= mended.text != texts[place]
        texts[place] = mended.text
    if changed:
        measures = characters.measure(texts)  # as they will be
    source, target = (characters.TextMeasures._make(each[side::2] for each in measures) for side in (0, 1))
    for place in np.flatnonzero(measures.script == 0):
        if characters.is_invisible(texts[place]):
            flags[place // 2] |= _EMPTY
    flags |= np.where(source.pure, _PURE_SOURCE, 0).astype(np.uint32)
    flags |= np.where(target.pure, _PURE_TARGET, 0).astype(np.uint32)
    for row in np.flatnonzero((source.length == target.length) & (source.script > 0)):
        if (text := texts[2 * row]) == texts[2 * row + 1]:
            flags[row] |= _COPY if " " in text or (len(text) >= 20 and not text.isascii()) else _SAME_WORD

    rows = np.empty(len(faults), _ROW)
    for prefix, data in (("", map(str.encode, texts)), ("near_", characters.keys(texts))):
        digests = [blake2b(each, digest_size=8).digest() for each in data]
        hashes = np.frombuffer(b"".join(digests), np.uint64)
        rows[f"{prefix}source"] = hashes[::2]
        rows[f"{prefix}pair"] = hashes[::2] * np.uint64(0x9E3779B97F4A7C15) + hashes[1::2]
    for name, side in (("source", source), ("target", target)):
        rows[f"{name}_length"] = np.minimum(side.length, 0xFFFF)
        for field in ("digits", "script", "signs"):
            rows[f"{name}_{field}"] = getattr(side, field)
    rows["flags"] = flags
    return rows, texts


def mark_exchanged(rows: NDArray[Any], texts: list[str], odds: side_words.Odds) -> None:
    """Mark the pairs of a block whose words show that source and target are exchanged."""
    if odds:
        for row, (source, target) in enumerate(zip(texts[::2], texts[1::2], strict=True)):
            if side_words.are_exchanged(odds, source, target):
                rows["flags"][row] |= _EXCHANGED


def usual_script(scripts: NDArray[np.uint8]) -> int:
    """Return the script of at least eight in ten texts that have letters; 0 if there is none, or too few texts."""
    counts = np.bincount(scripts, minlength=256)[1:]
    most = int(counts.argmax())
    return most + 1 if counts.sum() >= _FEW and counts[most] >= 0.8 * counts.sum() else 0


def usual_pair(sources: NDArray[np.uint8], targets: NDArray[np.uint8]) -> tuple[int, int]:
    """Return the two different scripts of at least eight pairs in ten, in the more frequent direction; 0, 0 if there
    are none, or too few pairs."""
    counts = np.bincount(sources.astype(np.uint16) << 8 | targets, minlength=1 << 16).reshape(256, 256)[1:, 1:]
    np.fill_diagonal(counts, 0)
    source, target = divmod(int(counts.argmax()), 255)
    found = counts[source, target] + counts[target, source]
    return (source + 1, target + 1) if found >= max(_FEW, 0.8 * len(sources)) else (0, 0)


def are_sparse(rows: Mask) -> bool:
    """Return whether the marked rows are so few and scattered that they may be single accidents.

    They are not if more than the share `_MANY` of all rows, or more than `_CROWD` of `_STRETCH` consecutive rows, are
    marked.
    """
    places = np.flatnonzero(rows)
    if len(places) > _MANY * len(rows):
        return False
    return not (places[_CROWD:] - places[:-_CROWD] < _STRETCH).any()


def repeated(hashes: NDArray[np.uint64], among: Mask) -> Mask:
    """Mark the rows of `among` whose hash an earlier row of `among` has; other rows are ignored. Hashes are sorted in
    parts, by their first bits, to save memory."""
    found = np.zeros(len(hashes), np.bool_)
    part = (hashes >> np.uint64(60)).astype(np.uint8)
    for number in range(16):
        rows = np.flatnonzero(among & (part == number))
        order = rows[np.argsort(hashes[rows], kind="stable")]
        found[order[1:][hashes[order[1:]] == hashes[order[:-1]]]] = True
    return found


def _among(hashes: NDArray[np.uint64], others: NDArray[np.uint64]) -> Mask:
    """Mark the hashes that are also in `others`."""
    if not len(others):
        return np.zeros(len(hashes), np.bool_)
    others = np.sort(others)
    found: Mask = others[np.minimum(np.searchsorted(others, hashes), len(others) - 1)] == hashes
    return found
