"""Fine-tuning: what is kept, what is refused, what is suggested, and how forgetting is shown."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seq2see import bundle, config, storage
from seq2see.cli.options import parse_assignments
from seq2see.errors import RunError, SettingError
from seq2see.session import fine_tuning
from seq2see.session.fine_tuning import Base
from seq2see.session.request import Request
from seq2see.text.pair import Sides
from seq2see.text.rows import ReadingOptions
from seq2see.training import schedule


def open_base(folder: Path) -> Base:
    out = folder.parent / "fine-tuned"
    return fine_tuning.open_base(
        Request("pairs.tsv", out, None, [], ReadingOptions(), False, False, False, folder, lambda _: None)
    )


@pytest.fixture(scope="module")
def base(trained: Path) -> Base:
    return open_base(trained)


@pytest.fixture
def own(trained: Path, tmp_path: Path) -> Path:
    """A copy of the shared run that may be changed."""
    return Path(shutil.copytree(trained, tmp_path / "own"))


def test_a_run_is_opened_with_all_that_is_kept(base: Base, trained: Path) -> None:
    assert base.name == "run"
    assert base.bundle.settings == config.read_settings(trained)
    assert len(base.valid_pairs) == storage.read_manifest(trained)["validation_pairs"]
    assert (base.tags, base.languages) == ([], Sides())
    assert base.original["batch_tokens"] == 1000


def test_a_run_without_its_validation_pairs_is_opened(own: Path) -> None:
    (own / "validation.jsonl").write_text("{half a li")
    assert open_base(own).valid_pairs == []
    (own / "validation.jsonl").unlink()
    assert open_base(own).valid_pairs == []


def test_the_peak_of_the_paper_is_known_without_a_rate(base: Base, own: Path) -> None:
    settings = config.resolve(
        config.read_toml(own / "settings.toml"), {"training": {"learning_rate": 0.0, "warmup_steps": 40}}
    )
    config.write_toml(settings, own / "settings.toml")
    assert open_base(own).original["peak"] == pytest.approx(schedule.noam(40, 32, 40))


def test_a_run_that_was_fine_tuned_lends_the_rate_of_its_original(own: Path) -> None:
    """Else each fine-tuning of a fine-tuning would be slower than the one before."""
    original = {"peak": 0.25, "batch_tokens": 77}
    facts = storage.read_manifest(own)
    storage.write_manifest(own, {**facts, "fine_tuning": {"from": "first", "original": original}})
    assert open_base(own).original == original


@pytest.mark.parametrize(
    "assignment",
    [
        "model.d_model=64",
        "model.tie=none",
        "model.positions=rotary",
        "data.source_tokenizer=bpe",
        "data.target_vocabulary=9",
        "data.normalization=nfkc",
        "data.tags=de",
    ],
)
def test_what_changes_model_or_tokens_is_refused(base: Base, assignment: str) -> None:
    with pytest.raises(SettingError, match=rf"^{assignment.partition('=')[0]} = .*--from keeps .* train anew"):
        fine_tuning.check(base, [parse_assignments([assignment])], tag=False)


@pytest.mark.parametrize(
    "assignment",
    ["model.d_model=32", "model.dropout=0.2", "data.max_length=9", "training.seed=3", "decoding.beam=2"],
)
def test_what_changes_neither_is_not(base: Base, assignment: str) -> None:
    fine_tuning.check(base, [parse_assignments([assignment])], tag=False)


def test_tags_cannot_be_added(base: Base) -> None:
    with pytest.raises(SettingError, match=r"^--tag: .* was trained without"):
        fine_tuning.check(base, [], tag=True)


@given(tokens=st.integers(2, 10**10))
def test_every_suggestion_resolves_and_is_gentle(base: Base, tokens: int) -> None:
    settings = config.resolve(config.asdict(base.bundle.settings), fine_tuning.suggest(base, tokens, {}))
    training = settings.training
    assert 0 < training.learning_rate < base.original["peak"]
    assert 1 <= training.warmup_steps < training.max_steps / 5
    assert training.log_every <= training.validate_every < training.max_steps
    assert training.batch_tokens <= max(base.original["batch_tokens"], fine_tuning.FEWEST_TOKENS)
    assert fine_tuning.FEWEST_STEPS <= training.max_steps <= fine_tuning.MOST_STEPS


@given(tokens=st.integers(2, 10**8), more=st.integers(0, 10**8))
def test_more_pairs_more_steps(base: Base, tokens: int, more: int) -> None:
    few, many = (fine_tuning.suggest(base, count, {})["training"] for count in (tokens, tokens + more))
    assert few["max_steps"] <= many["max_steps"] + 1  # a larger batch may round one away
    assert few["batch_tokens"] <= many["batch_tokens"]


def test_what_the_user_asks_for_shapes_the_rest(base: Base) -> None:
    asked = fine_tuning.suggest(base, 10_000, {"max_steps": 30})["training"]
    assert (asked["max_steps"], asked["warmup_steps"], asked["validate_every"]) == (30, 3, 3)
    assert fine_tuning.suggest(base, 10_000, {"batch_tokens": 100})["training"]["max_steps"] == 1000


def test_the_start_is_loaded_or_refused_in_a_line(own: Path) -> None:
    model = bundle.load(own).model
    with pytest.raises(RunError, match="cannot be read"):
        bundle.read_weights(model, own / "start.safetensors")
    expected = {name: weight.clone() for name, weight in bundle.named_weights(model).items()}
    bundle.save_weights(model, own / "start.safetensors")
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    bundle.read_weights(model, own / "start.safetensors")
    assert all(torch.equal(weight, expected[name]) for name, weight in bundle.named_weights(model).items())
    (own / "start.safetensors").write_bytes(b"half")
    with pytest.raises(RunError, match="cannot be read"):
        bundle.read_weights(model, own / "start.safetensors")


HIGHER = {"loss": False, "exact": True}
NAMES = {"old": "upper", "new": "backwards"}


def change(*numbers: float) -> fine_tuning.Change:
    loss_before, exact_before, loss_after, exact_after = numbers
    return {
        "before": {"loss": loss_before, "exact": exact_before},
        "after": {"loss": loss_after, "exact": exact_after},
    }


def test_the_table() -> None:
    scores = {"old": change(0.1, 98.0, 1.25, 40.0), "new": change(12.5, 0.0, 0.5, 0.0)}
    assert fine_tuning.table(NAMES, scores, HIGHER) == [
        "validation               before     after",
        "old: upper      exact     98.00     40.00  worse",
        "                loss      0.100     1.250  worse",
        "new: backwards  exact     0.000     0.000  same",
        "                loss      12.50     0.500  better",
        "to forget less, add some pairs of upper to the new ones, or train for fewer steps",
    ]


def test_the_table_in_korean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its columns are aligned, although a Korean syllable takes two columns of a terminal."""
    monkeypatch.setenv("SEQ2SEE_LANG", "ko")
    scores = {"old": change(0.1, 98.0, 1.25, 40.0), "new": change(12.5, 0.0, 0.5, 0.0)}
    lines = fine_tuning.table(NAMES, scores, HIGHER)
    assert lines[:2] == [
        "검증                            조정 전   조정 후",
        "기존: upper       정확히 일치     98.00     40.00  나빠짐",
    ]


