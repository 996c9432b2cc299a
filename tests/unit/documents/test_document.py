"""Documents are cut into sentences and put together again, by hand-made translations and alignments."""

import pytest

from seq2see.documents import document, flows, markup, placeholders, placing, units
from seq2see.documents.document import Options, Translated
from seq2see.documents.markup import Elements
from seq2see.errors import SettingError


def shouted(sentence, order=None):
    """Return the words of a sentence in capital letters, in another order if given, with the alignment."""
    spans = units.word_spans(sentence)
    text, links = "", []
    for place in order or range(len(spans)):
        start, end = spans[place]
        glued = order is None and (not place or spans[place - 1][1] == start)
        text += "" if glued or not text else " "
        links.append(((start, end), (len(text), len(text) + end - start)))
        text += sentence[start:end].upper()
    return Translated(text, links)


def translated(text, format="html", order=None, options=None, links=True):
    plan = document.plan(text, format, options)
    said = [shouted(sentence, order) for sentence in plan.sentences]
    return plan.join(said if links else [Translated(each.text) for each in said])


def test_a_sentence_is_translated_whole_and_its_tags_return_to_their_words():
    text = "<p>Click <b>the red</b> button.</p>"
    assert document.plan(text, "html").sentences == ["Click the red button."]
    assert translated(text).text == "<p>CLICK <b>THE RED</b> BUTTON.</p>"
    assert translated(text, order=[1, 3, 0, 2, 4]).text == "<p><b>THE</b> BUTTON CLICK RED .</p>"  # one of two
    assert translated(text, order=[3, 2, 1, 0]).text == "<p>BUTTON <b>RED THE</b> CLICK</p>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>one <i>two <b>three</b></i> four</p>", "<p>ONE <i>TWO <b>THREE</b></i> FOUR</p>"),
        ("<b>one <i>two</b> three</i> four", "<b>ONE <i>TWO</i></b> <i>THREE</i> FOUR"),
        ("<p>one <img src=x> two</p>", "<p>ONE <img src=x> TWO</p>"),
        ("<p>one<a id=x></a> two</p>", "<p>ONE<a id=x></a> TWO</p>"),
        ("<p>one <b>two. Three</b> four.</p>", "<p>ONE <b>TWO. THREE</b> FOUR.</p>"),
        ("<p>one\n  two</p>", "<p>ONE\n  TWO</p>"),
        ("<p>one &amp; <code>a &lt; b</code> two</p>", "<p>ONE &amp; <code>a &lt; b</code> TWO</p>"),
        ("<p>one <span translate=no>Two</span></p>", "<p>ONE <span translate=no>Two</span></p>"),
        ("<pre>one</pre><script>if (a<b) two()</script><style>x</style>", None),
        ("<img alt='a &quot;dog&quot;' title=\"it's\">", "<img alt='A &quot;DOG&quot;' title=\"IT&#x27;S\">"),
        ("<ul><li>one<li>two</ul>", "<ul><li>ONE<li>TWO</ul>"),
        ("one<br>two<br>Three", "ONE<br>TWO<br>THREE"),
        ("<p>one <!-- two --> three</p>", "<p>ONE <!-- two --> THREE</p>"),
        ("a < b and <unclosed", "A &lt; B AND &lt;UNCLOSED"),
    ],
)
def test_markup_by_hand(text, expected):
    assert translated(text).text == (text if expected is None else expected)


def test_in_xml_elements_beside_text_are_inline_and_names_can_be_given():
    text = "<a><b>one</b><c>two <d>three</d></c></a>"
    assert document.plan(text, "xml").sentences == ["one", "two three"]
    assert document.plan(text, "xml", Options(elements=Elements(block=frozenset(["d"])))).sentences == [
        *("one", "two", "three")
    ]
    assert document.plan(text, "xml", Options(elements=Elements(kept=frozenset(["c"])))).sentences == ["one"]
    assert document.plan(text, "xml", Options(elements=Elements(inline=frozenset("bc")))).sentences == ["onetwo three"]


def test_without_alignment_tags_keep_their_order_and_are_counted():
    joined = translated("<p>one <b>two</b> three</p>", links=False)
    assert joined.text == "<p>ONE <b>TWO</b> THREE</p>"
    assert joined.counts.tags == joined.counts.tags_guessed == 1


def test_a_repeated_sentence_is_translated_once():
    plan = document.plan("Yes. No. Yes.", "plain")
    assert plan.sentences == ["Yes.", "No."]
    assert plan.join([Translated("Ja."), Translated("Nein.")]).text == "Ja. Nein. Ja."
    with pytest.raises(ValueError, match="1 translations for 2"):
        plan.join([Translated("Ja.")])


