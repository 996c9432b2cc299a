import base64
import io
import json
import subprocess
import sys
import unicodedata

import pytest
import sentencepiece

from seq2see import patterns, special
from seq2see.errors import DataError, RunError
from seq2see.text.tags import TagWords, language_tag
from seq2see.tokens import korean_letters, sentencepiece_models, tokenizers

TEXTS = ["the cat sat on the mat", "hello world 2024", "안녕하세요 세계"] * 20
SUBWORDS = ("unigram", "bpe")
KINDS = (*SUBWORDS, "characters", "symbols", "marks", "jamo", "pattern")


def train(kind, *arguments, **further):
    """With a pattern where the kind needs one."""
    return tokenizers.train(kind, *arguments, **({"pattern": "words"} if kind == "pattern" else {}), **further)


@pytest.fixture(scope="module", params=SUBWORDS)
def subwords(request):
    return tokenizers.train(request.param, TEXTS, vocabulary=320)


@pytest.mark.parametrize(
    "text",
    ["", " ", "  two  spaces ", "\ttab\t", "a▁b ▁▁", "\ufdd0 \ufdd00 \ufdd01", "</s><s><pad><unk>", "<0x41>",
     "nul\0byte", "line\r\nbreak", "e\u0301 é", "👩‍👩‍👧 ⁇ ▅", "\ufeff\u200b\u3000", "\x7f\x80\U0010ffff",
     "the cat 안녕"],
)  # fmt: skip
def test_subwords_give_any_text_back(subwords, text):
    [ids] = subwords.encode([text])
    assert not set(ids) & set(range(special.COUNT))
    assert subwords.decode(ids) == text


def test_a_text_has_the_same_ids_alone_and_among_many(subwords):
    texts = [f"hello world {number} 안녕" for number in range(3 * tokenizers.FEW_TEXTS)]
    assert subwords.encode(texts) == [subwords.encode([text])[0] for text in texts]


def test_special_ids_are_silent_and_unknown_is_a_mark(subwords):
    [ids] = subwords.encode(["hello"])
    assert subwords.decode([special.BEGIN, *ids, special.END, special.PAD, special.PAD]) == "hello"
    assert "⁇" in subwords.decode([special.UNKNOWN, *ids])


