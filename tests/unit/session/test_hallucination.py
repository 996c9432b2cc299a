"""Artificial pairs: where letters are replaced, what stays, and for which corpora they are suggested."""

import random
import unicodedata
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see import config
from seq2see.cli.display import table
from seq2see.config import Data
from seq2see.session import hallucination, suggest
from seq2see.session.hallucination import ENOUGH, FEW, MOST, Hallucination, copied, letters_of, stretches
from seq2see.session.survey import survey_corpus
from seq2see.text.pair import Pair

DICE = random.Random(5)
WORDS = ["".join(DICE.choices("abcdefghijklmnop", k=8)) for _ in range(2000)]
TAGS = ["V;PST", "V;PRS;3", "N;PL", "N;SG;GEN"]
ENDINGS = dict(zip(TAGS, ["ed", "eth", "en", "es"], strict=True))
DATA = Data(source_tokenizer="characters", target_tokenizer="characters", source_tags="last", shared=False)

GOLDEN = [
    "moohhjjh N;PL -> moohhjjhen",
    "dpmrodoj V;PST -> dpmrodojed",
    "hlhiokhj V;PST -> hlhiokhjed",
    "Zjbap-1 V;PST -> geZjbap-1te",
]
"""Artificial pairs as they were made when stretches were searched for again for each of them."""


def inflected(count: int) -> list[Pair]:
    """Return `count` pairs such as `walk V;PST` and `walked`."""
    chosen = [(word, TAGS[ord(word[0]) % 4]) for word in WORDS[:count]]
    return [Pair(f"{word} {tag}", word + ENDINGS[tag], "here") for word, tag in chosen]


def artificial(pairs: list[Pair], data: Data = DATA, ratio: float = 5, seed: int = 1) -> list[Pair]:
    """Return the pairs that are not among `pairs`."""
    return [pair for pair in Hallucination(pairs, data, seed).mixed(pairs, ratio) if pair not in pairs]


def ratio_of(pairs: list[Pair]) -> float:
    return float(suggest.suggest(survey_corpus(pairs)).settings["data"]["hallucination"])


def test_stretches_are_long_enough_and_in_order() -> None:
    assert stretches("walk", "walked") == [(0, 0, 4)]
    assert stretches("sing", "ungesungen") == []
    assert stretches("machen", "gemacht") == [(0, 2, 4)]
    assert stretches("otuz birci", "otuzbirci") == [(0, 0, 4), (5, 4, 5)]


def test_very_long_texts_are_not_compared() -> None:
    assert stretches("ab" * 100, "ab" * 100) == [(0, 0, 200)]
    assert stretches("ab" * 100_000, "ab" * 100_000) == []


def test_letters_have_their_marks() -> None:
    assert letters_of("e\u0301a") == ["e\u0301", "a"]
    assert letters_of("नमस्ते") == ["न", "म", "स्", "ते"]
    assert letters_of("\u0301a") == ["\u0301", "a"]
    assert letters_of("") == []


@given(st.text())
def test_letters_join_to_the_text(text: str) -> None:
    assert "".join(letters_of(text)) == text


def test_the_share_of_copied_letters() -> None:
    assert copied(["walk", "go"], ["walked", "went"]) == 4 / 6
    assert copied(["2024", "x"], ["2024", "y"]) == 0  # digits are not letters
    assert copied([], []) == 0


def test_tags_endings_and_lengths_stay() -> None:
    pairs = inflected(100)
    made = artificial(pairs)
    assert len(made) > 400
    for pair in made:
        lemma, tag = pair.source.split(" ")
        assert tag in TAGS
        assert pair.target == lemma + ENDINGS[tag]
        assert len(lemma) == 8


