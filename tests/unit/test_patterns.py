"""Patterns cut as they say and in limited time; faulty ones are refused in one line; SMILES is known by its rules."""

import contextlib
import re
import signal
import threading
import time
import warnings

import pytest

from seq2see import patterns
from seq2see.errors import RunError, SettingError
from seq2see.patterns import Matcher
from seq2see.tokens import tokenizers


def found(name: str, text: str) -> list[str]:
    """Return the tokens; the characters between them, which are tokens too, are left out by comparing with `re`."""
    cut = patterns.compiled(name, "here").cut(text)
    matched = re.findall(patterns.expression(name), text)
    assert "".join(cut) == text
    return [piece for piece in cut if piece in matched]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("CC(=O)Oc1ccccc1", "C C ( = O ) O c 1 c c c c c 1"),
        ("BrCClBC", "Br C Cl B C"),
        ("N[C@@H](C)C(=O)O", "N [C@@H] ( C ) C ( = O ) O"),
        ("[13CH3][NH4+].[Cl-]", "[13CH3] [NH4+] . [Cl-]"),
        ("C%12CC%12C%(103)", "C %12 C C %12 C %(103)"),
        (r"F/C=C\F", r"F / C = C \ F"),
        ("CO>>C=O", "C O >> C = O"),
        ("CO>[Pd]>C$C", "C O > [Pd] > C $ C"),
        ("N@@1@", "N @@ 1 @"),
    ],
)
def test_smiles(text: str, tokens: str) -> None:
    assert found("smiles", text) == tokens.split()


def test_words() -> None:
    assert found("words", "It's  42 e\u0301te\u0301s_각") == ["It", "s", "  ", "42", " ", "e\u0301te\u0301s", "각"]


def test_code() -> None:
    assert found("code", "\tx_1 += 0xFF ** 1.5e-3\n  y->z") == [
        *("\t", "x_1", " ", "+=", " ", "0xFF", " ", "**", " ", "1.5e-3", "\n", "  ", "y", "->", "z"),
    ]


@pytest.mark.parametrize("named", patterns.NAMED.values(), ids=patterns.NAMED.keys())
def test_every_named_pattern_has_a_line_and_no_groups(named: patterns.Named) -> None:
    assert named.about
    assert "\n" not in named.about
    assert re.compile(named.expression).groups == 0


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("[a-", "not a regular expression: unterminated character set at character 1"),
        ("ab)", "not a regular expression: unbalanced parenthesis at character 3"),
        ("*", "not a regular expression: nothing to repeat at character 1"),
        ("\\", "not a regular expression: bad escape (end of pattern) at character 1"),
        ("a{99999999999999999999}", "this regular expression is too large. Shorten it, or lower its repeat counts"),
        ("a*", "matches the empty text. A token needs at least one character: use + instead of *"),
        ("|a", "matches the empty text. A token needs at least one character: use + instead of *"),
        ("smile", "no such pattern. Did you mean 'smiles'? Or write a regular expression"),
    ],
)
def test_a_faulty_pattern_is_one_clear_line(pattern: str, message: str) -> None:
    with pytest.raises(SettingError) as raised:
        patterns.compiled(pattern, "data.source_pattern")
    assert str(raised.value) == f"data.source_pattern = {pattern!r}: {message}"


def test_very_deep_brackets_are_refused() -> None:
    with pytest.raises(SettingError, match="too large"):
        patterns.compiled("(" * 1900 + "a" + ")" * 1900, "here")


def test_a_very_long_pattern_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^here: 5,000 characters are too long for a pattern, at most 4,000$"):
        patterns.compiled("a|" * 2500, "here")


def test_a_doubtful_pattern_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert patterns.compiled("[[a]+", "here").cut("[a!") == ["[a", "!"]


@pytest.mark.parametrize(
    "text",
    ["C", "CCO", "c1ccccc1", "CC(=O)Oc1ccccc1C(=O)O", "[Na+].[Cl-]", "N[C@@H](C)C(=O)O", r"F/C=C\F", "C=1CCCCC=1",
     "C%12CCCC%12", "C12CC1CC2", "CO>>C=O", "CO.N>[Pd]>CN", "C.C>O", "CO>>", "[2H]C", "[Fe+++]", "[nH]1cccc1",
     "[CH3:7][OH:2]", "[Co@OH12]", "*C", "C1.C1", "CC(C)(C)C", "C(.O)C"],
)  # fmt: skip
def test_molecules_and_reactions(text: str) -> None:
    assert patterns.is_smiles(text)
    assert "".join(found("smiles", text)) == text


