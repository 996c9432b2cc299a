"""Texts are cut into what is translated and what is not, and put together again."""

import contextlib
import html
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.testclient import TestClient

from seq2see.serve import libretranslate
from seq2see.serve.libretranslate import cut, fitting_runs, in_sentences, joined, language_name, parse_multipart
from seq2see.serve.limits import RefusedError
from shouting import Shouting, run


def client(service):
    app = FastAPI()
    app.include_router(libretranslate.routes(service))

    @app.exception_handler(RefusedError)
    async def refused(_, problem):
        return JSONResponse({"error": problem.line}, problem.status)

    return TestClient(app)


def shouted(pieces, format):
    results = [{"translations": [{"text": piece.upper()}]} if is_text else None for piece, is_text in pieces]
    return joined(pieces, results, 1, format)[0]


@given(st.text())
def test_nothing_is_lost(text):
    pieces = cut(text, "text")
    assert "".join(piece for piece, _ in pieces) == text
    assert all(piece.strip() and "\n" not in piece for piece, is_text in pieces if is_text)
    assert not any(piece.strip() for piece, is_text in pieces if not is_text)


@given(st.lists(st.sampled_from(["<b>", "</b>", "<br/>", "a", " b ", "\n", "&amp;", "&lt;", "<", ">", "안녕"])))
def test_tags_stay_as_they_are(parts):
    text = "".join(parts)
    pieces = cut(text, "html")
    assert "<b>" not in [piece for piece, is_text in pieces if is_text]
    back = joined(
        pieces, [{"translations": [{"text": piece}]} if is_text else None for piece, is_text in pieces], 1, "html"
    )[0]
    assert html.unescape(back) == html.unescape(text)


def test_many_blanks_hold_nobody_up():
    text = f"a{' ' * 200_000}b"  # for minutes, were it by the square
    assert cut(text, "text") == [(text, True)]


def test_a_blank_that_is_written_out_stays():
    assert cut("<p>&nbsp;</p>", "html") == [("<p>", False), ("&nbsp;", False), ("</p>", False)]


def test_html_by_hand():
    pieces = cut("<p>one &amp; <b>two</b>\n three</p>", "html")
    assert [piece for piece, is_text in pieces if is_text] == ["one &", "two", "three"]
    assert shouted(pieces, "html") == "<p>ONE &amp; <b>TWO</b>\n THREE</p>"


def test_where_there_are_fewer_translations_the_last_serves():
    results = [{"translations": [{"text": "A"}, {"text": "B"}]}]
    assert joined([("a", True)], results, 3, "text") == ["A", "B", "B"]


@given(st.dictionaries(st.text("abc", min_size=1), st.text().filter(lambda text: "--x" not in text), max_size=5))
def test_a_form_as_browsers_send_it(fields):
    parts = [f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}' for name, value in fields.items()]
    body = "".join(f"{part}\r\n" for part in parts) + "--x--\r\n"
    found = parse_multipart(body.encode(), "multipart/form-data; boundary=x")
    assert found == {name: [value] for name, value in fields.items()}


@given(st.binary())
def test_whatever_is_sent_as_a_form_it_is_read_or_refused(body):
    for boundary in (body[:9].decode("latin-1"), "x"):
        with contextlib.suppress(ValueError):
            parse_multipart(body, f"multipart/form-data; boundary={boundary}")


def test_languages_choose_the_run():
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
        assert fitting_runs(service.runs, *asked)[0] == expected
    for asked in (("ko", "de"), ("en", "xx"), ("\u202e", "\0")):
        with pytest.raises(RefusedError) as refused:
            fitting_runs(service.runs, *asked)
        assert refused.value.status == 400
        assert refused.value.line.isprintable()
    service.runs["anything"] = run(None, None)
    assert fitting_runs(service.runs, "ko", "xx") == [("anything", None)]


def test_a_run_that_knows_its_languages_comes_before_one_that_does_not():
    runs = {"anything": run(None, None), "half": run(None, "de"), "own": run("en", "de")}
    service = SimpleNamespace(runs=runs)
    assert fitting_runs(service.runs, "en", "de") == [("own", None)]
    assert fitting_runs(service.runs, "fr", "de") == [("half", None)]
    assert fitting_runs(service.runs, "fr", "ko") == [("anything", None)]


def test_the_language_is_found_out_where_several_runs_would_do():
    service = Shouting({"one": "abc ", "two": "xyz "}, one=("en", "de"), two=("fr", "de"))
    answer = client(service).post("/translate", json={"q": "zyx", "source": "auto", "target": "de"}).json()
    assert answer == {"translatedText": "ZYX", "detectedLanguage": {"confidence": 100.0, "language": "fr"}}
    answer = client(service).post("/translate", json={"q": ["ab", "xy", "c\nab"], "target": "de"}).json()
    assert answer["translatedText"] == ["AB", "XY", "C\nAB"]
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "fr", "en"]
    assert service.asked == [("two", ["zyx"]), ("one", ["ab", "c", "ab"]), ("two", ["xy"])]
    html = {"q": "<abc>x</abc>", "target": "de", "format": "html"}
    assert client(service).post("/translate", json=html).json()["detectedLanguage"]["language"] == "fr"


