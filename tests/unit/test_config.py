"""Settings: what is refused and how it is said, what lies over what, and the list of all there are."""

from dataclasses import FrozenInstanceError, asdict
from pathlib import Path
from typing import Any

import pytest

from seq2see import config
from seq2see.cli.options import parse_assignments
from seq2see.config import Settings
from seq2see.errors import SettingError
from seq2see.model.build import count_parameters

KEYS = [
    "data.source_tokenizer",
    "data.target_tokenizer",
    "data.source_pattern",
    "data.target_pattern",
    "data.source_tags",
    "data.target_tags",
    "data.source_vocabulary",
    "data.target_vocabulary",
    "data.shared",
    "data.normalization",
    "data.max_length",
    "data.validation_pairs",
    "data.tags",
    "data.hallucination",
    "data.window_pairs",
    "model.architecture",
    "model.encoder_layers",
    "model.decoder_layers",
    "model.d_model",
    "model.cell",
    "model.d_hidden",
    "model.source_reversed",
    "model.kernel",
    "model.heads",
    "model.d_key",
    "model.d_value",
    "model.d_ff",
    "model.activation",
    "model.norm",
    "model.norm_epsilon",
    "model.positions",
    "model.max_positions",
    "model.dropout",
    "model.tie",
    "model.output_bias",
    "training.seed",
    "training.batch_tokens",
    "training.micro_batch_tokens",
    "training.max_steps",
    "training.max_minutes",
    "training.schedule",
    "training.learning_rate",
    "training.warmup_steps",
    "training.label_smoothing",
    "training.agreement",
    "training.alignment_weight",
    "training.initial_gain",
    "training.adam_beta1",
    "training.adam_beta2",
    "training.adam_epsilon",
    "training.weight_decay",
    "training.clip_norm",
    "training.precision",
    "training.validate_every",
    "training.metric",
    "training.patience",
    "training.average",
    "training.keep",
    "training.deterministic",
    "training.log_every",
    "decoding.beam",
    "decoding.length_penalty",
    "decoding.length_formula",
    "decoding.stop_against",
    "decoding.max_ratio",
    "decoding.max_extra",
    "decoding.max_source",
    "decoding.batch_tokens",
]


def refused(*overlays: config.Overlay) -> str:
    with pytest.raises(SettingError) as raised:
        config.resolve(*overlays)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_all_settings_that_there_are() -> None:
    """A new one is a promise to keep: before it joins this list, ask whether it can be derived."""
    assert [key for key, _, _, _ in config.describe()] == KEYS


def test_describe_says_everything_about_each() -> None:
    rows = {key: rest for key, *rest in config.describe()}
    assert rows["model.d_model"] == ["int", "256", "width of embeddings and layer outputs"]
    assert rows["model.norm"][:2] == ["post | pre", "post"]
    assert rows["data.shared"][:2] == ["bool", "True"]
    assert rows["training.clip_norm"][:2] == ["float", "1.0"]
    assert all(about and kind for kind, _, about in rows.values())


def test_defaults_resolve() -> None:
    assert config.resolve() == Settings()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        config.resolve().model.d_model = 3  # type: ignore[misc]


def test_the_last_overlay_is_on_top_key_by_key() -> None:
    settings = config.resolve(
        {"model": {"d_model": 8, "d_ff": 16}, "training": {"seed": 4}},
        {"model": {"d_model": 12}},
        {},
        {"training": {"max_steps": 7}},
        {"model": {"heads": 3}},
    )
    assert (settings.model.d_model, settings.model.d_ff, settings.model.heads) == (12, 16, 3)
    assert (settings.training.seed, settings.training.max_steps) == (4, 7)
    assert settings.decoding == config.Decoding()


def test_overlays_are_checked_together_not_one_by_one() -> None:
    assert config.resolve({"model": {"heads": 5}}, {"model": {"d_model": 10}}).model.heads == 5
    assert "not divisible" in refused({"model": {"heads": 5}})


