"""What a corpus suggests: fitting kinds, always resolvable, from one bounded look."""

import random
import re
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see import config, machine, special
from seq2see.cli.display import table
from seq2see.config import Settings
from seq2see.model.build import count_parameters
from seq2see.session import suggest, survey
from seq2see.session.survey import Side, Survey, survey_corpus
from seq2see.text import corpora, dates
from seq2see.text.pair import Pair
from seq2see.tokens import tokenizers

DICE = random.Random(5)
PHONES = ["AH", "B", "K", "D", "IY", "S", "T", "OW", "R", "N"]
WORDS = ["".join(DICE.choices("abcdefghijklmnop", k=DICE.randint(2, 9))) for _ in range(2000)]
SYLLABLES = [chr(code) for code in range(0xAC00, 0xAC00 + 3000, 2)]
HAN = [chr(code) for code in range(0x4E00, 0x4E00 + 6000)]
THAI = [chr(code) for code in range(0x0E01, 0x0E2F)]


def word(letters: str = "abcdefghijklm", most: int = 8) -> str:
    return "".join(DICE.choices(letters, k=DICE.randint(2, most)))


def sentence(words: list[str], most: int = 12) -> str:
    return " ".join(DICE.choices(words, k=DICE.randint(3, most)))


def repeated(make: object, count: int) -> list[tuple[str, str]]:
    assert callable(make)
    return [make() for _ in range(count)]


def molecule() -> str:
    parts = ["CC(=O)", "c1ccccc1", "N", "[C@@H](C)", "C/C=C/", "O", "Br", "[NH3+]", "C%12CCC%12", "C#C"]
    return "C" + "".join(DICE.choices(parts, k=DICE.randint(1, 6))) + "O"


CORPORA: dict[str, list[tuple[str, str]]] = {
    "one pair": [("hello", "bonjour")],
    "one pair of sentences": [("I am a student", "je suis un étudiant")],
    "three pairs": [("a b c", "x"), ("b", "y z"), ("c c c", "z")],
    "one character each": [(letter, letter.upper()) for letter in "abcdefghij" * 30],
    "letters to phones": repeated(lambda: (word(), " ".join(DICE.choices(PHONES, k=5))), 2000),
    "sentences": repeated(lambda: (sentence(WORDS), sentence(WORDS)), 3000),
    "many sentences": repeated(lambda: (sentence(WORDS), sentence(WORDS)), 6000),
    "Korean": repeated(
        lambda: (sentence(WORDS), " ".join("".join(DICE.choices(SYLLABLES, k=3)) for _ in range(5))), 1000
    ),
    "Korean words": repeated(lambda: ("".join(DICE.choices(SYLLABLES, k=2)), word()), 5000),
    "Chinese": repeated(lambda: (sentence(WORDS), "".join(DICE.choices(HAN, k=DICE.randint(8, 24)))), 6000),
    "Thai": repeated(lambda: ("".join(DICE.choices(THAI, k=DICE.randint(15, 60))), sentence(WORDS)), 6000),
    "Chinese words": repeated(lambda: ("".join(DICE.choices(HAN, k=DICE.randint(1, 4))), word()), 6000),
    "molecules": repeated(lambda: ("".join(DICE.choices("CNO()=c1n#[]@H+", k=30)), word("CNO()=c1", 20)), 6000),
    "reactions": repeated(lambda: (f"{molecule()}.{molecule()}>>{molecule()}", molecule()), 500),
    "numbers": [(f"{number} + {number}", str(2 * number)) for number in range(500)],
    "digits": repeated(lambda: (" ".join(DICE.choices("0123456789", k=6)), " ".join(DICE.choices("01", k=9))), 1000),
    "dates": [(pair.source, pair.target) for pair in dates.pairs("valid")],
}


def look(pairs: list[tuple[str, str]]) -> Survey:
    return survey_corpus(Pair(source, target, "here") for source, target in pairs)


@cache
def surveyed(name: str) -> Survey:
    return look(CORPORA[name])


@cache
def resolved(name: str) -> Settings:
    return config.resolve(suggest.suggest(surveyed(name)).settings)


@pytest.mark.parametrize("name", CORPORA)
def test_everything_suggested_resolves(name: str) -> None:
    settings = resolved(name)
    assert settings.training.warmup_steps < settings.training.max_steps
    assert settings.training.validate_every <= settings.training.max_steps


