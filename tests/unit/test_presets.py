"""Presets: each resolves, and those of the paper hold its numbers."""

import pytest

from seq2see import config, presets
from seq2see.errors import SettingError
from seq2see.model.build import count_parameters


@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_resolves_and_says_what_it_is(name: str) -> None:
    settings = config.resolve(presets.preset(name))
    assert settings != config.Settings() or name == "small"
    assert presets.PRESETS[name].__doc__
    assert presets.preset(name) == presets.preset(name)


def test_presets_do_not_share_what_they_return() -> None:
    presets.preset("paper-base")["model"]["d_model"] = 1
    assert presets.preset("paper-base")["model"]["d_model"] == 512
    presets.preset("tiny")["model"]["norm"] = "post"
    assert presets.preset("tiny")["model"]["norm"] == "pre"


def test_paper_base_is_the_first_row_of_table_3() -> None:
    settings = config.resolve(presets.preset("paper-base"))
    model, training, decoding, data = settings.model, settings.training, settings.decoding, settings.data
    assert (model.encoder_layers, model.decoder_layers) == (6, 6)
    assert (model.d_model, model.d_ff, model.heads) == (512, 2048, 8)
    assert model.d_key == model.d_value == 0  # d_model / heads = 64
    assert (model.dropout, training.label_smoothing) == (0.1, 0.1)
    assert (model.norm, model.positions, model.activation, model.tie) == ("post", "sinusoid", "relu", "all")
    assert not model.output_bias
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (training.warmup_steps, training.max_steps, training.average) == (4000, 100_000, 5)
    assert (training.schedule, training.learning_rate, training.clip_norm) == ("noam", 0.0, 0.0)
    assert (decoding.beam, decoding.length_penalty, decoding.length_formula) == (4, 0.6, "paper")
    assert (decoding.max_ratio, decoding.max_extra) == (1.0, 50)
    assert data.shared
    assert data.source_vocabulary == data.target_vocabulary == 37_000
    assert data.source_tokenizer == data.target_tokenizer == "bpe"
    assert 62e6 < count_parameters(model, 37_000, 37_000) < 66e6


def test_paper_big_is_the_last_row() -> None:
    settings = config.resolve(presets.preset("paper-big"))
    model, training = settings.model, settings.training
    assert (model.d_model, model.d_ff, model.heads, model.dropout) == (1024, 4096, 16, 0.3)
    assert (training.max_steps, training.average) == (300_000, 20)
    assert 210e6 < count_parameters(model, 37_000, 37_000) < 216e6


def test_tutorial_small_has_the_tutorials_parameters() -> None:
    settings = config.resolve(presets.preset("tutorial-small"))
    model = settings.model
    assert (model.encoder_layers, model.d_model, model.heads, model.d_ff, model.dropout) == (4, 128, 4, 512, 0.3)
    assert (model.tie, model.output_bias, model.norm_epsilon) == ("none", True, 1e-6)
    assert settings.data.source_vocabulary == settings.data.target_vocabulary == 9000
    assert count_parameters(model, 9000, 9000) == 5_316_392


def test_unknown_presets_get_the_nearest() -> None:
    with pytest.raises(SettingError, match=r"^unknown preset 'paper_base'\. Did you mean 'paper-base'\?$"):
        presets.preset("paper_base")
    with pytest.raises(
        SettingError,
        match=r"^unknown preset 'x'\. Choose from: compact, paper-base, paper-big, rnn, rnn-attention, small, ",
    ):
        presets.preset("x")