def test_another_kind_of_tokenizer_drops_the_pattern_below() -> None:
    molecules = {"data": {"shared": False, "source_tokenizer": "pattern", "source_pattern": "smiles"}}
    below = config.resolve(molecules, {"model": {"tie": "none"}}, {"data": {"source_tokenizer": "pattern"}})
    assert (below.data.source_tokenizer, below.data.source_pattern) == ("pattern", "smiles")
    above = config.resolve(molecules, {"model": {"tie": "none"}}, {"data": {"source_tokenizer": "bpe"}})
    assert (above.data.source_tokenizer, above.data.source_pattern) == ("bpe", "")


def test_another_architecture_drops_what_is_of_no_use_to_it_below() -> None:
    below = {"model": {"heads": 8, "norm": "pre", "dropout": 0.3}}
    model = config.resolve(below, {"model": {"architecture": "rnn", "cell": "gru"}}).model
    assert (model.heads, model.norm, model.dropout, model.cell) == (4, "post", 0.3, "gru")
    back = config.resolve({"model": asdict(model)}, {"model": {"architecture": "transformer"}}).model
    assert (back.cell, back.dropout) == ("lstm", 0.3)


def test_where_there_is_attention() -> None:
    layers = {"encoder_layers": 3, "decoder_layers": 2, "heads": 4}
    places = config.resolve({"model": layers}).model.attention
    assert places == {"encoder": (3, 4), "decoder": (2, 4), "cross": (2, 4)}
    assert config.resolve({"model": {"architecture": "rnn-attention"}}).model.attention == {"cross": (1, 1)}
    assert config.resolve({"model": {"architecture": "rnn"}}).model.attention == {}
    assert config.resolve({"model": {"architecture": "rnn-bidirectional"}}).model.attention == {}
    assert config.resolve({"model": {"architecture": "rnn-dot"}}).model.attention == {"cross": (1, 1)}
    model = config.resolve({"model": {"architecture": "convolutional", "decoder_layers": 5}}).model
    assert model.attention == {"cross": (5, 1)}