@pytest.mark.parametrize("preset", config.PRESETS)
@pytest.mark.parametrize("name", ["one pair", "letters to phones", "sentences", "Korean", "dates"])
def test_every_preset_lies_over_every_suggestion(name: str, preset: str) -> None:
    config.resolve(suggest.suggest(surveyed(name)).settings, suggest.preset(preset))


REPLACED = ("rnn", "rnn-bidirectional", "rnn-attention", "rnn-dot", "rnn-general", "convolutional")


@pytest.mark.parametrize("chosen", [{}, {"encoder_layers": 2}, {"d_model": 64, "decoder_layers": 3}])
@pytest.mark.parametrize("preset", REPLACED)
@pytest.mark.parametrize("name", ["one pair", "letters to phones", "sentences", "many sentences", "dates"])
def test_what_it_replaced_is_as_large_as_the_transformer(name: str, preset: str, chosen: dict[str, object]) -> None:
    """With tables of the same width, and whatever the user has chosen of it."""
    overlay = {"model": suggest.preset(preset)["model"] | chosen}
    suggestion = suggest.suggest(surveyed(name), overlay["model"])
    settings, transformer = config.resolve(suggestion.settings, overlay), resolved(name)
    if "d_model" not in chosen:
        assert settings.model.d_model == transformer.model.d_model
    for key in ("dropout", "tie"):
        assert getattr(settings.model, key) == getattr(transformer.model, key)
    ours, theirs = (count_parameters(each.model, 0, 0) for each in (settings, transformer))
    assert ours == pytest.approx(theirs, rel=0.05)
    assert settings.data == transformer.data
    assert settings.training.learning_rate == 2 * transformer.training.learning_rate
    assert settings.model.source_reversed == (preset == "rnn" and "sentences" in name)  # dates end with the year
    lines = table(list(rows(settings, {**suggestion.reasons, "machine": "found here"}).values()))
    assert max(map(len, lines)) <= 116
    assert len(lines) <= len(
        suggest.ROWS
    )  # no row about alignment, as there is no head to teach; the model may take two


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("letters to phones", "characters", "symbols"),
        ("digits", "symbols", "symbols"),
        ("sentences", "unigram", "unigram"),
        ("Korean", "unigram", "unigram"),
        ("Korean words", "jamo", "characters"),
        ("Chinese", "unigram", "unigram"),
        ("Thai", "unigram", "unigram"),
        ("Chinese words", "characters", "characters"),
        ("molecules", "characters", "characters"),  # with its letters, but not by its rules
        ("reactions", "pattern", "pattern"),
        ("dates", "unigram", "characters"),
        ("one character each", "characters", "characters"),
    ],
)
def test_kinds_of_tokenizer(name: str, source: str, target: str) -> None:
    data = resolved(name).data
    assert (data.source_tokenizer, data.target_tokenizer) == (source, target)


def test_molecules_are_cut_as_smiles() -> None:
    data = resolved("reactions").data
    assert (data.source_pattern, data.target_pattern, data.shared) == ("smiles", "smiles", True)
    assert {resolved(name).data.source_pattern for name in CORPORA if name != "reactions"} == {""}


def test_one_side_alone_may_be_molecules() -> None:
    names = [(molecule(), word()) for _ in range(100)]
    data = config.resolve(suggest.suggest(look(names)).settings).data
    assert (data.source_tokenizer, data.target_tokenizer) == ("pattern", "characters")
    assert (data.source_pattern, data.target_pattern) == ("smiles", "")


ALARMS = {
    "words of atoms": ["cocoon", "bison", "CONSONS", "Coon", "spoon", "Bob", "COOK", "sonic", "onion"],
    "letters only": ["CCO", "CCCN", "OCC", "CO", "c", "BrC"],
    "numbers": ["12", "3.14", "1-2", "(555)", "100%", "1e5", "0"],
    "dates": ["2011-12-03", "3/12/11", "12.3.2011", "2011", "11:45"],
    "formulas": ["C6H12O6", "CO2", "N2O4", "H2O", "NaCl", "C2H5OH"],
    "code": ["f(n)=n+1", "c[0]=o", "n::c()", "s.pop()", "[b]", "os.sep", "C#", "p()"],
    "hyphens": ["so-and-so", "co-op", "no-one", "pop-up", "B-52", "C-4"],
    "initials": ["P.S.", "B.C.", "N.B.", "I.O.U.", "c/o", "N/A"],
    "tags": ["[PERSON]", "[NOUN][VERB]", "[CLS]", "[mask]"],
    "Morse": ["-.-.", "...", "--", ".-"],
    "chess": ["Nc3", "O-O", "Bb5", "Nf6", "cxb5", "N1c3"],
    "chords": ["C/F", "C#", "F-C", "Bb", "G/B", "D-A"],
    "Korean": ["한글", "안녕!", "가-나"],
    "phones": ["p-o-n", "S", "OW1", "N-OW", "B-AO1"],
}


