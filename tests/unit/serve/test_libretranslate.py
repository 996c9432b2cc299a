"""Texts are cut into what is translated and what is not, and put together again."""

import contextlib
import html
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from seq2see.data.pair import Sides
from seq2see.serve.libretranslate import _chosen, _cut, _joined, _multipart, _name
from seq2see.serve.limits import RefusedError


def shouted(pieces, format):
    results = [{"translations": [{"text": piece.upper()}]} if is_text else None for piece, is_text in pieces]
    return _joined(pieces, results, 1, format)[0]


@given(st.text())
def test_nothing_is_lost(text):
    pieces = _cut(text, "text")
    assert "".join(piece for piece, _ in pieces) == text
    assert all(piece.strip() and "\n" not in piece for piece, is_text in pieces if is_text)
    assert not any(piece.strip() for piece, is_text in pieces if not is_text)


@given(st.lists(st.sampled_from(["<b>", "</b>", "<br/>", "a", " b ", "\n", "&amp;", "&lt;", "<", ">", "안녕"])))
def test_tags_stay_as_they_are(parts):
    text = "".join(parts)
    pieces = _cut(text, "html")
    assert "<b>" not in [piece for piece, is_text in pieces if is_text]
    back = _joined(
        pieces, [{"translations": [{"text": piece}]} if is_text else None for piece, is_text in pieces], 1, "html"
    )[0]
    assert html.unescape(back) == html.unescape(text)


def test_html_by_hand():
    pieces = _cut("<p>one &amp; <b>two</b>\n three</p>", "html")
    assert [piece for piece, is_text in pieces if is_text] == ["one &", "two", "three"]
    assert shouted(pieces, "html") == "<p>ONE &amp; <b>TWO</b>\n THREE</p>"


def test_where_there_are_fewer_translations_the_last_serves():
    results = [{"translations": [{"text": "A"}, {"text": "B"}]}]
    assert _joined([("a", True)], results, 3, "text") == ["A", "B", "B"]


@given(st.dictionaries(st.text("abc", min_size=1), st.text().filter(lambda text: "--x" not in text), max_size=5))
def test_a_form_as_browsers_send_it(fields):
    parts = [f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}' for name, value in fields.items()]
    body = "".join(f"{part}\r\n" for part in parts) + "--x--\r\n"
    found = _multipart(body.encode(), "multipart/form-data; boundary=x")
    assert found == {name: [value] for name, value in fields.items()}


@given(st.binary())
def test_whatever_is_sent_as_a_form_it_is_read_or_refused(body):
    for boundary in (body[:9].decode("latin-1"), "x"):
        with contextlib.suppress(ValueError):
            _multipart(body, f"multipart/form-data; boundary={boundary}")


def test_languages_choose_the_run():
    def run(source, target, *tags):
        return SimpleNamespace(languages=Sides(source, target), tags=list(tags))

    service = SimpleNamespace(
        runs={"one": run("en", "de"), "many": run("en", None, "fr", "ko-KR"), "back": run("de", "en")}
    )
    for asked, expected in {
        ("en", "de"): ("one", None),
        ("en-US", "de"): ("one", None),
        ("auto", "de"): ("one", None),
        ("en", "fr"): ("many", "fr"),
        ("auto", "ko"): ("many", "ko-KR"),
        ("de", "en"): ("back", None),
        ("auto", "und"): ("one", None),
    }.items():
        assert _chosen(service, *asked) == expected
    for asked in (("ko", "de"), ("en", "xx"), ("\u202e", "\0")):
        with pytest.raises(RefusedError) as refused:
            _chosen(service, *asked)
        assert refused.value.status == 400
        assert refused.value.line.isprintable()
    service.runs["anything"] = run(None, None)
    assert _chosen(service, "ko", "xx") == ("anything", None)


def test_names_of_languages():
    assert [_name(code) for code in ("de", "ko-KR", "und", "xx")] == ["German", "Korean (South Korea)", "Unknown", "xx"]
