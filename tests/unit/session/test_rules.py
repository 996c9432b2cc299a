"""The rules of `suggest`: smooth in the size of a corpus, and what was measured stays as it was measured."""

import math
import random
from typing import Any

import pytest

from seq2see import config
from seq2see.config import Settings
from seq2see.model.build import count_parameters
from seq2see.session import suggest
from seq2see.session.survey import Side, Survey
from seq2see.text.pair import Pair

DICE = random.Random(3)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LEXICON = ["".join(DICE.choices(LETTERS, k=DICE.randint(2, 8))) for _ in range(3000)]
SENTENCES = [Pair(*(" ".join(DICE.choices(LEXICON, k=12)) for _ in "st"), "here") for _ in range(25)]
WORDS = [Pair(DICE.choice(LEXICON), "AH B K D", "here") for _ in range(25)]


def corpus(kind: str, pairs: int, source: float = 60, target: float = 65, alphabet: int = 60) -> Survey:
    """Return the survey of a corpus of sentences, or of words and phones, with these mean numbers of characters."""
    letters = {chr(ord("a") + number) for number in range(alphabet)}
    if kind == "sentences":
        sides = [Side(round(size * pairs), round(size * pairs / 5.2), letters, {*LEXICON}) for size in (source, target)]
        return Survey(pairs, source=sides[0], target=sides[1], sample=SENTENCES)
    words = Side(round(source * pairs), pairs, letters, {*LEXICON[:1000]})
    phones = Side(round(2.5 * target * pairs), round(target * pairs), {*"ABDHK"}, {"AH", "B", "K", "D"})
    return Survey(pairs, source=words, target=phones, sample=WORDS)


def resolved(survey: Survey) -> Settings:
    return config.resolve(suggest.suggest(survey).settings)


def sizes(settings: Settings) -> dict[str, float]:
    """Return the settings that may change by a factor."""
    training = settings.training
    return {
        "parameters": count_parameters(settings.model, 0, 0),
        "d_model": settings.model.d_model,
        "steps": training.max_steps,
        "batch": training.batch_tokens,
        "tokens seen": training.max_steps * training.batch_tokens,
        "warm-up": training.warmup_steps,
        "learning rate": training.learning_rate,
    }


def check_no_jump(before: Settings, after: Settings, factor: float, dropout: float, agreement: float) -> None:
    for name, size in sizes(before).items():
        assert 1 / factor <= sizes(after)[name] / size <= factor, name
    assert abs(before.model.dropout - after.model.dropout) <= dropout + 1e-9
    assert abs(before.training.agreement - after.training.agreement) <= agreement
    assert abs(before.training.weight_decay - after.training.weight_decay) <= 0.2
    assert (before.training.metric, before.training.schedule) == (after.training.metric, after.training.schedule)


LENGTHS: dict[str, dict[str, Any]] = {"sentences": {}, "words": {"source": 8.0, "target": 7.0}}


@pytest.mark.parametrize("kind", LENGTHS)
def test_twice_the_pairs_make_no_jump(kind: str) -> None:
    pairs = 50
    while pairs < 10**8:
        before, after = (resolved(corpus(kind, count, **LENGTHS[kind])) for count in (pairs, 2 * pairs))
        check_no_jump(before, after, 2.7, 0.1, 2.0)
        assert count_parameters(before.model, 0, 0) <= count_parameters(after.model, 0, 0)
        pairs = round(1.3 * pairs)


@pytest.mark.parametrize("kind", LENGTHS)
def test_twice_the_text_or_alphabet_makes_no_jump(kind: str) -> None:
    for pairs in (100, 1000, 5000, 20_000, 50_000, 200_000, 500_000, 5_000_000):
        before = resolved(corpus(kind, pairs, **LENGTHS[kind]))
        longer = {name: 2 * LENGTHS[kind].get(name, 60) for name in ("source", "target")}
        check_no_jump(before, resolved(corpus(kind, pairs, **longer)), 2.0, 0.1, 1.5)
        check_no_jump(before, resolved(corpus(kind, pairs, **LENGTHS[kind], alphabet=120)), 1.0, 0, 0)


