"""DeepL's routes without engines: fields of JSON and forms, options, and errors in DeepL's form."""

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from starlette.testclient import TestClient

from seq2see.serve import app, bodies
from seq2see.serve.deepl.routes import MOST_CLIENTS, CharacterCounts
from seq2see.serve.service import CLIENT
from shouting import Shouting


class Answers(Shouting):
    """A service that writes everything large, with what a whole app needs besides."""

    def __init__(self, **languages):
        super().__init__(**languages)
        self.lanes = []
        self.keys = self.rates = None


@pytest.fixture
def service():
    return Answers(german=("en", "de"), portuguese=("de", "pt"))


@pytest.fixture
def client(service):
    routes = app.build(service)._app
    assert isinstance(routes, bodies.Described)

    async def with_client(scope, receive, send):
        await routes({**scope, CLIENT: "somebody"}, receive, send)

    return TestClient(with_client, raise_server_exceptions=False)


def test_json_and_forms(client):
    expected = {"translations": [{"detected_source_language": "EN", "text": "A B"}]}
    fields = {"text": "a b", "source_lang": "EN", "target_lang": "DE"}
    assert client.post("/v2/translate", json={**fields, "text": ["a b"]}).json() == expected
    assert client.post("/v2/translate", data=fields).json() == expected
    several = client.post("/v2/translate", data={**fields, "text": ["a", "b"], "show_billed_characters": "1"}).json()
    assert [each["text"] for each in several["translations"]] == ["A", "B"]
    assert [each["billed_characters"] for each in several["translations"]] == [1, 1]


@pytest.mark.parametrize(
    ("split", "asked"),
    [
        (None, ["ONE", "two.", "Three."]),
        ("0", ["ONE two. Three."]),
        ("nonewlines", ["ONE two.", "Three."]),
    ],
)
def test_where_texts_are_cut(client, service, split, asked):
    fields = {"text": ["ONE\ntwo. Three."], "target_lang": "DE", "split_sentences": split}
    assert client.post("/v2/translate", json=fields).status_code == 200
    assert service.asked == [("german", asked)]


def test_html_is_translated_between_tags(client):
    fields = {"text": ["<p>a &amp; b</p>"], "target_lang": "DE", "tag_handling": "html"}
    (found,) = client.post("/v2/translate", json=fields).json()["translations"]
    assert found["text"] == "<p>A &amp; B</p>"


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("<x>a <y>b</y></x>", {"tag_handling": "xml"}, "<x>A <y>B</y></x>"),
        ("<x>a <y>b</y></x>", {"tag_handling": "xml", "ignore_tags": ["Y", "z"]}, "<x>A <y>b</y></x>"),
        ("<p>a</p><b>b</b>", {"tag_handling": "html", "ignore_tags": "p, i"}, "<p>a</p><b>B</b>"),
        ("a &lt; <y>b</y>", {}, "A &LT; <Y>B</Y>"),
    ],
)
def test_tags_are_handled_where_this_is_asked_for(client, text, options, expected):
    fields = {"text": text, "target_lang": "DE", **options}
    for found in (client.post("/v2/translate", json=fields), client.post("/v2/translate", data=fields)):
        assert found.json()["translations"][0]["text"] == expected


@pytest.mark.parametrize(("option", "sentences"), [("splitting_tags", 2), ("non_splitting_tags", 1)])
def test_tags_may_end_a_sentence_or_not(client, service, option, sentences):
    fields = {"text": ["<x>one <y>two</y></x>"], "target_lang": "DE", "tag_handling": "xml", option: ["y"]}
    assert client.post("/v2/translate", json=fields).status_code == 200
    assert sum(len(lines) for _, lines in service.asked) == sentences


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "text: Field required"),
        ({"text": ["a"]}, "target_lang: Field required"),
        ({"text": ["a"], "target_lang": "DE", "formality": "less"}, "formality: runs cannot choose it"),
        ({"text": ["a"], "target_lang": "DE", "context": "b"}, "context: not supported by this server. Leave it out"),
        ({"text": ["a"], "target_lang": "DE", "glossary_ids": ["1"]}, "glossary_ids: not supported by this server"),
        ({"text": ["a"], "target_lang": "DE", "outline_detection": False}, "outline_detection: cannot be switched off"),
        ({"text": ["a"], "target_lang": "DE", "ignore_tags": [""] * 1001}, "ignore_tags"),
        ({"text": ["a"], "target_lang": "DE", "colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"text": ["a"], "target_lang": "FR"}, "no model translates from 'auto' to 'fr'"),
        ({"text": [], "target_lang": "DE"}, "the list of texts is empty"),
        ({"text": [1], "target_lang": "DE"}, "text"),
        ([], "the body: expected an object"),
    ],
)
def test_a_wrong_request_is_refused_in_the_form_of_deepl(client, fields, message):
    found = client.post("/v2/translate", json=fields)
    assert found.status_code == 400
    assert found.json()["message"].startswith(message)


def test_other_errors_have_the_form_of_deepl(client):
    assert client.post("/v2/translate", content=b"{", headers={"content-type": "application/json"}).json() == {
        "message": "the body is not JSON"
    }
    assert client.get("/v2/nowhere").json() == {"message": "Not Found"}
    assert client.get("/v1/nowhere").json() == {"error": "Not Found"}
    too_many = client.post("/v2/translate", json={"text": ["a"] * 4, "target_lang": "DE"})
    assert (too_many.status_code, list(too_many.json())) == (413, ["message"])


def test_targets_have_the_regions_that_the_clients_of_deepl_require(client):
    assert [each["language"] for each in client.get("/v2/languages").json()] == ["EN", "DE"]
    targets = client.get("/v2/languages", params={"type": "target"}).json()
    assert [each["language"] for each in targets] == ["DE", "PT-BR", "PT-PT"]
    assert targets[1]["name"] == "Portuguese (Brazil)"
    for target in ("PT-BR", "PT-PT", "pt"):
        fields = {"text": ["a"], "source_lang": "DE", "target_lang": target}
        assert client.post("/v2/translate", json=fields).status_code == 200
    assert client.get("/v2/languages", params={"type": "all"}).status_code == 400


def test_characters_are_counted_for_a_limited_number_of_clients():
    counts = CharacterCounts()
    for number in range(MOST_CLIENTS + 1):
        counts.add(f"client {number}", 2)
    counts.add("client 1", 3)
    assert [counts.of(f"client {number}") for number in (0, 1, MOST_CLIENTS)] == [0, 5, 2]
