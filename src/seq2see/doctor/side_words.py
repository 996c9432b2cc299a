"""Distinguish sides that share a script by their words, as the corpus itself uses them.

A word that occurs nearly always on one side is evidence for that side. If the words of both texts of a pair are
evidence for the other side, source and target were exchanged.
"""

import math
from collections import Counter
from typing import Final

from seq2see.text import columns, languages
from seq2see.text.pair import Sides

Odds = dict[str, float]
"""Log-odds of words by which source and target are told apart: positive for words typical of sources, negative for
words typical of targets.
"""

_SEEN: Final = 5
"""Minimum number of occurrences, on both sides together, of a word by which the sides are told apart."""
_TELLING: Final = 1.5
"""Minimum absolute log-odds (natural logarithm) of a word by which the sides are told apart; and minimum mean log-odds
of a text on the wrong side for a pair to count as exchanged.
"""
_MOST: Final = 20_000
_READ: Final = 10
"""Number of words at the beginning of a text whose log-odds are averaged; further words hardly change the result."""
_AGREE: Final = 0.9
"""Minimum share of pairs whose source has words typical of sources and whose target has words typical of targets, among
the pairs with known words on both sides. With a smaller share, the words do not distinguish the sides, which are
probably in the same language.
"""


def learn(pairs: list[tuple[str, str]]) -> Odds:
    """Learn which words distinguish the sides; return an empty dictionary if the sides cannot be distinguished."""
    sources, targets = (Counter(word for pair in pairs for word in _words(pair[side])) for side in (0, 1))
    balance = math.log((targets.total() + 1) / (sources.total() + 1))
    odds = {
        word: math.log((sources[word] + 0.5) / (targets[word] + 0.5)) + balance
        for word in sources.keys() | targets.keys()
        if sources[word] + targets[word] >= _SEEN
    }
    telling = sorted((word for word in odds if abs(odds[word]) > _TELLING), key=lambda word: (-abs(odds[word]), word))
    odds = {word: odds[word] for word in telling[:_MOST]}
    told = [(tell(odds, source), tell(odds, target)) for source, target in pairs]
    evidence = [(source, target) for source, target in told if source and target]
    right = sum(source > 0 > target for source, target in evidence)
    return odds if right > _AGREE * len(evidence) else {}


def are_exchanged(odds: Odds, source: str, target: str) -> bool:
    """Return whether the words of source and target are each typical of the other side."""
    return tell(odds, source) < -_TELLING and tell(odds, target) > _TELLING


def tell(odds: Odds, text: str) -> float:
    """Return the mean log-odds of the first `_READ` words of a text; 0 if fewer than two of them are known."""
    told = [odds[word] for word in text.lower().split(maxsplit=_READ)[:_READ] if word in odds]
    return sum(told) / len(told) if len(told) > 1 else 0.0


def _words(text: str) -> list[str]:
    return text.lower().split()


def is_header(source: str, target: str) -> bool:
    """Return whether a first row is a header that names the columns: `word, phones`, `en, ko`."""
    cells = {source.lower(), target.lower()}
    return len(cells) == 2 and (cells <= columns.SOURCES | columns.TARGETS or columns.are_languages(source, target))


def have_exchanged_names(labels: Sides, scripts: tuple[str, str]) -> bool:
    """Return whether source and target have each other's names: their usual names (`source`, `target`), or the names of
    languages whose scripts are those of the other side.
    """
    if not (labels.source and labels.target):
        return False
    if labels.source in columns.TARGETS and labels.target in columns.SOURCES:
        return True
    codes = languages.known(labels.source), languages.known(labels.target)
    expected = [languages.script(code) if code else None for code in codes]
    return None not in expected and expected[0] != expected[1] and tuple(expected) == scripts[::-1]