@pytest.mark.parametrize("kind", LENGTHS)
def test_one_percent_more_changes_little(kind: str) -> None:
    """Rounding makes steps of its own: a layer more and 16 numbers of width, at worst both."""
    pairs = 50
    before = resolved(corpus(kind, pairs, **LENGTHS[kind]))
    while pairs < 10**8:
        pairs = max(pairs + 1, round(1.01 * pairs))
        after = resolved(corpus(kind, pairs, **LENGTHS[kind]))
        check_no_jump(before, after, 1.9, 0.05, 0.5)
        before = after


@pytest.mark.parametrize("kind", LENGTHS)
def test_a_larger_alphabet_grows_the_vocabulary_and_nothing_else(kind: str) -> None:
    """Letters of their own, and not more text: from an alphabet to the characters of Chinese."""
    for pairs in (100, 5000, 50_000, 5_000_000):
        alphabet, before = 50, resolved(corpus(kind, pairs, **LENGTHS[kind], alphabet=50))
        while alphabet < 10_000:
            alphabet *= 2
            after = resolved(corpus(kind, pairs, **LENGTHS[kind], alphabet=alphabet))
            check_no_jump(before, after, 1.0, 0, 0)
            assert before.data.source_vocabulary <= after.data.source_vocabulary <= 4 * before.data.source_vocabulary
            before = after


@pytest.mark.parametrize("kind", LENGTHS)
def test_training_always_stops_early(kind: str) -> None:
    for pairs in (1, 10, 1000, 100_000, 10**7, 10**9):
        training = resolved(corpus(kind, pairs, **LENGTHS[kind])).training
        assert 0 < training.patience * training.validate_every < training.max_steps
        assert training.warmup_steps < training.max_steps


def test_training_stops_later_by_exact_match_than_by_the_loss() -> None:
    patience = {}
    for kind in LENGTHS:
        training = resolved(corpus(kind, 1000, **LENGTHS[kind])).training
        patience[training.metric] = training.patience
    assert patience["loss"] < patience["exact"]
    for kind in LENGTHS:  # the metric of the user decides
        for metric, expected in patience.items():
            yours = {"metric": metric}
            settings = suggest.suggest(corpus(kind, 1000, **LENGTHS[kind]), training=yours).settings["training"]
            assert settings["patience"] == expected


def test_warm_up_and_validations_follow_the_number_of_steps_of_the_user() -> None:
    survey = corpus("words", 8000, **LENGTHS["words"])
    usual = suggest.suggest(survey).settings["training"]
    for steps in (1, 7, 60, 3 * usual["max_steps"]):
        training = suggest.suggest(survey, training={"max_steps": steps}).settings["training"]
        assert training["max_steps"] == steps
        assert 1 <= training["warmup_steps"] <= max(1, steps / 5)
    assert training["validate_every"] == pytest.approx(3 * usual["validate_every"], rel=0.05)


@pytest.mark.parametrize("kind", LENGTHS)
def test_few_pairs_are_regularised(kind: str) -> None:
    """The fewer pairs, the more a model overfits: with 1,000 captions this gains 4 BLEU (docs/log.md)."""
    for pairs in (10, 300, 1000):
        training = resolved(corpus(kind, pairs, **LENGTHS[kind])).training
        assert training.agreement == 2.0
        assert training.weight_decay >= 0.4


def test_a_large_corpus_gets_a_size_between_small_and_base() -> None:
    models = [resolved(corpus("sentences", pairs)).model for pairs in (300_000, 1_000_000, 5_000_000)]
    assert [(model.encoder_layers, model.d_model) for model in models] == [(3, 288), (4, 384), (6, 512)]


PINNED = {
    "Multi30k, English to German": ("sentences", 29_000, 62, 70, (3, 256, 0.3, 2.5, 0.0, 2e-3, 8192, 7250)),
    "1,000 captions": ("sentences", 1000, 62, 70, (3, 112, 0.3, 2.0, 0.4, 3.3e-3, 896, 5340)),
    "10,000 captions": ("sentences", 10_000, 60, 70, (3, 128, 0.3, 0.0, 0.0, 3e-3, 8192, 1710)),
    "Debian, English to Korean": ("sentences", 87_993, 48, 35, (3, 256, 0.3, 2.5, 0.0, 2e-3, 8192, 20_000)),
    "Korean questions and answers": ("sentences", 11_823, 13, 15, (3, 128, 0.3, 0.0, 0.0, 3e-3, 8192, 1320)),
    "CMUdict": ("words", 113_438, 7.5, 6.4, (4, 256, 0.2, 1.0, 0.3, 1e-3, 8192, 20_000)),
}


