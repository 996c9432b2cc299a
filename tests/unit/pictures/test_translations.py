"""Pictures are written, show the numbers, and say what they cannot draw."""

import itertools
import re
from string import ascii_lowercase

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import font_manager
from PIL import Image

from seq2see.errors import SettingError
from seq2see.lens.answers import Candidate, Layers, Node, Tree
from seq2see.lens.heads import Habits, Head, Statistics, Without, Worth
from seq2see.pictures import drawing, labels, translations
from seq2see.run import load

ROWS = ["▁Das", "▁ist", "</s>"]
COLUMNS = ["▁This", "▁is", "$5", "<b>", "\n"]


def weights(H, L, M):
    generator = np.random.default_rng(1)
    return generator.dirichlet(np.full(M, 0.3), size=(H, L))


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), dtype=float)


def test_png_shows_the_weights(tmp_path):
    path = tmp_path / "attention.png"
    assert translations.attention(weights(2, 3, 5), ROWS, COLUMNS, "layer 1", path) is None
    drawn = pixels(path)
    assert drawn.std() > 10
    assert (drawn[0] == 255).all()  # white paper, nothing cut off at the edge

    other = tmp_path / "other.png"
    translations.attention(weights(2, 3, 5)[:, ::-1], ROWS, COLUMNS, "layer 1", other)
    assert np.abs(drawn - pixels(other)).max() > 50


def test_darkest_colour_is_one_and_paper_is_zero(tmp_path):
    path = tmp_path / "one.png"
    weights_HLM = np.zeros((1, 2, 2))
    weights_HLM[0, 0, 1] = 1
    translations.attention(weights_HLM, ["a", "b"], ["c", "d"], "corner", path)
    dark = np.array(matplotlib.colors.to_rgb(drawing.PAPER_TO_INK(1.0))) * 255
    dark_pixels = int((np.abs(pixels(path) - dark).max(axis=-1) < 1.5).sum())
    # half an inch a cell at 160 dpi, and the dark end of the colour bar
    assert 75 * 75 <= dark_pixels <= 85 * 85
    assert drawing.PAPER_TO_INK(0.0)[:3] == (1, 1, 1)


def test_svg_keeps_text_as_text(tmp_path):
    path = tmp_path / "attention.svg"
    translations.attention(
        weights(2, 3, 5), ROWS, COLUMNS, "layer 1: $a$ & 여우", path, "cross attention, layer 1 of 2"
    )
    svg = path.read_text(encoding="utf-8")
    for label in (
        "▁Das",
        "&lt;/s&gt;",
        "▁This",
        "$5",
        "&lt;b&gt;",
        "↵",
        "layer 1: $a$ &amp; 여우",
        "head 2",
        "cross attention, layer 1 of 2, mean of 2 heads",
    ):
        assert f">{label}" in svg, label


def test_a_picture_with_blanks_says_how_they_are_written(tmp_path):
    for rows, said in ((ROWS, True), (["a", "b", "c"], False)):
        translations.attention(weights(2, 3, 26), rows, ascii_lowercase, "blanks", tmp_path / "map.svg")
        assert ("▁: a space" in (tmp_path / "map.svg").read_text(encoding="utf-8")) == said


def test_pdf_and_one_head(tmp_path):
    path = tmp_path / "attention.pdf"
    translations.attention(weights(1, 3, 5), ROWS, COLUMNS, "layer 1", path)
    assert path.read_bytes().startswith(b"%PDF")


def test_unknown_format(tmp_path):
    for draw in (lambda path: translations.attention(weights(1, 3, 5), ROWS, COLUMNS, "layer 1", path),):
        with pytest.raises(SettingError, match=r"unknown picture format '.bmp'. Choose from: .png, .svg, .pdf, .html"):
            draw(tmp_path / "picture.bmp")
    assert list(tmp_path.iterdir()) == []


def test_letters_without_a_font_are_named_and_do_not_warn(tmp_path):
    path = tmp_path / "attention.png"
    note = translations.attention(weights(2, 1, 2), ["a"], ["b", "\ue000"], "private use", path)
    assert note is not None
    assert "'U+E000'" in note
    assert "apt-get install fonts-noto" in note
    assert path.exists()