@pytest.mark.parametrize("name", ALARMS)
def test_no_false_alarm_of_molecules(name: str) -> None:
    settings = config.resolve(suggest.suggest(look([(text, text) for text in ALARMS[name] * 20])).settings)
    assert settings.data.source_tokenizer == ("jamo" if name == "Korean" else "characters")


def kinds(pairs: list[tuple[str, str]]) -> tuple[object, ...]:
    data = suggest.choose_tokenizers(look(pairs), {}).settings
    return tuple(data[key] for key in ("source_tokenizer", "target_tokenizer", "source_tags", "shared"))


def test_the_text_behind_a_tag_is_cut_by_what_suits_it() -> None:
    features = ["N;SG", "N;PL", "N;DAT;SG", "V;PST"]
    assert kinds(repeated(lambda: (f"<RX_{DICE.randint(1, 9)}> {molecule()}", molecule()), 500)) == (
        *("pattern", "pattern", "first", True),
    )
    assert kinds(repeated(lambda: (f"<{DICE.choice(features)}> {word()}", word()), 500)) == (
        *("characters", "characters", "first", False),
    )
    assert kinds(repeated(lambda: (f"{word()} {DICE.choice(features)}", f"{word()} {word()}"[:9]), 500)) == (
        *("characters", "characters", "last", False),
    )
    korean = repeated(lambda: ("".join(DICE.choices(SYLLABLES, k=3)) + " " + DICE.choice(features), word()), 500)
    assert kinds(korean)[:3] == ("jamo", "characters", "last")
    assert kinds(repeated(lambda: (f"<2{DICE.choice(['de', 'fr'])}> {sentence(WORDS)}", sentence(WORDS)), 500)) == (
        *("unigram", "unigram", "first", True),
    )


@pytest.mark.parametrize("make", [molecule, lambda: sentence(WORDS)])
def test_sides_share_nothing_if_the_user_gives_one_of_them_another_tokenizer(make) -> None:
    corpus = look(repeated(lambda: (make(), make()), 500))
    shared = suggest.suggest(corpus)
    assert (shared.settings["data"]["shared"], shared.settings["model"]["tie"]) == (True, "all")
    other = {"target_tokenizer": "characters"}
    apart = suggest.suggest(corpus, data=other)
    assert (apart.settings["data"]["shared"], apart.settings["model"]["tie"]) == (False, "decoder")
    assert "share" not in apart.reasons["target"]
    config.resolve(apart.settings, {"data": other})


def test_odd_lines_at_the_start_do_not_hide_molecules() -> None:
    odd = repeated(lambda: (sentence(WORDS), molecule()), 60)
    assert kinds(odd + repeated(lambda: (molecule(), molecule()), 1500))[:2] == ("pattern", "pattern")