@pytest.mark.parametrize(
    "placeholder",
    [
        *("%s", "%(name)d", "%-5.2f", "%1$s", "%1", "%%", "{0}", "{}", "{name}", "{{ name }}", "${x}"),
        *("https://example.org/a?b=(c)", "www.example.org/x", "somebody@example.org", "mailto:a@b.org"),
    ],
)
def test_placeholders_come_out_once_and_unchanged(placeholder):
    text = f"Hello {placeholder}, see (page)."
    assert [text[slice(*span)] for span in placeholders.find(text)] == [placeholder]
    joined = translated(text, "plain")
    assert joined.text == f"HELLO {placeholder}, SEE (PAGE)."
    assert (joined.counts.placeholders, joined.counts.aligned) == (1, 1)
    joined = translated(text, "plain", options=Options(stand_ins=("X1",)))
    assert joined.text == f"HELLO {placeholder}, SEE (PAGE)."
    assert joined.counts.copied == 1


@pytest.mark.parametrize("text", ["50% discount", "100 % sure", "a{b c}d", "5%s", "12.50", "a @ b", "$5"])
def test_what_is_no_placeholder(text):
    assert list(placeholders.find(text)) == []


def test_a_model_that_repeats_or_forgets_a_stand_in_loses_no_placeholder():
    plan = document.plan("Open %s now.", "plain", Options(stand_ins=("X1",)))
    assert plan.sentences == ["Open X1 now."]
    for said in ("X1 X1 X1", "öffne", "", "jetzt X1 X1 öffnen"):
        joined = plan.join([Translated(said)])
        assert joined.text.count("%s") == 1
        assert joined.counts.guessed == 1
    quoted = plan.join([Translated("Öffne 'dies' jetzt.", [((5, 7), (6, 12)), ((0, 4), (0, 5))])])
    assert quoted.text == "Öffne '%s' jetzt."
    joined = plan.join([Translated("Öffne dies jetzt.", [((5, 7), (6, 10)), ((0, 4), (0, 5))])])
    assert joined.text == "Öffne %s jetzt."
    assert joined.counts.aligned == 1


def test_what_is_not_a_human_language_is_translated_line_by_line_and_has_no_placeholders():
    plan = document.plan("C1CC%12. O\nN\n", "plain", Options(is_language=False))
    assert plan.sentences == ["C1CC%12. O", "N"]


def test_words_that_a_corpus_copies_stand_for_placeholders():
    pairs = [(f"Open %s in KDE{number}", f"KDE{number}에서 %s을(를) 열기") for number in range(9)]
    assert placeholders.copied_words(pairs) == ("%s",)
    assert placeholders.copied_words([("Open KDE now", "jetzt KDE öffnen")] * 5) == ("KDE",)
    assert placeholders.copied_words([("Open it", "Öffne es")] * 5) == ()


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("<!doctype html><title>x</title>", "html"),
        ("<?xml version='1.0'?><a/>", "xml"),
        ("<?xml version='1.0'?><html/>", "xml"),
        ("<?xml version='1.0'?><html lang='en'>", "html"),
        ("a <b>c</b>", "html"),
        ("if a < b and c > d: x", "plain"),
        ("x<y>z", "plain"),
    ],
)
def test_the_format_is_detected(text, format):
    assert markup.detect(text) == format


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(SettingError, match=r"--markup htm: unknown.*html"):
        document.plan("x", "htm")


def test_where_the_characters_of_a_flow_stand():
    flow = flows.TextFlow()
    text = "one  two &amp; three"
    flow.add_text(text, 0, 9)
    flow.add_literal("&", 9, 14)
    flow.add_text(text, 14, len(text))
    flow.finish(protect=True)
    assert flow.text == "one two & three"
    assert [text[slice(*flow.raw(*span))] for span in ((0, 3), (3, 4), (4, 7), (8, 9), (9, 15))] == [
        *("one", "  ", "two", "&amp;", " three")
    ]


def test_an_element_is_put_around_the_longest_run_of_its_words_and_siblings_do_not_overlap():
    sentence, translation = "a bb cc d", "bb x cc a bb d"
    links = [((2, 4), (0, 2)), ((5, 7), (5, 7)), ((0, 1), (8, 9)), ((2, 4), (10, 12)), ((8, 9), (13, 14))]
    items = [
        units.Item("open", (0, 0), (0, 1), 0, 1),
        units.Item("close", (1, 1), (1, 2), 1, 0),
        units.Item("open", (2, 2), (2, 3), 2, 3),
        units.Item("close", (7, 7), (3, 4), 3, 2),
    ]
    placed = placing.place(sentence, items, translation, links, str, lambda raw: "<>[]"[raw[0]])
    assert placed.text == "[bb x cc] <a> bb d"
    assert placed.tags_guessed == 0
