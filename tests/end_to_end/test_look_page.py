"""`look` pages in a real browser: they draw, they answer pointer and keyboard, and the console stays silent."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, obstacle
from PIL import Image

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "there is none"),
]
TINY = {
    "model": {"encoder_layers": 2, "decoder_layers": 2, "d_model": 32, "heads": 4, "d_ff": 64, "norm": "pre"},
    "training": {"max_steps": 60, "warmup_steps": 20, "batch_tokens": 1000, "validate_every": 30, "average": 1},
}


@pytest.fixture(scope="module")
def korean(once):
    """A run that has seen Korean dates for a few seconds: what it says does not matter here."""
    from seq2see import api

    def make(folder):
        lines = [f"{month}월 {day}일 수요일\t{month:02}-{day:02}\n" for month in range(1, 13) for day in range(1, 29)]
        (folder / "dates.tsv").write_text("".join(lines), encoding="utf-8")
        settings = {**TINY, "data": {"source_tags": "none"}}  # the last word never changes, but is no tag
        api.train(folder / "dates.tsv", folder / "run", settings=settings)

    return once("dates-in-korean", make) / "run"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def page(browser, cli, korean, tmp_path):
    """A page in Korean, open."""
    return opened(browser, cli, korean, "7월 17일 수요일", tmp_path)


def opened(browser, cli, run, sentence, tmp_path, *words):
    ended = cli("look", run, sentence, "-o", tmp_path / "look.html", *words)
    assert ended.code == 0, ended.err
    browser.problems.clear()
    browser.open(tmp_path / "look.html")
    return browser


def said(page, selector):
    return page.run(f"document.querySelector('{selector}').textContent")


def named(page, tokens, index):
    """A piece as the page names it: with its number where others look the same."""
    found = page.run(f"JSON.parse(document.getElementById('part:summary').textContent).{tokens}")
    return found[index] + (str(index) if found.count(found[index]) > 1 else "")


def colours(page, selector):
    """How many colours a canvas holds."""
    return page.run(
        f"""(() => {{ const canvas = document.querySelector('{selector}'), found = new Set();
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        for (let i = 0; i < data.length; i += 4) found.add(data.slice(i, i + 3).join());
        return found.size }})()"""
    )


def test_a_korean_page_draws_everything_in_silence(page, tmp_path):
    assert "수요일" in said(page, "h1")
    assert page.run("document.querySelector('h1 bdi').lang") == "ko"
    parts = page.run("[...document.querySelectorAll('main section')].map(section => section.id)")
    assert parts == [
        "tokens",
        "embeddings",
        "encoder",
        "layers",
        "decoder",
        "cross",
        "alignment",
        "lens",
        "candidates",
        "beam",
    ]
    for name in parts:
        page.place(f"#{name}")
        page.wait(f"document.querySelector('#{name} [data-component]').children.length > 0")
    for name in ("encoder", "decoder", "cross"):
        page.place(f"#{name} .cells")
        page.wait(f"document.querySelector('#{name} .cells canvas').width > 1")
        assert colours(page, f"#{name} .cells canvas") > 3
        assert page.run(f"document.querySelectorAll('#{name} .heads input').length") == 2 * (4 + 1)
    with Image.open(page.screenshot(tmp_path / "page.png")) as image:
        assert np.asarray(image.convert("RGB"), dtype=float).std() > 10
    assert page.run("document.documentElement.scrollWidth <= innerWidth")  # nothing sticks out
    assert page.problems == []


def test_hover_reads_a_number(page):
    weights = page.run("JSON.parse(document.getElementById('part:attention/cross/1').textContent)")
    mean = np.mean(weights, axis=0)
    columns = mean.shape[1]
    page.place("#cross .cells")
    page.wait("document.querySelector('#cross .cells canvas').width > 1")
    page.hover("#cross .cells canvas", (2 + 0.5) / columns, 0.5 / len(mean))
    page.wait("!document.getElementById('tip').hidden")
    assert said(page, "#tip").endswith(f"{mean[0][2]:.3f}")
    page.hover("h1")
    page.wait("document.getElementById('tip').hidden")
    assert page.problems == []


def test_the_future_is_hidden_by_the_mask(page):
    page.place("#decoder .cells")
    page.wait("document.querySelector('#decoder .cells canvas').width > 1")
    page.hover("#decoder .cells canvas", 0.95, 0.05)
    page.wait("!document.getElementById('tip').hidden")
    assert said(page, "#tip").endswith("hidden by the mask: 0")


def test_a_head_is_chosen(page):
    page.place("#encoder .cells")
    page.wait("document.querySelector('#encoder .cells canvas').width > 1")
    assert said(page, "#encoder .said").startswith("layer 2, mean of the heads")
    before = page.run("document.querySelector('#encoder .cells canvas').toDataURL()")
    page.click("#encoder .heads label:has([value='0 2'])")
    assert said(page, "#encoder .said").startswith("layer 1, head 3")
    assert page.run("document.querySelector('#encoder .cells canvas').toDataURL()") != before
    page.wait("document.querySelectorAll('#encoder .sum canvas').length === 3")  # query, key and product
    page.press("ArrowRight")
    assert said(page, "#encoder .said").startswith("layer 1, head 4")
    assert page.problems == []


def test_a_click_follows_a_token_down_the_page(page):
    page.click("#tokens [data-component] > div:nth-child(3) .piece:nth-child(2)")
    for place in ("#tokens", "#candidates"):
        assert page.run(f"document.querySelectorAll('{place} .piece[aria-pressed=true]').length") >= 1
    weights = page.run("JSON.parse(document.getElementById('part:attention/cross/1').textContent)")
    best = np.mean(weights, axis=0)[1].max()
    assert f"{named(page, 'target_tokens', 1)} attends to " in said(page, "#cross .said").replace("\u2068", "")
    assert f"{best:.3f}" in said(page, "#cross .said")
    token = page.run("JSON.parse(document.getElementById('part:summary').textContent).target_tokens[1]")
    assert page.run("document.querySelector('#candidates .bars .chosen').textContent") == token
    page.click("#tokens [data-component] > div:nth-child(3) .piece:nth-child(2)")  # again: nothing is chosen
    assert page.run("document.querySelectorAll('.piece[aria-pressed=true]').length") == 0


def test_one_weight_is_that_under_the_pointer(page):
    """Row and column both: not the row that was chosen before."""
    page.place("#cross .cells")
    page.wait("document.querySelector('#cross .cells canvas').width > 1")
    page.click("#cross .heads label:has([value='1 2'])")
    weights = np.array(page.run("JSON.parse(document.getElementById('part:attention/cross/1').textContent)"))[2]
    rows, columns = weights.shape

    def shown():
        return page.run("[...document.querySelectorAll('#cross .sum > span')].map(each => each.textContent)")[:2]

    page.hover("#cross .cells canvas", 1.5 / columns, 2.5 / rows)
    pointed = [f"query of {named(page, 'target_tokens', 2)}", f"key of {named(page, 'source_tokens', 1)}"]
    page.wait(f"document.querySelector('#cross .example b')?.textContent === '{weights[2][1]:.3f}'")
    assert shown() == pointed
    page.hover("h1")
    page.wait(f"document.querySelector('#cross .example b')?.textContent === '{weights[0].max():.3f}'")
    assert shown()[0] == f"query of {named(page, 'target_tokens', 0)}"
    assert page.problems == []


def test_colours_and_lines_are_explained(page):
    for name in ("embeddings", "encoder", "layers", "decoder", "cross", "alignment", "lens", "beam"):
        page.place(f"#{name}")
        page.wait(f"document.querySelector('#{name} .legend') !== null")
    page.wait("document.querySelector('#alignment .said').textContent.includes('validation pairs')")
    assert "LayerNorm" in page.run("document.querySelector('#lens math:not([hidden])').textContent"), (
        "this one is pre-norm"
    )
    assert page.run("document.querySelectorAll('#lens math:not([hidden])').length") == 1
    shares = page.run("[...document.querySelectorAll('#candidates .bars .number')].map(each => each.textContent)")
    assert shares
    assert not {"0 %", "0.0 %"} & set(shares)


def test_the_keyboard_reads_the_map(page):
    page.place("#cross .cells")
    page.wait("document.querySelector('#cross .cells canvas').width > 1")
    page.run("document.querySelector('#cross .cells').focus()")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.press(key)
    weights = page.run("JSON.parse(document.getElementById('part:attention/cross/1').textContent)")
    assert said(page, "#tip").endswith(f"{np.mean(weights, axis=0)[1][2]:.3f}")
    page.press("Enter")
    assert said(page, "#cross .said b") == named(page, "target_tokens", 1)


def test_the_beam_tells_of_each_node(page):
    best = page.run("document.querySelectorAll('#beam .node.best').length")
    assert best == page.run("JSON.parse(document.getElementById('part:summary').textContent).target_tokens.length")
    page.hover("#beam .node.best rect")
    page.wait("!document.getElementById('tip').hidden")
    assert "score" in said(page, "#tip")


def test_sixty_tokens_in_the_dark_and_on_a_narrow_screen(browser, cli, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    text = (run / "settings.toml").read_text(encoding="utf-8")
    text = re.sub("(?m)^max_ratio = .*", "max_ratio = 0.1", text)  # of a text this long the model may find no end
    (run / "settings.toml").write_text(text, encoding="utf-8")
    page = opened(browser, cli, run, "abcdefgh" * 8, tmp_path)
    assert page.run("document.querySelectorAll('#encoder .rows button').length") >= 60
    try:
        page.ask("Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=True)
        page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        page.place("#encoder .cells")
        page.wait("document.querySelector('#encoder .cells canvas').width >= 60")
        page.wait("document.documentElement.scrollWidth <= 420")
        with Image.open(page.screenshot(tmp_path / "dark.png")) as image:
            assert np.asarray(image.convert("L"), dtype=float).mean() < 90
    finally:
        page.ask("Emulation.setEmulatedMedia", features=[])
        page.ask("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    assert page.problems == []


def test_a_long_word_of_the_model_beside_a_given_one_is_broken(browser, cli, trained, tmp_path):
    page = opened(browser, cli, trained, "abcdefgh" * 8, tmp_path, "--target", "ABC")
    try:
        page.ask("Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=True)
        page.wait("document.documentElement.scrollWidth <= 420")
    finally:
        page.ask("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)


def test_how_blanks_are_written_is_said_once(page):
    assert said(page, "main").count("▁ stands for a space") == said(page, "#tokens p").count("▁") == 1


def test_no_formula_needs_a_scrollbar(page):
    """The window of the tests hides them: one that would be there takes its room from the formula."""
    overflowing = """[...document.querySelectorAll("math[display=block]")].filter(each =>
        each.scrollWidth > each.clientWidth
        || each.scrollHeight > each.clientHeight && getComputedStyle(each).overflowY !== "hidden")"""
    assert page.run(f"{overflowing}.map(each => each.textContent)") == []
    assert page.run("document.querySelectorAll('#layers math[data-when=pre]:not([hidden])').length") == 1


def test_many_tokens_are_as_wide_as_their_letters(browser, cli, korean, tmp_path):
    page = opened(browser, cli, korean, "7월 17일 수요일 " * 12, tmp_path)
    pieces = "[...document.querySelectorAll('#alignment .aligned .piece')]"
    assert page.run(f"{pieces}.length") > 50
    assert page.run(f"{pieces}.filter(each => each.scrollWidth > each.clientWidth).length") == 0
    page.wait("(strip => strip.scrollWidth > strip.clientWidth)(document.querySelector('.aligned'))")


def test_the_largest_map_has_room_for_its_last_label(browser, cli, korean, tmp_path):
    page = opened(browser, cli, korean, "7월 17일 수요일 " * 6 + "7월", tmp_path)
    clipped = "[...document.querySelectorAll('.map')].filter(each => each.scrollWidth > each.clientWidth)"
    assert page.run(f"{clipped}.map(each => each.closest('section').id)") == []


def test_a_given_translation_is_explained(browser, cli, trained, tmp_path):
    page = opened(browser, cli, trained, "cab", tmp_path, "--target", "BAC")
    assert said(page, "h1").endswith("BAC")
    assert said(page, ".forced").endswith("CAB")
    page = opened(browser, cli, trained, "cab", tmp_path, "--target", "B漢C", "--force")
    assert "without a token in the model: 漢" in said(page, ".forced")
    assert page.problems == []


def test_the_page_speaks_korean(page):
    before = said(page, "#encoder .said")
    page.click(".languages button[lang=ko]")
    page.wait("document.querySelector('#encoder .said').textContent.startsWith('2층, 헤드 평균')")
    headings = "[...document.querySelectorAll('#encoder h2 [data-in]')]"  # innerText is empty without any font
    shown = f"{headings}.filter(each => getComputedStyle(each).display !== 'none').map(each => each.textContent)"
    assert page.run(shown) == ["인코더의 셀프 어텐션"]
    page.click(".languages button[lang=en]")
    page.wait("document.querySelector('#encoder .said').textContent.startsWith('layer 2')")
    assert said(page, "#encoder .said") == before
    assert page.problems == []


def test_a_part_that_is_not_in_the_page_is_asked_for(browser, cli, trained, tmp_path: Path):
    """One front end: without its part in the page, a component asks the server that it came from."""
    cli("look", trained, "cab", "-o", tmp_path / "look.html")
    text = (tmp_path / "look.html").read_text(encoding="utf-8")
    (tmp_path / "look.html").write_text(text.replace('id="part:beam"', 'id="elsewhere"'), encoding="utf-8")
    browser.ask("Page.navigate", url=(tmp_path / "look.html").as_uri())
    browser.wait("document.querySelector('#candidates .bars')?.children.length > 0")
    for _ in range(100):
        browser.run("new Promise(done => setTimeout(done, 20))")
        if browser.problems:
            break
    assert any("parts/beam" in problem or "fetch" in problem for problem in browser.problems)
    browser.problems.clear()
