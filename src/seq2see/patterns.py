"""What a token is, by a regular expression: those that have a name, and the check of one that is the user's own."""

import functools
import re
from collections import Counter
from typing import Final, NamedTuple

from seq2see.automaton import Matcher
from seq2see.errors import SettingError, nearest


class Named(NamedTuple):
    """An expression that goes by a name."""

    about: str
    expression: str


NAMED: Final = {
    "smiles": Named(
        "atoms, bonds, branches and rings of molecules and reactions",
        # A bracket atom is one token. Outside brackets only the organic subset may stand, At and Ts its latest members.
        r"\[[^\[\]]+\]|Br|Cl|At|Ts|[BCNOPSFI]|[bcnops]|%\d\d|%\(\d+\)|\d|>>|>|@@|@|[-=#$:/\\~.*()]",
    ),
    "words": Named(
        "words, numbers, blanks and signs apart",
        r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f])*|\d+|\s+",  # with accents that are characters of their own
    ),
    "code": Named(
        "names, numbers, operators and indentation of programs",
        r"[^\W\d]\w*|0[xX][\da-fA-F]+|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|[ \t]+|\s"
        r"|<<=|>>=|\*\*=|//=|===|!==|\.\.\.|->|=>|::|:=|&&|\|\||\+\+|--|<<|>>|\*\*|//|[-+*/%&|^=!<>]=",
    ),
}

LONGEST: Final = 4000
"""Characters of an expression: the longest that `re` compiles in a second or two, whatever is in it."""


def expression(pattern: str) -> str:
    """Return the expression that a name stands for; any other pattern is one itself."""
    return NAMED[pattern].expression if pattern in NAMED else pattern


def compiled(pattern: str, where: str) -> Matcher:
    """Return a matcher for a name or an expression; `where` it was set begins the message if it is faulty."""
    said = f"{where} = {pattern[:200]!r}"
    if len(pattern) > LONGEST:
        raise SettingError(f"{where}: {len(pattern):,} characters are too long for a pattern, at most {LONGEST:,}")
    if pattern not in NAMED and pattern.isalpha():  # a valid expression, but surely a slip
        raise SettingError(f"{said}: no such pattern. {nearest(pattern, NAMED)} Or write a regular expression")
    try:
        made = _matcher(expression(pattern))
    except re.error as problem:
        place = "" if problem.pos is None else f" at character {problem.pos + 1}"
        raise SettingError(f"{said}: not a regular expression: {problem.msg}{place}") from None
    except (OverflowError, RecursionError):
        raise SettingError(f"{said}: too large for a regular expression") from None
    if made.matches_nothing():
        raise SettingError(f"{said}: matches even where there is no text. A token needs a character: write + for *")
    return made


@functools.lru_cache(maxsize=16)
def _matcher(expression: str) -> Matcher:
    return Matcher(expression)


# A stricter reading than the pattern's, which takes whatever stands in brackets.
_ATOM = (
    r"\[\d*(?:[A-Z][a-z]?|[bcnops]|as|se|\*)(?:@(?:@|[A-Z]{2}\d+)?)?(?:H\d?)?(?:\++\d*|-+\d*)?(?::\d+)?\]"
    r"|Br|Cl|At|Ts|[BCNOPSFI]|[bcnops]|\*"
)
_RING = r"(?P<ring>\d|%\d\d|%\(\d+\))"
_SMILES_PART = re.compile(rf"(?P<atom>{_ATOM})|[-=#$:/\\~]?{_RING}|(?P<branch>[()])|(?P<bond>[-=#$:/\\~])|(?P<dot>\.)")
_MAY_FOLLOW: Final = {
    "start": {"atom"},
    "atom": {"atom", "ring", "(", ")", "bond", "dot", "end"},
    "ring": {"atom", "ring", "(", ")", "bond", "dot", "end"},
    "(": {"atom", "bond", "dot"},
    ")": {"atom", "(", ")", "bond", "dot", "end"},
    "bond": {"atom"},
    "dot": {"atom"},
}


def is_smiles(text: str) -> bool:
    """Whether a text is written by the rules of SMILES: atoms where they belong, branches and rings closed.

    A reaction is two or three sets of molecules with > between them, of which some may be empty.
    """
    parts = text.split(">")
    return len(parts) <= 3 and any(parts) and all(_molecules(part) for part in parts if part)


def _molecules(text: str) -> bool:
    before, place, depth, rings = "start", 0, 0, Counter[str]()
    while place < len(text):
        found = _SMILES_PART.match(text, place)
        if not found:
            return False
        now = str(found.lastgroup)
        if now == "branch":
            now = found[0]
            depth += 1 if now == "(" else -1
        elif now == "ring":
            rings[found["ring"].strip("%()").lstrip("0")] += 1
        if now not in _MAY_FOLLOW[before] or depth < 0:
            return False
        before, place = now, found.end()
    return depth == 0 and "end" in _MAY_FOLLOW[before] and not any(count % 2 for count in rings.values())