def test_check_keys_leaves_contradictions_to_resolve() -> None:
    overlay = {"model": {"heads": 7}}
    assert config.check_keys(overlay).model.heads == 7
    with pytest.raises(SettingError, match="unknown setting"):
        config.check_keys({"model": {"head": 7}})


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        ({"modle": {"d_model": 8}}, "unknown section 'modle'. Did you mean 'model'?"),
        ({"xyzzy": {}}, "unknown section 'xyzzy'. Choose from: data, decoding, model, training."),
        ({"model": {"d_modle": 8}}, "unknown setting 'model.d_modle'. Did you mean 'd_model'?"),
        ({"training": {"max_step": 8}}, "unknown setting 'training.max_step'. Did you mean 'max_steps'?"),
        ({"model": 5}, "'model' is a section: write model.key=value"),
        ({"model": {"norm": "pro"}}, "model.norm = 'pro': unknown. Did you mean 'pre'? Choose from: post, pre."),
        ({"model": {"tie": True}}, "model.tie = True: unknown. Choose from: all, decoder, none."),
        (
            {"data": {"source_tokenizer": ["bpe"]}},
            "data.source_tokenizer = ['bpe']: unknown. Did you mean 'bpe'? "
            "Choose from: bpe, characters, imported, jamo, marks, pattern, symbols, unigram.",
        ),
        ({"data": {"source_pattern": 3}}, "data.source_pattern = 3: expected text"),
        (
            {"data": {"source_tokenizer": "pattern"}},
            "data.source_tokenizer = 'pattern' needs data.source_pattern: "
            "a regular expression, or one of smiles, words, code",
        ),
        (
            {"data": {"target_pattern": "words"}},
            "data.target_pattern = 'words' has no effect with data.target_tokenizer = 'unigram': "
            "set data.target_tokenizer=pattern, too",
        ),
        (
            {
                "data": {
                    "source_tokenizer": "pattern",
                    "target_tokenizer": "pattern",
                    "source_pattern": "code",
                    "target_pattern": "words",
                }
            },
            "data.shared needs the same pattern on both sides: set data.shared=false",
        ),
        (
            {"data": {"target_pattern": "a(b"}},
            "data.target_pattern = 'a(b': not a regular expression: missing ), unterminated subpattern at character 2",
        ),
        ({"model": {"d_model": "wide"}}, "model.d_model = 'wide': expected a whole number"),
        ({"model": {"d_model": 8.0}}, "model.d_model = 8.0: expected a whole number"),
        ({"model": {"d_model": True}}, "model.d_model = True: expected a whole number"),
        ({"model": {"dropout": "0.1"}}, "model.dropout = '0.1': expected a number"),
        ({"model": {"dropout": False}}, "model.dropout = False: expected a number"),
        ({"data": {"shared": 1}}, "data.shared = 1: expected true or false"),
        ({"data": {"shared": "yes"}}, "data.shared = 'yes': expected true or false"),
        ({"model": {"d_model": 0}}, "model.d_model = 0: expected at least 1"),
        ({"model": {"d_model": -8}}, "model.d_model = -8: expected at least 1"),
        ({"model": {"dropout": 0.96}}, "model.dropout = 0.96: expected between 0 and 0.95"),
        ({"model": {"dropout": -0.1}}, "model.dropout = -0.1: expected between 0 and 0.95"),
        ({"training": {"label_smoothing": 1}}, "training.label_smoothing = 1.0: expected between 0 and 0.99"),
        ({"training": {"learning_rate": float("nan")}}, "training.learning_rate = nan: expected a finite number"),
        ({"model": {"dropout": float("nan")}}, "model.dropout = nan: expected a finite number"),
    ],
)
def test_what_is_refused_alone(overlay: config.Overlay, message: str) -> None:
    assert refused(overlay) == message


@pytest.mark.parametrize("key", [key for key, kind, _, _ in config.describe() if kind == "float"])
def test_no_number_may_be_nan(key: str) -> None:
    section, _, name = key.partition(".")
    assert f"{key} = nan" in refused({section: {name: float("nan")}})


@pytest.mark.parametrize(
    "key",
    [
        "model.norm_epsilon",
        "training.learning_rate",
        "training.adam_epsilon",
        "decoding.length_penalty",
        "decoding.max_ratio",
    ],
)
def test_what_is_computed_with_may_not_be_endless(key: str) -> None:
    """A rate or a ratio without end would break far from here, or train nothing at all."""
    section, _, name = key.partition(".")
    assert f"{key} = inf" in refused({section: {name: float("inf")}})


@pytest.mark.parametrize("key", ["adam_beta1", "adam_beta2"])
def test_a_mean_that_never_moves_is_refused(key: str) -> None:
    """PyTorch's Adam takes betas below 1 only: to be told here, and not after the corpus was tokenised."""
    assert f"training.{key} = 1.0" in refused({"training": {key: 1.0}})