@pytest.mark.parametrize("count", [100, 250, 300, 900])
def test_symbols_are_symbols_whatever_their_number(count: int) -> None:
    symbols = [f"s{number}" for number in range(count)]
    assert kinds(repeated(lambda: (word(), " ".join(DICE.choices(symbols, k=20))), 50 * count // 10))[1] == "symbols"


def test_marks_of_phonemes_are_split_off_targets_that_have_them() -> None:
    """Tones and length are on any vowel; affricates, and a letter that always has its mark, tell nothing."""

    def phones(vowels: list[str]) -> str:
        return " ".join(DICE.choice([DICE.choice(["t͡ʃ", "b", "r", "s̪"]), DICE.choice(vowels)]) for _ in range(6))

    plain, toned = ["a", "e", "i"], [letter + mark for letter in "aei" for mark in ("", "\u030c", "\u0302ː")]
    rare = [*plain * 100, "aː"]
    for vowels, kind in ((plain, "symbols"), (toned, "marks"), (rare, "symbols")):
        pairs = repeated(lambda vowels=vowels: (word(), phones(vowels)), 2000)
        assert kinds(pairs)[1] == kind
        assert kinds([(target, source) for source, target in pairs])[0] == "symbols", "was measured for targets only"
    found = suggest.suggest(look(repeated(lambda: (word(), phones(toned)), 2000)))
    assert "with marks" in found.reasons["target"]
    config.resolve(found.settings)


def test_repeated_pairs_do_not_make_a_closed_set_of_words() -> None:
    """Five pairs, sixty times each, have words that occur often; the next sentence would have others."""
    pairs = repeated(lambda: (sentence(WORDS), sentence(WORDS)), 5)
    assert kinds(pairs * 60)[:2] == kinds(pairs)[:2] == ("unigram", "unigram")
    labels = repeated(lambda: (sentence(WORDS), DICE.choice(["very good", "very bad"])), 300)
    assert kinds(labels)[:2] == ("unigram", "symbols")  # different texts with the same labels


@pytest.mark.parametrize("space", ["  ", "\u00a0", "\n"])
def test_targets_whose_spaces_symbols_cannot_write_get_other_tokens(space: str) -> None:
    """Symbols split at spaces and are joined by single blanks, so that no output would be exactly right."""

    def phones(between: str) -> str:
        return between.join([" ".join(DICE.choices("abcdefgh", k=3)), " ".join(DICE.choices("abcdefgh", k=3))])

    usual, spaced = (repeated(lambda blank=blank: (word(), phones(blank)), 1000) for blank in (" ", space))
    assert kinds(usual)[1] == "symbols"
    assert kinds(spaced)[1] == "unigram"
    turned = [(target, source) for source, target in spaced]
    assert kinds(turned)[0] == "symbols", "what is read need not be written"


def test_sentences_to_phones_with_other_spaces_have_one_right_output() -> None:
    """Subwords on both sides do not make a translation of them; and a few lines do not decide about symbols."""

    def phones(between: str) -> str:
        return between.join(" ".join(DICE.choices("abcdefgh", k=3)) for _ in range(5))

    def pairs(odd: float) -> list[tuple[str, str]]:
        return [(sentence(WORDS), phones("  " if DICE.random() < odd else " ")) for _ in range(1000)]

    for odd, tokenizer in ((0.03, "symbols"), (1.0, "unigram")):
        found = suggest.suggest(look(pairs(odd)))
        assert (found.settings["data"]["source_tokenizer"], found.settings["data"]["target_tokenizer"]) == (
            "unigram",
            tokenizer,
        )
        assert found.settings["training"]["metric"] == "exact"
    assert "not all spaces are single blanks" in found.reasons["target"]


def test_embeddings_are_not_tied_between_vocabularies_that_you_separate() -> None:
    survey = look(repeated(lambda: (sentence(WORDS), sentence(WORDS)), 1000))
    assert suggest.suggest(survey).settings["model"]["tie"] == "all"
    assert suggest.suggest(survey, data={"shared": False}).settings["model"]["tie"] == "decoder"


def test_all_symbols_of_a_closed_set_get_a_token() -> None:
    symbols = [f"s{number}" for number in range(999)]
    data = suggest.suggest(look([(word(), " ".join(DICE.sample(symbols, 999))) for _ in range(30)])).settings["data"]
    assert data["target_tokenizer"] == "symbols"
    assert data["target_vocabulary"] >= special.COUNT + len(symbols)


def test_commands_and_actions_are_symbols() -> None:
    """In the manner of SCAN."""
    commands = [f"{verb} {how}" for verb in ("walk", "jump", "look") for how in ("twice", "left", "around right")]
    pairs = [(f"{one} and {other}", f"I_{one} I_{other}".upper()) for one in commands for other in commands] * 4
    assert kinds(pairs)[:3] == ("symbols", "symbols", "none")


def test_a_few_foreign_words_do_not_tie_two_languages() -> None:
    """English and Korean, with one word in Latin letters in fifty lines; and with many."""

    def korean(latin: float) -> str:
        words = ["".join(DICE.choices(SYLLABLES, k=3)) for _ in range(5)]
        return " ".join(DICE.choice(WORDS) if DICE.random() < latin else each for each in words)

    assert kinds(repeated(lambda: (sentence(WORDS), korean(0.004)), 2000)) == ("unigram", "unigram", "none", False)
    assert kinds(repeated(lambda: (sentence(WORDS), korean(0.3)), 2000)) == ("unigram", "unigram", "none", True)


def test_candidates_begin_with_the_choice_and_all_resolve() -> None:
    for name, pairs in CORPORA.items():
        chosen = suggest.choose_tokenizers(look(pairs), {})
        assert chosen.candidates[0] == chosen.settings
        for candidate in chosen.candidates:
            config.resolve({"data": candidate, "model": {"tie": "all" if candidate["shared"] else "decoder"}})
        found = [(each["source_tokenizer"], each["target_tokenizer"]) for each in chosen.candidates]
        assert len(set(found)) == len(found) <= 3, name
    words = suggest.choose_tokenizers(surveyed("Korean words"), {}).candidates
    assert [each["source_tokenizer"] for each in words] == ["jamo", "characters"]


def test_languages_of_one_alphabet_share_a_vocabulary_and_all_embeddings() -> None:
    settings = resolved("sentences")
    assert (settings.data.shared, settings.model.tie, settings.training.metric) == (True, "all", "loss")
    other = resolved("Korean")
    assert (other.data.shared, other.model.tie) == (False, "decoder")
    assert resolved("letters to phones").training.metric == "exact"


def test_a_large_corpus_has_a_large_vocabulary() -> None:
    many = look(CORPORA["sentences"])  # changed below
    many.pairs, many.source.words, many.target.words = 5_000_000, 100_000_000, 100_000_000
    assert config.resolve(suggest.suggest(many).settings).data.source_vocabulary == 32_000


@pytest.mark.parametrize("name", ["Chinese", "Thai"])
def test_sentences_without_blanks_are_trained_like_others(name: str) -> None:
    """They have many right answers, and as many words as others, although nobody can count them."""
    settings, others = resolved(name), resolved("many sentences")
    assert settings.model.d_model == pytest.approx(others.model.d_model, abs=16)
    assert settings.training.max_steps == pytest.approx(others.training.max_steps, rel=0.2)
    assert settings.training.metric == "loss"
    assert settings.data.source_vocabulary >= 1000 <= settings.data.target_vocabulary
    assert "characters" in suggest.suggest(surveyed(name)).reasons["model"]


@pytest.mark.parametrize(
    "name", ["Korean words", "Chinese words", "molecules", "reactions", "letters to phones", "dates"]
)
def test_characters_and_symbols_have_room_for_all_that_was_seen(name: str) -> None:
    """What falls out of such a vocabulary is unknown for ever; subwords fall back to bytes."""
    data = resolved(name).data
    for side, kind, vocabulary in (
        (0, data.source_tokenizer, data.source_vocabulary),
        (1, data.target_tokenizer, data.target_vocabulary),
    ):
        if kind in ("characters", "symbols", "pattern"):
            texts = [pair[side] for pair in CORPORA[name]]
            made = tokenizers.train(kind, texts, vocabulary, pattern="smiles" if kind == "pattern" else "")
            assert [made.decode(ids) for ids in made.encode(texts[:500])] == texts[:500]


def test_the_same_corpus_suggests_the_same() -> None:
    for pairs in CORPORA.values():
        assert suggest.suggest(look(pairs)) == suggest.suggest(look(pairs))


def test_the_sample_is_bounded_fair_and_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SAMPLE", 100)

    def numbers() -> Iterator[Pair]:
        return (Pair(str(number), "x", "here") for number in range(5000))

    found, again = survey_corpus(numbers()), survey_corpus(numbers())
    assert found.pairs == 5000
    assert len(found.sample) == len(set(found.sample)) == 100
    assert found.sample == again.sample
    places = [int(pair.source) for pair in found.sample]
    assert 15 <= sum(place < 1250 for place in places) <= 35  # a quarter of the corpus, about a quarter of the sample
    assert 15 <= sum(place >= 3750 for place in places) <= 35


def test_a_small_corpus_is_its_own_sample() -> None:
    found = surveyed("three pairs")
    assert [(pair.source, pair.target) for pair in found.sample] == CORPORA["three pairs"]


def test_the_lexicon_stays_small_however_many_words_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Side, "MOST_WORDS", 50)
    found = look([(f"word{number}", "x") for number in range(1000)])
    assert len(found.source.lexicon) == 50
    assert found.source.words == 1000


def test_both_kinds_of_pairs_that_alternate_stay_in_a_sample_of_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SAMPLE_CHARACTERS", 2000)
    found = look([("there" if number % 2 else "back!", "again") for number in range(210)])
    assert len(found.sample) == 101
    assert found.sampled == 10 * len(found.sample)
    assert 0.3 < sum(pair.source == "there" for pair in found.sample) / len(found.sample) < 0.7


def test_processes_find_what_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SAMPLE", 100)
    monkeypatch.setattr(survey, "BLOCK", 40)
    monkeypatch.setattr(Side, "MOST_WORDS", 10_000)
    pairs = [Pair(f"ein Wort {number}", f"a word {chr(200 + number % 90)} {number}", "here") for number in range(1500)]
    surveys = []
    for cores in (1, 3):
        monkeypatch.setattr(machine, "cores", lambda cores=cores: cores)
        surveys.append(survey_corpus(pairs))
    assert surveys[0] == surveys[1]
    assert surveys[0].pairs == 1500
    assert surveys[0].target.words == 6000


def test_stretches_of_consecutive_pairs_are_kept_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "BLOCK", 10)
    monkeypatch.setattr(survey, "STRETCHES", 4)
    found = survey_corpus([Pair(str(number), "x", "here") for number in range(95)])
    assert [start for start, _ in found.stretches] == [0, 40, 80]
    assert [pair.source for pair in found.stretches[1][1]] == [str(number) for number in range(40, 50)]


