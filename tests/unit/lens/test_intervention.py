"""Changing activations: patching equals a calculation by hand, a patch of itself changes nothing, errors say what."""

import numpy as np
import pytest
import torch

from conftest import random_words
from seq2see.errors import SettingError
from seq2see.lens.capture import capture
from seq2see.lens.heads import Head
from seq2see.lens.intervention import changed
from seq2see.run import Run, load


@pytest.fixture(scope="module")
def run(trained) -> Run:
    return load(trained)


@pytest.fixture(scope="module")
def sentences(run) -> tuple[str, str]:
    """Two validation sources with different translations and the same number of tokens."""
    sources = sorted({pair.source for pair in run.validation_pairs})
    readings = [run.read(source) for source in sources]
    return next(
        (one.source, two.source)
        for one in readings
        for two in readings
        if len(one.source_ids) == len(two.source_ids) and one.translation != two.translation
    )


def hooks(run: Run) -> int:
    return sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in run.model.modules())


def test_all_states_of_another_sentence_give_its_translation(run, sentences):
    one, two = sentences
    found = run.patch(one, donor=two)
    assert (found.own_translation, found.translation) == tuple(run.translate([one, two]))
    assert found.effect > 0
    assert hooks(run) == 0


@pytest.mark.parametrize("name", ["encoder.0.around_attention.sum", "encoder_norm", "decoder.0.cross_attention.heads"])
def test_own_activations_change_nothing(run, sentences, name):
    found = run.patch(sentences[0], name, donor=sentences[0])
    assert found.translation == found.own_translation
    np.testing.assert_allclose(found.probability, found.changed_probability, rtol=1e-4)


def test_adding_zero_changes_nothing_and_zeros_in_the_place_of_all_do(run, sentences):
    steered = run.patch(sentences[0], "encoder_norm", value=0.0, add=True)
    np.testing.assert_allclose(steered.probability, steered.changed_probability, rtol=1e-4)
    assert run.patch(sentences[0], "encoder_norm", value=0.0).effect > 0.01


def test_what_the_decoder_is_given_at_a_step_is_what_a_search_outputs_there(run, sentences):
    """All logits but those of one token are lowered at the first position, so that every search begins with it."""
    wanted = run.read(sentences[1]).target_ids[0]
    vocabulary = len(run.tokenizers.target)
    row = np.full(vocabulary, -100.0)
    row[wanted] = 100.0
    found = run.patch(sentences[0], "logits", tokens=[0], value=row, add=True)
    assert run.tokenizers.target.encode([found.translation])[0][0] == wanted


def test_attention_weights_can_be_changed(run, sentences):
    before = run.read(sentences[0])
    with changed(run, {"decoder.0.cross_attention.weights": torch.zeros_like}):
        without = run.look(sentences[0], target=before.translation)
    np.testing.assert_array_equal(without.cross[0], 0.0)
    whole = run.look(sentences[0], target=before.translation)
    assert not np.allclose(without.confidence.probability, whole.confidence.probability)


def test_the_difference_is_that_of_the_log_probabilities(run, sentences):
    one = run.read(sentences[0])
    other = run.translate([sentences[1]])[0]
    found = run.contrast(sentences[0], other)
    place = len(found.prefix)
    steps = run.look(sentences[0]).confidence.candidates[place]
    logs = {each.token: np.log(each.probability) for each in steps}
    assert logs[found.this] == max(logs.values()), "greedy and beam agree here"
    if found.that in logs:
        assert found.difference == pytest.approx(logs[found.this] - logs[found.that], abs=1e-3)
    assert found.layers[-1] == pytest.approx(found.difference, abs=1e-3), "the last layer is the whole model"
    assert len(found.left_out) == len(one.source_ids)
    assert found.left_out[-1] == 0
    head, fall = found.heads[0]
    assert isinstance(head, Head)
    assert abs(fall) == max(abs(each) for _, each in found.heads)
    again = run.contrast(sentences[0], run.translate([sentences[0]])[0], this=other)
    assert again.difference == pytest.approx(-found.difference, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"donor": None}, "either a donor sentence or a value"),
        ({"name": "encoder_nrm", "value": 0}, "encoder_norm"),
        ({"tokens": "nowhere in it", "value": 0}, "exactly once"),
        ({"tokens": [99], "value": 0}, r"tokens \[99\]"),
        ({"tokens": [0, 0], "value": 0}, "occurs twice"),
        ({"tokens": [0], "value": [1.0, 2.0]}, "numbers"),
        ({"tokens": [0], "donor_tokens": [0, 1]}, "the same number of each"),
        ({"name": "decoder.0.cross_attention.weights", "value": 0}, "no vector for each token"),
    ],
)
def test_mistakes_are_named(run, sentences, options, message):
    given = {"donor": sentences[1]} if "value" not in options else {}
    with pytest.raises(SettingError, match=message):
        run.patch(sentences[0], **given | options)
    assert hooks(run) == 0


def test_what_cannot_be_changed_or_contrasted(run, sentences):
    with (
        pytest.raises(SettingError, match="can be recorded, not changed"),
        changed(run, {"encoder.0.self_attention.query": torch.zeros_like}),
    ):
        pass
    with pytest.raises(SettingError, match="nothing to contrast"):
        run.contrast(sentences[0], run.read(sentences[0]).translation)


def test_a_direction_between_two_sets_of_words_steers_and_one_without_meaning_does_not(run):
    """Adding the mean difference between words with b and the same words with a turns A into B."""
    words = [word for word in random_words(200, 5, 4) if "a" in word and "b" not in word]

    def mean(sentences: list[str]) -> torch.Tensor:
        with capture(run, only=lambda name: name == "encoder_norm") as seen:
            run.translate(sentences)
        return torch.cat(seen["encoder_norm"]).mean(0)

    direction = mean([word.replace("a", "b") for word in words]) - mean(words)
    noise = torch.randn(direction.shape, generator=torch.Generator().manual_seed(1))
    noise *= direction.norm() / noise.norm()
    sentences = ["a", "aa", "aaa", "ca", "ade", "hag", "fad", "dac"]
    own = run.translate(sentences)
    found = {}
    for name, vector in (("b", direction), ("noise", noise)):
        with changed(run, {"encoder_norm": lambda states, vector=vector: states + 2 * vector}):
            found[name] = run.translate(sentences)
    assert sum("A" not in each and "B" in each for each in found["b"]) >= 7, found["b"]
    assert sum(one == other for one, other in zip(found["noise"], own, strict=True)) >= 7, found["noise"]
    assert run.translate(sentences) == own