@pytest.mark.parametrize(
    "text",
    ["", ">", ">>", "C C", "C1CC", "C(C", "CC)", "C()C", "(C)C", "C=", "=C", "C..C", ".C", "C.", "1CC1", "C(1)1", "[C",
     "[PERSON]", "[]", "C>C>C>C", "CX", "C6H6", "hello", "3-2", "2011-12-03", "한", "C\n", "C%1", "C==C"],
)  # fmt: skip
def test_what_is_no_molecule(text: str) -> None:
    assert not patterns.is_smiles(text)


CATASTROPHIC = [
    ("(?:[a-z]+)+!", "a"),
    ("(a|a)*b|a", "a"),
    ("(a*)*b", "a"),
    (r"(\w+\s?)+$!", "ab "),
    (r"\w*\w*\w*\w*\w*!", "a"),
    ("(?=(a+)+b)a|aa", "a"),
    (".*.*.*=.*;", "ab"),
    (r"(a+)\1*\1*\1*b", "a"),
    (r"(a)?(?:a+)+(?(1)b|c)", "a"),
    ("(?:a{1,60}){1,90}b", "a"),
]


@pytest.mark.parametrize(("expression", "repeated"), CATASTROPHIC)
def test_what_takes_too_long_is_given_up(expression: str, repeated: str) -> None:
    """Each of these takes `re` minutes or far more."""
    before = signal.getsignal(signal.SIGVTALRM)
    begin = time.thread_time()
    with pytest.raises(SettingError, match=r"^pattern .*takes longer than .* characters that begins 'a") as told:
        tokenizers.train("pattern", ["fine", repeated * (6000 // len(repeated))], 50, pattern=expression)
    assert time.thread_time() - begin < 5
    assert "\n" not in str(told.value)
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


@pytest.mark.parametrize("expression", ["(?:||){60}x", "(?:(?:|){30}){30}x", "(?:^|){60}(?=x)", "(?:||){60}(?!)"])
def test_the_check_of_a_pattern_ends_in_time(expression: str) -> None:
    begin = time.thread_time()
    with contextlib.suppress(SettingError):
        patterns.compiled(expression, "here")
    assert time.thread_time() - begin < 5


def test_time_that_other_threads_take_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "PATIENCE", 0.05)
    text = "a" * 3000  # takes `re` about 20 milliseconds
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(1000))

    other = threading.Thread(target=compute)
    other.start()
    try:
        for _ in range(5):
            assert Matcher("[a-z]+!|[a-z]").cut(text) == list(text)
    finally:
        ended.set()
        other.join()


def in_a_thread(expression: str, text: str) -> list[object]:
    found: list[object] = []

    def work() -> None:
        try:
            found.extend(Matcher(expression).cut(text))
        except (RunError, SettingError) as problem:
            found.append(str(problem))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found


def test_the_limit_holds_in_any_thread() -> None:
    assert in_a_thread(r"([a-z])\1+", "aabccc") == ["aa", "b", "ccc"]
    (told,) = in_a_thread("(?:[a-z]+)+!", "a" * 40)
    assert "takes longer than" in str(told)
    assert in_a_thread(r"\d+", "a12") == ["a", "12"]


def test_a_worker_that_has_died_is_replaced() -> None:
    assert in_a_thread(r"\d+", "a12") == ["a", "12"]
    (worker,) = patterns._workers.values()
    worker._process.kill()
    (told,) = in_a_thread(r"\d+", "a12")
    assert "a worker process ended" in str(told)
    assert in_a_thread(r"\d+", "a12") == ["a", "12"]


@pytest.mark.parametrize(
    ("expression", "text", "tokens"),
    [
        (r"([a-z])\1+", "aabccc", ["aa", "b", "ccc"]),
        ("(?>a+)b", "aab", ["aab"]),
        ("a++b", "aaab", ["aaab"]),
        (r"\s+(?!\S)|\s|\w+", "ab   c", ["ab", "  ", " ", "c"]),
        (r"(?<=\d)[a-z]+|\d", "ab1cd", ["a", "b", "1", "cd"]),
        (r"\b|\w+", "ab cd", ["ab", " ", "cd"]),
        ("(?m:^a$)|.b", "a\nab", ["a", "\n", "ab"]),
        ("(?x: a  b )", "ab ", ["ab", " "]),
        ("[^\\W\\d_]+", "é1ß_각", ["é", "1", "ß", "_", "각"]),
    ],
)
def test_features_of_expressions(expression: str, text: str, tokens: list[str]) -> None:
    assert Matcher(expression).cut(text) == tokens
