"""Many processes: what they tell each other, what one gives up all give up, and that together they learn like one."""

import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import seq2see
import stores
from seq2see.config import Training
from seq2see.distributed import board, ranks
from seq2see.errors import OnlyHereError, RunError, SeqError, SettingError
from seq2see.machine import Stopped
from seq2see.tokens.batches import Batches, split
from seq2see.tokens.store import Store
from seq2see.training import checkpoint, loop
from seq2see.training import events as training_events
from seq2see.training.events import Trained, Validated
from side_by_side import finish, start, wait_until

VOCABULARY = 11
SETTINGS = Training(
    batch_tokens=300,
    max_steps=100,
    warmup_steps=20,
    learning_rate=5e-3,
    validate_every=20,
    log_every=1,
    average=2,
    patience=0,
)
MICRO_TOKENS, WINDOW = 80, 25
TOLERANCE = 1e-5
"""Of losses and norms, relative, over 100 steps: the same numbers, added up in another order in float32."""


def test_alone_nothing_is_different() -> None:
    with ranks.joined() as group:
        assert (group.rank, group.world, group.is_first, group.alone) == (0, 1, True, True)
        assert group.run_on_first(lambda: Path("x")) == Path("x")
        assert group.after_first(lambda: 3) == 3
        assert group.all_gather("mine") == ["mine"]
        assert group.largest(-2.5) == -2.5
        numbers = torch.tensor([1.0, 2.0])
        group.all_reduce(numbers)
        group.broadcast([numbers])
        assert numbers.tolist() == [1.0, 2.0]
        dice = torch.get_rng_state()
        group.throw_dice(1, 2)
        assert torch.equal(torch.get_rng_state(), dice)
        with pytest.raises(Stopped), group.all_or_none():
            raise Stopped
        with pytest.raises(MemoryError), group.all_must_finish():
            raise MemoryError


def test_what_torchrun_says_must_be_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(SettingError, match="torchrun"), ranks.joined():
        pass


def test_more_processes_than_gpus_is_one_line_for_each_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    for number in range(8):
        monkeypatch.setenv("LOCAL_RANK", str(number))
        monkeypatch.setenv("RANK", str(8 + number))
        with pytest.raises(SeqError, match="--nproc-per-node 4") as raised:
            ranks.choose_gpu(4)
        assert ranks.may_speak(raised.value) == (number == 0)


@pytest.mark.parametrize(("number", "of_loss", "of_mistakes"), [(0, True, True), (1, True, False), (2, False, False)])
def test_who_speaks(monkeypatch: pytest.MonkeyPatch, number: int, of_loss: bool, of_mistakes: bool) -> None:
    """The first for all; the second, too, where that may be the lost one."""
    monkeypatch.setenv("RANK", str(number))
    assert ranks.may_speak(board.lost("it hangs")) == of_loss
    assert ranks.may_speak(RunError("no such folder")) == of_mistakes
    assert ranks.may_speak(OnlyHereError("no such folder here"))


@given(st.lists(st.integers(0, 50)), st.integers(1, 9))
def test_work_is_dealt_evenly_and_put_back_in_order(lengths: list[int], hands: int) -> None:
    places = ranks.dealt(lengths, hands)
    assert ranks.put_back([[(place, lengths[place]) for place in own] for own in places], places) == [
        *enumerate(lengths)
    ]
    shares = [sum(lengths[place] for place in own) for own in places]
    assert max(shares) - min(shares) <= max(lengths, default=0)


def write(folder: Path, value: Any) -> None:
    (folder / f"{os.environ.get('RANK', 0)}.json").write_text(json.dumps(value))