def test_nothing_is_counted_from_nothing() -> None:
    found = survey_corpus([])
    assert (found.pairs, found.sample, found.source.words) == (0, [], 0)


# What was chosen, and why

FACTS = {"source_tokens": 400_000, "target_tokens": 420_000, "pairs": 29_000, "parameters": 7_012_352}


def rows(settings: Settings, reasons: dict[str, str], yours: set[str] | None = None) -> dict[str, suggest.Choice]:
    made = suggest.choices(settings, reasons, yours or set(), FACTS, (8000, 41), "CPU, 2 threads, float32")
    return {choice.name: choice for choice in made}


@pytest.mark.parametrize("name", CORPORA)
def test_every_row_has_a_reason_and_all_fits_in_116_columns(name: str) -> None:
    suggestion = suggest.suggest(surveyed(name))
    made = rows(config.resolve(suggestion.settings), {**suggestion.reasons, "machine": "found here"})
    used = {
        "alignment": suggestion.settings["training"]["alignment_weight"],
        "artificial": suggestion.settings["data"]["hallucination"],
    }
    assert list(made) == [name for name in suggest.ROWS if used.get(name, True)]
    assert all(choice.why and not choice.yours for choice in made.values())
    lines = table(list(made.values()))
    assert max(map(len, lines)) <= 116
    assert len(lines) == len(made)  # one line for each: short enough


