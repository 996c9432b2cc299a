"""Texts are cut into what is translated and what is not, and put together again."""

import contextlib
import dataclasses
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
from seq2see.serve.libretranslate import MOST_FIELDS, fitting_runs, language_name, parse_multipart
from seq2see.serve.limits import RefusedError
from shouting import Shouting, run


def client(service):
    app = FastAPI()
    app.include_router(libretranslate.routes(service))

    @app.exception_handler(RefusedError)
    async def refused(_, problem):
        return JSONResponse({"error": problem.line}, problem.status)

    return TestClient(app)


@given(st.dictionaries(st.text("abc", min_size=1), st.text().filter(lambda text: "--x" not in text), max_size=5))
def test_a_form_as_browsers_send_it(fields):
    parts = [f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}' for name, value in fields.items()]
    body = "".join(f"{part}\r\n" for part in parts) + "--x--\r\n"
    found = parse_multipart(body.encode(), "multipart/form-data; boundary=x")
    assert found == {name: [value] for name, value in fields.items()}


def test_a_multipart_form_with_too_many_fields_is_refused() -> None:
    part = '--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n'
    full = parse_multipart((part * MOST_FIELDS + "--x--\r\n").encode(), "multipart/form-data; boundary=x")
    assert full == {"q": ["a"] * MOST_FIELDS}
    with pytest.raises(ValueError, match="more than 1,000 fields"):
        parse_multipart((part * (MOST_FIELDS + 1) + "--x--\r\n").encode(), "multipart/form-data; boundary=x")


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
    assert service.asked == [("two", ["zyx"]), ("one", ["ab", "c"]), ("two", ["xy"])]
    html = {"q": "<abc>x</abc>", "target": "de", "format": "html"}
    assert client(service).post("/translate", json=html).json()["detectedLanguage"]["language"] == "fr"


def test_texts_are_counted_not_their_lines():
    service = Shouting(one=("en", "de"))
    lines = "\n\n".join("abcdefg")
    assert client(service).post("/translate", json={"q": lines}).json()["translatedText"] == lines.upper()
    assert [len(texts) for _, texts in service.asked] == [3, 3, 1]
    refused = client(service).post("/translate", json={"q": ["a"] * 4})
    assert (refused.status_code, refused.json()) == (413, {"error": "4 texts: at most 3 in a request"})
    assert client(service).post("/translate", json={"q": "a" * 201}).status_code == 413


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


def translated(text, service=None, **fields):
    service = service or Shouting(one=("en", "de"))
    answer = client(service).post("/translate", json={"q": text, **fields})
    assert answer.status_code == 200
    return answer.json()["translatedText"]


def test_tags_return_to_their_words_and_placeholders_stay():
    service = Shouting(one=("en", "de"))
    page = "<p>Click <b>the red</b>\nbutton. <code>x</code></p><script>two</script>"
    assert translated(page, service, format="html") == (
        "<p>CLICK <b>THE RED</b>\nBUTTON. <code>x</code></p><script>two</script>"
    )
    assert service.asked == [("one", ["Click the red button."])]
    assert translated("Hello %s &amp;", format="html") == "HELLO %s &amp;"
    assert translated("Hello {{name}} & all") == "HELLO {{name}} & ALL"


def test_texts_are_translated_sentence_by_sentence_and_a_repeated_one_once():
    service = Shouting(one=("en", "de"))
    text = "One is short.  Two is longer... Is three? \n\n One is short."
    assert translated(text, service) == text.upper()
    said = [line for _, lines in service.asked for line in lines]
    assert said == ["One is short.", "Two is longer...", "Is three?"]


def test_nothing_of_a_long_sentence_is_lost():
    text = f"One, {'a' * 50} and two, three or four words."
    assert translated(text) == text.upper()


def test_where_there_is_no_pytorch_tags_keep_their_order():
    service = Shouting(one=("en", "de"))
    service._has_torch = False
    assert translated("one <b>two</b> three", service, format="html") == "ONE <b>TWO</b> THREE"


def test_a_cache_that_is_switched_on_spares_work_and_is_bounded():
    service = Shouting(one=("en", "de"))
    assert [translated("One.", service), translated("One.", service)] == ["ONE."] * 2
    assert len(service.asked) == 2  # it is off
    service.limits = dataclasses.replace(service.limits, cached=2)
    for text in ("One.", "Two.", "One.", "Three.", "One.", "Two."):
        assert translated(text, service) == text.upper()
    assert [lines for _, lines in service.asked[2:]] == [["One."], ["Two."], ["Three."], ["Two."]]
    assert len(service.kept) == 2
