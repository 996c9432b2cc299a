"""Cut texts by a regular expression, like `re.finditer`, in a time that is bounded whatever the text.

Python's `re` backtracks: `(?:[a-z]+)+!` takes longer than anybody waits on thirty letters without an exclamation mark,
and outside the main thread nothing can stop it. An expression may come with somebody else's run folder, so `Matcher`
walks an automaton instead, which takes about the same time for every character. It finds what `re` finds: `re` parses
the expression and says which characters a class holds, and a property test compares the two.
"""

import contextlib
import functools
import itertools
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from re import _compiler as sre_compiler  # type: ignore[attr-defined]  # private, and the same in Python 3.11 to 3.14
from re import _parser as sre_parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any, Final

from seq2see.errors import SettingError

PATIENCE: Final = 1.0
"""Seconds of computing that one text may take, and `PATIENCE_FOR_EACH` more for each of its characters."""
PATIENCE_FOR_EACH: Final = 1e-5
"""Seconds; fifty times what a character takes with a usual expression."""


class Matcher:
    """Cuts texts by an expression: the same tokens as `re.finditer`, in bounded time.

    Four features of `re` need backtracking: backreferences, conditional groups, atomic groups and possessive repeats.
    Expressions with those, or far too large for an automaton, are left to `re` under a timer, which needs the main
    thread and is not there on Windows; elsewhere they are refused.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what another version of Python may read in another way
            self._compiled = re.compile(expression)
            parsed = sre_parser.parse(expression)
        self._automaton: _Automaton | None = None
        try:
            self._automaton = _Automaton(parsed, parsed.state.flags, may_be_empty=False)
        except _NeedsBacktrackingError as problem:
            self._feature = str(problem)

    def matches_nothing(self) -> bool:
        """Return whether the expression matches where there is no text, and so might match everywhere."""
        if self._automaton is not None:
            return self._automaton.accepts_nothing(_Walk("", self._give_up))
        with self._limited(""):
            return self._compiled.match("") is not None

    def cut(self, text: str) -> list[str]:
        """Cut a text into what the expression matches and single characters: end to end they are the text."""
        if self._automaton is None:
            return self._cut_by_backtracking(text)
        walk = _Walk(text, self._give_up)
        characters = [*text, ""]
        pieces: list[str] = []
        begin, length = 0, len(text)
        while begin < length:
            # The usual case, in few operations: all moves are known, and the walk ends close to the end of a token.
            place, end = begin, -1
            state: _State | None = self._automaton.first
            while state is not None:
                move = state.moves.get(characters[place])
                if move is None or place - begin > _Walk.FAR:
                    end = walk.longest(self._automaton, begin)
                    break
                ends, state = move
                if ends:
                    end = place
                place += 1
            end = max(end, begin + 1)
            pieces.append(text[begin:end])
            begin = end
        return pieces

    def _cut_by_backtracking(self, text: str) -> list[str]:
        pieces: list[str] = []
        end = 0
        with self._limited(text):
            for match in self._compiled.finditer(text):
                if match[0]:  # a look ahead, say, matches without a character
                    pieces += text[end : match.start()]
                    pieces.append(match[0])
                    end = match.end()
        pieces += text[end:]
        return pieces

    @contextlib.contextmanager
    def _limited(self, text: str) -> Iterator[None]:
        """Give up `re` when its time is over: by a timer of computing time, whose signal `re` notices."""
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            raise SettingError(
                f"pattern {self.expression[:200]!r}: {self._feature} can only be matched in the main thread, where the "
                "time it takes can be limited. Write a pattern without"
            )

        def interrupt(number: int, frame: FrameType | None) -> None:
            self._give_up(text)

        before = signal.signal(signal.SIGVTALRM, interrupt)
        signal.setitimer(signal.ITIMER_VIRTUAL, _seconds_for(text))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)

    def _give_up(self, text: str) -> None:
        raise SettingError(
            f"pattern {self.expression[:200]!r}: takes longer than {_seconds_for(text):.0f} seconds on a text of "
            f"{len(text):,} characters that begins {text[:30]!r}. Does it repeat what repeats already, like (a+)+? "
            "Write a simpler one"
        )


def _seconds_for(text: str) -> float:
    return PATIENCE + PATIENCE_FOR_EACH * len(text)


# The automaton. An expression becomes nodes of five kinds, which Thompson's construction (1968) joins. A set of nodes
# that are reached together, in the order in which `re` would try them, is a state; states and the moves between them
# are worked out when a text first needs them (as in RE2), so that most characters cost one look into a dict.

MOST_NODES: Final = 5000
"""In one automaton. A repeat such as x{100} holds its x a hundred times."""
MOST_EMPTY_LOOPS: Final = 5
"""In one automaton, each of which may double the ways to a node. One such as (a*)* is a slip, or meant to do harm."""
MOST_MOVES: Final = 100_000
"""Remembered by one automaton; then it begins anew. A few hundred bytes each."""
CHARACTER, SPLIT, LOOP, CONDITION, ACCEPT = range(5)

Test = Callable[[str], bool]


class _NeedsBacktrackingError(Exception):
    """An expression that no automaton can match; the message names the feature."""


class _Node:
    """One node: what it waits for or asks, and the nodes that follow, likeliest first."""

    __slots__ = ("ask", "bit", "kind", "leave", "number", "test", "then")

    def __init__(self, number: int, kind: int, then: "list[_Node]") -> None:
        self.number = number
        self.kind = kind
        self.then = then
        self.test: Test | None = None
        """Of a CHARACTER."""
        self.ask: Callable[[_Walk, int], bool] | None = None
        """Of a CONDITION: whether it holds at a place of the text."""
        self.leave: _Node | None = None
        """Of a LOOP: what follows it."""
        self.bit = 0
        """Of a LOOP whose body may be empty: a number of its own, a power of two."""


class _State:
    """Nodes that are reached together, and the moves from there.

    A move is (whether a token may end before this character, the next state or None). Its key is the character, or ""
    at the end of the text; where conditions are asked on the way, with their answers.
    """

    __slots__ = ("asked", "is_first", "moves", "nodes", "number")

    def __init__(self, number: int, nodes: tuple[_Node, ...], is_first: bool, asked: tuple[_Node, ...]) -> None:
        self.number = number
        self.nodes = nodes
        self.is_first = is_first
        self.asked = asked
        self.moves: dict[Any, tuple[bool, _State | None]] = {}


class _Automaton:
    """An expression, or the inside of a look ahead or behind, as states.

    Args:
        may_be_empty: whether a match without a character counts.
    """

    def __init__(self, parsed: Any, flags: int, may_be_empty: bool) -> None:
        self._flags = flags
        self._count = self._empty_loops = 0
        self._numbers = itertools.count()
        self._tests: dict[Any, Test] = {}
        self._may_be_empty = may_be_empty
        self._begin = self._sequence(parsed, flags, self._node(ACCEPT))
        self.forget()

    def forget(self) -> None:
        """Drop all states; those that a walk still holds stay as they are."""
        self._states: dict[Any, _State] = {}
        self._room = MOST_MOVES
        self.first = self._state((self._begin,), True)

    # Building

    def _node(self, kind: int, *then: _Node) -> _Node:
        self._count += 1
        if self._count > MOST_NODES:
            raise _NeedsBacktrackingError("a pattern of this size")
        return _Node(self._count, kind, list(then))

    def _sequence(self, items: Any, flags: int, then: _Node) -> _Node:
        """Return the node at which these parsed items begin, with `then` after the last."""
        for item in reversed(list(items)):
            then = self._item(item, flags, then)
        return then

    def _item(self, item: tuple[Any, Any], flags: int, then: _Node) -> _Node:
        operation, about = item
        match str(operation):
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                node = self._node(CHARACTER, then)
                node.test = self._test(item, flags)
                return node
            case "BRANCH":
                return self._node(SPLIT, *(self._sequence(each, flags, then) for each in about[1]))
            case "SUBPATTERN":
                _, add, remove, inner = about
                if add & sre_parser.TYPE_FLAGS:
                    flags &= ~sre_parser.TYPE_FLAGS
                return self._sequence(inner, (flags | add) & ~remove, then)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(str(operation) == "MAX_REPEAT", about, flags, then)
            case "AT" | "ASSERT" | "ASSERT_NOT":
                node = self._node(CONDITION, then)
                node.ask = self._condition(item, flags)
                return node
            case "FAILURE":
                return self._node(SPLIT)
            case other:
                feature = {
                    "GROUPREF": "a backreference",
                    "GROUPREF_EXISTS": "a conditional group",
                    "ATOMIC_GROUP": "an atomic group",
                    "POSSESSIVE_REPEAT": "a possessive repeat",
                }
                raise _NeedsBacktrackingError(feature.get(other, other))

    def _repeat(self, greedy: bool, about: tuple[int, int, Any], flags: int, then: _Node) -> _Node:
        """Return a repeat: the least copies of its inside, and then a loop, or as many copies as may still follow."""
        least, most, inner = about
        endless = most == sre_parser.MAXREPEAT
        if inner.getwidth()[0] == 0 and (least > 1 or not (endless or most == 1)):
            raise _NeedsBacktrackingError("a counted repeat of what may be empty")  # where `re` has rules of its own
        if endless:
            node = self._node(LOOP)
            if inner.getwidth()[0] == 0:
                node.bit = 1 << self._empty_loops
                self._empty_loops += 1
                if self._empty_loops > MOST_EMPTY_LOOPS:
                    raise _NeedsBacktrackingError("so many repeats of what may be empty")
            body = self._sequence(inner, flags, node)
            node.then, node.leave = [body, then] if greedy else [then, body], then
        else:
            node = then
            for _ in range(most - least):
                body = self._sequence(inner, flags, node)
                node = self._node(SPLIT, body, then) if greedy else self._node(SPLIT, then, body)
        for _ in range(least):
            node = self._sequence(inner, flags, node)
        return node

    def _test(self, item: tuple[Any, Any], flags: int) -> Test:
        """Return what tells whether a character is one that the item matches: `re` itself says so."""
        key = repr(item), flags
        if key not in self._tests:
            self._tests[key] = functools.partial(_matches, _compile_alone(item, flags))
        return self._tests[key]

    def _condition(self, item: tuple[Any, Any], flags: int) -> "Callable[[_Walk, int], bool]":
        operation, about = item
        if str(operation) == "AT":
            anchor = _compile_alone(item, flags)
            return lambda walk, place: anchor.match(walk.text, place) is not None
        direction, inner = about
        wanted = str(operation) == "ASSERT"
        automaton = _Automaton(inner, flags, may_be_empty=True)
        back = inner.getwidth()[0] if direction < 0 else 0
        self._count += automaton._count
        return lambda walk, place: (place >= back and walk.finds(automaton, place - back)) == wanted

    # Walking

    def accepts_nothing(self, walk: "_Walk") -> bool:
        """Return whether a match without a character would count at the beginning of a text."""
        holds = {node.number: node.ask(walk, 0) for node in self.first.asked if node.ask is not None}
        return any(node.kind == ACCEPT for node in _reached(self.first.nodes, holds))

    def _state(self, nodes: tuple[_Node, ...], is_first: bool = False) -> _State:
        key = tuple(node.number for node in nodes), is_first
        state = self._states.get(key)
        if state is None:
            asked = tuple(node for node in _reached(nodes) if node.kind == CONDITION)
            state = self._states[key] = _State(next(self._numbers), nodes, is_first, asked)
        return state

    def move(self, state: _State, key: Any, character: str, answers: Sequence[bool]) -> tuple[bool, _State | None]:
        """Work out a move, and remember it."""
        self._room -= 1
        if self._room < 0:
            self.forget()
        holds = {node.number: answer for node, answer in zip(state.asked, answers, strict=True)}
        ends = False
        following: dict[int, _Node] = {}
        for node in _reached(state.nodes, holds):
            if node.kind == ACCEPT:
                if state.is_first and not self._may_be_empty:
                    continue
                ends = True
                break  # `re` would try nothing after this
            if node.kind == CHARACTER and character and node.test is not None and node.test(character):
                following[node.then[0].number] = node.then[0]
        state.moves[key] = found = ends, self._state(tuple(following.values())) if following else None
        return found


def _reached(nodes: Sequence[_Node], holds: dict[int, bool] | None = None) -> list[_Node]:
    """Return all nodes that are reached without a character, in the order in which `re` would try them.

    A loop whose body matched nothing ends there, as in `re`; `bit` tells on which loops' bodies a way here has entered.

    Args:
        holds: the answers of conditions; without them, all may hold.
    """
    found: dict[int, _Node] = {}
    seen: set[tuple[int, int]] = set()
    rest = [(node, 0) for node in reversed(nodes)]
    while rest:
        node, entered = rest.pop()
        if (node.number, entered) in seen:
            continue
        seen.add((node.number, entered))
        if node.kind == LOOP:
            if entered & node.bit and node.leave is not None:
                rest.append((node.leave, entered & ~node.bit))
            else:
                rest += [(each, entered if each is node.leave else entered | node.bit) for each in reversed(node.then)]
            continue
        found.setdefault(node.number, node)
        if node.kind == SPLIT or (node.kind == CONDITION and (holds is None or holds[node.number])):
            rest += [(each, entered) for each in reversed(node.then)]
    return list(found.values())


class _Walk:
    """Walks of automatons over one text, within its time.

    Where a walk went on for long beyond the last end of a token, in vain, its states and places are remembered, so that
    no later one goes there again (Reps 1998): the whole text takes a time that grows as its length does.
    """

    FAR: Final = 32
    """Characters in vain that are worth remembering."""
    CHECK_EVERY: Final = 20_000
    """Characters between two looks at the clock; a new move counts for a hundred."""

    def __init__(self, text: str, give_up: Callable[[str], None]) -> None:
        self.text = text
        self._give_up = give_up
        self._steps = 0
        self._deadline = time.thread_time() + _seconds_for(text)
        self._in_vain: set[tuple[_Automaton, int, int]] = set()
        self._found: dict[tuple[_Automaton, int], bool] = {}

    def finds(self, automaton: _Automaton, place: int) -> bool:
        """Return whether anything at all matches from a place on."""
        key = automaton, place
        if key not in self._found:
            self._found[key] = self.longest(automaton, place, any_will_do=True) >= 0
        return self._found[key]

    def longest(self, automaton: _Automaton, start: int, any_will_do: bool = False) -> int:
        """Return where the token ends that `re` would find at a place; -1: there is none."""
        text, state, end = self.text, automaton.first, -1
        in_vain = self._in_vain
        trail: list[tuple[_Automaton, int, int]] = []
        place = start
        for place in range(start, len(text) + 1):
            character = text[place] if place < len(text) else ""
            key: Any = character
            answers: Sequence[bool] = ()
            if state.asked:
                answers = tuple(node.ask(self, place) for node in state.asked if node.ask is not None)
                key = character, answers
            move = state.moves.get(key)
            if move is None:
                self._count(100)
                move = automaton.move(state, key, character, answers)
            ends, following = move
            if ends:
                end = place
                trail.clear()
                if any_will_do:
                    break
            if following is None:
                break
            state = following
            if place - max(end, start) >= self.FAR:
                visit = automaton, state.number, place
                if visit in in_vain:
                    break
                trail.append(visit)
        in_vain.update(trail)
        self._count(place - start + 1)
        return end

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > self.CHECK_EVERY:
            self._steps = 0
            if time.thread_time() > self._deadline:
                self._give_up(self.text)


def _compile_alone(item: tuple[Any, Any], flags: int) -> re.Pattern[str]:
    """Compile one parsed item of an expression by itself, so that it means what it meant there."""
    state = sre_parser.State()
    state.flags = flags
    made: re.Pattern[str] = sre_compiler.compile(sre_parser.SubPattern(state, [item]), flags)
    return made


def _matches(made: re.Pattern[str], character: str) -> bool:
    return made.match(character) is not None
