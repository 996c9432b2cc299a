"""Whatever the expression and the text, the automaton cuts as `re` does: runs that were trained with `re` go on."""

import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2see import patterns
from seq2see.automaton import Matcher

ALPHABET = "aabbc1éA \n"
CLASSES = ["a", "b", "1", "é", "A", " ", ".", r"\w", r"\d", r"\s", r"\W", "[ab]", "[^a]", "[a-c1]"]
PLACES = ["^", "$", r"\b", r"\B", r"\A", r"\Z", "(?<=a)", "(?<!ab)", r"(?<=\w)"]
REPEATS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}", "{2,}", "{1,2}?"]


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.lists(inner | st.just(""), min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(REPEATS)).map(lambda parts: f"(?:{parts[0]}){parts[1]}"),
        st.tuples(st.sampled_from(["(?=", "(?!", "(?i:", "(", "(?s:", "(?m:"]), inner).map(
            lambda parts: f"{parts[0]}{parts[1]})"
        ),
    )


expressions = st.recursive(st.sampled_from(CLASSES) | st.sampled_from(PLACES), larger, max_leaves=8)


def cut_by_re(expression: str, text: str) -> list[str]:
    """Cut as 0.1.0 did."""
    pieces: list[str] = []
    end = 0
    for match in re.compile(expression).finditer(text):
        if match[0]:
            pieces += text[end : match.start()]
            pieces.append(match[0])
            end = match.end()
    pieces += text[end:]
    return pieces


def compare(expression: str, texts: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matcher = Matcher(expression)
        for text in texts:
            assert matcher.cut(text) == cut_by_re(expression, text)


texts = st.lists(st.text(ALPHABET, max_size=14), min_size=1, max_size=5)


@given(expressions, texts)
@settings(max_examples=300, deadline=None)
def test_the_automaton_is_re(expression: str, texts: list[str]) -> None:
    compare(expression, texts)


@pytest.mark.slow
@given(expressions, texts)
@settings(max_examples=20_000, deadline=None)
def test_the_automaton_is_re_in_many_cases(expression: str, texts: list[str]) -> None:
    compare(expression, texts)


USUAL = [
    *(named.expression for named in patterns.NAMED.values()),
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?[^\s\w]+|\s+(?!\S)|\s+",
    r"\w+|[^\w\s]",
    r"\d{1,3}(?:,\d{3})*(?:\.\d+)?|\w+",
    r"https?://\S+|\S+@\S+\.\w+|\w+",
    r"[가-힣]+|[a-zA-Z]+|\d",
    r"<[^>]+>|[^<\s]+",
    r"(?i)[aeiou]+|[^aeiou\s]+",
]


@pytest.mark.parametrize("expression", USUAL)
@given(st.lists(st.text(max_size=60) | st.text("aA1é각 <>.,'@:/[]()=#+-%C\t\n", max_size=80), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_usual_expressions_cut_as_before(expression: str, texts: list[str]) -> None:
    compare(expression, texts)