@pytest.mark.parametrize(
    ("old", "said"),
    [((0.1, 98.0, 0.1, 97.0), False), ((0.1, 98.0, 5.0, 99.0), False), ((0.1, 98.0, 0.1, 80.0), True)],
)
def test_advice_only_where_much_was_forgotten(old: tuple[float, ...], said: bool) -> None:
    lines = fine_tuning.table(NAMES, {"old": change(*old), "new": change(1, 1, 1, 1)}, HIGHER)
    assert lines[-1].startswith("to forget less") == said


def test_the_table_without_old_pairs_or_a_metric_beside_the_loss() -> None:
    scores = {"new": {"before": {"loss": 2.0}, "after": {"loss": 1.0}}}
    lines = fine_tuning.table(NAMES, scores, HIGHER)
    assert [line.split() for line in lines] == [
        ["validation", "before", "after"],
        ["new:", "backwards", "loss", "2.000", "1.000", "better"],
    ]


def test_facts_for_a_page() -> None:
    assert fine_tuning.as_facts({}) == {}
    about = json.loads('{"from": "upper", "scores": {"old": {"before": {"loss": 1.0}, "after": {"loss": 2.5}}}}')
    assert fine_tuning.as_facts(about) == {
        "fine-tuned from": "upper",
        "loss on the old validation pairs": "1.000 before, 2.500 after",
    }
