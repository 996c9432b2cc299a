"""The page of two runs in a real browser: both are drawn, tokens are followed from one to the other."""

import pytest
from browser import Browser, obstacle

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "there is none"),
]


@pytest.fixture(scope="module")
def other(once):
    """An RNN without attention, with whole words as tokens, which has learned nothing and never says CAB."""
    from seq2see import api

    def make(folder):
        words = ["cab", "bac", "abba", "dada"]
        lines = [f"{one} {two}\t{two.upper()}X\n" for one in words for two in words]
        (folder / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
        model = {"architecture": "rnn", "encoder_layers": 1, "decoder_layers": 1, "d_model": 16}
        training = {"max_steps": 2, "validate_every": 2, "average": 1}
        data = {"source_tokenizer": "symbols", "target_tokenizer": "symbols", "source_tags": "none"}
        settings = {"model": model, "training": training, "data": data}
        api.train(folder / "pairs.tsv", folder / "run", settings=settings, tune=0)

    return once("other-words-without-attention", make) / "run"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def opened(browser, cli, run, other, tmp_path, *words):
    ended = cli("look", run, "cab", "--beside", other, "-o", tmp_path / "beside.html", *words)
    assert ended.code == 0, ended.err
    browser.problems.clear()
    browser.open(tmp_path / "beside.html")
    return browser


def said(page, selector):
    return page.run(f"document.querySelector('{selector}').textContent")


def pressed(page, letter):
    return page.run(
        f"""[...document.querySelectorAll('#tokens [data-run="{letter}"] .piece[aria-pressed=true]')]
        .map(each => each.firstChild.textContent)"""
    )


def test_two_runs_are_drawn_side_by_side(browser, cli, trained, other, tmp_path):
    page = opened(browser, cli, trained, other, tmp_path)
    assert said(page, "h1") == "cab"
    assert page.run("document.querySelectorAll('.outputs tbody tr').length") == 2
    assert page.run("document.querySelector('.outputs td bdi').parentElement.textContent.includes('CAB')")
    boxes = page.run(
        "[...document.querySelectorAll('#tokens .beside > div')].map(each => each.getBoundingClientRect().left)"
    )
    assert boxes[1] > boxes[0] + 300
    page.place("#cross .cells")
    page.wait("document.querySelector('#cross .cells canvas').width > 1")
    assert page.run("document.querySelectorAll('#cross .cells').length") == 1
    assert "no cross-attention" in said(page, '#cross [data-component][data-run="B"]')
    page.place("#importance .cells")
    page.wait("[...document.querySelectorAll('#importance .cells canvas')].every(each => each.width >= 1)")
    assert page.run("document.querySelectorAll('#importance .cells').length") == 2
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.problems == []


def test_a_token_is_followed_into_the_other_run(browser, cli, trained, other, tmp_path):
    page = opened(browser, cli, trained, other, tmp_path)
    page.click('#tokens [data-component][data-run="A"] .strip .piece[data-index="1"]')
    assert pressed(page, "A") == ["a"]
    assert pressed(page, "B") == ["cab"]  # the word that has this letter
    page.click('#tokens [data-component][data-run="A"] .strip .piece[data-index="1"]')
    assert pressed(page, "A") == pressed(page, "B") == []
    assert page.problems == []


def test_equal_outputs_heads_and_the_keyboard(browser, cli, trained, tmp_path):
    page = opened(browser, cli, trained, trained, tmp_path)
    assert said(page, "#verdict") == "Both outputs are the same."
    page.place("#cross .cells")
    page.wait("[...document.querySelectorAll('#cross .cells canvas')].every(each => each.width > 1)")
    page.click('#cross [data-run="B"] .heads label:has([value="0 1"])')
    assert said(page, '#cross [data-component][data-run="B"] .said').startswith("layer 1, head 2")
    assert said(page, '#cross [data-component][data-run="A"] .said').startswith("layer 1, mean of the heads")
    page.press("ArrowLeft")
    assert said(page, '#cross [data-component][data-run="B"] .said').startswith("layer 1, head 1")
    page.run("document.querySelector('#cross [data-run=\"B\"] .cells').focus()")
    page.press("ArrowDown")
    assert page.run("!document.getElementById('tip').hidden")
    page.click(".languages button[lang=ko]")
    page.wait("document.querySelector('#verdict').textContent === '두 출력이 같습니다.'")
    assert said(page, '#cross [data-component][data-run="B"] .said').startswith("1층, 헤드 1")
    page.click(".languages button[lang=en]")
    page.wait("document.querySelector('#verdict').textContent.startsWith('Both')")
    assert page.problems == []


def test_a_difference_is_marked_on_a_narrow_screen(browser, cli, trained, other, tmp_path):
    page = opened(browser, cli, trained, other, tmp_path)
    try:
        page.ask("Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=True)
        page.wait("document.documentElement.scrollWidth <= 420")
    finally:
        page.ask("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    assert "differ" in said(page, "#verdict")
    assert page.run("document.querySelectorAll('.outputs mark').length") == 2
    assert page.run("document.querySelectorAll('#output .piece.different').length") == 2
    assert page.problems == []