def test_a_batch_has_no_more_pairs_than_the_corpus() -> None:
    facts = {"source_tokens": 40, "target_tokens": 60, "pairs": 10, "parameters": 1}
    settings = config.resolve({"training": {"batch_tokens": 2048, "max_steps": 300}})
    made = suggest.choices(settings, {}, set(), facts, (300, 300), "CPU")
    values = {choice.name: choice.value for choice in made}
    assert values["batch"] == "2,048 tokens, about 10 pairs"
    assert values["steps"] == "at most 300, about 300 epochs"


def test_reasons_name_facts_of_the_corpus() -> None:
    reasons = suggest.suggest(surveyed("letters to phones")).reasons
    assert reasons["source"] == "no spaces in the text, 13 characters"
    assert reasons["target"] == "only 10 distinct words"
    assert reasons["model"] == "for 2,000 pairs of 5 characters + 5 symbols"
    assert suggest.suggest(surveyed("one pair of sentences")).reasons["model"] == "for 1 pair of 4 + 4 words"
    assert suggest.suggest(surveyed("reactions")).reasons["source"] == "the text is molecules in SMILES notation"


def test_tags_are_named_with_the_setting_that_changes_them() -> None:
    """Endings of sentences, separated by a space, are few words that close every target: they are taken for tags."""
    endings = ["습니다"] * 4 + ["어요"] * 3 + ["지요"] * 2 + ["네요"]
    words = [word("abcdefgh") for _ in range(200)]
    answers = repeated(lambda: (sentence(words), f"{sentence(words)} {DICE.choice(endings)}"), 2000)
    found = suggest.suggest(look(answers))
    assert found.settings["data"]["target_tags"] == "last"
    assert found.reasons["target"].endswith("; 4 for tags (습니다, 어요, 지요, …), see data.target_tags")
    assert "tags" not in found.reasons["source"]


