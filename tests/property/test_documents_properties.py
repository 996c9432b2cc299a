"""Documents come back as they were where nothing is translated, and well-formed whatever is."""

import re
import time
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seq2see.documents import document, markup, units
from seq2see.documents.document import Options, Translated
from seq2see.documents.segments import Limit, cut

PIECES = [
    *("<b>", "</b>", "<i class='x'>", "</i>", "<p>", "</p>", "<br>", "<br/>", "<img alt='A dog' src=x>", "<!-- c -->"),
    *("<code>", "</code>", "<pre>", "</pre>", "<script>", "</script>", "<span translate=no>", "</span>", "<li>", "<a"),
    *(
        "&amp;",
        "&lt;",
        "&nbsp;",
        "&unknown;",
        "&#x41;",
        "&#99999999;",
        "&",
        "<",
        ">",
        '"',
        "'",
        "=",
        "]]>",
        "<![CDATA[",
    ),
    *(" ", "  ", "\n", "\r\n", "\t", "\xa0", "\u3000", "%s", "{0}", "{{name}}", "${x}", "https://a.b/c.", "a@b.cd"),
    *(
        "one",
        "Two",
        "three. ",
        "Four!",
        "안녕하세요. ",
        "你好。",
        "สวัสดี",
        "e\u0301",
        "😀",
        "- item",
        "> quote",
        "# head",
        "|",
    ),
    *("a long line that a program has wrapped after so many letters\n", "```", "1. "),
]
documents = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
LIMIT = Limit(lambda texts: [len(text) for text in texts], 12)
options = st.sampled_from(
    [Options(), Options(stand_ins=("KDE", "%1")), Options(limit=LIMIT), Options(is_language=False), Options("de")]
)


@given(documents, st.sampled_from(["auto", "plain", "html", "xml"]), options)
@example("%0\xa00", "plain", Options())
def test_a_document_that_is_not_translated_comes_back_byte_for_byte(text, format, chosen):
    plan = document.plan(text, format, chosen)
    assert plan.join([Translated(sentence) for sentence in plan.sentences]).text == text
    assert all(sentence.strip() == sentence != "" for sentence in plan.sentences)
    assert len(set(plan.sentences)) == len(plan.sentences) == len(plan.aligned)


@given(documents, st.sampled_from(["plain", "html", "xml"]), options)
def test_every_placeholder_comes_out_as_often_as_it_went_in(text, format, chosen):
    plan = document.plan(text, format, chosen)
    joined = plan.join([Translated("x y") for _ in plan.sentences])
    counts = joined.counts
    assert counts.copied + counts.aligned + counts.guessed == counts.placeholders
    for placeholder in ("%s", "{0}", "{{name}}", "${x}", "https://a.b/c", "a@b.cd", "&unknown;", "<img "):
        if chosen.is_language and format == "html" and text.count("<") == text.count("<img"):
            assert joined.text.count(placeholder) == text.count(placeholder)


words = st.sampled_from(["one", "Two", "three,", "four.", "%s", "&amp;", "안녕", "你好", "<br/>", "<img/>", "{x}"])
inline = st.recursive(
    st.lists(words, max_size=4).map(" ".join),
    lambda inner: st.tuples(
        st.sampled_from("abciu"), st.lists(inner, min_size=1, max_size=3).map(" ".join), st.sampled_from(["", " "])
    ).map(lambda each: f"{each[2]}<{each[0]}>{each[1]}</{each[0]}>"),
    max_leaves=12,
)
links = st.lists(
    st.tuples(st.tuples(st.integers(0, 60), st.integers(1, 9)), st.tuples(st.integers(0, 60), st.integers(1, 9))).map(
        lambda each: tuple((start, start + length) for start, length in each)
    ),
    max_size=15,
)


@given(st.lists(inline, max_size=4).map(" ".join), st.lists(words, max_size=8).map(" ".join), links, options)
@settings(max_examples=300)
def test_whatever_the_alignment_says_the_result_is_well_formed_and_has_every_tag_once(
    content, translation, links, chosen
):
    text = f"<doc>{content}</doc>"
    translation = re.sub("<[^>]*>|&amp;", "z", translation)
    plan = document.plan(text, "xml", chosen)
    joined = plan.join([Translated(translation, links) for _ in plan.sentences]).text
    ElementTree.fromstring(joined)
    assert sorted(re.findall("<[^>]*>", joined)) == sorted(re.findall("<[^>]*>", text))
    if chosen.is_language:
        for placeholder in ("%s", "{x}"):
            in_sentences = sum(sentence.count(placeholder) for sentence in plan.sentences)
            assert joined.count(placeholder) >= text.count(placeholder) or in_sentences


@given(st.text(max_size=80), st.integers(1, 20))
def test_long_sentences_are_cut_and_nothing_is_dropped(text, most):
    parts = cut(text, Limit(lambda texts: [len(each) for each in texts], most))
    assert all(0 < end - start <= most for start, end in parts)
    assert "".join(text[start:end] for start, end in parts).split() == [] or "".join(
        "".join(text[start:end] for start, end in parts).split()
    ) == "".join(text.split())


@pytest.mark.parametrize(
    "hostile",
    [
        "<" * 75_000,
        "<a " * 25_000,
        '<a b=">"' * 10_000,
        "<b>" * 15_000,
        "<b>x " * 7_500,
        "<b>x</i> " * 7_500,
        "</b>" * 15_000,
        f"&#{'9' * 5000};" * 50,
        "&amp" * 20_000,
        "“" * 25_000,
        "<!--" * 15_000,
        "<script>" * 7_500,
        "<code>" * 10_000,
        "<p translate=no>" * 5_000,
        " \n" * 25_000,
        "a\n" * 10_000,
        "%s" * 10_000,
        "{" * 25_000,
        "a@" * 20_000,
        "a." * 25_000,
        "http://" * 7_500,
        "x" * 50_000,
        "<img alt='" * 5_000,
        "<p>" * 7_500 + "x" + "</p>" * 7_500,
        "<b><i>x</b></i>" * 2_000,
        "> " * 25_000,
        "| " * 12_500,
    ],
)
def test_hostile_documents_cost_linear_time(hostile):
    """Quadratic time would be more than that for each of these."""
    limit = Limit(lambda texts: [len(each) // 3 + 1 for each in texts], 100)
    for format in ("plain", "html", "xml"):
        started = time.perf_counter()
        plan = document.plan(hostile, format, Options(limit=limit))
        plan.join([Translated(sentence.upper(), [((0, 1), (0, 1))]) for sentence in plan.sentences])
        assert time.perf_counter() - started < 15


def test_words_and_signs_are_units():
    spans = units.word_spans("Don't touch: e\u0301t\u00e9, 你好!")
    assert ["Don't touch: e\u0301t\u00e9, 你好!"[slice(*span)] for span in spans] == [
        *("Don't", "touch", ":", "e\u0301té", ",", "你", "好", "!")
    ]


@given(st.text(max_size=40))
def test_tokens_are_the_whole_document(text):
    for dialect in ("html", "xml"):
        tokens = markup.scan(text, dialect, markup.Elements())
        assert "".join(text[token.start : token.end] for token in tokens) == text
