"""Terms in requests to a real server: enforced, shown with their places, bounded, and refused in one line."""

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")


def first(server, **body):
    found = server.post("/v1/translate", **body)
    assert found.status == 200, found.json()
    return [result["translations"][0] for result in found.json()["results"]]


@pytest.mark.parametrize("glossary", [{"abc": "HEAD"}, {"abc": ["HEAD", "FEED"]}, [["abc", "HEAD"]]], ids=str)
def test_a_term_is_enforced_and_its_place_is_shown(server, glossary):
    enforced, other = first(server, text=["abc", "cab"], glossary=glossary)
    assert enforced["text"] == "HEAD"
    (term,) = enforced["terms"]
    assert (term["source"], term["target"], term["form"]) == ([0, 3], [0, 4], "HEAD")
    assert term["how"] in ("n-best", "prefix", "replacement")
    (plain,) = first(server, text="cab")
    assert other == plain


def test_a_term_that_is_kept(server):
    (kept,) = first(server, text="abc", glossary={"abc": ""})
    assert kept["text"] == "abc"


@pytest.mark.parametrize(
    ("glossary", "message"),
    [
        ({"...": "x"}, "has no letter"),
        ({"a": "b\x07"}, "control character"),
        ({"a" * 300: "b"}, "longer than 200 characters"),
        ([["a", "b"], ["a", "c"]], "'a' is 'c' here and 'b' in"),
        ([[]], "glossary: an empty row"),
        ({"a": 5}, "glossary"),
        ({f"a{number}": "b" for number in range(1001)}, "glossary"),
    ],
    ids=["no letter", "control", "long", "two targets", "empty", "number", "many"],
)
def test_a_bad_glossary_is_refused(server, glossary, message):
    found = server.post("/v1/translate", text="abc", glossary=glossary)
    assert found.status == 400
    assert message in found.json()["error"]
    assert "\n" not in found.json()["error"]


def test_a_stream_has_no_terms(server):
    found = server.post("/v1/translate", text="abc", stream=True, glossary={"abc": "HEAD"})
    assert (found.status, "Leave glossary out" in found.json()["error"]) == (400, True)
