"""A built-in corpus: dates written out in fifty languages, to ISO 8601.

    2024년 3월 7일 목요일          2024-03-07
    ७ मार्च २०२४                  2024-03-07

The words come from Unicode's CLDR by way of Babel, so that no file has to be downloaded. No day is in two splits and no
text has two meanings: all-numeric forms such as 07.03.2024 are left out.
"""

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from importlib import resources
from typing import Any, Final, Literal

from babel import Locale
from babel.dates import DateTimePattern, get_date_format

from seq2see.text.pair import Pair

Split = Literal["train", "valid", "test"]

SIZES: Final[dict[Split, int]] = {"test": 2_000, "valid": 1_000, "train": 40_000}
FIRST: Final = date(1900, 1, 1)
LAST: Final = date(2099, 12, 31)

_TABLES: Final = tomllib.loads(resources.files(__package__).joinpath("dates.toml").read_text("utf-8"))
SCRIPTS: Final[dict[str, list[str]]] = _TABLES["scripts"]
LANGUAGES: Final = tuple(language for languages in SCRIPTS.values() for language in languages)
ZEROS: Final[dict[str, str]] = _TABLES["zeros"]
MONTH_IN_WORDS: Final = re.compile("MMM|LLL|月")  # 月: a numeric month, but marked as one

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    # 500 steps are two epochs: enough, since nothing in this corpus contradicts itself. A small model learns it.
    "model": {"encoder_layers": 2, "decoder_layers": 2, "d_model": 96, "heads": 4, "d_ff": 384, "dropout": 0.1},
    "training": {
        "batch_tokens": 4096,
        "max_steps": 500,
        "warmup_steps": 200,
        "learning_rate": 5e-3,
        "validate_every": 125,
        "agreement": 0.0,
        "weight_decay": 0.0,
        "alignment_weight": 0.0,
    },
}
"""Training settings for this corpus."""

Writer = Callable[[date], str]


def pairs(split: Split) -> Iterator[Pair]:
    """Yield the pairs of a split, the same on every machine: languages take turns, and so do the formats of each."""
    forms = {language: writers(language) for language in LANGUAGES}
    for index, day in enumerate(days(split)):
        turn, language = index // len(LANGUAGES), LANGUAGES[index % len(LANGUAGES)]
        write = forms[language][turn % len(forms[language])]
        yield Pair(write(day), day.isoformat(), f"dates {split}, {language}")


def days(split: Split) -> list[date]:
    """Return the days of a split. All days are sorted by their hashes and divided among the splits in that order."""
    every = [FIRST + timedelta(days=number) for number in range((LAST - FIRST).days + 1)]
    every.sort(key=lambda day: hashlib.sha256(day.isoformat().encode()).digest())
    start = 0
    for name, size in SIZES.items():
        if name == split:
            break
        start += size
    return every[start : start + SIZES[split]]


def writers(language: str) -> list[Writer]:
    """Return functions that write a date in a language: in its medium, long and full format, with its digits.

    Formats with an all-numeric date are left out. Languages that use Latin digits and their own have functions for
    both.
    """
    locale = Locale.parse(language)
    patterns = {form: get_date_format(form, locale) for form in ("medium", "long", "full")}
    spelled = {each.pattern: each for each in patterns.values() if MONTH_IN_WORDS.search(each.pattern)}
    tables = [_digits(system) for system in _numbering(locale)]
    return [_writer(pattern, locale, table) for table in tables for pattern in spelled.values()]


def _numbering(locale: Locale) -> list[str]:
    """Return the default numbering system, and the script's own digits as well if the default is Latin digits."""
    default, native = locale.default_numbering_system, locale.other_numbering_systems.get("native", "latn")
    return [default, native] if default == "latn" and native in ZEROS else [default]


def _digits(system: str) -> dict[int, str]:
    """Return a table for `str.translate`, from 0-9 to the digits of a numbering system."""
    zero = ord(ZEROS.get(system, "0"))
    return {ord("0") + digit: chr(zero + digit) for digit in range(10)}


def _writer(pattern: DateTimePattern, locale: Locale, table: dict[int, str]) -> Writer:
    return lambda day: pattern.apply(day, locale).translate(table)