@pytest.mark.parametrize(
    ("overlay", "words"),
    [
        ({"model": {"d_model": 10, "heads": 4}}, ["model.d_model = 10", "model.heads = 4", "model.d_key"]),
        ({"model": {"d_model": 9, "heads": 3}}, ["model.d_model = 9", "even"]),
        ({"model": {"d_model": 12, "heads": 4, "positions": "rotary"}}, ["rotary", "even", "model.d_key"]),
        ({"model": {"positions": "rotary", "d_key": 5}}, ["rotary", "even"]),
        ({"model": {"positions": "learned", "max_positions": 256}}, ["model.max_positions", "data.max_length"]),
        ({"data": {"target_tokenizer": "symbols"}}, ["data.shared=false"]),
        ({"data": {"shared": False}}, ['model.tie = "all"', "model.tie=decoder"]),
        ({"model": {"architecture": "rnn", "heads": 2}}, ["model.heads = 2", "'rnn'", "leave it out"]),
        ({"model": {"cell": "gru"}}, ["model.cell = 'gru'", "'transformer'", "leave it out"]),
        ({"model": {"architecture": "rnn", "encoder_layers": 2}}, ["model.encoder_layers = 2", "decoder_layers = 3"]),
        (
            {"model": {"architecture": "rnn-attention", "source_reversed": True}},
            ["model.source_reversed = True", "'rnn-attention'"],
        ),
        ({"model": {"architecture": "rnn-attention", "d_hidden": 7}}, ["model.d_hidden = 7", "even"]),
        ({"model": {"architecture": "rnn-bidirectional", "d_hidden": 7}}, ["model.d_hidden = 7", "even"]),
        ({"model": {"architecture": "rnn-dot", "kernel": 5}}, ["model.kernel = 5", "'rnn-dot'", "leave it out"]),
        ({"model": {"architecture": "convolutional", "cell": "gru"}}, ["model.cell = 'gru'", "'convolutional'"]),
        ({"model": {"architecture": "convolutional", "positions": "rotary"}}, ["model.positions", "'convolutional'"]),
        ({"model": {"architecture": "convolutional", "kernel": 0}}, ["model.kernel = 0", "at least 1"]),
        ({"model": {"architecture": "convolutional", "max_positions": 256}}, ["max_positions", "max_length"]),
        ({"model": {"kernel": 5}}, ["model.kernel = 5", "'transformer'"]),
        ({"model": {"architecture": "rnn-attention", "d_model": 7}}, ["model.d_model = 7", "even"]),
    ],
)
def test_contradictions_name_both_sides_or_the_way_out(overlay: config.Overlay, words: list[str]) -> None:
    message = refused(overlay)
    assert all(word in message for word in words), message


def test_what_looks_like_a_contradiction_and_is_none() -> None:
    config.resolve({"model": {"d_model": 10, "heads": 4, "d_key": 3}})
    config.resolve({"model": {"d_model": 9, "heads": 3, "positions": "none"}})
    config.resolve({"model": {"positions": "learned", "max_positions": 257}})
    config.resolve({"model": {"architecture": "rnn", "d_model": 9, "d_hidden": 7, "cell": "gru"}})
    config.resolve({"model": {"architecture": "rnn-attention", "d_model": 9, "d_hidden": 8}})
    config.resolve({"model": {"architecture": "convolutional", "d_model": 9, "d_hidden": 7, "encoder_layers": 5}})
    config.resolve({"data": {"shared": False, "target_tokenizer": "symbols"}, "model": {"tie": "decoder"}})
    config.resolve({"training": {"max_minutes": 1, "clip_norm": 0}})  # whole numbers where any number will do


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("model.d_model=64", {"model": {"d_model": 64}}),
        (" model.d_model = 64 ", {"model": {"d_model": 64}}),
        ("model.dropout=0.25", {"model": {"dropout": 0.25}}),
        ("training.learning_rate=5e-3", {"training": {"learning_rate": 5e-3}}),
        ("training.max_steps=1_000", {"training": {"max_steps": 1000}}),
        ("data.shared=false", {"data": {"shared": False}}),
        ("model.norm=pre", {"model": {"norm": "pre"}}),
        ('model.norm="pre"', {"model": {"norm": "pre"}}),
        ("model.norm='pre'", {"model": {"norm": "pre"}}),
        ("model.norm=", {"model": {"norm": ""}}),
        ("model.norm=a=b", {"model": {"norm": "a=b"}}),
        ("model.x.y=1", {"model": {"x.y": 1}}),
    ],
)
def test_assignments(assignment: str, expected: object) -> None:
    assert parse_assignments([assignment]) == expected


