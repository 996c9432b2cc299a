"""Plain text becomes paragraphs and sentences; what is between them is not lost."""

import pytest

from seq2see.documents import document, segments
from seq2see.documents.segments import Limit


def paragraphs(text):
    return [[text[slice(*line)] for line in lines] for lines in segments.paragraphs(text)]


def sentences(text, language=None):
    return [text[slice(*span)] for span in segments.sentences(text, language)]


def test_wrapped_lines_are_joined_and_others_are_not():
    wrapped = (
        "This is a paragraph of an e-mail that a program\nhas wrapped after so many letters that it is easy\nto see."
    )
    assert paragraphs(wrapped) == [wrapped.split("\n")]
    assert paragraphs("apples\noranges\npears") == [["apples"], ["oranges"], ["pears"]]
    assert paragraphs("One line.\n\nAnother.") == [["One line."], ["Another."]]


def test_lists_headings_tables_quotations_and_code_are_apart():
    text = "# Title\n\nText here\n- one\n* two\n3. three\n> quoted\n>> deeper\n| a | b c |\n```\ncode\n```\nend"
    assert paragraphs(text) == [
        *(["Title"], ["Text here"], ["one"], ["two"], ["three"], ["quoted"], ["deeper"], ["a"], ["b c"], ["end"])
    ]


def test_quoted_lines_are_joined_and_keep_their_signs():
    text = "> this is the first line of a quotation which was\n> wrapped by a program for e-mail"
    plan = document.plan(text, "plain")
    assert plan.sentences == [text.replace("\n>", "").removeprefix("> ")]
    said = plan.join([document.Translated(plan.sentences[0].upper())]).text
    assert said == text.upper()


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["Dr. Smith met Mr. Jones in the U.S. on Jan. 5.", "He left at 5 p.m. on Monday!", '"Why?" she asked.']),
        ("de", ["Das ist z. B. gut.", "Am 3. Oktober fahren wir.", "Wirklich?"]),
        ("ko", ["안녕하세요.", "저는 3.5도에서 일합니다!", "정말요?"]),
        ("ja", ["吾輩は猫である。", "名前はまだ無い。"]),
        ("zh", ["你好。", "我是学生！", "你呢？"]),
        ("hi", ["मैं छात्र हूँ।", "तुम कौन हो?"]),
    ],
)
def test_sentences_of_many_languages(language, expected):
    text = ("" if language in ("ja", "zh") else " ").join(expected)
    assert sentences(text, language) == expected
    assert segments.guess_language(text) == (language if language != "de" else "en")


def test_long_paragraphs_are_split_as_short_ones():
    text = " ".join(f"This is sentence number {number}." for number in range(500))
    assert sentences(text, "en") == [f"This is sentence number {number}." for number in range(500)]


def test_long_sentences_are_cut_at_the_best_place():
    limit = Limit(lambda texts: [len(each.split()) for each in texts], 6)
    text = "one two three, four five; six seven eight nine ten"
    assert [text[slice(*span)] for span in segments.cut(text, limit)] == [
        *("one two three, four five;", "six seven eight nine ten")
    ]
    thai = "ก" * 40
    limit = Limit(lambda texts: [len(each) for each in texts], 15)
    assert [end - start for start, end in segments.cut(thai, limit)] == [15, 15, 10]
