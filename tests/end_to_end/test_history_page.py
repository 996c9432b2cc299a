"""The attention during training in report.html, in a real browser: a slider that the keyboard moves; Korean, too."""

import json
import shutil

import numpy as np
import pytest
from browser import Browser, obstacle

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "there is none"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def opened(browser, path):
    browser.problems.clear()
    browser.open(path)
    return browser


def said(page, selector):
    return page.run(f"document.querySelector('{selector}').textContent")


def pixels(page, selector):
    return page.run(f"document.querySelector('{selector}').toDataURL()")


def test_the_slider_moves_through_the_training(browser, trained):
    kept = json.loads((trained / "attention.json").read_text(encoding="utf-8"))
    steps = [row["step"] for row in kept["validations"]]
    assert len(steps) == 3
    page = opened(browser, trained / "report.html")
    assert said(page, ".steps output").startswith(f"step {steps[-1]} · loss ")
    assert "exact" in said(page, ".steps output")
    last, small = pixels(page, ".history .cells canvas"), pixels(page, ".history .heads canvas")
    page.run("document.getElementById('moment').focus()")
    page.press("ArrowLeft")
    assert said(page, ".steps output").startswith(f"step {steps[1]} ")
    assert page.run("document.getElementById('moment').getAttribute('aria-valuetext')").startswith(f"step {steps[1]} ")
    assert pixels(page, ".history .cells canvas") != last
    assert pixels(page, ".history .heads canvas") != small
    page.press("ArrowLeft")
    assert said(page, ".steps output").startswith(f"step {steps[0]} ")
    page.place(".history .cells")
    page.hover(".history .cells canvas", 0.01, 0.01)
    page.wait("!document.getElementById('tip').hidden")
    shown = np.array(kept["validations"][0]["weights"][0]["cross"][-1][0][0]) / 1000
    assert said(page, "#tip").endswith(f"{shown:.3f}")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.problems == []


def test_heads_and_pairs_are_chosen(browser, trained):
    page = opened(browser, trained / "report.html")
    assert said(page, ".history .said") == "layer 1, mean of the heads"
    page.click(".history .heads label:has([value='1'])")
    assert said(page, ".history .said") == "layer 1, head 1"
    page.press("ArrowRight")
    assert said(page, ".history .said") == "layer 1, head 2"
    rows = "[...document.querySelectorAll('.history .rows button')].map(each => each.textContent).join('')"
    before = page.run(rows)
    page.click(".history .choice label:nth-of-type(2)")
    assert page.run(rows) != before
    page.click(".history .heads label:last-of-type")
    assert said(page, ".history .said") == "encoder self-attention"
    assert page.problems == []


def test_the_report_in_korean_and_on_a_narrow_screen(browser, cli, trained, tmp_path, monkeypatch):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "report.html").unlink()
    pairs = trained.parent / "upper.tsv"
    ended = cli("--lang", "ko", "train", pairs, "--out", run, "--resume")
    assert ended.code == 0, ended.err
    page = opened(browser, run / "report.html")
    try:
        page.ask("Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=True)
        assert "스텝" in said(page, ".steps output")
        assert said(page, ".history .said") == "1층, 헤드 평균"
        headings = "[...document.querySelectorAll('#attention-history h2 [data-in]')]"
        shown = f"{headings}.filter(each => getComputedStyle(each).display !== 'none').map(each => each.textContent)"
        assert page.run(shown) == ["학습 중의 어텐션"]
        page.wait("document.documentElement.scrollWidth <= 420")
    finally:
        page.ask("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    assert page.problems == []
