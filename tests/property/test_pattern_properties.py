"""Whatever the text, patterns cut as `re` does, within the limit of time and on any thread."""

import re
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2see import patterns

USUAL = [
    *patterns.NAMED,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?[^\s\w]+|\s+(?!\S)|\s+",
    r"\d{1,3}(?:,\d{3})*(?:\.\d+)?|\w+",
    r"https?://\S+|\S+@\S+\.\w+|\w+",
    r"([a-z])\1+|[가-힣]+|\b",
    r"(?i)[aeiou]++|[^aeiou\s]+",
]


def cut_by_re(expression: str, text: str) -> list[str]:
    """Cut as seq2see 0.1.0 did."""
    pieces: list[str] = []
    end = 0
    for match in re.compile(expression).finditer(text):
        if match[0]:
            pieces += text[end : match.start()]
            pieces.append(match[0])
            end = match.end()
    pieces += text[end:]
    return pieces


@pytest.mark.parametrize("pattern", USUAL)
@given(st.lists(st.text(max_size=60) | st.text("aA1é각 <>.,'@:/[]()=#+-%C\t\n", max_size=80), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_usual_patterns_cut_as_re(pattern: str, texts: list[str]) -> None:
    matcher = patterns.Matcher(patterns.expression(pattern))
    expected = [cut_by_re(matcher.expression, text) for text in texts]
    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.extend(map(matcher.cut, texts)))
    thread.start()
    assert list(map(matcher.cut, texts)) == expected
    thread.join()
    assert found == expected
