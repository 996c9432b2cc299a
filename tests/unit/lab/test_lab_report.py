"""The pages say what was claimed, what came out, and where; whatever is in the texts."""

import json
import re
import statistics
from html.parser import HTMLParser

import pytest

from seq2see.display.wording import translated
from seq2see.lab import catalogue, charts, report
from seq2see.lab.claim import Chart, Claim, Expectation, Measurement, Measurements, Plan, conclude

FACTS = {"command": "seq2see lab --quick", "seeds": "1 to 2", "processor": "Tube & <Relay>"}


def outcome(values=(0.1, 0.101), limit=0.5, control=9.0):
    claim = Claim(
        "sample",
        "Small <models> & | large ones",
        "nobody 2017",
        "loss",
        lambda plan: [],
        lambda trial: {},
        (
            Expectation(
                "it is small", "loss of b", lambda rows: rows.get("loss", kind="b"), limit, "of | it", limit * 2
            ),
        ),
        (Expectation("not a", "loss of a", lambda rows: rows.get("loss", kind="a"), control, "of it"),),
        (Chart("loss", "loss", "kind"), Chart("loss", "loss", "depth", ("kind",), log_x=True, log_y=True)),
    )
    rows = [
        Measurement({"kind": kind, "depth": depth, "steps": 7, "with": True}, seed, {"loss": value * depth})
        for kind in "ab"
        for depth in (1, 4)
        for seed, value in enumerate(values, start=1)
    ]
    return conclude(claim, rows)


class Tags(HTMLParser):
    """Every tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize(("limit", "verdict"), [(5.0, "held"), (0.001, "did not hold")])
def test_both_pages_say_the_verdict(tmp_path, limit, verdict):
    report.write(tmp_path, [outcome(limit=limit)], FACTS)
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    other = {"held": "did not hold", "did not hold": "held"}[verdict]
    for each in (page, text):
        assert verdict in each
        assert f"sample: {other}" not in re.sub("<[^>]*>", "", each)
        assert "seq2see lab --quick" in each
        assert "nobody 2017" in each
    assert json.loads((tmp_path / "verdicts.json").read_text())["claims"][0]["verdict"] == verdict


def test_controls_power_and_reasons_are_shown(tmp_path):
    report.write(tmp_path, [outcome(control=0.01)], FACTS)
    for name in ("report.html", "report.md", "results.md"):
        text = (tmp_path / name).read_text()
        assert "not trusted" in text
        assert "a control held: loss of a: 0.251" in text
        assert "1 of 1 held" in text
        assert "0.251 … 0.251" not in text  # the interval has a width
        assert "100 %" in text
    assert "of \\| it" in (tmp_path / "results.md").read_text()
    (found,) = json.loads((tmp_path / "verdicts.json").read_text())["claims"]
    assert [each["verdict"] for each in found["controls"]] == ["held"]


def test_the_reports_are_korean_where_the_user_is(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQ2SEE_LANG", "ko")
    claim = catalogue.find("masks")
    conditions = claim.trials(Plan(quick=True))
    rows = [Measurement(each, seed, {"loss_early": 1.0, "tokens": 1.0}) for each in conditions for seed in (1, 2)]
    report.write(tmp_path, [conclude(claim, rows)], FACTS)
    page, english = (tmp_path / "report.html").read_text(), (tmp_path / "results.md").read_text()
    for words in (
        "성립하지 않음",
        "대조군: 성립하면 안 됨",
        "마스크가 없으면 생성에 실패한다",
        "0.2 이상(효과 없음: 0)",
    ):
        assert words in page
    assert '<html lang="ko"' in page
    assert "맞은 토큰, 마스크 있음 - 없음" in (tmp_path / "results.ko.md").read_text()
    assert "correct tokens, with - without the mask" in english
    assert not re.search("[가-힣]", english)
    assert json.loads((tmp_path / "verdicts.json").read_text())["claims"][0]["verdict"] == "did not hold"


def texts_of_claims() -> set[str]:
    found = set()
    for name in catalogue.CLAIMS:
        claim = catalogue.find(name)
        found |= {claim.words, claim.measured, *(chart.title for chart in claim.charts)} - {"BLEU"}
        for each in (*claim.expectations, *claim.controls):
            found |= {each.words, each.label, each.reason, each.bounds}
    return found


def test_every_text_of_every_claim_is_there_in_korean():
    texts = texts_of_claims()
    missing = [text for text in texts if not re.fullmatch(r"[-\d. to]+", text) and translated(text, "ko") == text]
    assert missing == []


def test_the_page_is_sound_and_needs_nothing(tmp_path):
    report.write(tmp_path, [outcome()], FACTS)
    page = (tmp_path / "report.html").read_text()
    tags = Tags()
    tags.feed(page.partition("<!doctype html>")[2])
    assert tags.open == []
    assert "<models>" not in page
    assert "Tube &amp; &lt;Relay&gt;" in page
    assert not re.findall(r'(?:src|href)="(?!#)', re.sub(r"xlink:href", "", page))
    assert len(page) < 200_000


def test_the_picture_of_the_markdown_is_there(tmp_path):
    report.write(tmp_path, [outcome()], FACTS)
    (path,) = re.findall(r"!\[.*\]\((.*)\)", (tmp_path / "report.md").read_text())
    assert (tmp_path / path).read_text().startswith("<svg")


def test_a_table_has_means_and_deviations_and_tells_apart_what_differs():
    fixed, heads, lines = report.table(outcome((0.1, 0.3)).measured)
    assert fixed == "steps 7, with yes"
    assert heads == ["kind", "depth", "loss"]
    assert lines[0] == ["a", "1", "0.2 ± 0.141"]


def test_numbers_that_are_none_are_told():
    found = outcome((float("nan"), 0.1))
    assert found.verdict == "undecided"
    assert report.table(found.measured)[2][0][-1] == "not finite in 1 of 2"
    json.dumps(report.as_json([found], FACTS), allow_nan=False)


@pytest.mark.parametrize(
    ("kinds", "slanted"), [(("a", "b"), False), (("a model with a long name", "and another one"), True)]
)
def test_long_names_at_an_axis_do_not_cover_each_other(kinds, slanted):
    rows = Measurements([Measurement({"kind": kind}, seed, {"loss": 1.0}) for kind in kinds for seed in (1, 2)])
    (axes,) = charts.draw((Chart("loss", "loss", "kind"),), rows).axes
    assert all((label.get_rotation() > 0) == slanted for label in axes.get_xticklabels())


def test_a_number_without_a_place_counts_once_for_a_seed():
    claim = Claim(
        "name",
        "words",
        "source",
        "measured",
        lambda plan: [{}],
        lambda trial: {},
        (),
        charts=(Chart("loss", "loss", "kind"),),
        places="length",
    )
    losses = (1.0, 2.0, 4.0)
    measured = [
        Measurement({"kind": "a"}, seed, {"right@4": 0.9, "right@8": 0.5, "right@12": 0.1, "loss": loss})
        for seed, loss in enumerate(losses, start=1)
    ]
    (axes,) = charts.draw(claim.charts, conclude(claim, measured).measured).axes
    (bar,) = axes.collections
    (((_, low), (_, high)),) = bar.get_segments()
    assert (high - low) / 2 == pytest.approx(statistics.stdev(losses))