def test_texts_are_counted_not_their_lines():
    service = Shouting(one=("en", "de"))
    lines = "\n".join("abcdefg")
    assert client(service).post("/translate", json={"q": lines}).json()["translatedText"] == lines.upper()
    assert [len(texts) for _, texts in service.asked] == [3, 3, 1]
    refused = client(service).post("/translate", json={"q": ["a"] * 4})
    assert (refused.status_code, refused.json()) == (413, {"error": "4 texts: at most 3 in a request"})
    assert client(service).post("/translate", json={"q": "a" * 201}).status_code == 413


def test_a_long_line_is_translated_sentence_by_sentence():
    service = Shouting(one=("en", "de"))
    text = "One is short.  Two (it is said!) is longer... Is three? 四。五！Six v1.0 ends"
    answer = client(service).post("/translate", json={"q": text}).json()
    assert answer["translatedText"] == text.upper()
    said = [line for _, lines in service.asked for line in lines]
    assert said == ["One is short.", "Two (it is said!)", "is longer...", "Is three?", "四。", "五！", "Six v1.0 ends"]
    assert client(service).post("/translate", json={"q": "One. Two."}).status_code == 200
    assert service.asked[-1] == ("one", ["One. Two."])  # short enough as it is


def test_what_would_be_lost_is_refused():
    refused = client(Shouting(one=("en", "de"))).post("/translate", json={"q": f"One. {'a' * 50}."})
    assert refused.status_code == 413
    assert refused.json()["error"] == (
        "q: a sentence of 51 characters is longer than the model reads (40 tokens). Send it in parts"
    )


@given(st.text(), st.integers(0, 20))
def test_sentences_hold_all_of_the_text(text, room):
    pieces = in_sentences(cut(text, "text"), room)
    assert "".join(piece for piece, _ in pieces) == text


def test_sentences_without_blanks_between_them_get_some_where_they_are_needed():
    pieces = in_sentences([("一。二。", True)], 1)
    results = [{"translations": [{"text": text}, {"text": f"{text[0]}。"}]} for text in ("One.", "Two.")]
    assert joined(pieces, results, 2, "text") == ["One. Two.", "O。T。"]


def test_what_nobody_reads_of_a_page_is_left_alone():
    page = "<style>p {}</style><!-- a <b>note</b> --><SCRIPT>if (a < b) c()</SCRIPT ><p>one</p><script>two"
    pieces = cut(page, "html")
    assert [piece for piece, is_text in pieces if is_text] == ["one"]
    assert "".join(piece for piece, _ in pieces) == page


@pytest.mark.parametrize("way", ["json", "form", "query", "half"])
def test_empty_fields_count_as_not_sent_and_the_query_is_read(way):
    service = Shouting(one=("en", "de"))
    fields = {"q": "ab", "source": "", "target": "", "format": "", "alternatives": "1", "api_key": "sesame"}
    ask = client(service).post
    answer = {
        "json": lambda: ask("/translate", json=fields | {"format": None, "source": None}),
        "form": lambda: ask("/translate", data=fields),
        "query": lambda: ask(f"/translate?{urlencode(fields)}"),
        "half": lambda: ask("/translate?api_key=sesame&alternatives=1&q=no", json={"q": "ab"}),
    }[way]()
    assert answer.json() == {
        "translatedText": "AB",
        "detectedLanguage": {"confidence": 100.0, "language": "en"},
        "alternatives": ["AB"],
    }
    assert service.key == "sesame"
    assert ask("/translate", json={"q": ""}).json()["translatedText"] == ""
    assert ask("/translate", json={"q": None}).status_code == 400
    assert ask("/translate").status_code == 400
    assert ask("/translate?q=%ff").status_code == 400


def test_names_of_languages():
    assert [language_name(code) for code in ("de", "ko-KR", "und", "xx")] == [
        "German",
        "Korean (South Korea)",
        "Unknown",
        "xx",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("&#" + "9" * 5000 + ";", "\ufffd"),
        ("&#" + "0" * 5000 + "65;b", "Ab"),
        ("&#" + "0" * 5000 + ";", "\ufffd"),
        ("&#65;&#x42;&amp;&#67 &#1114112;&#55296;", "AB&C \ufffd\ufffd"),
        ("&#x" + "f" * 5000 + ";", "\ufffd"),
        ("&#;&#x;&#", "&#;&#x;&#"),
    ],
)
def test_numbers_of_characters_may_have_any_length(text, expected):
    assert cut(text, "html") == [(expected, True)]
