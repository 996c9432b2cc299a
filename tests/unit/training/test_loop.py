"""The loop: what it yields and in which order, when it stops, what it keeps, and what does not change an update."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import seq2see
import stores
from seq2see.config import Model, Training
from seq2see.errors import RunError
from seq2see.kernels import threads
from seq2see.machine import Stopped
from seq2see.model.build import build
from seq2see.tokens import aligner, store
from seq2see.tokens.store import Store
from seq2see.training import checkpoint, loop
from seq2see.training import events as training_events
from seq2see.training.bad_numbers import NotFinite
from seq2see.training.checkpoint import Progress
from seq2see.training.events import Finished, Trained, Validated

VOCABULARY = 11
SETTINGS = Training(
    batch_tokens=60,
    max_steps=6,
    warmup_steps=2,
    learning_rate=1e-2,
    validate_every=2,
    log_every=1,
    average=2,
    patience=0,
)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Store:
    dice = np.random.default_rng(4)
    encoded = [
        (dice.integers(4, VOCABULARY, size).tolist(), dice.integers(4, VOCABULARY, size + 1).tolist())
        for size in dice.integers(1, 8, 80)
    ]
    return stores.write(tmp_path_factory.mktemp("store"), encoded, VOCABULARY)


def make(dropout: float = 0.0) -> seq2see.Transformer:
    torch.manual_seed(1)
    return seq2see.Transformer(
        VOCABULARY, VOCABULARY, encoder_layers=1, decoder_layers=1, d_model=8, heads=2, d_ff=12, dropout=dropout
    )


def scores(*values: float) -> Callable[[], dict[str, float]]:
    """A validation that says these losses one after the other, then the last for ever."""
    left = list(values)
    return lambda: {"loss": left.pop(0) if len(left) > 1 else left[0]}


def run_lazily(
    model: seq2see.Transformer,
    pairs: Store,
    folder: Path,
    settings: Training = SETTINGS,
    *,
    validate: Callable[[], dict[str, float]] | None = None,
    micro_tokens: int = 10_000,
    stop_at: int | None = None,
    lower_is_better: bool = True,
    translated: int = 0,
) -> Iterator[training_events.Event]:
    folder.mkdir(exist_ok=True)
    steps = 0

    def should_stop() -> bool:
        nonlocal steps
        steps += 1
        return steps == stop_at

    return loop.train(
        model,
        pairs,
        settings,
        window_pairs=40,
        d_model=8,
        run=folder,
        validate=validate or scores(1.0),
        lower_is_better=lower_is_better,
        micro_tokens=micro_tokens,
        translated=lambda: translated,
        should_stop=should_stop,
    )


def run(*given: Any, **options: Any) -> list[training_events.Event]:
    """Train to the end, as `run_lazily` is told to."""
    return list(run_lazily(*given, **options))


def of(kind: type, events: list[training_events.Event]) -> Iterator[training_events.Event]:
    return (event for event in events if isinstance(event, kind))


def test_events_come_in_order(pairs: Store, tmp_path: Path) -> None:
    events = run(make(), pairs, tmp_path, replace(SETTINGS, max_steps=5, log_every=2))
    assert [(type(event).__name__, event.step) for event in events] == [
        ("Stepped", 1),
        ("Stepped", 2),
        ("Trained", 2),
        ("Validated", 2),
        ("Stepped", 3),
        ("Stepped", 4),
        ("Trained", 4),
        ("Validated", 4),
        ("Stepped", 5),
        ("Validated", 5),
        ("Validated", 5),
        ("Finished", 5),
    ]
    assert [event.what for event in of(Validated, events)] == ["model"] * 3 + ["average of the last 2 checkpoints"]
    assert events[-1].reason == "all 5 steps done"


def test_what_a_step_says_of_itself(pairs: Store, tmp_path: Path) -> None:
    first, second, third, *_ = of(Trained, run(make(), pairs, tmp_path))
    assert [first.rate, second.rate] == pytest.approx([5e-3, 1e-2])
    assert third.rate == pytest.approx(1e-2 * (2 / 3) ** 0.5)
    assert first.epoch == 0
    assert first.loss > 0
    assert first.smoothed_loss > 0
    assert first.gradient_norm > 0
    assert first.tokens_per_second > 0
    assert first.seconds <= second.seconds


def test_losses_between_two_lines_are_averaged_over_their_tokens(pairs: Store, tmp_path: Path) -> None:
    each = list(of(Trained, run(make(), pairs, tmp_path / "a")))
    (both, *_) = of(Trained, run(make(), pairs, tmp_path / "b", replace(SETTINGS, log_every=2)))
    assert min(each[0].loss, each[1].loss) < both.loss < max(each[0].loss, each[1].loss)


def test_training_reduces_the_loss(pairs: Store, tmp_path: Path) -> None:
    events = list(of(Trained, run(make(), pairs, tmp_path, replace(SETTINGS, max_steps=60, validate_every=60))))
    assert events[-1].loss < 0.9 * events[0].loss


@pytest.mark.parametrize("micro_tokens", [1, 13, 30])
def test_micro_batches_do_not_change_the_update(pairs: Store, tmp_path: Path, micro_tokens: int) -> None:
    """One update of several small passes is the update of one large pass: the loss is divided once, by all tokens.

    The biases of keys have no gradient but rounding (a softmax does not see a shift), which Adam would make as large as
    any other; its epsilon keeps them still here.
    """
    whole, parts = make(), make()
    settings = replace(SETTINGS, max_steps=3, clip_norm=0.5, adam_epsilon=1e-3)
    one = run(whole, pairs, tmp_path / "a", settings)
    many = run(parts, pairs, tmp_path / "b", settings, micro_tokens=micro_tokens)
    for left, right in zip(of(Trained, one), of(Trained, many), strict=True):
        assert left.loss == pytest.approx(right.loss, rel=1e-5)
        assert left.gradient_norm == pytest.approx(right.gradient_norm, rel=1e-4)
    a, b = checkpoint.newest(tmp_path / "a" / "checkpoints"), checkpoint.newest(tmp_path / "b" / "checkpoints")
    assert a is not None
    assert b is not None
    other = load_file(b / "weights.safetensors")
    for name, weight in load_file(a / "weights.safetensors").items():
        assert torch.allclose(weight, other[name], atol=1e-5), name


def test_the_same_seed_gives_the_same_weights(pairs: Store, tmp_path: Path) -> None:
    one, two, other = make(0.1), make(0.1), make(0.1)
    torch.manual_seed(5)
    run(one, pairs, tmp_path / "a")
    torch.manual_seed(5)
    run(two, pairs, tmp_path / "b")
    torch.manual_seed(5)
    run(other, pairs, tmp_path / "c", replace(SETTINGS, seed=2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("changes", "alignment"),
    [
        ({"norm": "post"}, 0.0),
        ({"norm": "pre"}, 0.0),
        ({"norm": "pre", "positions": "rotary", "d_model": 96, "d_ff": 384}, 0.2),  # as suggested for 800 words
    ],
)
def test_the_number_of_threads_changes_no_bit(tmp_path: Path, changes: dict[str, Any], alignment: float) -> None:
    """Whatever the number was in which step: interrupted and resumed, too."""
    dice = np.random.default_rng(4)
    numbers = (dice.integers(4, 500, size).tolist() for size in dice.integers(10, 40, 60))
    pairs = stores.write(tmp_path / "store", ((line, line[::-1]) for line in numbers), 500)
    if alignment:
        aligner.write_links(aligner.learn(pairs), pairs)
        pairs = store.Store(pairs.folder, pairs.vocabularies)
    shape = Model(**{"encoder_layers": 1, "decoder_layers": 1, "d_model": 64, "heads": 4, "d_ff": 128} | changes)
    settings = replace(SETTINGS, batch_tokens=3200, max_steps=5, alignment_weight=alignment)
    found = []
    for name, counts in {"whole": [1], "parts": [3, 1, 2]}.items():
        for stop_at in [None] if name == "whole" else [2, None]:
            torch.manual_seed(8)
            model = build(shape, 500, 500)
            training = run_lazily(model, pairs, tmp_path / name, settings, stop_at=stop_at)
            with threads.using(counts[0]):
                for event in training:
                    torch.set_num_threads(counts[getattr(event, "step", 0) % len(counts)])
        found.append(weights_of(tmp_path / name))
    assert all(torch.equal(weight, found[1][name]) for name, weight in found[0].items())


def test_patience_stops(pairs: Store, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_steps=50, patience=2)
    events = run(make(), pairs, tmp_path, settings, validate=scores(3.0, 2.0, 2.5, 2.0, 1.0))
    assert [event.best for event in of(Validated, events)][:4] == [True, True, False, False]
    assert events[-1].step == 8
    assert events[-1].reason == "no better loss in 2 validations"


def test_patience_counts_from_the_last_best(pairs: Store, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_steps=50, patience=2)
    events = run(make(), pairs, tmp_path, settings, validate=scores(3.0, 4.0, 2.0, 4.0, 4.0))
    assert events[-1].step == 10


def test_among_equal_scores_the_loss_tells(pairs: Store, tmp_path: Path) -> None:
    """A hard task has nothing right for long: as long as the loss falls, it is being learnt."""
    settings = replace(SETTINGS, max_steps=50, patience=2, metric="exact")
    losses = iter([5.0, 4.0, 3.0, 3.0, 3.5, 1.0])
    events = run(
        make(),
        pairs,
        tmp_path,
        settings,
        validate=lambda: {"exact": 0.0, "loss": next(losses)},
        lower_is_better=False,
    )
    validated = [event for event in of(Validated, events) if event.what == "model"]
    assert [event.best for event in validated] == [True, True, True, False, False]
    assert events[-1].step == 10


@pytest.mark.parametrize(
    ("metric", "perfect", "lower_is_better", "translated", "steps"),
    [
        ("exact", 100.0, False, 300, 8),
        ("error_rate", 0.0, True, 300, 8),
        ("bleu", 100.00000000000004, False, 300, 8),  # as sacreBLEU computes it
        ("exact", 100.0, False, 299, 10),  # slightly less sure
        ("exact", 100.0, False, 600, 8),
        ("exact", 100.0, False, 150, 12),
        ("exact", 100.0, False, 100, 14),
        ("exact", 99.0, False, 300, 14),
    ],
)
def test_a_solved_task_ends_although_its_loss_still_falls(
    pairs: Store, tmp_path: Path, metric: str, perfect: float, lower_is_better: bool, translated: int, steps: int
) -> None:
    settings = replace(SETTINGS, max_steps=14, patience=2, metric=metric, average=1)
    found = iter([(50.0, 7.0), *((perfect, float(loss)) for loss in range(6, 0, -1))])
    events = run(
        make(),
        pairs,
        tmp_path,
        settings,
        validate=lambda: dict(zip((metric, "loss"), next(found), strict=True)),
        lower_is_better=lower_is_better,
        translated=translated,
    )
    assert all(event.best for event in of(Validated, events))  # the model with the lowest loss is kept
    assert events[-1].step == steps
    assert events[-1].reason == (f"no better {metric} is possible" if steps < 14 else "all 14 steps done")


def test_higher_may_be_better(pairs: Store, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_steps=50, patience=1)
    events = run(make(), pairs, tmp_path, settings, validate=scores(1.0, 2.0, 1.5), lower_is_better=False)
    assert [event.best for event in of(Validated, events)][:3] == [True, True, False]
    assert events[-1].step == 6


def test_a_limit_below_the_steps_done_before_is_told_as_such(pairs: Store, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_steps=6, validate_every=2)
    run(make(), pairs, tmp_path, settings)
    assert run(make(), pairs, tmp_path, settings)[-1].reason == "all 6 steps done"
    end = run(make(), pairs, tmp_path, replace(settings, max_steps=3))[-1]
    assert (end.step, end.reason) == (6, "the limit of 3 steps is below the 6 steps done before")


def test_minutes_stop_and_the_model_is_validated_and_saved(pairs: Store, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_steps=100_000, validate_every=100_000, max_minutes=0.001)
    events = run(make(), pairs, tmp_path, settings)
    assert events[-1].reason == "0.001 min are over"
    assert 1 <= events[-1].step < 1000
    assert [event.step for event in of(Validated, events)] == [events[-1].step]
    assert (tmp_path / "model.safetensors").exists()


def test_the_learning_rate_is_near_0_when_the_minutes_are_over(pairs: Store, tmp_path: Path) -> None:
    settings = replace(SETTINGS, schedule="cosine", max_steps=100_000, validate_every=100_000, max_minutes=0.01)
    rates = [event.rate for event in of(Trained, run(make(), pairs, tmp_path, settings))]
    assert max(rates) > 0.9 * settings.learning_rate
    assert rates[-1] < 0.1 * settings.learning_rate
    longer = replace(settings, max_minutes=0.02)  # a resumed training counts the minutes before it
    rates = [event.rate for event in of(Trained, run(make(), pairs, tmp_path, longer))]
    assert 0.4 * settings.learning_rate < max(rates) < 0.6 * settings.learning_rate
    assert rates[-1] < 0.1 * settings.learning_rate


def test_minutes_before_a_resume_count(pairs: Store, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_steps=100_000, max_minutes=0.001)
    run(make(), pairs, tmp_path, settings)
    events = run(make(), pairs, tmp_path, settings)
    assert not list(of(Trained, events))
    assert events[-1].seconds >= 0.06


def test_the_best_weights_are_kept_not_the_last(pairs: Store, tmp_path: Path) -> None:
    kept: list[dict[str, torch.Tensor]] = []
    model = make()
    losses = scores(2.0, 1.0, 3.0, 9.0)

    def validate() -> dict[str, float]:
        kept.append({name: weight.detach().clone() for name, weight in model.named_parameters()})
        return losses()

    run(model, pairs, tmp_path, validate=validate)
    saved = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(saved[name], weight) for name, weight in kept[1].items())
    assert not all(torch.equal(saved[name], weight) for name, weight in kept[2].items())


@pytest.mark.parametrize(
    ("metric", "best", "averaged", "is_kept"),
    [
        ("loss", {"loss": 1.0}, {"loss": 0.5}, True),
        ("loss", {"loss": 1.0}, {"loss": 1.0}, True),  # this end may be a repetition of one that was interrupted
        ("loss", {"loss": 1.0}, {"loss": 1.5}, False),
        ("exact", {"exact": 50.0, "loss": 1.0}, {"exact": 40.0, "loss": 0.5}, False),
        ("exact", {"exact": 50.0, "loss": 1.0}, {"exact": 60.0, "loss": 1.5}, True),
        ("exact", {"exact": 0.0, "loss": 0.69}, {"exact": 0.0, "loss": 2.31}, False),
        ("exact", {"exact": 100.0, "loss": 0.2}, {"exact": 100.0, "loss": 0.1}, True),
        ("exact", {"exact": 100.0, "loss": 0.2}, {"exact": 100.0, "loss": math.nan}, False),
        ("ter", {"ter": 50.0, "loss": 1.0}, {"ter": 50.0, "loss": 1.5}, False),
        ("ter", {"ter": 50.0, "loss": 1.0}, {"ter": 50.0, "loss": 0.5}, True),
    ],
)
def test_the_average_is_kept_only_if_it_is_better(
    pairs: Store, tmp_path: Path, metric: str, best: dict[str, float], averaged: dict[str, float], is_kept: bool
) -> None:
    """Where the metric ties, the lower loss decides, as it does between checkpoints."""
    lower_is_better = metric != "exact"
    worse = {name: value + (1 if lower_is_better or name == "loss" else -1) for name, value in best.items()}
    answers = iter([worse, best, worse, averaged])
    settings = replace(SETTINGS, metric=metric)
    events = run(make(), pairs, tmp_path, settings, validate=lambda: next(answers), lower_is_better=lower_is_better)
    *_, last, finished = events
    assert isinstance(last, Validated)
    assert (last.what, last.best) == ("average of the last 2 checkpoints", is_kept)
    assert isinstance(finished, Finished)
    mean = checkpoint.average(checkpoint.steps(tmp_path / "checkpoints"))
    saved = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(saved[name], weight) for name, weight in mean.items()) == is_kept


@pytest.mark.parametrize(
    ("best", "averaged", "translated", "is_kept"),
    [
        (50.0, 45.1, 100, True),  # one standard error of 50 % of 100 pairs is 5 points
        (50.0, 44.9, 100, False),
        (50.0, 45.1, 10_000, False),
        (50.0, 49.6, 10_000, True),
        (50.0, 45.1, 0, False),  # nothing is known about the noise
        (0.0, 0.0, 100, False),  # none is right in either: the loss decides
        (100.0, 99.9, 100, False),
        (100.0, 100.0, 100, True),  # all are right in both
        (50.0, math.nan, 100, False),
    ],
)
def test_the_average_is_kept_if_its_exact_match_is_as_good_within_the_noise(
    pairs: Store, tmp_path: Path, best: float, averaged: float, translated: int, is_kept: bool
) -> None:
    scores = ({"exact": exact, "loss": loss} for exact, loss in ((0, 9), (best, 1), (0, 9), (averaged, 2)))
    settings, watched = replace(SETTINGS, metric="exact"), {"lower_is_better": False, "translated": translated}
    *_, last, _ = run(make(), pairs, tmp_path, settings, validate=lambda: next(scores), **watched)
    assert isinstance(last, Validated)
    assert (last.what, last.best) == ("average of the last 2 checkpoints", is_kept)
    mean = checkpoint.average(checkpoint.steps(tmp_path / "checkpoints"))
    saved = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(saved[name], weight) for name, weight in mean.items()) == is_kept


def test_a_longer_training_is_compared_with_the_average_that_became_the_model(pairs: Store, tmp_path: Path) -> None:
    """And not with the best checkpoint, which the average replaced within the noise and which exists no longer."""
    settings, watched = replace(SETTINGS, metric="exact"), {"lower_is_better": False, "translated": 100}
    scores = ({"exact": exact, "loss": 1.0} for exact in (60.0, 55.0, 55.0, 56.0))
    run(make(), pairs, tmp_path, settings, validate=lambda: next(scores), **watched)
    longer = replace(settings, max_steps=8)
    scores = ({"exact": exact, "loss": 1.0} for exact in (59.0, 40.0))
    *_, model, average, _ = run(make(), pairs, tmp_path, longer, validate=lambda: next(scores), **watched)
    assert isinstance(model, Validated)
    assert isinstance(average, Validated)
    assert (model.step, model.best, average.best) == (8, True, False)
    newest = checkpoint.newest(tmp_path / "checkpoints")
    assert newest is not None
    assert checkpoint.read_progress(newest).best == 59.0
    saved = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(saved[name], weight) for name, weight in load_file(newest / "weights.safetensors").items())


def test_one_checkpoint_is_not_averaged(pairs: Store, tmp_path: Path) -> None:
    events = run(make(), pairs, tmp_path, replace(SETTINGS, average=1))
    assert [event.what for event in of(Validated, events)] == ["model"] * 3


@pytest.mark.parametrize(("stop_at", "decay"), [(1, 0.0), (2, 0.0), (3, 0.0), (5, 0.0), (3, 0.3)])
def test_interrupted_and_resumed_is_uninterrupted(pairs: Store, tmp_path: Path, stop_at: int, decay: float) -> None:
    """Between two validations and at one, with dropout: the same losses, scores and weights to the last bit."""
    settings = replace(SETTINGS, weight_decay=decay)
    torch.manual_seed(8)
    whole = run(make(0.1), pairs, tmp_path / "whole", settings)
    torch.manual_seed(8)
    before = run(make(0.1), pairs, tmp_path / "parts", settings, stop_at=stop_at)
    assert before[-1].reason == training_events.INTERRUPTED
    assert before[-1].step == stop_at
    assert (tmp_path / "parts" / "checkpoints" / f"pause-{stop_at:08}").exists()
    torch.manual_seed(99)
    after = run(make(0.1), pairs, tmp_path / "parts", settings)
    losses = [event.loss for event in of(Trained, before)] + [event.loss for event in of(Trained, after)]
    assert losses == [event.loss for event in of(Trained, whole)]
    assert (tmp_path / "parts" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()
    assert [path.name for path in checkpoint.steps(tmp_path / "parts" / "checkpoints")] == [
        path.name for path in checkpoint.steps(tmp_path / "whole" / "checkpoints")
    ]


def test_a_stop_asked_for_in_the_last_step_is_no_interruption(pairs: Store, tmp_path: Path) -> None:
    events = run(make(), pairs, tmp_path, stop_at=SETTINGS.max_steps)
    assert events[-1].reason.startswith("all")
    assert (tmp_path / "model.safetensors").exists()


def test_a_run_paused_where_it_must_end_is_measured_there(pairs: Store, tmp_path: Path) -> None:
    run(make(), pairs, tmp_path, stop_at=1)
    assert not (tmp_path / "model.safetensors").exists()
    events = run(make(), pairs, tmp_path, replace(SETTINGS, max_steps=1))
    assert [type(event).__name__ for event in events] == ["Validated", "Finished"]
    assert (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("lower_is_better", [True, False])
def test_not_a_number_is_never_better(lower_is_better: bool) -> None:
    for best in (1.0, None):
        assert not Progress(best=best).is_beaten_by({"bleu": math.nan}, "bleu", lower_is_better)
    assert Progress().is_beaten_by({"bleu": 1.0}, "bleu", lower_is_better)


def test_a_line_after_a_resume_tells_of_all_its_steps(pairs: Store, tmp_path: Path) -> None:
    """Interrupted between two lines of the log: the next line is the mean over the steps before and after."""
    settings = replace(SETTINGS, log_every=4, max_steps=8)
    whole = run(make(), pairs, tmp_path / "whole", settings)
    before = run(make(), pairs, tmp_path / "parts", settings, stop_at=3)
    assert not list(of(Trained, before))
    after = run(make(), pairs, tmp_path / "parts", settings)
    assert [event.loss for event in of(Trained, after)] == pytest.approx([event.loss for event in of(Trained, whole)])


def test_a_longer_limit_goes_on(pairs: Store, tmp_path: Path) -> None:
    run(make(), pairs, tmp_path)
    events = run(make(), pairs, tmp_path, replace(SETTINGS, max_steps=8))
    assert [event.step for event in of(Trained, events)] == [7, 8]


def test_a_processor_stays_in_float32() -> None:
    for precision in ("auto", "bfloat16", "float32"):
        assert not loop.in_bfloat16(Training(precision=precision), torch.device("cpu"))


@pytest.mark.parametrize(("hardware", "emulated"), [(True, True), (False, True), (False, False)])
def test_bfloat16_that_is_only_emulated_must_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, hardware: bool, emulated: bool
) -> None:
    """A GPU before Ampere says yes to the plain question, and then computes more slowly than in float32."""

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return hardware or (including_emulation and emulated)

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    gpu = torch.device("cuda")
    found = {name: loop.in_bfloat16(Training(precision=name), gpu) for name in ("auto", "bfloat16", "float32")}
    assert found == {"auto": hardware, "bfloat16": True, "float32": False}


# What can go wrong


def state_of(folder: Path) -> dict[str, bytes]:
    """The checkpoints to the byte, timings apart."""
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("checkpoints/*/*.safetensors"))
    }


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    newest = checkpoint.newest(folder / "checkpoints")
    assert newest is not None
    return load_file(newest / "weights.safetensors")


def trained(events: list[training_events.Event]) -> list[tuple[int, float, float]]:
    return [(event.step, event.loss, event.gradient_norm) for event in of(Trained, events)]


@pytest.mark.parametrize("stop_at", [2, 3, 5, 8, 9, 11])
def test_stopped_between_two_passes_of_an_update(pairs: Store, tmp_path: Path, stop_at: int) -> None:
    """The update is given up and made anew after the resume, with the same dropout."""
    torch.manual_seed(8)
    whole = run(make(0.1), pairs, tmp_path / "whole", micro_tokens=20)
    torch.manual_seed(8)
    before = run(make(0.1), pairs, tmp_path / "parts", micro_tokens=20, stop_at=stop_at)
    assert before[-1].reason == training_events.INTERRUPTED
    torch.manual_seed(99)
    after = run(make(0.1), pairs, tmp_path / "parts", micro_tokens=20)
    assert trained(before) + trained(after) == trained(whole)
    assert state_of(tmp_path / "parts") == state_of(tmp_path / "whole")


def test_stopped_before_the_first_update_is_done(pairs: Store, tmp_path: Path) -> None:
    events = run(make(), pairs, tmp_path, micro_tokens=20, stop_at=1)
    assert [type(event).__name__ for event in events] == ["Finished"]
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_stopped_in_a_validation(pairs: Store, tmp_path: Path, at: int) -> None:
    """It is made when training goes on; the fourth is that of the average."""
    torch.manual_seed(8)
    whole = run(make(0.1), pairs, tmp_path / "whole", validate=scores(4.0, 3.0, 2.0, 1.0))
    left = [4.0, 3.0, 2.0, 1.0]

    def validate() -> dict[str, float]:
        if len(left) == 4 - at and not stopped:
            stopped.append(True)
            raise Stopped
        return {"loss": left.pop(0)}

    stopped: list[bool] = []
    torch.manual_seed(8)
    before = run(make(0.1), pairs, tmp_path / "parts", validate=validate)
    assert before[-1].reason == training_events.INTERRUPTED
    after = run(make(0.1), pairs, tmp_path / "parts", validate=validate)
    assert trained(before) + trained(after) == trained(whole)
    assert [*of(Validated, before), *of(Validated, after)] == [*of(Validated, whole)]
    assert state_of(tmp_path / "parts") == state_of(tmp_path / "whole")
    assert (tmp_path / "parts" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("problem", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: ...")])
@pytest.mark.parametrize("step", [1, 3])
def test_memory_that_is_used_up(
    pairs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, step: int
) -> None:
    """Passes shrink until they fit; the update is that of the whole batch, and what is saved knows of it."""
    settings = replace(SETTINGS, adam_epsilon=1e-3)
    whole = run(make(), pairs, tmp_path / "whole", settings)
    steps, plain = 1, loop.plain_passes

    def small(model, settings):
        learn = plain(model, settings)

        def only_small(batch, tokens):
            if steps >= step and batch.source_tokens + batch.target_tokens > 20:
                learn(batch, tokens)  # gradients that must not stay
                raise problem
            return learn(batch, tokens)

        return only_small

    monkeypatch.setattr(loop, "plain_passes", small)
    events = []
    (tmp_path / "small").mkdir()
    for event in loop.train(
        make(),
        pairs,
        settings,
        window_pairs=40,
        d_model=8,
        run=tmp_path / "small",
        validate=scores(1.0),
        lower_is_better=True,
        micro_tokens=10_000,
    ):
        events.append(event)
        steps = event.step + 1
    shrunk = [event.micro_tokens for event in of(training_events.Shrunk, events)]
    assert shrunk == sorted(shrunk, reverse=True)
    assert 1 <= shrunk[-1] <= 30
    assert [event.loss for event in of(Trained, events)] == pytest.approx(
        [loss for _, loss, _ in trained(whole)], rel=1e-4
    )
    newest = checkpoint.newest(tmp_path / "small" / "checkpoints")
    assert newest is not None
    assert checkpoint.read_progress(newest).micro_tokens == shrunk[-1]


def test_memory_that_does_not_suffice_for_one_pair(
    pairs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_fits(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(loop, "plain_passes", lambda model, settings: nothing_fits)
    with pytest.raises(RunError, match="out of memory with a single pair"):
        run(make(), pairs, tmp_path)


def test_other_problems_are_not_taken_for_it(pairs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object) -> torch.Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(loop, "plain_passes", lambda model, settings: wrong)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        run(make(), pairs, tmp_path)


def breaking(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[int], bool]) -> list[int]:
    """Losses become not-a-number in passes that `is_bad` says, counted from 1."""
    plain, passes = loop.plain_passes, [0]

    def broken(model, settings):
        learn = plain(model, settings)

        def sometimes(batch, tokens):
            passes[0] += 1
            sums = learn(batch, tokens)
            if is_bad(passes[0]):
                next(model.parameters()).grad[0] = math.nan
                return sums * math.nan
            return sums

        return sometimes

    monkeypatch.setattr(loop, "plain_passes", broken)
    return passes


def test_an_update_that_is_not_finite_is_skipped_and_counted(
    pairs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch, lambda number: number in (3, 5))
    events = run(make(), pairs, tmp_path, replace(SETTINGS, log_every=2))
    assert [event.skipped for event in of(Trained, events)] == [0, 1, 1]
    assert all(math.isfinite(event.loss) for event in of(Trained, events))
    assert all(bool(weight.isfinite().all()) for weight in weights_of(tmp_path).values())
    assert not list(of(training_events.Returned, events))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_skipped_update_changes_nothing(pairs: Store, bad: float) -> None:
    model = make()
    optimizer = loop.Adam(model.parameters(), SETTINGS)
    batch = [loop.make_batch(pairs, np.arange(3))]
    loop.update(model, optimizer, batch, SETTINGS, 1e-2)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    kept = {name: tensor.clone() for name, tensor in optimizer.tensors().items()}

    def learn(batch, tokens):
        for weight in model.parameters():
            weight.grad = torch.full_like(weight, bad)
        return torch.ones(3, dtype=torch.float64)

    sums, norm = loop.update(model, optimizer, batch, SETTINGS, 1e-2, learn)
    assert not math.isfinite(norm)
    assert sums.tolist() == [0, 0, 0, 1]
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert all(torch.equal(tensor, kept[name]) for name, tensor in optimizer.tensors().items())
    assert {float(tensor) for name, tensor in kept.items() if name.endswith(".step")} == {1.0}


def test_many_in_a_row_go_back_to_a_good_checkpoint_at_half_the_rate(
    pairs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates 4 to 10 fail: none of the validations among them makes a checkpoint that would push out step 2."""
    passes = breaking(monkeypatch, lambda number: 4 <= number <= 10)
    events = run(make(), pairs, tmp_path, replace(SETTINGS, max_steps=12, log_every=5))
    (returned,) = of(training_events.Returned, events)
    assert (returned.step, returned.failed_at, returned.updates, returned.slowed) == (2, 8, 5, 1)
    assert passes[0] == 8 + 10
    assert [event.step for event in of(Trained, events)] == [5, 5, 10]
    first, again, _ = (event.rate for event in of(Trained, events))
    assert again == 0.5 * first
    assert events[-1].reason == "all 12 steps done"