def read(folder: Path, world: int = 2) -> list[Any]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def talk(folder: Path) -> None:
    """Everything that ranks tell each other."""
    found: dict[str, Any] = {}
    with ranks.joined() as group:
        rank = group.rank
        found["rank"] = [rank, group.world, group.is_first, group.alone]
        found["from all"] = group.all_gather({"rank": rank, "text": "é" * (rank * 7), "nan": float("nan")})
        found["largest"] = group.largest(rank * 0.1)
        found["first"] = group.run_on_first(lambda: f"of {rank}")
        group.after_first(lambda: (folder / f"was {rank}").write_text(str([path.name for path in folder.iterdir()])))

        ranks.BUCKET_NUMBERS = 7  # type: ignore[misc]
        weights = [torch.nn.Parameter(torch.full((size,), float(rank))) for size in (3, 4, 9, 2)]
        for place, weight in enumerate(weights):
            if place != 1 or rank == 0:  # the second has a gradient on one rank only
                weight.grad = torch.full_like(weight, 10.0 * place + rank + 1)
        group.sum_gradients(weights)
        found["sums"] = [weight.grad.tolist() for weight in weights if weight.grad is not None]
        group.broadcast(weights)
        found["weights"] = weights[0].tolist()
        group.throw_dice(1, 5)
        found["dice"] = torch.rand(2).tolist()

        for name, problems in {
            "nobody": (None, None),
            "stop": (None, Stopped()),
            "memory": (MemoryError("full"), None),
            "both": (RuntimeError("CUDA out of memory"), Stopped()),
        }.items():
            try:
                with group.all_or_none():
                    if problem := problems[rank]:
                        raise problem
                found[name] = "went on"
            except (Stopped, MemoryError) as caught:
                found[name] = type(caught).__name__
    with ranks.joined() as group:  # once more in the same processes
        found["again"] = group.all_gather(rank)
    write(folder, found)


def test_what_ranks_tell_each_other(tmp_path: Path) -> None:
    assert finish(start(talk, tmp_path)) == [0, 0]
    first, second = read(tmp_path)
    assert first.pop("rank") == [0, 2, True, False]
    assert second.pop("rank") == [1, 2, False, False]
    assert first.pop("dice") != second.pop("dice")
    assert str(first) == str(second)  # not a number is not itself
    assert [part["text"] for part in first["from all"]] == ["", "é" * 7]
    assert first["largest"] == 0.1
    assert first["first"] == "of 0"
    assert (tmp_path / "was 0").read_text() == "[]"
    assert "was 0" in (tmp_path / "was 1").read_text()
    assert first["sums"] == [[3.0] * 3, [11.0] * 4, [43.0] * 9, [63.0] * 2]
    assert first["weights"] == [0.0] * 3
    expected = {"nobody": "went on", "stop": "Stopped", "memory": "MemoryError", "both": "Stopped"}
    assert {name: first[name] for name in expected} == expected
    assert first["again"] == [0, 1]


def fail(folder: Path, how: str) -> None:
    try:
        with ranks.joined() as group:
            group.all_gather(0)
            if group.is_first and how == "first":
                raise RunError("the disk is full")
            if not group.is_first and how == "memory":
                with group.all_must_finish():
                    raise MemoryError
            if how == "first":
                group.run_on_first(lambda: None)
            group.largest(0.0)
    except RunError as problem:
        write(folder, [str(problem), ranks.may_speak(problem)])
        if ranks.from_torchrun()[0] == 0:
            wait_until((folder / "1.json").exists)  # torchrun's store, too, outlives who has failed
        sys.exit(problem.exit_code)


def test_the_others_end_quietly_when_the_first_fails(tmp_path: Path) -> None:
    assert finish(start(fail, tmp_path, "first")) == [2, 2]
    assert read(tmp_path) == [["the disk is full", True], ["another process has failed: see its error message", False]]


def test_a_lost_rank_is_noticed_and_says_what_only_it_knows(tmp_path: Path) -> None:
    assert finish(start(fail, tmp_path, "memory")) == [75, 75]
    (lost, _), (own, speaks) = read(tmp_path)
    assert "another process was lost" in lost
    assert "/pytorch/" not in lost
    assert "out of memory in process 1" in own
    assert speaks


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Store:
    dice = np.random.default_rng(4)
    encoded = [
        (dice.integers(4, VOCABULARY, size).tolist(), dice.integers(4, VOCABULARY, size + 1).tolist())
        for size in dice.integers(1, 30, 200)
    ]
    return stores.write(tmp_path_factory.mktemp("store"), encoded, VOCABULARY)


