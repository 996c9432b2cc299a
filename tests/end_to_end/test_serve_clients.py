"""Clients of other services, from PyPI, with a server of ours: `deepl` and `libretranslatepy`."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from serving import Server

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
deepl = pytest.importorskip("deepl", reason="DeepL's client is not installed")
libretranslatepy = pytest.importorskip("libretranslatepy", reason="LibreTranslate's client is not installed")


@pytest.fixture(scope="module")
def english_german(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that writes small letters large, which says that these are English and German."""
    folder = tmp_path_factory.mktemp("clients") / "run"
    shutil.copytree(trained, folder)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["languages"] = {"source": "en", "target": "de"}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def with_keys(english_german: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("secret\nother\n", encoding="utf-8")
    with Server(english_german, "--api-keys", keys, "--quiet") as started:
        yield started


@pytest.fixture
def client(with_keys: Server) -> "deepl.DeepLClient":
    deepl.http_client.max_network_retries = 0
    return deepl.DeepLClient("secret", server_url=with_keys.url)


def test_a_translation_by_the_client_of_deepl(client):
    before = client.get_usage().character.count
    result = client.translate_text("abc", source_lang="EN", target_lang="DE")
    assert (result.text, result.detected_source_lang, result.billed_characters) == ("ABC", "EN", 3)
    several = client.translate_text(["abc", "cab\nabc"], target_lang="DE")
    assert [each.text for each in several] == ["ABC", "CAB\nABC"]
    assert client.get_usage().character.count == before + 13
    assert not client.get_usage().any_limit_reached
    assert deepl.DeepLClient("other", server_url=client.server_url).get_usage().character.count == 0


def test_options_of_the_client_of_deepl(client):
    accepted = {"formality": "prefer_more", "preserve_formatting": True, "split_sentences": "nonewlines"}
    assert client.translate_text("abc", target_lang="DE", model_type="latency_optimized", **accepted).text == "ABC"
    for refused in ({"formality": "more"}, {"context": "a letter"}, {"custom_instructions": ["be kind"]}):
        with pytest.raises(deepl.DeepLException, match=f"Bad request, message: {next(iter(refused))}: "):
            client.translate_text("abc", target_lang="DE", **refused)
    with pytest.raises(deepl.DeepLException, match=r"no model translates from 'auto' to 'fr'\. There is: en to de"):
        client.translate_text("abc", target_lang="FR")


def test_tags_by_the_client_of_deepl(client):
    def translated(text: str, **options: object) -> str:
        return client.translate_text(text, source_lang="EN", target_lang="DE", **options).text

    assert translated("<p>abc</p><p>cab</p>", tag_handling="html") == "<p>ABC</p><p>CAB</p>"
    assert translated("<x><i>abc</i>\n<y>cab</y></x>", tag_handling="xml", ignore_tags=["i"]) == (
        "<x><i>abc</i>\n<y>CAB</y></x>"
    )
    found = translated('<p><b>ab</b> cab <a href="x">dab</a></p>', tag_handling="html")
    assert sorted(re.findall("<[^>]*>", found)) == sorted(["<p>", "<b>", "</b>", '<a href="x">', "</a>", "</p>"])
    made = client.create_glossary("terms", "EN", "DE", {"cab": "XYZ"})
    assert translated("<p>cab</p><p>abc</p>", tag_handling="html", glossary=made) == "<p>XYZ</p><p>ABC</p>"
    client.delete_glossary(made)


def test_languages_by_the_client_of_deepl(client):
    assert [(each.code, each.name) for each in client.get_source_languages()] == [("EN", "English")]
    (target,) = client.get_target_languages()
    assert (target.code, target.name, target.supports_formality) == ("DE", "German", False)


def test_the_client_of_deepl_without_a_key_that_the_server_knows(with_keys: Server):
    with pytest.raises(deepl.AuthorizationException, match="unknown API key"):
        deepl.DeepLClient("wrong", server_url=with_keys.url).translate_text("abc", target_lang="DE")
    assert with_keys.post("/v2/translate", text=["abc"], target_lang="DE").status == 401
    assert with_keys.get("/v2/usage").status == 401


def test_a_translation_by_the_client_of_libretranslate(with_keys: Server):
    client = libretranslatepy.LibreTranslateAPI(with_keys.url, api_key="secret")
    assert client.translate("abc", "en", "de") == "ABC"
    assert client.languages()[0] == {"code": "en", "name": "English", "targets": ["de"]}
    assert client.detect("abc")[0]["language"] == "en"
    with pytest.raises(HTTPError, match="401"):
        libretranslatepy.LibreTranslateAPI(with_keys.url).translate("abc", "en", "de")


def test_glossaries_by_the_client_of_deepl(client):
    assert [(each.source_lang, each.target_lang) for each in client.get_glossary_languages()] == [("en", "de")]
    made = client.create_glossary("terms", "EN", "DE", {"abc": "XYZ", "fed": "FED"})
    assert (made.name, made.ready, made.entry_count) == ("terms", True, 2)
    assert (made.source_lang, made.target_lang) == ("EN", "DE")
    assert client.get_glossary(made.glossary_id).creation_time == made.creation_time
    assert client.get_glossary_entries(made) == {"abc": "XYZ", "fed": "FED"}
    assert [each.glossary_id for each in client.list_glossaries()] == [made.glossary_id]
    several = client.translate_text_with_glossary(["abc", "cab"], made)
    assert [each.text for each in several] == ["XYZ", "CAB"]
    assert client.translate_text("abc", source_lang="EN", target_lang="DE", glossary=made.glossary_id).text == "XYZ"
    with pytest.raises(deepl.GlossaryNotFoundException):
        deepl.DeepLClient("other", server_url=client.server_url).get_glossary(made.glossary_id)
    client.delete_glossary(made)
    assert client.list_glossaries() == []
    with pytest.raises(deepl.DeepLException, match="there is no glossary with this id"):
        client.translate_text("abc", source_lang="EN", target_lang="DE", glossary=made.glossary_id)
    from_file = client.create_glossary_from_csv("table", "EN", "DE", 'abc,"X, Y"\nfed,FED,en,de\n')
    assert client.get_glossary_entries(from_file) == {"abc": "X, Y", "fed": "FED"}
    client.delete_glossary(from_file)
    with pytest.raises(deepl.DeepLException, match="no model translates from 'de' to 'en'"):
        client.create_glossary("terms", "DE", "EN", {"abc": "XYZ"})