def test_assignments_together_the_last_one_counts() -> None:
    overlay = parse_assignments(["model.d_model=8", "training.seed=2", "model.heads=2", "model.d_model=16"])
    assert overlay == {"model": {"d_model": 16, "heads": 2}, "training": {"seed": 2}}
    assert parse_assignments([]) == {}


@pytest.mark.parametrize("assignment", ["model.d_model", "d_model=8", "=8", ""])
def test_assignments_of_another_form(assignment: str) -> None:
    with pytest.raises(SettingError, match=r"expected section\.key=value, such as model\.d_model=256$"):
        parse_assignments([assignment])


def test_toml_there_and_back(tmp_path: Path) -> None:
    settings = config.resolve(
        {
            "data": {"shared": False, "normalization": "nfkc"},
            "model": {"tie": "none", "norm_epsilon": 1e-6, "output_bias": True},
            "training": {"adam_epsilon": 1e-9, "max_minutes": 2.5},
            "decoding": {"length_formula": "paper"},
        }
    )
    path = tmp_path / "settings.toml"
    config.write_toml(settings, path)
    assert config.resolve(config.read_toml(path)) == settings
    assert config.read_toml(path) == asdict(settings)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"[model\nd_model = 8\n", "not TOML"), (b"\xff\xfe", "not TOML"), (None, "no such settings")],
)
def test_files_that_are_not_settings(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingError, match=words) as raised:
        config.read_toml(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def test_a_key_outside_any_section_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("d_model = 8\n")
    assert refused(config.read_toml(path)).startswith("unknown section 'd_model'")


CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_recipe_names_known_settings_and_resolves(path: Path) -> None:
    overlay = config.read_toml(path)
    assert config.keys(overlay) <= set(KEYS)
    config.resolve(overlay)


def test_the_recipe_of_debian_is_the_command_of_its_published_scores() -> None:
    """`train train.en.gz,train.ko.gz`, and no option."""
    (path,) = (each for each in CONFIGS if each.stem == "debian-en-ko")
    assert config.read_toml(path) == {}


@pytest.mark.parametrize("key", [key for key, kind, _, _ in config.describe() if kind in ("int", "float")])
@pytest.mark.parametrize("value", [10**15, 10**20, 10**400, -(10**400)])
def test_every_number_has_bounds(key: str, value: int) -> None:
    """Whoever sends a run folder does not decide how much memory or time it takes."""
    section, _, name = key.partition(".")
    if (key, value) == ("training.seed", 10**15):
        config.resolve({section: {name: value}})
        return
    if value in (10**15, 10**20) and name in ("learning_rate", "agreement", "clip_norm"):
        config.check_keys({section: {name: value}})
        return
    message = refused({section: {name: value}})
    assert message.startswith(f"{key} = ")
    assert len(message) < 300


@pytest.mark.parametrize("key", ["data.tags", "data.source_pattern"])
def test_every_text_has_bounds(key: str) -> None:
    section, _, name = key.partition(".")
    assert "10,000,000 characters are too many" in refused({section: {name: "x" * 10_000_000}})


def test_the_reason_for_a_maximum_is_a_reason() -> None:
    overlay = {"training": {"max_minutes": 1e10}}
    assert refused(overlay).endswith(": expected at most 1,000,000,000 (that is 1,900 years)")
    assert refused({"training": {"average": 20_000}}).endswith(": expected at most 10,000 (each is a file)")


def test_messages_are_short_whatever_the_value() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * 1_000_000, 10**5000, deep, ["x"] * 100_000, {"a": "b" * 100_000}):
        for overlay in ({"model": {"norm": value}}, {"model": {"d_model": value}}):
            assert len(refused(overlay)) < 300
    for overlay in ({"model": {"x" * 100_000: 1}}, {"x" * 100_000: {}}):
        assert len(refused(overlay)) < 1000