def test_bad_updates_are_seen_at_validations_where_lines_of_the_log_are_rare(
    pairs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch, lambda number: number > 2)
    with pytest.raises(NotFinite) as raised:
        run(make(), pairs, tmp_path, replace(SETTINGS, max_steps=1000, log_every=100_000))
    assert raised.value.step == 8


def test_the_best_model_is_not_lost_by_a_return(pairs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured while updates fail is forgotten with the return: it may not become the model."""
    breaking(monkeypatch, lambda number: 4 <= number <= 8)
    losses = scores(3.0, 1.0, 1.0, 2.0, 2.5)
    events = run(make(), pairs, tmp_path, replace(SETTINGS, max_steps=8, average=1, keep=3), validate=losses)
    assert len(list(of(training_events.Returned, events))) == 1
    assert [(event.step, event.best) for event in of(Validated, events)] == [
        (2, True),
        (4, False),
        (6, False),
        (4, True),
        (6, False),
        (8, False),
    ]
    saved = load_file(tmp_path / "model.safetensors")
    kept = load_file(tmp_path / "checkpoints" / "step-00000004" / "weights.safetensors")
    assert all(torch.equal(saved[name], weight) for name, weight in kept.items())


def test_a_validation_is_not_judged_twice(pairs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The update at a validation is skipped, so that no checkpoint follows, and the next one is broken off."""
    passes, real, stops = breaking(monkeypatch, lambda number: number == 4), loop.accumulate_gradients, [True]

    def accumulate(*words: object) -> torch.Tensor:
        if passes[0] == 4 and stops.pop():
            raise Stopped
        return real(*words)

    monkeypatch.setattr(loop, "accumulate_gradients", accumulate)
    settings = replace(SETTINGS, average=1, patience=100)
    events = run(make(), pairs, tmp_path, settings)
    assert (events[-1].reason, events[-1].step) == (training_events.INTERRUPTED, 4)
    stops.append(False)
    run(make(), pairs, tmp_path, settings)
    newest = checkpoint.newest(tmp_path / "checkpoints")
    assert newest is not None
    assert checkpoint.read_progress(newest).stale == 1  # that of step 6 alone: none was better than that of step 2


def test_too_many_stop_with_a_diagnosis(pairs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    breaking(monkeypatch, lambda number: number > 2)
    model = make()
    with pytest.raises(NotFinite) as raised:
        run(model, pairs, tmp_path, replace(SETTINGS, max_steps=1000))
    found = raised.value
    assert (found.updates, found.slowed) == (5, 3)
    assert found.batch > 1
    assert checkpoint.newest(tmp_path / "checkpoints") is not None


def test_before_the_first_checkpoint_there_is_nothing_to_go_back_to(
    pairs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch, lambda number: True)
    with pytest.raises(NotFinite) as raised:
        run(make(), pairs, tmp_path, replace(SETTINGS, validate_every=100, max_steps=100))
    assert (raised.value.step, raised.value.updates, raised.value.slowed) == (5, 5, 0)


def test_more_checkpoints_than_are_averaged_may_be_kept(pairs: Store, tmp_path: Path) -> None:
    events = run(make(), pairs, tmp_path, replace(SETTINGS, keep=3))
    assert [path.name for path in checkpoint.whole(tmp_path / "checkpoints")] == [
        "step-00000006",
        "step-00000004",
        "step-00000002",
    ]
    assert next(event.what for event in of(Validated, events) if event.what != "model").startswith(
        "average of the last 2 "
    )