@pytest.mark.parametrize(
    ("H", "L", "M"), [(8, 10, 25), (8, 40, 40), (16, 26, 3), (3, 1, 9), (16, 2, 40), (2, 100, 100), (5, 1, 1)]
)
def test_heads_do_not_overlap_and_keep_their_proportions(H, L, M):
    width, height = M * 0.25, L * 0.25
    places = [(0.0, 0.0, width, height), *translations.places_of_heads(H, L, M, width, height)]
    assert len(places) == H + 1
    for x, y, w, h in places:
        assert w > 0
        assert w / h == pytest.approx(M / L)
        assert y + h <= height + 1e-9
        assert x >= 0
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in itertools.combinations(places, 2):
        assert x1 + w1 <= x2 + 1e-9 or x2 + w2 <= x1 + 1e-9 or y1 + h1 <= y2 + 1e-9 or y2 + h2 <= y1 + 1e-9


def test_nothing_global_is_left_behind(tmp_path):
    before = dict(matplotlib.rcParams)
    translations.attention(weights(2, 3, 5), ROWS, COLUMNS, "layer 1", tmp_path / "attention.svg")
    assert dict(matplotlib.rcParams) == before


def test_every_head_has_its_panel(tmp_path):
    layers = [weights(3, 3, 5), weights(3, 3, 5)]
    assert translations.heads(layers, ROWS, COLUMNS, "all heads", tmp_path / "heads.svg") is None
    svg = (tmp_path / "heads.svg").read_text(encoding="utf-8")
    assert svg.count("<image") == 6
    assert svg.count(">▁Das<") == 2, "beside each layer"
    assert svg.count(">$5<") == 3, "below each head"
    for label in ("head 1", "head 3", "layer 1", "layer 2", "all heads"):
        assert f">{label}<" in svg, label


def layers_of(words, ranks):
    candidates = [[[Candidate(word, 0.75, 7), Candidate("zz", 0.1, 8)] for word in row] for row in words]
    return Layers(np.full((len(words), len(words[0])), 0.5, np.float32), np.array(ranks), candidates)


@pytest.fixture(params=["all installed fonts", "the fonts of matplotlib"])
def without_korean(request, monkeypatch):
    """Whether no font draws Korean, as on a machine that only has the fonts that come with matplotlib."""
    searches = labels.search_fonts, labels.coverage
    if request.param == "the fonts of matplotlib":
        own = [font for font in font_manager.fontManager.ttflist if font.fname.startswith(matplotlib.get_data_path())]
        monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
        monkeypatch.setattr(labels, "add_new_fonts", lambda: False)
        for search in searches:
            search.cache_clear()
    yield bool(labels.missing_glyphs("한"))
    for search in searches:
        search.cache_clear()


def test_the_words_of_each_layer(tmp_path, without_korean):
    """An SVG keeps its letters where no font draws them, and the user is told what to install."""
    layers = layers_of([["x", "한"], ["▁Das", "한"]], [[3, 1], [1, 1]])
    said = translations.layer_words(layers, ["▁Das", "한"], "layers", tmp_path / "layers.svg")
    assert (said is not None and "no installed font draws '한'" in said) == without_korean
    svg = (tmp_path / "layers.svg").read_text(encoding="utf-8")
    assert svg.count(">한<") == 3  # above, and said by both layers
    assert svg.count(">▁Das<") == 2
    assert ">zz<" not in svg
    bold = re.findall(r"font-weight: 700[^>]*>([^<]*)<", svg)
    assert sorted(bold) == sorted(["한", "한", "▁Das", "layers"])


def test_the_beam_has_all_nodes(tmp_path):
    nodes = [
        Node(-1, -1, 0, "<s>", 0.0, 0.0, "root"),
        Node(0, 0, 0, "a", -0.1, -0.1, "kept"),
        Node(0, 0, -1, "b$", -3.0, -3.0, "pruned"),
        Node(1, 1, -1, "</s>", -0.2, -0.1, "finished"),
    ]
    assert translations.beam(Tree(nodes, 3), "beam", tmp_path / "beam.svg") is None
    svg = (tmp_path / "beam.svg").read_text(encoding="utf-8")
    for label in ("&lt;s&gt;", "a", "b$", "&lt;/s&gt;"):
        assert f">{label}<" in svg, label
    assert "the best of 1 finished" in svg
    assert svg.count(">-0.10<") == 2, "the scores of what was kept and finished"
    assert svg.count(">-3.00<") == 1
    translations.beam(Tree(nodes[:1], 0), "nothing searched", tmp_path / "root.png")


