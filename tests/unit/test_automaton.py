"""Expressions that make `re` backtrack for ever end in time, on any thread, and mean the same as in `re`."""

import contextlib
import signal
import threading
import time

import pytest

from seq2see import automaton
from seq2see.automaton import Matcher
from seq2see.errors import SettingError
from seq2see.tokens import tokenizers

CATASTROPHIC = [
    ("(?:[a-z]+)+!", "a"),
    ("(a+)+b", "a"),
    ("(a|a)*b|a", "a"),
    ("(a|aa)+b", "a"),
    ("(a*)*b", "a"),
    ("(?:(?:a*)*)*b", "a"),
    ("(?:a?b?)*c", "ab"),
    (r"(\w+\s?)+$!", "ab "),
    (r"\w*\w*\w*\w*\w*!", "a"),
    ("[a-z]+!|[a-z]", "a"),
    ("(?=(a+)+b)a|aa", "a"),
    ("(?!(a|a)+b)aa", "a"),
    ("(?:a|b)*a(?:a|b){9}c", "aab"),
    (".*.*.*=.*;", "ab"),
    ("(?i:(A+)+)B", "aA"),
]


@pytest.mark.parametrize(("expression", "repeated"), CATASTROPHIC)
def test_no_backtracking(expression: str, repeated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these takes `re` hours or more; here the time grows as the text does."""
    monkeypatch.setattr(automaton, "PATIENCE", 60.0)  # the bound is not what ends it
    text = repeated * (3000 // len(repeated))
    begin = time.thread_time()
    assert "".join(Matcher(expression).cut(text)) == text
    assert time.thread_time() - begin < 10


@pytest.mark.parametrize("expression", ["(?:||){60}x", "(?:(?:|){30}){30}x", "(?:a?){60}x", "(?:^|){60}x"])
def test_nothing_is_matched_in_time(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "PATIENCE", 0.05)
    begin = time.thread_time()
    with contextlib.suppress(SettingError):
        assert not Matcher(expression).matches_nothing()
    assert time.thread_time() - begin < 5


TIMED = [(r"(a+)\1*\1*\1*b", "a" * 3000), (r"(a)?(?:a+)+(?(1)b|c)", "a" * 60), ("(?:a{1,60}){1,90}b", "a" * 3000)]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such timers on Windows")
@pytest.mark.parametrize(("expression", "text"), TIMED)
def test_what_needs_backtracking_is_given_up(expression: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "PATIENCE", 0.05)
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(SettingError, match=r"^pattern .*takes longer than .* characters that begins 'aaa") as told:
        tokenizers.train("pattern", ["fine", text], 50, pattern=expression)
    assert "\n" not in str(told.value)
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def test_a_slow_automaton_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every set of the last 40 letters is a state of its own, so that each character takes long."""
    monkeypatch.setattr(automaton, "PATIENCE", 0.0)
    text = "".join("ab"[number * number % 7 % 2] + "ab"[number.bit_count() % 2] for number in range(10_000))
    matcher = Matcher("(?:a|b)*a(?:a|b){40}c")
    monkeypatch.setattr(automaton, "PATIENCE_FOR_EACH", 1e-6)
    with pytest.raises(SettingError, match="takes longer"):
        matcher.cut(text)


def in_a_thread(expression: str, text: str) -> list[object]:
    found: list[object] = []

    def work() -> None:
        try:
            found.extend(tokenizers.train("pattern", [text], 50, pattern=expression).encode([text]))
        except SettingError as problem:
            found.append(str(problem))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found


def test_the_limit_holds_in_any_thread() -> None:
    assert in_a_thread("(?:[a-z]+)+!", "a" * 40) == [[4] * 40]
    (told,) = in_a_thread(r"(a+)\1+b", "a" * 40)
    assert "a backreference can only be matched in the main thread" in str(told)


@pytest.mark.parametrize(
    ("expression", "text", "pieces"),
    [
        (r"([a-z])\1+", "aabccc", ["aa", "b", "ccc"]),
        ("(?>a+)b", "aab", ["aab"]),
        ("a++b", "aaab", ["aaab"]),
        (r"\s+(?!\S)|\s|\w+", "ab   c", ["ab", "  ", " ", "c"]),
        (r"(?<=\d)[a-z]+|\d", "ab1cd", ["a", "b", "1", "cd"]),
        (r"\b|\w+", "ab cd", ["ab", " ", "cd"]),
        ("(?m:^a$)|.b", "a\nab", ["a", "\n", "ab"]),
        ("(?s:.b)|.", "\nb\n", ["\nb", "\n"]),
        ("(?x: a  b )", "ab ", ["ab", " "]),
        ("(?a:\\w+)", "é1a", ["é", "1a"]),
        ("(?i)STRASSE|ß|k", "straSSe\u212a", ["straSSe", "\u212a"]),
        ("[^\\W\\d_]+", "é1ß_각", ["é", "1", "ß", "_", "각"]),
        ("a(?!)|ab", "aab", ["a", "ab"]),
    ],
)
def test_features_of_expressions(expression: str, text: str, pieces: list[str]) -> None:
    assert Matcher(expression).cut(text) == pieces


def test_moves_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "MOST_MOVES", 50)
    matcher = Matcher(r"\w\d|\w")
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    assert matcher.cut(text + "a1") == [*text, "a1"]
    assert matcher._automaton is not None
    assert sum(len(state.moves) for state in matcher._automaton._states.values()) <= 50
