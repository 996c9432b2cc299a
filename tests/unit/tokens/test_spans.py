"""Every token knows its characters, in the text that was read and in the text that was made."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2see import special
from seq2see.text.tags import NO_TAGS, TagWords
from seq2see.tokens import spans, tokenizers

TEXTS = ["a bad cab", "bad  bed", "한국어 안녕", "12 mars 1987", "ein Tag im Mai"] * 4
KINDS = ["unigram", "bpe", "characters", "jamo", "symbols", "marks", "pattern"]


@pytest.fixture(scope="module", params=KINDS)
def made(request):
    return tokenizers.train(request.param, TEXTS, 330, pattern="words" if request.param == "pattern" else "")


def shown(text, found):
    return [text[start:end] for start, end in found]


def test_what_was_read(made):
    text = "  bad 한국 cab "
    found = spans.read(made, text)
    assert len(found) == len(made.encode([text.strip()])[0])
    whole = "".join(shown(text, found)).replace(" ", "")
    if made.kind == "jamo":  # three letters and three of two syllables: each has its whole syllable
        assert shown(text, found) == ["b", "a", "d", " ", "한", "한", "한", "국", "국", "국", " ", "c", "a", "b"]
    elif made.kind in ("unigram", "bpe"):  # the bytes of a letter share it
        assert list(dict.fromkeys(whole)) == list(dict.fromkeys("bad한국cab"))
    else:
        assert whole == "bad한국cab"


def test_words_with_unknown_tokens_are_named():
    texts = [f"<RX_{number}> CC(=O)O" for number in range(1, 4)] * 10
    words = TagWords(frozenset(f"<RX_{number}> " for number in range(1, 4)))
    made = tokenizers.train("pattern", texts, 60, pattern="smiles", words=words)
    assert spans.unknown_words(made, "<RX_3> CCO", {special.UNKNOWN}) == []
    assert spans.unknown_words(made, " <RX_99> CCO <RX_99>", {special.UNKNOWN}) == ["<RX_99>", "U+0020"]
    assert spans.unknown_words(made, "<RX_3>  CCO", {special.UNKNOWN}) == ["U+0020"]
    plain = tokenizers.train("symbols", ["a bad cab"] * 9, 30)
    assert spans.unknown_words(plain, "a bed bad cub bed", {special.UNKNOWN}) == ["bed", "cub"]


def test_what_was_written(made):
    text = "a bad 한국 cab"
    ids = made.encode([text])[0]
    found = spans.written(made, [*ids, special.END])
    assert found[-1][0] == found[-1][1], "the end has no characters"
    decoded = made.decode(ids)
    last = 0
    for start, end in found[:-1]:
        assert 0 <= start <= end <= len(decoded)
        assert end >= last
        last = end
    assert set(decoded.replace(" ", "")) <= set("".join(shown(decoded, found)))


def test_blanks_belong_to_nobody_else():
    made = tokenizers.train("unigram", TEXTS, 330)
    text = "a bad cab"
    for start, end in spans.written(made, made.encode([text])[0]):
        piece = text[start:end]
        assert piece == piece.strip() or not piece.strip()


def test_letters_that_bytes_spell_are_shared():
    made = tokenizers.train("unigram", ["abc"] * 9, 300)
    ids = made.encode(["a漢b"])[0]
    assert len(ids) > 4
    found = shown("a漢b", spans.read(made, "a漢b"))
    assert found.count("漢") == 3
    assert found[-1] == "b"
    assert spans.labels(made, ids)[-4:] == ["漢 1/3", "漢 2/3", "漢 3/3", "b"]


def test_bytes_that_spell_nothing_stay_inside_the_text():
    made = tokenizers.train("unigram", ["abc"] * 9, 300)
    broken = made.encode(["a漢b"])[0]
    del broken[-2]  # the last byte of the letter
    text = made.decode(broken)
    assert all(0 <= start <= end <= len(text) for start, end in spans.written(made, broken))
    assert len(spans.labels(made, broken)) == len(broken)


def test_normalisation_is_seen_through():
    made = tokenizers.train("characters", ["abcdefi é ㈜"], 99, "nfkc")
    assert shown("ﬁe\u0301b", spans.read(made, "ﬁe\u0301b")) == ["ﬁ", "ﬁ", "e\u0301", "b"]
    lower = tokenizers.train("characters", ["abc"], 99, "nfkc_lower")
    assert spans.read(lower, " AB") == [(1, 2), (2, 3)]


def test_a_tag_is_a_token():
    made = tokenizers.train("characters", ["abc"], 99, tags=["<2de>"])
    assert spans.read(made, "<2de>  ab") == [(0, 5), (7, 8), (8, 9)]
    assert spans.read(made, "ab") == [(0, 1), (1, 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_tags_of_the_texts_are_tokens(kind):
    words = TagWords(frozenset({"<N", ";SG", "> "}), frozenset({" V", ";PST"}))
    plain, made = (
        tokenizers.train(kind, TEXTS, 330, pattern="words" if kind == "pattern" else "", words=each)
        for each in (NO_TAGS, words)
    )
    text = "  <N;SG> bad  한국 V;PST "
    found = spans.read(made, text)
    assert len(found) == len(made.encode([text.strip()])[0])
    assert shown(text, found[:3]) == ["<N", ";SG", ">"]
    assert shown(text, found[-2:]) == ["V", ";PST"]
    between = spans.read(plain, "bad  한국")
    assert found[3:-2] == [(start + 9, end + 9) for start, end in between]
    ids = made.encode(["<N;SG> bad V;PST"])[0]
    labels = shown("<N;SG> bad V;PST", spans.written(made, ids))
    assert (labels[:3], labels[-2:]) == (["<N", ";SG", ">"], ["V", ";PST"])
    assert spans.labels(made, ids)[:2] == ["<N", ";SG"]


def test_words():
    assert spans.words(" a  bc\u3000d") == [(1, 2), (4, 6), (7, 8)]
    assert spans.is_blank("a b", (1, 2))
    assert spans.is_blank("a b", (1, 1))
    assert not spans.is_blank("a b", (1, 3))


def test_spans_that_touch_have_a_character_in_common():
    assert spans.touching([(0, 2), (2, 3), (3, 3), (3, 6)], (1, 4)) == [0, 1, 3]
    assert spans.touching([(0, 2)], (2, 4)) == []


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="ab cde漢한국é\u0301ﬁ\u200d", max_size=12), st.sampled_from(KINDS), st.booleans())
def test_any_text_has_a_span_for_each_token(text, kind, normal):
    made = MADE.setdefault(
        (kind, normal),
        tokenizers.train(
            kind, TEXTS, 330, "nfkc" if normal else "identity", pattern="words" if kind == "pattern" else ""
        ),
    )
    found = spans.read(made, text)
    assert len(found) == len(made.encode([text.strip()])[0])
    assert all(0 <= start <= end <= len(text) for start, end in found)
    assert [start for start, _ in found] == sorted(start for start, _ in found)


MADE: dict = {}


@pytest.mark.parametrize("text", ["a bad 한국 cab 日本 ▁ x " * 40, "".join(map(chr, range(0x4E00, 0x4E00 + 400)))])
def test_long_texts_have_the_spans_of_whole_prefixes(made, text, monkeypatch):
    ids = made.encode([text])[0]
    found = spans.written(made, ids)
    monkeypatch.setattr(spans, "CONTEXT", len(text) * 4)
    assert spans.written(made, ids) == found


@pytest.mark.parametrize("kind", ["bpe", "symbols"])
def test_normalised_long_texts_have_the_spans_of_whole_prefixes(kind, monkeypatch):
    trained = tokenizers.train(kind, TEXTS, 330, "nfkc_lower")
    text = "Ａ ﬁne İst e\u0301\u0316 ㎏ BAD " * 30
    found = spans.read(trained, text)
    monkeypatch.setattr(spans, "CONTEXT", len(text) * 4)
    assert spans.read(trained, text) == found


def test_spans_take_linear_time(monkeypatch):
    """Every prefix was decoded from its start: 10,000 distinct characters, 30,000 bytes, took minutes."""
    trained = tokenizers.train("bpe", TEXTS, 330)
    ids = trained.encode(["".join(map(chr, range(0x4E00, 0x4E00 + 2000)))])[0]
    decoded = []
    decode = trained.decode
    monkeypatch.setattr(trained, "decode", lambda ids: decoded.append(len(ids)) or decode(ids))
    spans.written(trained, ids)
    assert sum(decoded) < 100 * len(ids)