@pytest.mark.parametrize("target", [None, "BAC"])
def test_alignment_has_a_line_for_each_link(trained, tmp_path, target):
    look = load(trained).look("cab", target=target)
    assert translations.alignment(look, "alignment", tmp_path / "alignment.svg") is None
    svg = (tmp_path / "alignment.svg").read_text(encoding="utf-8")
    lines = svg.count(f"stroke: {drawing.BLUE}")
    assert lines >= len(look.alignment.links) > 0
    for token in (*look.source_tokens[:-1], *look.target_tokens[:-1]):
        assert f">{token}<" in svg


def test_a_picture_as_a_page_keeps_its_letters(tmp_path):
    translations.attention(weights(2, 3, 5), ROWS, COLUMNS, "<b> & 여우", tmp_path / "attention.html")
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert "&lt;b&gt; &amp; 여우" in page
    assert "<b>" not in page


def test_heads_by_worth_and_habit(tmp_path):
    """Two heads in each place: one is needed and looks back, one is in the way and looks nowhere in particular."""
    heads = [Head(place, 0, head) for place in ("encoder", "decoder", "cross") for head in range(2)]
    whole = Without([], 1.0, 50.0, 0.0, ["a"])
    without = [Without([head], 3.0 if head.head else 0.9, 25.0, 0.5, ["b"]) for head in heads]
    habits = [
        Habits(*head, 0.1, 0.1, 0.97, 1, -1, 0.9, 0.0, 0.1, 0.0)
        if head.head
        else Habits(*head, 1.0, 0.8, 0.31, 2.345, 0, 0.1, 0.1, 0.1, 0.1)
        for head in heads
    ]
    path = tmp_path / "heads.svg"
    assert translations.head_worth(Worth(7, whole, without), Statistics(7, habits), "bleu", "dates: $2$", path) is None
    svg = path.read_text(encoding="utf-8")
    for text in ("+2.000", "-0.100", "before", "± 2.3", "0.97", "0.31"):
        assert svg.count(f">{text}<") == 3, text
    assert svg.count(">50%<") == 6
    assert "7 pairs  ·  with all heads: loss 1.000, bleu 50.00" in svg
    needed = matplotlib.colors.to_hex(drawing.BELOW_TO_ABOVE(1.0))
    assert svg.count(f"fill: {needed}") == 3, "the most that is lost is the darkest blue"


def test_small_weights_among_many_tokens_can_be_seen(tmp_path):
    """A weight of 0.04 is three times as much as an even share of 80, and nearly white on an even scale."""
    shades = []
    for columns in (20, 80):
        weights_HLM = np.full((1, 20, columns), 0.04)
        path = tmp_path / f"{columns}.png"
        translations.attention(weights_HLM, ["a"] * 20, ["b"] * columns, "", path)
        drawn = pixels(path)
        shades.append(np.median(drawn[drawn.shape[0] // 2, drawn.shape[1] // 3 : drawn.shape[1] // 2, 0]))
    assert shades[0] > 240 > 225 > shades[1]


def test_a_long_title_is_as_wide_as_the_picture(tmp_path):
    title = labels.arrow("many words " * 12, "viele Wörter " * 12)
    translations.attention(weights(1, 3, 5), ROWS, COLUMNS, title, tmp_path / "long.png")
    translations.attention(weights(1, 3, 5), ROWS, COLUMNS, "short", tmp_path / "short.png")
    long, short = pixels(tmp_path / "long.png"), pixels(tmp_path / "short.png")
    assert long.shape[1] <= (drawing.LEAST_WIDE + 1) * 160
    assert long.shape[0] > short.shape[0] + 100


@given(
    st.text(alphabet="ab c漢\u2068\u2069", max_size=60),
    st.integers(1, 20),
)
def test_wrapped_lines_fit_and_lose_nothing(text, width):
    def bare(line):
        return re.sub("[\u2068\u2069]", "", line)

    lines = drawing.wrapped(text, lambda line: len(bare(line)) <= width)
    assert all(len(bare(line)) <= width for line in lines)
    assert "".join(map(bare, lines)).replace(" ", "") == bare(text).replace(" ", "")
    for line in lines:
        assert line.count("\u2068") <= line.count("\u2069"), "what is opened in a line is closed there"