def learn(folder: Path, pairs: Path, settings: Training, change: Callable[[], None] = lambda: None) -> None:
    """Train on, and write what the loop says into a file of each rank."""
    torch.manual_seed(1)
    options = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "heads": 2, "d_ff": 24, "dropout": 0.0}
    model = seq2see.Transformer(VOCABULARY, VOCABULARY, **options)  # type: ignore[arg-type]
    with ranks.joined() as group:
        change()
        events = loop.train(
            model,
            Store(pairs, (VOCABULARY, VOCABULARY)),
            settings,
            window_pairs=WINDOW,
            d_model=16,
            run=folder,
            validate=lambda: {"loss": 1.0},
            lower_is_better=True,
            micro_tokens=MICRO_TOKENS,
            group=group,
        )
        said = [
            (event.step, event.loss, event.gradient_norm) if isinstance(event, Trained) else type(event).__name__
            for event in events
            if isinstance(event, Trained | Validated | training_events.Shrunk | training_events.Returned)
        ]
        write(folder, said)


def assert_alike(said: list[Any], expected: list[Any]) -> None:
    assert len(said) == len(expected)
    for one, other in zip(said, expected, strict=True):
        assert one == (other if isinstance(other, str) else pytest.approx(other, rel=TOLERANCE))


def test_two_learn_like_one_with_twice_the_accumulation(pairs: Store, tmp_path: Path) -> None:
    indices, _ = next(iter(Batches(pairs, SETTINGS.batch_tokens, WINDOW, SETTINGS.seed)))
    lengths = pairs.source_lengths(indices) + pairs.target_lengths(indices)
    alone = split(indices, lengths, MICRO_TOKENS)
    first, second = (split(indices, lengths, MICRO_TOKENS, rank, 2) for rank in range(2))
    assert len(first) == len(second) == math.ceil(len(alone) / 2) > 1
    assert set(pairs.target_lengths(first[0])) != set(pairs.target_lengths(second[0]))

    one, two, both = (tmp_path / name for name in ("one", "two", "both"))
    for folder in (one, two, both):
        folder.mkdir()
    learn(one, pairs.folder, SETTINGS)
    [expected] = read(one, 1)
    assert finish(start(learn, two, pairs.folder, SETTINGS)) == [0, 0]
    said, said_by_second = read(two)
    assert said == said_by_second
    assert_alike(said, expected)

    # A checkpoint of two continued by one, and back.
    assert finish(start(learn, both, pairs.folder, replace(SETTINGS, max_steps=40))) == [0, 0]
    said = [event for event in read(both)[0] if event != "Validated"]
    learn(both, pairs.folder, replace(SETTINGS, max_steps=60))
    said += [event for event in read(both, 1)[0] if event != "Validated"]
    assert finish(start(learn, both, pairs.folder, SETTINGS)) == [0, 0]
    said += [event for event in read(both)[0] if event != "Validated"]
    assert_alike(said, [event for event in expected if event != "Validated"])


def memory_runs_out() -> None:
    """Once, on the second rank, in the middle of an update."""
    real, calls = loop.plain_passes, 0

    def passes(*words: Any) -> Any:
        inner = real(*words)

        def deadly(*more: Any) -> Any:
            nonlocal calls
            calls += 1
            if os.environ.get("RANK") == "1" and calls == 6:
                raise MemoryError
            return inner(*more)

        return deadly

    loop.plain_passes = passes


def test_memory_that_runs_out_on_one_rank(pairs: Store, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_steps=10)
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    learn(one, pairs.folder, settings)
    assert finish(start(learn, two, pairs.folder, settings, memory_runs_out)) == [0, 0]
    said, said_by_second = read(two)
    assert said == said_by_second
    assert said.count("Shrunk") == 1
    [expected] = read(one, 1)
    assert_alike([event for event in said if event != "Shrunk"], expected)
    newest = checkpoint.newest(two / "checkpoints")
    assert newest is not None
    assert checkpoint.read_progress(newest).micro_tokens == MICRO_TOKENS // 2
