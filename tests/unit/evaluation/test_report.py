"""The report is one page with everything in it, whatever the texts contain."""

import re
from html.parser import HTMLParser

import pytest

from seq2see.evaluation import report
from seq2see.pictures import curves

VOID = {"meta", "wbr"}
METRICS = [
    {"step": 50, "loss": 3.2, "rate": 1e-4},
    {"step": 100, "loss": 2.1, "rate": 2e-4},
    {"step": 100, "validation": {"loss": 2.2, "exact": 41.5}},
]
PARTS = {
    "title": "dates {0} <& co>",
    "facts": {"pairs": "1,234", "device": "CPU <fast>"},
    "settings": {"model": {"d_model": 64, "output_bias": False}, "training": {"metric": "exact"}},
    "scores": report.ScoredSet(
        "validation set",
        "200 of 1,000 pairs, greedy search",
        [("bleu", 31.416, "nrefs:1|case:mixed|tok:13a"), ("exact", 50.0, "refs:any")],
    ),
    "samples": [
        ("<script>alert(1)</script>", "2024-03-05", "2024-03-05"),
        ("٥ مارس & ٢٠٢٤", "\"five'", "\"six'"),
        ("2024년 3월 5일", "2024-03-05", "2024-03-05 "),
    ],
    "data": {"dropped: empty side": "12"},
}


class Reader(HTMLParser):
    """Tags must close in order; keeps the elements, their attributes and all text."""

    def __init__(self):
        super().__init__()
        self.open, self.elements, self.text = [], [], ""

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "report.html"
    report.write(path, curves_svg=curves.curves(METRICS), **PARTS)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_all_contents_are_there_unharmed(read):
    words = [PARTS["title"], "1,234", "CPU <fast>", "d_model", "64", "31.42", "50.00", "nrefs:1|case:mixed|tok:13a"]
    words += [text for sample in PARTS["samples"] for text in sample]
    words += ["validation set", "200 of 1,000 pairs, greedy search"]
    words += ["dropped: empty side", "12", "loss per token", "exact match, %", "learning rate", "41.5", "false"]
    for word in words:
        assert word in read.text, word


def test_text_never_becomes_markup(read):
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"script", "b", "fast"}


def test_nothing_is_fetched(page, read):
    for tag, attributes in read.elements:
        assert tag not in {"link", "img", "iframe", "object", "base"}
        for name, value in attributes.items():
            if name.startswith("xmlns"):
                continue
            assert "//" not in (value or ""), (tag, name, value)
    outside = re.sub(r'xmlns(:xlink)?="[^"]*"', "", page)
    assert "http://" not in outside
    assert "https://" not in outside
    assert "url(#" in outside  # clip paths of the curves: the only references, and inside the page
    assert not re.search(r"url\((?!#)|@import", outside)


def test_right_and_wrong_are_marked(read):
    marks = [attributes["aria-label"] for tag, attributes in read.elements if "mark" in attributes.get("class", "")]
    assert marks == ["right", "differs", "differs"]
    assert "1 of 3 equal to the reference" in read.text


def test_texts_choose_their_own_direction(read):
    texts = [attributes for tag, attributes in read.elements if tag == "bdi"]
    assert len(texts) == 9
    assert all(attributes["dir"] == "auto" and attributes["lang"] == "" for attributes in texts)


def test_settings_are_folded_away(read):
    details = [attributes for tag, attributes in read.elements if tag == "details"]
    assert details == [{}]


def test_page_for_phones_and_for_the_night(page):
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page
    assert page.startswith('<!doctype html>\n<html lang="en">')


def test_empty_parts_are_left_out(tmp_path):
    path = tmp_path / "report.html"
    report.write(path, title="bare", facts={}, settings={}, scores=None, samples=[], curves_svg="")
    page = path.read_text(encoding="utf-8")
    assert "bare" in page
    assert "<section>" not in page


def texts_of(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_further_sets_get_rows_of_their_own(tmp_path):
    path = tmp_path / "report.html"
    report.write(path, curves_svg="", **PARTS)
    for name, value in (("test.tsv", 11.11), ('<b> & "other"', 22.22), ("test.tsv", 33.33)):
        assert report.add_scores(path, report.ScoredSet(name, "2,000 pairs, beam 5", [("exact", value, "refs:any")]))
    page = path.read_text(encoding="utf-8")
    found = texts_of(page)
    assert [attributes["data-set"] for _, attributes in found.elements if "data-set" in attributes] == [
        "validation set",
        '<b> & "other"',
        "test.tsv",
    ]
    assert "31.42" in found.text
    assert "22.22" in found.text
    assert "33.33" in found.text
    assert "11.11" not in found.text, "the same set was scored again"
    assert page.count("<h2>Scores</h2>") == 1


def test_a_report_without_a_place_for_further_sets_stays_as_it_is(tmp_path):
    path = tmp_path / "report.html"
    scored = report.ScoredSet("test.tsv", "", [("exact", 1.0, "")])
    assert not report.add_scores(path, scored)
    assert not path.exists()
    for content in (b"<html>of an earlier release</html>", b"\xff\xfe"):
        path.write_bytes(content)
        assert not report.add_scores(path, scored)
        assert path.read_bytes() == content


def test_a_sample_is_drawn_from_all_of_a_set():
    assert report.sample(7, 200) == list(range(7))
    drawn = report.sample(1000, 200)
    assert drawn == sorted(set(drawn)) == report.sample(1000, 200)
    assert len(drawn) == 200
    assert all(20 <= sum(each // 200 == part for each in drawn) <= 60 for part in range(5))  # 40 on average
    assert len({each % 5 for each in drawn}) == 5


def test_a_score_that_does_not_apply_has_its_reason(tmp_path):
    path = tmp_path / "report.html"
    rows = [("bleu", None, "does not apply: <short> targets"), ("exact", 100.0, "refs:any")]
    report.write(path, **PARTS | {"scores": report.ScoredSet("validation set", "", rows)}, curves_svg="")
    assert "does not apply: <short> targets" in texts_of(path.read_text(encoding="utf-8")).text


def test_a_korean_report_translates_facts_and_keeps_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQ2SEE_LANG", "ko")
    parts = PARTS | {"settings": {"model": {"dropout": 0.1}, "training": {"metric": "loss"}}}
    parts |= {"data": {"source tokens": "500, vocabulary 23"}}
    report.write(tmp_path / "report.html", curves_svg="", **parts)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for row in ('<td dir="auto">500개, 단어 집합 23개', "dropout</th>", 'metric</th><td dir="auto">loss</td>'):
        assert row in page
    assert "3개 중 1개가 참조 번역과 같음" in page