@pytest.mark.parametrize("name", PINNED)
def test_what_was_measured_is_suggested(name: str) -> None:
    """Scores of these corpora were measured with these settings (docs/log.md)."""
    kind, pairs, source, target, expected = PINNED[name]
    settings = resolved(corpus(kind, pairs, source, target))
    model, training = settings.model, settings.training
    layers, width, dropout, agreement, decay, rate, batch, steps = expected
    assert (model.encoder_layers, model.decoder_layers, model.d_model, model.d_ff) == (layers, layers, width, 4 * width)
    assert (model.norm, model.positions, model.heads, model.dropout) == ("pre", "rotary", 4, dropout)
    assert (training.agreement, training.weight_decay, training.schedule) == (agreement, decay, "cosine")
    assert training.batch_tokens == pytest.approx(batch, rel=0.05)
    assert training.learning_rate == pytest.approx(rate, rel=0.05)
    assert training.max_steps == pytest.approx(steps, rel=0.07)


def test_interpolation_meets_the_rules_and_stays_within_them() -> None:
    for rules in (suggest.SENTENCES, suggest.EXACT):
        for rule in rules:
            assert suggest.between(rules, rule.amount) == pytest.approx(rule)
        assert suggest.between(rules, 1e-3) == pytest.approx(rules[0])
        assert suggest.between(rules, 1e15) == pytest.approx(rules[-1])


def test_tokens_are_counted_about_right() -> None:
    survey = corpus("words", 1000, 8, 7)
    data = {"source_tokenizer": "characters", "target_tokenizer": "symbols"}
    assert suggest.tokens_of(survey, data) == 1000 * (8 + 1 + 7 + 1)
    unspaced = Survey(10, source=Side(200, 10), target=Side(200, 40))
    subwords = {"source_tokenizer": "unigram", "target_tokenizer": "unigram"}
    assert suggest.tokens_of(unspaced, subwords) == pytest.approx(200 * 0.6 + 200 * 0.3 + 20)


def test_known_settings_override_the_rules_and_an_rnn_follows_them() -> None:
    survey = corpus("words", 5000, 8, 7)
    known = {"model": {"d_model": 64, "d_ff": 128}, "training": {"learning_rate": 0.004}}
    settings = suggest.suggest(survey, known=known).settings
    assert (settings["model"]["d_model"], settings["training"]["learning_rate"]) == (64, 0.004)
    rnn = suggest.suggest(survey, {"architecture": "rnn"}, known).settings
    assert rnn["training"]["learning_rate"] == 0.008
    transformer = config.resolve(settings).model
    wanted, found = (
        count_parameters(model, 0, 0)
        for model in (transformer, config.resolve(rnn, {"model": {"architecture": "rnn"}}).model)
    )
    assert math.isclose(wanted, found, rel_tol=0.05)


def test_a_width_that_the_user_chose_brings_its_heads_feed_forward_and_learning_rate() -> None:
    for kind, rates in (("sentences", (3.5e-3, 2e-3, 7e-4)), ("words", (3.5e-3, 1e-3, 5e-4))):
        survey = corpus(kind, 500, **LENGTHS[kind])
        usual = resolved(survey)
        for width, heads, rate in ((96, 4, rates[0]), (256, 4, rates[1]), (512, 8, rates[2]), (1024, 8, rates[2])):
            found = suggest.suggest(survey, {"d_model": width}).settings
            assert (found["model"]["d_ff"], found["model"]["heads"]) == (4 * width, heads)
            assert found["training"]["learning_rate"] == pytest.approx(rate, rel=0.05)
            assert (found["model"]["encoder_layers"], found["data"]) == (
                usual.model.encoder_layers,
                suggest.suggest(survey).settings["data"],
            )
    between = suggest.suggest(corpus("sentences", 500), {"d_model": 160}).settings["training"]["learning_rate"]
    assert 2e-3 < between < 3e-3


