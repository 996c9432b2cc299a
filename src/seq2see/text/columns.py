"""Find the delimiter of a CSV file, and which columns of a table or fields of a JSON record are source and target."""

import contextlib
import csv
import difflib
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from seq2see.errors import DataError, nearest
from seq2see.text import languages
from seq2see.text.pair import Sides

HEADERS: Final = (
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("source_text", "target_text"),
    ("q", "a"),
    ("question", "answer"),
    ("input", "output"),
    ("prompt", "completion"),
    ("prompt", "response"),
    ("question", "reply"),
    ("word", "phones"),
    ("text", "translation"),
    ("sentence", "translation"),
    ("질문", "답변"),
    ("원문", "번역문"),
    ("text", "label"),
)
"""Names of source and target columns or fields that are recognised, in order of preference. The names of two languages
work, too.
"""
SOURCES, TARGETS = (frozenset(side) for side in zip(*HEADERS, strict=True))
OWN: Final = HEADERS[0]
"""Names of the source and target fields in files that seq2see writes. A JSON record with these names may contain
further references.
"""
REFERENCE: Final = re.compile(r"(ref|reference|target|tgt)s?[ _-]?\d*")

_USUAL: Final = frozenset(
    f"""
    {" ".join(name.replace("_", " ") for pair in HEADERS for name in pair if len(name) > 1)}
    action article code command corrected correct document form grapheme graphemes historical inflected intent
    ipa lemma modern name noisy normalised normalized original phoneme phonemes phrase product products pronunciation
    query raw reactant reactants snippet smiles spelling sql summary title transcription transliteration utterance word
    words 단어 대답 동작 명령 문장 발음 방언 번역 본문 사투리 요약 입력 정답 제목 출력 표준어
    """.split()
)
"""Words that are usual in names of columns, in lower case. They are evidence that a first row is a header, but do not
suffice for skipping it, as the names in `HEADERS` do.
"""
_NAME: Final = re.compile(r"[^\W\d_]\w*(?:[ -]\w+)?")
_LONGEST_NAME: Final = 30
"""Maximum number of characters of a cell that may be the name of a column which is not well known."""
_FEWEST_ROWS: Final = 20
"""Minimum number of rows after the first one by which names that are not usual are recognised."""
_RARE: Final = 1 / 200
"""Maximum share of other rows that look as much like a header as the first row does. In a corpus in random order, the
probability that a pair which is not a header is taken for one is about as small.
"""


def choose(names: list[str], asked: Sides, spoken: Sides) -> tuple[list[int] | None, bool]:
    """Return the column indices of source and target in a table, and whether its first row is a header.

    The indices are None if neither the first row nor the user names the columns.

    Args:
        names: The cells of the first row.
        asked: The columns that the user asks for.
        spoken: The languages that the user asks for.
    """
    named = list(names)
    while len(named) > 2 and not named[-1]:
        named.pop()
    found = by_name(named, spoken)
    are_languages = len(names) > 2 and all(map(languages.known, named))
    if any(asked):
        return _by_option(names, asked, are_languages or found is not None)
    if found is None and are_languages:
        raise DataError(
            f"{len(names)} languages, {listed(names)}. Choose two, for example: {_options(names[0], names[1])}"
        )
    return found, found is not None


def by_name(names: Sequence[str], spoken: Sides) -> list[int] | None:
    """Return the indices of source and target; None if their names do not say which columns they are.

    They are columns of the languages in `spoken`, else columns with well-known names (`HEADERS`), else the only two
    columns that are named after languages.
    """
    small = [name.lower() for name in names]
    codes = {place: code for place, name in enumerate(names) if (code := languages.known(name))}
    if _is_numbered(names):
        codes.pop(0, None)
    if any(spoken):  # a language that was asked for, and the other one
        sides = [
            [place for place, code in codes.items() if wanted is not None and languages.matches(wanted, code)]
            for wanted in spoken
        ]
        rest = [place for place in codes if place not in chain(*sides)]
        source, target = (found or rest for found in sides)
        if len(source) == len(target) == 1 and source != target:
            return [source[0], target[0]]
    for source_name, target_name in HEADERS:
        if source_name in small and target_name in small:
            return [small.index(source_name), small.index(target_name)]
    if len(codes) == 2 and are_languages(*(names[place] for place in codes)):
        return list(codes)
    return None


