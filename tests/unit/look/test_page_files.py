"""The files of the pages: nothing that they say lacks its Korean."""

import re

import pytest

from seq2see.look import files

OWN = {
    "look": files.read("start.js") + files.read("page.html"),
    "beside": files.read("beside.js") + files.read("beside.html"),
    "history": files.read("history.js") + files.read("history.html"),
    "serve": "",
}
for name in ("index.html", "interventions.js", "live.js"):
    OWN["serve"] += files.read(f"page/{name}", "seq2see.serve")
SHARED = "".join(map(files.read, files.SCRIPTS[1:])) + files.read("sections.html")
KOREAN = dict(re.findall(r'^  "(.+?)":\s+"(.*)",$', files.read("korean.js"), flags=re.M))


def english(text: str) -> set[str]:
    """All that a page says in its own language: calls of `tell`, and what stands in its HTML."""
    said = re.findall(r'\btell\("(.*?)"[,)]', text) + re.findall(r'data-(?:tell|tell-label|name)="(.*?)"', text)
    return {each for each in said if each}


@pytest.mark.parametrize("page", OWN)
def test_all_that_is_said_is_said_in_korean(page):
    said = english(SHARED + OWN[page])
    assert len(said) > 60
    assert said - KOREAN.keys() == set()


def test_no_korean_is_left_over():
    named = {
        "the tokens",
        "the positional encoding",
        "the positions",
        "their sum",
        "encoder",
        "decoder",
    }  # by the server
    assert KOREAN.keys() - english(SHARED + "".join(OWN.values())) - named == set()


def test_the_same_values_are_put_in():
    for one, other in KOREAN.items():
        assert set(re.findall(r"\{\w+\}", one)) == set(re.findall(r"\{\w+\}", other)), one


PAGES = [
    *((name, "seq2see.look") for name in ("sections.html", "beside.html", "history.html")),
    ("page/index.html", "seq2see.serve"),
]


@pytest.mark.parametrize(("name", "package"), PAGES)
def test_each_sentence_stands_in_both_languages(name, package):
    sections = re.findall(r"<section.*?</section>", files.read(name, package), flags=re.S)
    assert sections
    for section in sections:
        assert section.count('data-in="en"') == section.count('data-in="ko"') >= 2, section[:60]