def test_features_of_tags_are_named_as_they_are_written() -> None:
    forms = repeated(lambda: (f"{word()} {DICE.choice(['V;PST', 'V;PRS'])}", word()), 300)
    assert "for tags (V;P" in suggest.suggest(look(forms)).reasons["source"]


def test_the_reason_for_the_steps_is_the_amount_of_text() -> None:
    reasons = suggest.suggest(surveyed("letters to phones")).reasons
    assert re.fullmatch("for about 2[0-9],000 tokens of text", reasons["steps"])


def test_what_the_user_set_is_theirs() -> None:
    suggestion = suggest.suggest(surveyed("sentences"))
    overlay = {"model": {"dropout": 0.2, "d_model": 64}, "training": {"metric": "bleu"}}
    made = rows(config.resolve(suggestion.settings, overlay), suggestion.reasons, config.keys(overlay))
    assert made["dropout"].value == "0.2; R-Drop 1.5 (consistency loss); weight decay 0.3"
    assert (made["dropout"].why, made["dropout"].yours) == ("", ["model.dropout"])
    assert made["model"].settings["model.d_model"] == 64
    shown = {line.split()[0]: line for line in table(list(made.values()))}
    assert shown["dropout"].endswith(" set by you: dropout")
    assert shown["model"].endswith(" set by you: d_model")
    assert shown["stopping"].endswith(" set by you: metric")
    assert "set by you" not in shown["batch"]


def test_sides_that_share_say_so() -> None:
    suggestion = suggest.suggest(surveyed("sentences"))
    made = rows(config.resolve(suggestion.settings), suggestion.reasons)
    assert (made["source"].value, made["target"].value) == (
        "8,000 subwords (unigram), for both sides",
        "shared with the source",
    )
    other = rows(config.resolve({"data": {"shared": False}, "model": {"tie": "none"}}), {})
    assert other["target"].value == "41 subwords (unigram)"


@given(
    st.integers(1, 1000),
    st.integers(1, 10**7),
    st.sampled_from(["noam", "cosine"]),
    st.sampled_from(["loss", "error_rate"]),
    st.sets(st.sampled_from(sorted(key for keys in suggest.ROWS.values() for key in keys))),
)
def test_no_settings_break_the_table(width: int, number: int, schedule: str, metric: str, yours: set[str]) -> None:
    training = {"max_steps": number, "batch_tokens": number, "warmup_steps": number, "validate_every": number}
    model = {"encoder_layers": width, "d_model": 4 * width, "heads": 2}
    overlay = {"model": model, "training": {**training, "schedule": schedule, "metric": metric, "max_minutes": 1.5}}
    lines = table(list(rows(config.resolve(overlay), {}, yours).values()))
    assert max(map(len, lines)) <= 116
    assert [line[:13].strip() for line in lines if line[0] != " "] == [
        name for name in suggest.ROWS if name not in ("alignment", "artificial")
    ]


def test_one_head_learns_to_align_from_a_hundred_pairs_on() -> None:
    words = [word() for _ in range(3000)]
    pairs = [(sentence(words), sentence(words)) for _ in range(100)]

    def weight(pairs: list[tuple[str, str]], **chosen: object) -> float:
        return float(suggest.suggest(look(pairs), chosen).settings["training"]["alignment_weight"])

    assert weight(pairs) > 0
    assert weight(pairs[:99]) == 0
    assert weight(pairs, architecture="rnn") == 0
    assert weight([(word(), word()) for _ in range(100)]) > 0


@pytest.mark.parametrize("name", corpora.BUILT_IN)
def test_built_in_corpora_are_trained_without_the_alignment_loss(name: str) -> None:
    """Their settings were tuned, and the attention that documentation and tests show was measured, without it."""
    found = suggest.suggest(look([(word(), word()) for _ in range(100)]), known=corpora.BUILT_IN[name])
    assert found.settings["training"]["alignment_weight"] == 0
