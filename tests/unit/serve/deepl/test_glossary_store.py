"""Glossaries of clients: their limits, and that one client does not see those of another."""

import asyncio

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from seq2see.serve.deepl import glossary_store
from seq2see.serve.deepl.glossary_store import GlossaryStore, StoredGlossary
from seq2see.serve.limits import RefusedError


def created(store: GlossaryStore, client: str, entries: str = "house\tHaus", format: str = "tsv") -> StoredGlossary:
    return asyncio.run(store.create(client, "terms", "en", "de", entries, format))


def test_a_glossary_belongs_to_the_client_that_created_it():
    store = GlossaryStore()
    first, second = created(store, "one"), created(store, "one", "cat\tKatze")
    assert store.of("one") == [first, second]
    assert store.of("other") == []
    assert store.find("one", second.id).entries == "cat\tKatze"
    for refused in (store.find, store.delete):
        with pytest.raises(RefusedError, match="there is no glossary with this id") as problem:
            refused("other", first.id)
        assert problem.value.status == 404
    store.delete("one", first.id)
    assert store.of("one") == [second]


@pytest.mark.parametrize(
    ("entries", "format", "message"),
    [
        ("house", "tsv", "entries, line 1: expected two columns"),
        ("a\tb\nhouse\tHaus\tHäuser", "tsv", "entries, line 2: expected two columns"),
        ("house\t ", "tsv", "entries, line 1: expected two columns"),
        ("house\tHaus\nhouse\tGebäude", "tsv", "line 2: 'house' is"),
        ("a,b,en,de,more", "csv", "entries, line 1: expected two columns"),
        ("a\x07\tb", "tsv", "control character"),
        ("\n \n", "tsv", "entries: no terms in it"),
        (f'a,"{"b" * 200_000}"', "csv", "is longer than 200 characters"),
    ],
)
def test_wrong_entries_are_refused_with_their_line(entries, format, message):
    with pytest.raises(RefusedError, match=message) as problem:
        created(GlossaryStore(), "one", entries, format)
    assert problem.value.status == 400


def test_the_number_of_glossaries_and_terms_is_limited(monkeypatch):
    monkeypatch.setattr(glossary_store, "MOST_EACH", 2)
    monkeypatch.setattr(glossary_store, "MOST", 3)
    monkeypatch.setattr(glossary_store, "MOST_TERMS_EACH", 5)
    monkeypatch.setattr(glossary_store, "MOST_TERMS", 8)
    store = GlossaryStore()
    terms = [f"term{number}\tWort{number}" for number in range(6)]

    def refused(client: str, count: int) -> str:
        with pytest.raises(RefusedError) as problem:
            created(store, client, "\n".join(terms[:count]))
        assert problem.value.status == glossary_store.QUOTA
        return problem.value.line

    assert refused("one", 6).startswith("at most 2 glossaries with 5 terms")
    created(store, "one", "\n".join(terms[:4]))
    assert refused("one", 2).startswith("at most 2 glossaries")
    created(store, "one", terms[0])
    assert refused("one", 1).startswith("at most 2 glossaries")
    assert refused("two", 4) == "this server cannot store more glossaries"
    created(store, "two", "\n".join(terms[:3]))
    assert refused("three", 1) == "this server cannot store more glossaries"
    store.delete("two", store.of("two")[0].id)
    created(store, "three", terms[0])


def test_terms_are_found_for_one_request_of_a_client_at_a_time():
    async def found() -> list[list[list[str]]]:
        store = GlossaryStore()
        made = await store.create("one", "terms", "en", "de", "house\tHaus", "tsv")
        asked = [store.find_terms("one", made, [f"The house {number}.", "Nothing."]) for number in range(5)]
        terms = await asyncio.gather(*asked)
        assert not store._turns
        assert not store._waiting
        return [[[term.text for term in line] for line in lines] for lines in terms]

    assert asyncio.run(found()) == [[["house"], []]] * 5