def test_labels_of_subwords(subwords):
    assert subwords.pieces(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
    [ids] = subwords.encode(["the あQ\t"])
    labels = subwords.pieces(ids)
    assert "".join(labels) == "▁the▁xE3x81x82Qx09"


def test_digits_stay_apart(subwords):
    [ids] = subwords.encode(["2024"])
    assert [label for label in subwords.pieces(ids) if label != "▁"] == ["2", "0", "2", "4"]


@pytest.mark.parametrize("kind", SUBWORDS)
@pytest.mark.parametrize(
    "texts", [["a"], [" "], ["▅"], ["<s></s>"], ["one", "two", "three"], ["x" * 9000], ["\0\t"], ["\n"]]
)
@pytest.mark.parametrize("vocabulary", [8, 262, 8000])
def test_tiny_corpora_train(kind, texts, vocabulary):
    trained = tokenizers.train(kind, texts, vocabulary)
    distinct = len(set("".join(texts)))
    assert len(trained) <= max(vocabulary, special.COUNT + 256 + distinct + 1)
    assert [trained.decode(ids) for ids in trained.encode(texts)] == texts


@pytest.mark.parametrize("kind", SUBWORDS)
def test_a_large_alphabet_leaves_room_for_pieces(kind):
    syllables = "".join(chr(0xAC00 + number) for number in range(3000))
    trained = tokenizers.train(kind, [syllables] + [f"가나다라{end}" for end in "마바사아자"] * 500, vocabulary=600)
    assert len(trained) <= 600
    assert len(trained.encode(["가나다라"])[0]) < 4
    assert trained.decode(trained.encode([syllables])[0]) == syllables


@pytest.mark.parametrize("kind", KINDS)
def test_a_corpus_without_text_is_the_users_mistake(kind):
    with pytest.raises(DataError, match="no text"):
        train(kind, ["", ""], vocabulary=50)


def test_the_vocabulary_reaches_the_size_asked():
    words = [f"{a}{b}{c} {c}{a}" for a in "bcdfgh" for b in "aeiou" for c in "lmnr"]
    for kind in SUBWORDS:
        assert len(tokenizers.train(kind, words, vocabulary=300)) == 300


def test_characters_keep_the_most_frequent_and_call_the_rest_unknown():
    trained = tokenizers.train("characters", ["aaa bb", "c"], vocabulary=special.COUNT + 2)
    assert trained.encode(["ab c"]) == [[4, 5, special.UNKNOWN, special.UNKNOWN]]
    assert trained.decode([special.BEGIN, 4, special.UNKNOWN, 5, special.END]) == "a⁇b"
    spaced = tokenizers.train("characters", ["a b\t"], vocabulary=50)
    assert spaced.pieces(spaced.encode(["a b\t"])[0]) == ["a", "▁", "b", "\\t"]


def test_symbols_are_cut_at_any_white_space():
    trained = tokenizers.train("symbols", ["HH AH0 L OW1", "AH0"], vocabulary=50)
    [ids] = trained.encode(["  HH\tAH0   ZZ </s> "])
    assert ids == [5, 4, special.UNKNOWN, special.UNKNOWN]
    assert trained.decode(ids) == "HH AH0 ⁇ ⁇"


def test_ties_are_broken_by_code_point_not_by_order_of_texts():
    one, other = (tokenizers.train("symbols", texts, vocabulary=6) for texts in (["b a c"], ["c b", "a"]))
    assert one.pieces(range(4, 6)) == other.pieces(range(4, 6)) == ["a", "b"]


@pytest.mark.parametrize(("how", "expected"), [("identity", "Ａ① Éİ"), ("nfkc", "A1 Éİ"), ("nfkc_lower", "a1 éi̇")])
@pytest.mark.parametrize("kind", ["unigram", "characters"])
def test_normalisation_comes_first_and_is_kept(kind, how, expected, tmp_path):
    text = "Ａ① Éİ"
    tokenizers.train(kind, [text], 300, how).save(tmp_path / "t.json")
    loaded = tokenizers.load(tmp_path / "t.json")
    assert loaded.normalization == how
    assert loaded.decode(loaded.encode([text])[0]) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_replaced(kind):
    trained = train(kind, ["a\ud800"], 300)
    assert trained.decode(trained.encode(["a\udfff"])[0]) == "a\ufffd"


@pytest.mark.parametrize("kind", KINDS)
def test_load_gives_back_what_was_saved(kind, tmp_path):
    trained = train(kind, TEXTS, 320)
    trained.save(tmp_path / "one.json")
    loaded = tokenizers.load(tmp_path / "one.json")
    loaded.save(tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert (loaded.kind, len(loaded)) == (kind, len(trained))
    assert loaded.encode(TEXTS) == trained.encode(TEXTS)
    assert loaded.pieces(range(len(loaded))) == trained.pieces(range(len(trained)))


def _foreign_model() -> str:
    """A sound SentencePiece model whose special ids are not ours."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=written, vocab_size=40, hard_vocab_limit=False, minloglevel=2
    )
    return base64.b64encode(written.getvalue()).decode()


@pytest.mark.parametrize(
    "broken",
    ["", "{", "[]", "null", "{}", '{"version": 1}', '{"version": 1, "kind": "words", "normalization": "identity"}',
     '{"version": 1, "kind": "bpe", "normalization": "identity", "model": ""}',
     '{"version": 1, "kind": "bpe", "normalization": "identity", "model": "AAAA"}',
     '{"version": 1, "kind": "bpe", "normalization": "identity", "model": "é"}',
     '{"version": 1, "kind": "symbols", "normalization": "identity", "symbols": 3}',
     '{"version": 1, "kind": "pattern", "normalization": "identity", "symbols": ["a"]}',
     '{"version": 1, "kind": "pattern", "normalization": "identity", "pattern": "[", "symbols": ["a"]}',
     '{"version": 2, "kind": "characters", "normalization": "identity", "symbols": ["a"]}',
     '{"version": 2, "kind": "characters", "normalization": "identity", "symbols": ["a"], "front": 3, "back": []}',
     '{"version": 2, "kind": "characters", "normalization": "identity", "symbols": ["a"], "front": [3], "back": []}',
     '{"version": 2, "kind": "symbols", "normalization": "identity", "symbols": [], "front": ["x", "x"], "back": []}'],
)  # fmt: skip
def test_a_broken_file_is_one_clear_line(broken, tmp_path):
    path = tmp_path / "source.tokenizer.json"
    path.write_text(broken, encoding="utf-8")
    with pytest.raises(RunError, match=r"source\.tokenizer\.json: not a tokenizer file") as caught:
        tokenizers.load(path)
    assert "\n" not in str(caught.value)


def test_a_foreign_newer_or_missing_file_is_refused(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(
        json.dumps({"version": 1, "kind": "unigram", "normalization": "identity", "model": _foreign_model()}),
        encoding="utf-8",
    )
    with pytest.raises(RunError, match="not a tokenizer file"):
        tokenizers.load(path)
    path.write_text('{"version": 3}', encoding="utf-8")
    with pytest.raises(RunError, match="newer"):
        tokenizers.load(path)
    with pytest.raises(RunError, match="no such"):
        tokenizers.load(tmp_path / "nowhere.json")


def test_a_sample_is_bounded_even_and_the_same_each_time(monkeypatch):
    monkeypatch.setattr(sentencepiece_models, "SAMPLE_TEXTS", 100)
    texts = [str(number) for number in range(10_000)]
    chosen = sentencepiece_models.sample(iter(texts))
    assert len(set(chosen)) == 100
    assert chosen == sentencepiece_models.sample(iter(texts))
    assert 4000 < sum(map(int, chosen)) / 100 < 6000


def test_training_again_in_a_new_process_gives_the_same_model(subwords, tmp_path):
    path = tmp_path / "again.json"
    program = (
        "import sys, json, pathlib; from seq2see.tokens import tokenizers; assert 'torch' not in sys.modules; "
        "tokenizers.train(sys.argv[1], json.loads(sys.argv[2]), 320).save(pathlib.Path(sys.argv[3]))"
    )
    subprocess.run([sys.executable, "-c", program, subwords.kind, json.dumps(TEXTS), str(path)], check=True)
    subwords.save(tmp_path / "here.json")
    assert path.read_bytes() == (tmp_path / "here.json").read_bytes()


TAGS = [language_tag("de"), language_tag("pt-BR")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", ["identity", "nfkc_lower"])
def test_a_tag_in_front_is_one_token_and_changes_no_other(kind, normalization, tmp_path):
    tagged = train(kind, TEXTS, 320, normalization, TAGS)
    tagged.save(tmp_path / "tagged.json")
    for each in (tagged, tokenizers.load(tmp_path / "tagged.json")):
        plain, german, brazilian, both = each.encode(
            ["hello world", "<2de> hello world", "<2pt-BR>hello world", "<2de> <2pt-BR> hello world"]
        )
        assert german == [special.COUNT, *plain]
        assert brazilian == [special.COUNT + 1, *plain]
        assert both[0] == special.COUNT
        assert each.pieces(german[:1]) == each.spellings()[special.COUNT : special.COUNT + 1] == ["<2de>"]
        assert len(each.spellings()) == len(set(each.spellings())) == len(each)
        assert each.encode(["<2de>", ""]) == [[special.COUNT], []]
        assert special.COUNT not in each.encode(["<2fr> hello", "<2 de>hello"])[0]


@pytest.mark.parametrize("kind", SUBWORDS)
def test_a_text_cannot_spell_a_tag_unless_in_front(kind):
    tagged = tokenizers.train(kind, TEXTS, 320, tags=TAGS)
    assert not set(tagged.encode(["hello <2de> world"])[0]) & {special.COUNT, special.COUNT + 1}
    assert tagged.decode(tagged.encode(["hello <2de> world"])[0]) == "hello <2de> world"


def test_a_tokenizer_without_tags_is_written_as_before(tmp_path):
    tokenizers.train("characters", TEXTS, 50).save(tmp_path / "plain.json")
    assert "tags" not in json.loads((tmp_path / "plain.json").read_text(encoding="utf-8"))


def test_a_model_that_lacks_its_tags_is_refused(tmp_path):
    tokenizers.train("unigram", TEXTS, 320).save(tmp_path / "plain.json")
    state = json.loads((tmp_path / "plain.json").read_text(encoding="utf-8"))
    (tmp_path / "damaged.json").write_text(json.dumps(state | {"tags": ["<2de>"]}), encoding="utf-8")
    with pytest.raises(RunError, match="damaged"):
        tokenizers.load(tmp_path / "damaged.json")


def cut(pattern, text):
    return patterns.compiled(pattern, "pattern").cut(text)


def test_a_pattern_cuts_and_leaves_characters_between():
    trained = tokenizers.train("pattern", ["ab12 cd3"], 50, pattern=r"\d+")
    [ids] = trained.encode(["ab12 cd3"])
    assert trained.pieces(ids) == ["a", "b", "12", "▁", "c", "d", "3"]
    assert trained.decode(ids) == "ab12 cd3"


def test_what_a_pattern_has_no_room_for_is_spelled_in_characters():
    texts = ["tea tea tea", "eat"]
    trained = tokenizers.train("pattern", texts, special.COUNT + 5, pattern="words")
    assert sorted(trained.spellings()[special.COUNT :]) == [" ", "a", "e", "t", "tea"]
    assert [trained.pieces([*ids]) for ids in trained.encode(["eat tea at", "x"])] == [
        ["e", "a", "t", "▁", "tea", "▁", "a", "t"],
        ["<unk>"],
    ]


@pytest.mark.parametrize("pattern", ["(?=a)", r"\b", "(?=b)|a+", "x*?y|(?<=b)"])
def test_a_match_without_a_character_is_no_token(pattern):
    assert "" not in cut(pattern, "baab c")
    assert "".join(cut(pattern, "baab c")) == "baab c"


def test_groups_in_a_pattern_change_nothing():
    assert cut("(a(b)?)|(c)", "abacx") == ["ab", "a", "c", "x"]


def test_a_tokenizer_keeps_the_expression_and_not_its_name(tmp_path, monkeypatch):
    tokenizers.train("pattern", ["CBr"], 50, pattern="smiles").save(tmp_path / "t.json")
    monkeypatch.setattr("seq2see.patterns.NAMED", {})
    loaded = tokenizers.load(tmp_path / "t.json")
    assert loaded.pieces(loaded.encode(["CBr"])[0]) == ["C", "Br"]


def test_korean_syllables_are_cut_into_letters():
    trained = tokenizers.train("jamo", ["한글, ok ㅋㅋ"], 50)
    [ids] = trained.encode(["한글, ok ㅋㅋ"])
    assert trained.pieces(ids) == [*"\u1112\u1161\u11ab\u1100\u1173\u11af", *",▁ok▁ㅋㅋ"]
    assert trained.decode(ids) == "한글, ok ㅋㅋ"
    assert trained.decode(trained.encode(["학 흔 간"])[0][:2]) == "하"
    assert "".join(korean_letters.decompose("각힣")) == unicodedata.normalize("NFD", "각힣")


@pytest.mark.parametrize(
    "text", ["\u1100\u1161", "가\u11a8", "\u1100가\u1161", "\ufdd0가", "\ufdd0\ufdd0\u1100\u1161\ufdd0", "\ua960\ud7b0"]
)
def test_loose_korean_letters_stay_loose(text, tmp_path):
    trained = tokenizers.train("jamo", [text], 50)
    trained.save(tmp_path / "t.json")
    [ids] = trained.encode([text])
    assert trained.decode(ids) == tokenizers.load(tmp_path / "t.json").decode(ids) == text


def test_letters_that_make_no_syllable_are_said_as_they_are():
    """Whatever a model says has a text."""
    trained = tokenizers.train("jamo", ["한"], 50)
    lead, vowel, tail = trained.encode(["한"])[0]
    assert trained.decode([tail, lead, lead, vowel, special.UNKNOWN]) == "\u11ab\u1112하⁇"


@pytest.mark.parametrize("kind", KINDS)
def test_what_training_has_shown_is_familiar_and_what_it_has_not_is_not(kind):
    trained = train(kind, TEXTS, 400)
    for text in TEXTS[:3]:
        assert trained.familiar(text) == 1
    for nothing in ("", "  ", "\u3000"):
        assert trained.familiar(nothing) == 1
    for text in ("Привет", "😀😀", "日本"):
        assert trained.familiar(text) == 0
    assert trained.familiar("cat 😀") == 0.75
    if kind != "marks":  # which reads both forms alike
        assert trained.familiar(unicodedata.normalize("NFD", "안녕하세요")) < 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_token_is_named_once_and_in_order(kind):
    trained = train(kind, TEXTS, 400)
    assert [trained.unknown(text) for text in (*TEXTS[:3], "", " ")] == [[]] * 5
    assert trained.unknown("cat 😀 Ж 😀") == ["😀", "Ж"]


def test_a_script_of_a_few_letters_is_not_familiar():
    korean = ["가나다라마바사아자차카타파하 거너더러머버서어저처커터퍼허"] * 9
    trained = tokenizers.train("characters", [*korean, "ab"], 500)
    assert trained.scripts == ["HANGUL", "LATIN"]
    trained = tokenizers.train("characters", [*korean, "고노도로모보소오조초코토포호", "ab"], 500)
    assert trained.scripts == ["HANGUL"]
    assert (trained.familiar("ab"), trained.familiar("가나 ab")) == (0, 0.5)
    trained = tokenizers.train("jamo", [*korean, "ab"], 500)  # few letters make many syllables
    assert (trained.scripts, trained.familiar("가나 ab")) == (["HANGUL"], 0.5)
    trained = tokenizers.train("jamo", [*korean, "the quick brown fox"], 500)
    assert trained.scripts == ["HANGUL", "LATIN"]


def test_familiar_after_normalisation_and_a_tag():
    trained = tokenizers.train("characters", ["abc"], 50, "nfkc_lower", tags=["<2de>"])
    assert trained.familiar("ＡBc") == 1
    assert trained.familiar("<2de> abc") == 1
    assert trained.familiar("<2de> xyz") == 0


@pytest.mark.parametrize(
    ("kind", "normalization", "text", "can"),
    [
        ("characters", "identity", "abC", True),
        ("characters", "identity", "abz", False),
        ("characters", "nfkc_lower", "abc", True),
        ("characters", "nfkc_lower", "abC", False),
        ("characters", "nfkc", "a\uff42c", False),
        ("symbols", "identity", "ab Cb", True),
        ("symbols", "identity", "ab  Cb", False),
        ("symbols", "identity", "ab Ca", False),
        ("unigram", "identity", "abz  \u2026", True),
        ("unigram", "nfkc", "abz \u2026", False),
    ],
)
def test_what_a_model_can_write(kind, normalization, text, can):
    made = tokenizers.train(kind, ["ab Cb", "b ab", "c"], 400, normalization)
    assert made.can_write(text) == can


WORDS = TagWords(frozenset({"<N", ";SG", "> ", "<RX_1> "}), frozenset({" V", ";SG", ";PST"}))


@pytest.mark.parametrize("kind", KINDS)
def test_words_that_are_tags_are_tokens(kind, tmp_path):
    plain = train(kind, TEXTS, 320)
    made = train(kind, TEXTS, 320 + 6, words=WORDS)
    made.save(tmp_path / "tagged.json")
    for each in (made, tokenizers.load(tmp_path / "tagged.json")):
        assert (each.kind, len(each)) == (kind, len(plain) + 6)
        between = plain.encode(["the cat"])[0]
        [ids] = each.encode(["<N;SG> the cat V;PST"])
        assert each.pieces(ids) == ["<N", ";SG", ">", *plain.pieces(between), "V", ";PST"]
        assert ids[3:-2] == between
        for text in ("<N;SG> the cat V;PST", "<RX_1> hello", "the cat", "hello V;SG", "<RX_1> <RX_1> hello"):
            [ids] = each.encode([text])
            assert each.decode([special.BEGIN, *ids, special.END]) == text
        assert each.spellings()[len(plain) :] == sorted(WORDS.front | WORDS.back)
        assert each.familiar("<RX_1> the cat V;PST") == 1
        assert each.familiar("<RX_1> ЖЖ") == 0
        assert each.unknown("<N;SG> the cat V;SG") == []
        assert each.scripts == plain.scripts


@pytest.mark.parametrize("kind", ["unigram", "characters"])
def test_the_part_of_a_tag_that_training_has_not_shown_is_cut_like_text(kind):
    made = tokenizers.train(kind, TEXTS, 320, words=WORDS)
    [ids] = made.encode(["<N;at;SG> the cat"])
    pieces = made.pieces(ids)
    assert (pieces[0], pieces[-1 - len(made.inner.encode(["the cat"])[0])]) == ("<N", ">")
    assert made.decode(ids) == ("<N;at;SG> the cat" if kind == "unigram" else "<N⁇at;SG> the cat")


def test_language_tags_stand_before_the_tags_of_texts():
    made = tokenizers.train("characters", TEXTS, 320, "nfkc_lower", ["<2de>"], words=TagWords(frozenset({"<n> "})))
    assert made.pieces(made.encode(["<2de> <N> The"])[0]) == ["<2de>", "<n>", "t", "h", "e"]