@pytest.mark.parametrize("text", ["1" * 5000, "[" * 5000])
def test_an_assignment_of_thousands_of_digits_or_brackets(text: str) -> None:
    overlay = parse_assignments([f"model.d_model={text}"])
    assert "expected a whole number" in refused(overlay)


@pytest.mark.parametrize(
    ("decoding", "words"),
    [
        ({"beam": 201}, "decoding.beam = 201: expected at most 200"),
        ({"beam": 200, "max_extra": 235}, "lower one"),
        ({"beam": 200, "max_ratio": 30}, "lower one"),
        ({"max_source": 500_000}, "allow outputs of 1,000,066 tokens"),
    ],
)
def test_decoding_that_would_not_end(decoding: dict[str, Any], words: str) -> None:
    assert words in refused({"decoding": decoding})
    with pytest.raises(SettingError, match="decoding"):
        config.check_decoding(config.Decoding(**decoding))


def test_a_very_wide_beam_with_usual_lengths_is_allowed() -> None:
    assert config.resolve({"decoding": {"beam": 200}}).decoding.beam == 200


def test_a_settings_file_too_large(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("# long\n" * 100_000)
    with pytest.raises(SettingError, match="700,000 bytes, a settings file has at most"):
        config.read_toml(path)


@pytest.mark.parametrize("name", config.PRESETS)
def test_every_preset_resolves_and_says_what_it_is(name: str) -> None:
    settings = config.resolve(config.preset(name))
    assert settings != config.Settings() or name == "small"
    assert config.PRESETS[name]["about"]
    assert config.preset(name) == config.preset(name)


def test_presets_do_not_share_what_they_return() -> None:
    config.preset("paper-base")["model"]["d_model"] = 1
    assert config.preset("paper-base")["model"]["d_model"] == 512
    config.preset("tiny")["model"]["norm"] = "post"
    assert config.preset("tiny")["model"]["norm"] == "pre"


def test_paper_base_is_the_first_row_of_table_3() -> None:
    settings = config.resolve(config.preset("paper-base"))
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
    settings = config.resolve(config.preset("paper-big"))
    model, training = settings.model, settings.training
    assert (model.d_model, model.d_ff, model.heads, model.dropout) == (1024, 4096, 16, 0.3)
    assert (training.max_steps, training.average) == (300_000, 20)
    assert 210e6 < count_parameters(model, 37_000, 37_000) < 216e6


def test_tutorial_small_has_the_tutorials_parameters() -> None:
    settings = config.resolve(config.preset("tutorial-small"))
    model = settings.model
    assert (model.encoder_layers, model.d_model, model.heads, model.d_ff, model.dropout) == (4, 128, 4, 512, 0.3)
    assert (model.tie, model.output_bias, model.norm_epsilon) == ("none", True, 1e-6)
    assert settings.data.source_vocabulary == settings.data.target_vocabulary == 9000
    assert count_parameters(model, 9000, 9000) == 5_316_392


@pytest.mark.parametrize("name", ["paper-base", "paper-big", "tutorial-small"])
def test_presets_of_the_paper_name_every_setting_of_the_loss(name: str) -> None:
    """Those that a preset does not name are suggested for the corpus, such as a loss that the paper does not have."""
    settings = config.preset(name)["training"]
    assert {"label_smoothing", "agreement", "alignment_weight", "weight_decay"} <= settings.keys()
    assert settings["agreement"] == settings["alignment_weight"] == settings["weight_decay"] == 0


def test_unknown_presets_get_the_nearest() -> None:
    with pytest.raises(SettingError, match=r"^unknown preset 'paper_base'\. Did you mean 'paper-base'\?$"):
        config.preset("paper_base")
    with pytest.raises(
        SettingError,
        match=r"^unknown preset 'x'\. Choose from: compact, convolutional, marian, paper-base, paper-big, rnn, ",
    ):
        config.preset("x")