def test_the_letter_beside_a_change_stays() -> None:
    """The last letter of the lemma, before the ending, and the first one after a prefix; the text may begin anew."""
    suffixed = inflected(100)
    made = list(Hallucination(suffixed, DATA, 1).mixed(suffixed, 1))
    for real, other in zip(made[::2], made[1::2], strict=True):
        assert real.source.split(" ")[0][-1] == other.source.split(" ")[0][-1]
    assert any(real.source[0] != other.source[0] for real, other in zip(made[::2], made[1::2], strict=True))
    prefixed = [Pair(word, f"ge{word}", "here") for word in WORDS[:100]]
    made = list(Hallucination(prefixed, Data(), 1).mixed(prefixed, 1))
    assert all(real.source[0] == other.source[0] for real, other in zip(made[::2], made[1::2], strict=True))
    assert any(real.source[-1] != other.source[-1] for real, other in zip(made[::2], made[1::2], strict=True))


def test_letters_come_from_the_copied_stretches_of_the_corpus() -> None:
    pairs = [Pair(f"{word}ß", f"{word}ß!", "here") for word in ("abcdef", "bcdefa", "cdefab")]
    pairs.append(Pair("Zorro-1", "Zorro-1!", "here"))
    for pair in artificial(pairs, Data(), 50):
        assert set(pair.source) <= set("abcdefßZor-1")
        assert pair.target == f"{pair.source}!"
        assert pair.source.endswith("-1") == ("-" in pair.source)  # only letters are replaced,
        assert pair.source[1:] == pair.source[1:].lower()  # capitals by capitals


def test_marks_stay_with_their_letters() -> None:
    """In Devanagari, and in Latin letters of which each has a combining mark."""
    consonants, marks = "कगचजटडतदनप", ["", "ा", "ि", "ी", "ु", "े"]
    words = ["".join(DICE.choice(consonants) + DICE.choice(marks) for _ in range(6)) for _ in range(50)]
    known = {letter for word in words for letter in letters_of(word)}
    for pair in artificial([Pair(word, f"{word}का", "here") for word in words], Data()):
        assert set(letters_of(pair.source)) <= known
        assert not unicodedata.combining(pair.source[0])
        assert pair.target == f"{pair.source}का"
    accented = ["".join(f"{letter}\u0301" for letter in word) for word in WORDS[:50]]
    for pair in artificial([Pair(word, f"{word}s", "here") for word in accented], Data()):
        assert pair.source[1::2] == "\u0301" * 8


def test_the_same_seed_makes_the_same_pairs() -> None:
    pairs = inflected(100)
    assert artificial(pairs) == artificial(pairs)
    assert artificial(pairs) != artificial(pairs, seed=2)


def test_the_artificial_pairs_of_a_seed_are_those_of_earlier_versions() -> None:
    pairs = [*inflected(2), Pair("Zorro-1 V;PST", "geZorro-1te", "here"), Pair("go V;PST", "went", "here")]
    made = [f"{pair.source} -> {pair.target}" for pair in artificial(pairs, ratio=1.5, seed=3)]
    assert made == GOLDEN


def test_the_stretches_of_a_pair_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = inflected(30)
    maker, compared = Hallucination(pairs, DATA, 1), []
    monkeypatch.setattr(hallucination, "stretches", lambda *texts: compared.append(texts) or stretches(*texts))
    assert len({*maker.mixed(pairs, 20)}) > 500
    assert len(compared) == len(pairs)
    compared.clear()
    list(maker.mixed(pairs, 0.1))
    assert len(compared) == 3  # a pair that no artificial pair is made from is not compared


@pytest.mark.parametrize("ratio", [0.1, 0.5, 1, 1.7, 3, 20])
def test_at_least_half_of_all_pairs_are_real(ratio: float) -> None:
    pairs = inflected(100)
    mixed = list(Hallucination(pairs, DATA, 1).mixed(pairs, ratio))
    made = [pair for pair in mixed if pair not in pairs]
    assert len(made) == pytest.approx(100 * ratio, rel=0.05)
    assert 2 * len(made) <= len(mixed)
    assert len({*mixed} - {*made}) == len(pairs)
    assert mixed[0] == pairs[0]


def test_a_pair_without_a_stretch_stays_alone() -> None:
    pairs = [*inflected(50), Pair("go V;PST", "went", "here")]
    assert list(Hallucination(pairs, DATA, 1).make(pairs[-1], 20)) == []
    assert list(Hallucination([], Data(), 1).mixed([], 20)) == []