def _by_option(names: list[str], asked: Sides, is_header: bool) -> tuple[list[int], bool]:
    """Return the indices of the columns that the user asked for, and whether the first row is a header (with names)."""
    places: list[int] = []
    small = [name.lower() for name in names]
    for option, wanted in zip(("--source-column", "--target-column"), asked, strict=True):
        if wanted is None:
            if len(names) != 2:
                raise DataError(f"{count(names)} ({listed(names)}): give {option}, too")
            places.append(-1)
        elif wanted.strip().lower() in small:
            places.append(names.index(wanted) if wanted in names else small.index(wanted.strip().lower()))
            is_header = True
        elif wanted.isdecimal() and 1 <= int(wanted) <= len(names):
            places.append(int(wanted) - 1)
        else:
            close = difflib.get_close_matches(wanted.lower(), small, n=1, cutoff=0.5)
            meant = f" Did you mean '{names[small.index(close[0])]}'?" if close else ""
            raise DataError(
                f"no column '{wanted}' ({option}).{meant} The columns are {listed(names)}; their numbers count from 1"
            )
    places = [1 - max(places) if place < 0 else place for place in places]
    if places[0] == places[1]:
        raise DataError(f"column '{names[places[0]]}' cannot be both source and target")
    return places, is_header


def are_languages(one: str, other: str) -> bool:
    """Return whether two cells are a header that names two languages: `en` and `de`, `Korean` and `en-US`.

    A code of two letters beside one of three is not taken for a header, since people use one kind of code in a header:
    `is` and `est` (the codes of Icelandic and Estonian) are rather the first entry of a dictionary.
    """
    codes = languages.known(one), languages.known(other)
    alike = len(one) == len(other) or max(len(one), len(other)) > 3 or not (one + other).isascii()
    return None not in codes and codes[0] != codes[1] and alike


def look_like_names(rows: Sequence[tuple[str, str]]) -> bool:
    """Return whether the first of some rows, each of source and target, looks like names of columns; it may be a pair.

    Both cells are names of one or two words, different from each other, and not both are also cells of other rows. They
    consist of words that are usual for columns, as in nearly no other row; or nearly no other row has two cells that
    look like names and have words, or letters, that occur nowhere else on their side.
    """
    first, *others = dict.fromkeys(rows)
    if not all(map(_is_name, first)) or first[0].lower() == first[1].lower() or {*first} <= {*chain(*others)}:
        return False

    def is_rare(holds: Callable[[tuple[str, str]], bool]) -> bool:
        return holds(first) and sum(map(holds, others)) <= _RARE * len(others)

    if all(map(_is_usual, first)):
        return is_rare(lambda row: all(map(_is_usual, row)))
    if len(others) < _FEWEST_ROWS:
        return False
    sides = list(zip(first, *others, strict=True))
    words = [Counter(chain(*(set(text.split()) for text in side))) for side in sides]
    letters = [Counter(chain(*map(set, side))) for side in sides]

    def are_new_words(row: tuple[str, str]) -> bool:
        """Return whether no other row has the words of this one on the same side, unless they are usual for columns."""
        return all(
            _is_usual(text) or all(counts[word] == 1 for word in text.split())
            for text, counts in zip(row, words, strict=True)
        )

    def has_new_letters(row: tuple[str, str]) -> bool:
        """Return whether no other row has most of the letters of one of the cells on the same side."""
        return any(
            2 * sum(counts[letter] == 1 for letter in text if letter.isalpha()) > sum(map(str.isalpha, text))
            for text, counts in zip(row, letters, strict=True)
        )

    return is_rare(lambda row: all(map(_is_name, row)) and are_new_words(row)) or (
        are_new_words(first) and is_rare(has_new_letters)
    )


def _is_name(text: str) -> bool:
    return 1 < len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def _is_usual(name: str) -> bool:
    """Return whether a text consists of words usual in names of columns and names of languages: `english text`."""
    if not _is_name(name):
        return False
    words = re.findall(r"[^\W\d_]+", name.lower())
    return all(word in _USUAL or ((len(word) > 3 or not word.isascii()) and languages.known(word)) for word in words)


def _is_numbered(names: Sequence[str]) -> bool:
    """Return whether the first of three or more columns is `id` or `no`: row numbers, not Indonesian or Norwegian."""
    return len(names) > 2 and names[0].lower() in ("id", "no")


# Delimiters


def delimiter(beginning: Sequence[str]) -> str:
    """Return the delimiter of a CSV file: a comma, or the semicolon of many European spreadsheets.

    It is the semicolon if that divides the first row, and either no comma does, or only the semicolon gives two columns
    in every row.
    """
    commas, semicolons = (_widths(beginning, sign) for sign in ",;")
    if not (commas and semicolons) or semicolons[0] == 1:
        return ","
    return ";" if commas[0] == 1 or ({*semicolons} == {2} != {*commas}) else ","