def test_a_smaller_width_does_not_raise_the_learning_rate_that_suits_the_corpus() -> None:
    survey = corpus("sentences", 5_000_000)
    usual, narrow = (suggest.suggest(survey, chosen).settings for chosen in ({}, {"d_model": 96}))
    assert narrow["training"] == usual["training"]


def test_every_even_width_has_fitting_heads() -> None:
    survey = corpus("sentences", 500)
    for width in range(2, 600, 2):
        own = {"model": {"d_model": width}}
        config.resolve(suggest.suggest(survey, own["model"]).settings, own)


def test_the_sizes_of_a_width_come_before_those_of_a_built_in_corpus() -> None:
    known = {"model": {"d_model": 64, "heads": 4, "d_ff": 128}, "training": {"learning_rate": 0.004}}
    found = suggest.suggest(corpus("words", 5000, 8, 7), {"d_model": 512}, known).settings
    assert (found["model"]["heads"], found["model"]["d_ff"]) == (8, 2048)
    assert found["training"]["learning_rate"] == 5e-4


def test_a_batch_that_the_user_chose_does_not_change_how_much_is_trained() -> None:
    survey = corpus("sentences", 20_000)
    usual = suggest.suggest(survey).settings["training"]
    trained = usual["batch_tokens"] * usual["max_steps"]
    for batch in (500, 2000, 32_768, 100_000):
        found = suggest.suggest(survey, training={"batch_tokens": batch}).settings["training"]
        assert batch * found["max_steps"] == pytest.approx(trained, rel=0.02)
        assert found["warmup_steps"] < found["max_steps"]
        own = {"batch_tokens": batch, "max_steps": 70}
        assert suggest.suggest(survey, training=own).settings["training"]["max_steps"] == 70


def test_a_batch_larger_than_the_corpus_is_one_epoch() -> None:
    survey = corpus("sentences", 500)
    data = suggest.suggest(survey).settings["data"]
    usual, whole, huge = (
        suggest.suggest(survey, training=yours).settings["training"]
        for yours in ({}, {"batch_tokens": round(suggest.tokens_of(survey, data))}, {"batch_tokens": 10_000_000})
    )
    assert usual["max_steps"] > whole["max_steps"] == huge["max_steps"] > 100
    one = corpus("words", 1, **LENGTHS["words"])
    given = {"batch_tokens": 10_000_000}
    assert suggest.suggest(one, training=given).settings["training"]["max_steps"] >= 1


def test_the_amount_of_text_is_counted_in_the_tokens_of_the_user() -> None:
    survey = corpus("sentences", 20_000)
    characters = {"source_tokenizer": "characters", "target_tokenizer": "characters", "shared": False}
    usual, found = (suggest.suggest(survey, data=data) for data in ({}, characters))
    assert found.settings["model"]["d_model"] > usual.settings["model"]["d_model"]
    assert found.reasons["steps"] == "for about 2,500,000 tokens of text"  # 60 + 65 characters of each pair


def test_an_rnn_may_share_a_vocabulary_that_the_corpus_does_not_suggest() -> None:
    survey = corpus("sentences", 500)
    survey.sample = [Pair(pair.source, pair.target.upper(), "here") for pair in SENTENCES]
    own = {"data": {"shared": True}, "model": {"architecture": "rnn-attention"}}
    suggestion = suggest.suggest(survey, own["model"], data=own["data"])
    assert suggestion.settings["data"]["shared"] is False
    settings = config.resolve(suggestion.settings, own)
    assert (settings.data.shared, settings.model.tie) == (True, "all")


def test_a_convolutional_model_has_positions_for_the_maximum_length_of_the_user() -> None:
    own = {"data": {"max_length": 900}, "model": {"architecture": "convolutional"}}
    suggestion = suggest.suggest(corpus("sentences", 500), own["model"], data=own["data"])
    assert config.resolve(suggestion.settings, own).model.max_positions == 916
