"""Alignment on the built-in corpus: the year, month and day of the output point at theirs in the input."""

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import date

from babel import Locale
from babel.dates import DateTimeFormat, get_date_format

from seq2see import api
from seq2see.run import Run
from seq2see.text import dates

PARTS = {"year": (0, 4), "month": (5, 7), "day": (8, 10)}
"""Of 2044-05-12, by characters."""
LETTERS = {"y": "year", "M": "month", "L": "month", "d": "day"}


def written(language: str, day: date) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """Every form of a day in a language, put together field by field, and where its year, month and day stand."""
    locale = Locale.parse(language)
    values = DateTimeFormat(day, locale)
    for system in dates._numbering(locale):
        table = dates._digits(system)
        for form in ("medium", "long", "full"):
            text, places = "", {}
            for field, between in re.findall(r"%\((\w+)\)s|([^%]+)", get_date_format(form, locale).format):
                piece = (str(values[field]) if field else between).translate(table)
                if field and field[0] in LETTERS:
                    places[LETTERS[field[0]]] = (len(text), len(text) + len(piece))
                text += piece
            yield text, places


def touched(span: tuple[int, int], places: dict[str, tuple[int, int]]) -> set[str]:
    """The parts that a token has characters of. It may have others besides: Hebrew writes "in May" as one word."""
    return {part for part, (start, end) in places.items() if start < span[1] and span[0] < end}


def shares_right(run: Run, split: dates.Split, count: int) -> dict[str, float]:
    """By language: how many parts of right translations have all their characters linked to the right ones."""
    pairs, days = list(dates.pairs(split))[:count], dates.days(split)[:count]
    lines = [pair.source for pair in pairs]
    results = run.search(lines, engine=run.engine("torch"))
    right = defaultdict(list)
    for pair, day, result, (aligned,) in zip(pairs, days, results, run.align(lines, results), strict=True):
        if result.text != pair.target:
            continue
        language = pair.where.rpartition(" ")[2]
        places = dict(written(language, day))[pair.source]
        for part, (first, last) in PARTS.items():
            links = [link.source for link in aligned.links if first <= link.target[0] < last]
            assert len(links) == last - first
            right[language].append(all(touched(source, places) == {part} for source in links))
    assert right.keys() == set(dates.LANGUAGES)
    assert min(map(len, right.values())) >= 30, "of 60 parts in each language"
    return {language: sum(found) / len(found) for language, found in right.items()}


def test_year_month_and_day_come_from_the_right_characters(tmp_path):
    run = api.train("dates", tmp_path / "run", settings={"training": {"max_steps": 300}})
    assert run.manifest["alignment"]["pairs"] > 20, "chosen on validation pairs, and kept"
    shares = shares_right(run, "test", 1000)
    assert sum(shares.values()) / len(shares) >= 0.95, shares
