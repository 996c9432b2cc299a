import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2see import patterns, special
from seq2see.text.tags import TagWords
from seq2see.tokens import korean_letters, spans, tokenizers

TEXTS = ["the cat sat on the mat", "a dog, a log (and 12 frogs)", "나는 학생입니다", "été ça"] * 5
anything = st.text(st.characters(exclude_categories=["Cs"]))
awkward = st.text(st.sampled_from(list(" \t\n\0▁▅⁇\ufdd001e\u0301<s>/가")))


@functools.cache
def trained(kind, normalization="identity"):
    return tokenizers.train(kind, TEXTS, 400, normalization, pattern="words" if kind == "pattern" else "")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@settings(deadline=None)
@given(texts=st.lists(anything | awkward, max_size=4))
def test_subwords_give_back_any_text(kind, texts):
    encoded = trained(kind).encode(texts)
    assert [trained(kind).decode(ids) for ids in encoded] == texts
    assert not {id for ids in encoded for id in ids} & set(range(special.COUNT))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@settings(deadline=None, max_examples=25)
@given(texts=st.lists(anything | awkward, min_size=1, max_size=4).filter(any), vocabulary=st.integers(1, 600))
def test_subwords_trained_on_any_text_give_it_back(kind, texts, vocabulary):
    learned = tokenizers.train(kind, texts, vocabulary)
    assert [learned.decode(ids) for ids in learned.encode(texts)] == texts


@settings(deadline=None)
@given(text=st.text(st.sampled_from(sorted(set("".join(TEXTS))))))
def test_characters_give_back_what_they_have_seen(text):
    for kind in ("characters", "pattern", "jamo"):
        assert trained(kind).decode(trained(kind).encode([text])[0]) == text


@settings(deadline=None)
@given(text=st.lists(st.sampled_from(" ".join(TEXTS).split())).map("  ".join))
def test_symbols_give_back_the_text_with_single_spaces(text):
    assert trained("symbols").decode(trained("symbols").encode([text])[0]) == " ".join(text.split())


@pytest.mark.parametrize("kind", ["unigram", "bpe", "characters", "symbols", "marks", "pattern", "jamo"])
@settings(deadline=None)
@given(texts=st.lists(anything, max_size=3), other=anything)
def test_a_text_is_cut_the_same_alone_and_in_company(kind, texts, other):
    assert trained(kind).encode([*texts, other])[:-1] == [trained(kind).encode([text])[0] for text in texts]


@pytest.mark.parametrize("how", ["nfkc", "nfkc_lower"])
@settings(deadline=None)
@given(text=anything)
def test_what_comes_back_is_the_normalised_text(how, text):
    subwords = trained("unigram", how)
    assert subwords.decode(subwords.encode([text])[0]) == tokenizers.normalize(text, how)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "characters", "symbols", "marks", "pattern", "jamo"])
@settings(deadline=None)
@given(data=st.data())
def test_whatever_a_model_says_can_be_decoded_and_labelled(kind, data):
    ids = data.draw(st.lists(st.integers(0, len(trained(kind)) - 1)))
    assert isinstance(trained(kind).decode(ids), str)
    assert all(label.isprintable() and " " not in label for label in trained(kind).pieces(ids))


korean = st.text(st.sampled_from([*"가각힣한ㄱㅏ \ufdd0⁇", *"\u1100\u1112\u1161\u1175\u11a7\u11a8\u11c2\u11c3"]))
molecule = st.text(st.sampled_from("CcNnOBrl[]()@H+-=#%12>.\\/ "))
PATTERNS = ["smiles", "words", "code", "a+|ab", r"(?=b)|\s+", r"\b", "(?s:..)", "[^가]+"]


@settings(deadline=None)
@given(texts=st.lists(anything | korean, min_size=1, max_size=4).filter(any))
def test_korean_letters_give_back_any_text(texts):
    learned = tokenizers.train("jamo", texts, 1000)
    assert [learned.decode(ids) for ids in learned.encode(texts)] == texts


@settings(deadline=None)
@given(text=anything | korean)
def test_korean_letters_are_apart_for_any_text(text):
    letters = korean_letters.decompose(text)
    assert korean_letters.compose("".join(letters)) == text
    assert not any("가" <= letter <= "힣" for letter in letters)


@settings(deadline=None)
@given(
    texts=st.lists(anything | awkward | molecule, min_size=1, max_size=4).filter(any),
    pattern=st.sampled_from(PATTERNS),
    room=st.integers(0, 10),
)
def test_a_pattern_gives_back_any_text(texts, pattern, room):
    learned = tokenizers.train("pattern", texts, special.COUNT + len(set("".join(texts))) + room, pattern=pattern)
    assert [learned.decode(ids) for ids in learned.encode(texts)] == texts


@settings(deadline=None)
@given(text=anything | awkward | molecule, pattern=st.sampled_from(PATTERNS))
def test_a_pattern_loses_nothing_of_any_text(text, pattern):
    pieces = patterns.compiled(pattern, "pattern").cut(text)
    assert "".join(pieces) == text
    assert all(pieces)


tags = st.sampled_from(["<RX_1>", "<N;SG>", "<N;ZZ>", "V;PST", "V", "", " ", "the", "한국"])
TAGS = TagWords(frozenset({"<RX_1> ", "<N", ";SG", "> "}), frozenset({" V", ";PST"}))


@pytest.mark.parametrize("kind", ["unigram", "bpe", "characters", "pattern", "jamo"])
@settings(deadline=None, max_examples=40)
@given(words=st.lists(tags, max_size=6), text=anything | awkward)
def test_texts_with_tags_come_back(kind, words, text):
    """Also with tags where none belong; characters that training has not shown are unknown to all but subwords."""
    made = tagged(kind)
    whole = " ".join([*words, text, *words])
    if kind not in ("unigram", "bpe"):
        whole = "".join(each for each in whole if each in "".join(TEXTS) + "<>RX_1N;SGZVPT한국")
    [ids] = made.encode([whole])
    assert made.decode(ids) == whole
    assert len(spans.read(made, whole)) == len(made.encode([whole.strip()])[0])


@functools.cache
def tagged(kind):
    texts = [*TEXTS, "<>RX_1N;SGZVPT", "한국"]
    return tokenizers.train(kind, texts, 430, pattern="words" if kind == "pattern" else "", words=TAGS)
