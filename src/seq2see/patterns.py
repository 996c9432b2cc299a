"""Tokenize by regular expression: patterns with a name, and patterns of users, matched within a time limit.

A pattern may come from another person's run folder, and `re` backtracks: `(?:[a-z]+)+!` takes practically forever on
forty letters without an exclamation mark. So the time of `re` for a text is limited. `re` can be interrupted only on
the main thread; other threads send their work to the main thread of another process.
"""

import atexit
import functools
import os
import re
import signal
import threading
import time
import warnings
from collections import Counter
from types import FrameType
from typing import Final, NamedTuple

from seq2see.errors import RunError, SettingError, nearest
from seq2see.machine import WorkerProcess


class Named(NamedTuple):
    """A regular expression for tokens that users can choose by its name."""

    about: str
    expression: str


NAMED: Final = {
    "smiles": Named(
        "atoms, bonds, branches and rings of molecules and reactions",
        # A bracket atom is one token. Outside brackets only the organic subset may stand, At and Ts its latest members.
        r"\[[^\[\]]+\]|Br|Cl|At|Ts|[BCNOPSFI]|[bcnops]|%\d\d|%\(\d+\)|\d|>>|>|@@|@|[-=#$:/\\~.*()]",
    ),
    "words": Named(
        "words, numbers, spaces and signs as separate tokens",
        r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f])*|\d+|\s+",  # with accents that are characters of their own
    ),
    "code": Named(
        "names, numbers, operators and indentation of programs",
        r"[^\W\d]\w*|0[xX][\da-fA-F]+|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|[ \t]+|\s"
        r"|<<=|>>=|\*\*=|//=|===|!==|\.\.\.|->|=>|::|:=|&&|\|\||\+\+|--|<<|>>|\*\*|//|[-+*/%&|^=!<>]=",
    ),
}
TRUSTED: Final = {named.expression for named in NAMED.values()}
"""Regular expressions of the named patterns, which take linear time, so that they are matched without a time limit."""

LONGEST: Final = 4000
"""Maximum number of characters of a user's regular expression; a longer one is an error. `re` compiles any of this
length in a second or two.
"""
PATIENCE: Final = 0.2
"""Seconds of CPU time that matching a user's expression in one text may take, plus `PATIENCE_FOR_EACH` for each
character of the text; after that, an error is raised.
"""
PATIENCE_FOR_EACH: Final = 1e-5
"""Seconds per character of a text that are added to `PATIENCE`: fifty times what a usual expression takes."""

Spans = list[tuple[int, int]]


def expression(pattern: str) -> str:
    """Return the expression of a named pattern; any other pattern is returned unchanged."""
    return NAMED[pattern].expression if pattern in NAMED else pattern


def compiled(pattern: str, where: str) -> "Matcher":
    """Return a matcher for a named pattern or an expression; if it is faulty, the error message begins with `where`."""
    said = f"{where} = {pattern[:200]!r}"
    if len(pattern) > LONGEST:
        raise SettingError(f"{where}: {len(pattern):,} characters are too long for a pattern, at most {LONGEST:,}")
    if pattern not in NAMED and pattern.isalpha():  # a valid expression, but surely a slip
        raise SettingError(f"{said}: no such pattern. {nearest(pattern, NAMED)} Or write a regular expression")
    try:
        made = Matcher(expression(pattern))
    except re.error as problem:
        place = "" if problem.pos is None else f" at character {problem.pos + 1}"
        raise SettingError(f"{said}: not a regular expression: {problem.msg}{place}") from None
    except (OverflowError, RecursionError):
        raise SettingError(
            f"{said}: this regular expression is too large. Shorten it, or lower its repeat counts"
        ) from None
    if made.spans(""):
        raise SettingError(f"{said}: matches the empty text. A token needs at least one character: use + instead of *")
    return made


class Matcher:
    """Finds the matches of an expression in texts, on any thread; those of a user's expression within a time limit."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._compiled = _compile(expression)

    def cut(self, text: str) -> list[str]:
        """Split a text into matches of the expression and, between them, single characters; joined, they are
        the text.
        """
        tokens: list[str] = []
        last = 0
        for begin, end in self.spans(text):
            if begin < end:  # a look ahead, say, matches without a character
                tokens += text[last:begin]
                tokens.append(text[begin:end])
                last = end
        tokens += text[last:]
        return tokens

    def spans(self, text: str) -> Spans:
        """Return (start, end) of each match; raise an error if a user's expression takes too long."""
        if self.expression in TRUSTED:
            return [match.span() for match in self._compiled.finditer(text)]
        task = self.expression, text, PATIENCE + PATIENCE_FOR_EACH * len(text)
        if threading.current_thread() is threading.main_thread():
            return _spans_in_time(task)
        return _spans_by_worker(task)


@functools.lru_cache(maxsize=16)
def _compile(expression: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what another version of Python may read in another way
        return re.compile(expression)


Task = tuple[str, str, float]
"""A regular expression, a text to match it in, and the maximum number of seconds for that."""


def _spans_in_time(task: Task) -> Spans:
    """Return the spans of all matches; raise an error after the CPU time that `task` allows (on Windows, the time is
    not limited). This must be the main thread, on which a timer's signal can interrupt `re`.
    """
    expression, text, seconds = task
    find = _compile(expression).finditer
    if not hasattr(signal, "setitimer"):  # on Windows
        return [match.span() for match in find(text)]
    begin = time.thread_time()

    def check(number: int, frame: FrameType | None) -> None:
        if time.thread_time() - begin > seconds:  # the timer also counts what other threads compute
            raise SettingError(
                f"pattern {expression[:200]!r}: takes longer than {seconds:.1f} seconds on a text of "
                f"{len(text):,} characters that begins {text[:30]!r}. Does it have nested repetitions, like (a+)+? "
                "Use a simpler one"
            )

    before = signal.signal(signal.SIGVTALRM, check)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.05)
    try:
        return [match.span() for match in find(text)]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)


_lock = threading.Lock()
_workers: dict[int, WorkerProcess] = {}
"""Worker processes by the id of the process that started them: a fork must not use the pipes of its parent."""


def _spans_by_worker(task: Task) -> Spans:
    """Call `_spans_in_time` in the main thread of another process, which is started on first use."""
    with _lock:
        worker = _workers.get(os.getpid())
        if worker is None:
            worker = _workers[os.getpid()] = WorkerProcess(functools.partial, (_spans_in_time,))
            atexit.register(worker.end)
        try:
            worker.send(task)
            found: Spans = worker.receive()
        except RunError:  # it has died
            del _workers[os.getpid()]
            raise
        return found


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
    """Return whether a text is well-formed SMILES: valid atoms, with all branches and rings closed.

    Valences are not checked. A reaction is two or three sets of molecules separated by >, of which some may be empty.
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