def test_further_references_are_not_kept() -> None:
    pairs = [pair._replace(references=(f"{pair.target}x",)) for pair in inflected(30)]
    assert not any(pair.references for pair in artificial(pairs))


def test_the_number_falls_gradually_with_the_number_of_pairs() -> None:
    ratios = [ratio_of(inflected(count)) for count in (60, 100, 300, 700, 990)]
    assert ratios[:2] == [MOST, MOST]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[2] > ratios[3]
    one, other = ratio_of(inflected(500)), ratio_of(inflected(510))
    assert other <= one <= other + 0.3
    assert ratios[4] < 0.2
    assert FEW < ENOUGH


def test_none_for_enough_pairs() -> None:
    assert ratio_of(inflected(ENOUGH)) == 0


def sentences() -> list[Pair]:
    lines = [" ".join(DICE.choices(WORDS, k=8)) for _ in range(200)]
    return [Pair(line, line.replace("a", "e"), "here") for line in lines]


def molecules() -> list[Pair]:
    parts = ["CC(=O)", "c1ccccc1", "N", "[C@@H](C)", "C/C=C/", "O", "Br", "[NH3+]", "C#C"]
    lines = ["C" + "".join(DICE.choices(parts, k=6)) + "O" for _ in range(200)]
    return [Pair(line, f"{line}Br", "here") for line in lines]


def sounds() -> list[Pair]:
    return [Pair(word, " ".join(word.upper()), "here") for word in WORDS[:200]]


def long_texts() -> list[Pair]:
    return [Pair("".join(row), "".join(row), "here") for row in islice(zip(*[iter(WORDS)] * 10, strict=True), 200)]


def other_script() -> list[Pair]:
    return [Pair(word, "".join(chr(ord(letter) + 0x3D0) for letter in word), "here") for word in WORDS[:200]]


def rarely_copied() -> list[Pair]:
    """Half of the pairs copy a stretch, as for languages whose spelling is nearly phonetic."""
    return [Pair(word, word if number % 2 else word[::-1], "here") for number, word in enumerate(WORDS[:200])]


def numbers() -> list[Pair]:
    return [Pair(str(number**3), str(number**3), "here") for number in range(100, 300)]


@pytest.mark.parametrize("make", [sentences, molecules, sounds, long_texts, other_script, rarely_copied, numbers])
def test_none_for_other_texts(make: object) -> None:
    assert callable(make)
    assert ratio_of(make()) == 0


def test_the_reason_is_a_fact_of_the_corpus() -> None:
    found = suggest.suggest(survey_corpus(inflected(100)))
    assert "100 %" in found.reasons["artificial"]


def test_the_row_of_the_table_fits_in_one_line() -> None:
    found = suggest.suggest(survey_corpus(inflected(100)))
    facts = {"source_tokens": 900, "target_tokens": 1000, "pairs": 100, "stored_pairs": 4000, "stored_tokens": 76_000}
    settings = config.resolve(found.settings)
    made = suggest.choices(settings, found.reasons, set(), {**facts, "parameters": 1}, (68, 36), "CPU")
    [line] = [line for line in table(made) if "random letters" in line]
    assert line.startswith("artificial    20 pairs with random letters for each pair")
    assert line.endswith("few pairs; targets copy 100 % of sources")
    [steps] = [row.value for row in made if row.name == "steps"]
    batches = settings.training.max_steps * settings.training.batch_tokens
    assert steps.endswith(f"about {round(batches / 76_000)} epochs")


def test_trainings_are_longer_with_artificial_pairs() -> None:
    corpus = survey_corpus(inflected(100))
    steps = [
        suggest.suggest(corpus, data={"hallucination": each}).settings["training"]["max_steps"]
        for each in (0.0, 10.0, 20.0, 99.0)
    ]
    assert steps[0] < steps[1] < steps[2] == steps[3]
    assert suggest.suggest(corpus).settings["training"]["max_steps"] == steps[2]