def _widths(beginning: Sequence[str], sign: str) -> list[int]:
    """Return the number of columns of each non-empty row, read without strict quoting: with the wrong delimiter, quotes
    are misplaced.
    """
    widths = []
    with contextlib.suppress(csv.Error):
        for row in csv.reader(beginning, delimiter=sign):
            if any(cell.strip() for cell in row):
                widths.append(len(row))
    return widths


# Words for messages


def count(columns: Sequence[object]) -> str:
    return "1 column" if len(columns) == 1 else f"{len(columns)} columns"


def listed(names: Sequence[str]) -> str:
    """Return the names of columns, or the texts of a first row without names, quoted, shortened and joined."""
    shown = [f"'{name}'" if len(name) <= 24 else f"'{name[:23]}…'" for name in names[:12]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def options_for(names: Sequence[str]) -> str:
    """Return, as an example, the options of the command line that choose two of the columns `names`.

    The options name well-known columns, else the first two columns: by number if the cells do not look like names.
    A column `id` in front is skipped; it shows that the cells are names, whatever they look like.
    """
    first = int(_is_numbered(names))
    names = names[first:]
    small = {name.lower(): name for name in names}
    for source, target in HEADERS:
        if source in small and target in small:
            return _options(small[source], small[target])
    spoken = [name for name in names if language_of_path(name)]
    if len(spoken) >= 2:
        return _options(spoken[0], spoken[1])
    looks_named = len(small) == len(names) and all(re.fullmatch(r"[^\W\d][\w.:-]{0,30}", name) for name in names)
    if looks_named or (first and len(small) == len(names) and all(names)):
        return _options(names[0], names[1])
    return f"{_options(str(first + 1), str(first + 2))} (or, if the first line is a header, the names in it)"


def possible_names(path: Path, line: int | str, source: str, target: str) -> tuple[str, str]:
    """Return a note for `train` about a first row that looks like names of columns, and advice for the doctor."""
    options = _options(source, target)
    return (
        f"{path}, line {line}: '{source}' and '{target}' look like names of columns, but are read as a pair. "
        f"If they are names, add {options}",
        f"It is read as a pair. If it is a header, add {options} to the command, or delete the line.",
    )


def _options(source: str, target: str) -> str:
    return f"--source-column {shlex.quote(source)} --target-column {shlex.quote(target)}"


# Fields of JSON records


def language_of_path(path: str) -> str | None:
    """Return the language that the last step of a dotted path names: `translation.en` -> `en`."""
    return languages.known(path.rpartition(".")[2])


def field(record: Any, name: str) -> Any:
    """Return a field of a record by key, dotted path of keys, or number from 1 in a list; None if it is missing."""
    if isinstance(record, dict) and name in record:
        return record[name]
    if isinstance(record, list) and name.isdecimal() and 1 <= int(name) <= len(record):
        return record[int(name) - 1]
    head, dot, rest = name.partition(".")
    return field(record.get(head), rest) if dot and isinstance(record, dict) else None


def wrong_record(record: Any, keys: tuple[str, str], asked: Sides) -> tuple[str, str]:
    """Return an error message about a record that lacks a text, and advice: similar names of fields, or options that
    choose among its fields; the advice may be empty.
    """
    fields = list(_fields(record))
    if any(asked) or keys != OWN:
        missing = [key for key in keys if key not in fields]
        fault = f"no text in {' and '.join(map(repr, missing))}"
        meant = " ".join(nearest(name, fields) for name in missing) if fields else ""
        return fault, f"{meant} There are {listed(fields)}." if "mean" in meant else meant
    has_both = isinstance(record, dict) and {"source", "target"} <= record.keys()
    wrong = [repr(key) for key in ("source", "target") if not isinstance(record[key], str)] if has_both else []
    if wrong:
        return f"{' and '.join(wrong)}: expected text in quotes", ""
    fault = 'expected {"source": "...", "target": "..."} or ["...", "..."]'
    if not isinstance(record, dict) or len(fields) < 2 or {"source", "target"} & record.keys():
        return fault, ""
    return fault, f"To choose among {listed(fields)}, add for example: {options_for(fields)}"


def _fields(record: Any, before: str = "") -> Iterable[str]:
    """Yield the dotted paths of texts in a record, up to four levels deep; for a list, the numbers of texts from 1."""
    if isinstance(record, dict) and before.count(".") < 4:
        for key, value in record.items():
            if isinstance(value, str):
                yield f"{before}{key}"
            else:
                yield from _fields(value, f"{before}{key}.")
    elif isinstance(record, list) and not before:
        yield from (str(number) for number, value in enumerate(record, 1) if isinstance(value, str))
