"""Checkpoints: whole or not there, few, and enough to go on from."""

import errno
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from seq2see import bundle
from seq2see.config import Training
from seq2see.errors import RunError
from seq2see.tokens.batches import Position
from seq2see.training import checkpoint
from seq2see.training.checkpoint import Progress
from seq2see.training.optimizer import Adam


def make(seed: int = 0) -> tuple[nn.Module, Adam]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    return model, Adam(model.parameters(), Training())


def update(model: nn.Module, optimizer: Adam, steps: int = 1) -> None:
    for _ in range(steps):
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step(0.1)
        optimizer.zero_grad()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def has_optimizer(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/optimizer.safetensors"))


def test_names_and_contents(tmp_path: Path) -> None:
    model, optimizer = make()
    update(model, optimizer)
    checkpoint.save(tmp_path, model, optimizer, Progress(step=70), average=3)
    checkpoint.save(tmp_path, model, optimizer, Progress(step=72), average=3, pause=True)
    assert names(tmp_path) == ["pause-00000072", "step-00000070"]
    assert names(tmp_path / "pause-00000072") == ["optimizer.safetensors", "state.json", "weights.safetensors"]


def test_restore_gives_weights_optimizer_progress_and_chance_back(tmp_path: Path) -> None:
    model, optimizer = make()
    update(model, optimizer, 3)
    progress = Progress(70, Position(2, 1, 5), 12.5, 0.25, 60, 1)
    checkpoint.save(tmp_path, model, optimizer, progress, average=1)
    update(model, optimizer, 2)
    expected = {name: weight.clone() for name, weight in model.named_parameters()}

    other, fresh = make(seed=9)
    torch.manual_seed(1234)
    newest = checkpoint.newest(tmp_path)
    assert newest is not None
    assert checkpoint.restore(newest, other, fresh) == progress
    update(other, fresh, 2)  # with the same random inputs, since the generator's state came back too
    for name, weight in other.named_parameters():
        assert torch.equal(weight, expected[name])


def test_progress_is_json_with_every_field(tmp_path: Path) -> None:
    model, optimizer = make()
    progress = Progress(7, Position(1, 0, 3), 0.5)
    checkpoint.save(tmp_path, model, optimizer, progress, average=1)
    assert checkpoint.restore(tmp_path / "step-00000007", *make()) == progress
    assert asdict(progress)["position"] == {"epoch": 1, "window": 0, "batch": 3}


def test_the_last_few_stay_and_the_newest_two_can_be_resumed(tmp_path: Path) -> None:
    model, optimizer = make()
    for step in (10, 20, 30, 40):
        checkpoint.save(tmp_path, model, optimizer, Progress(step), average=3)
    assert names(tmp_path) == ["step-00000020", "step-00000030", "step-00000040"]
    assert has_optimizer(tmp_path) == ["step-00000030", "step-00000040"]


def test_a_pause_lives_until_the_next_checkpoint_and_pushes_none_out(tmp_path: Path) -> None:
    model, optimizer = make()
    for step in (10, 20):
        checkpoint.save(tmp_path, model, optimizer, Progress(step), average=2)
    checkpoint.save(tmp_path, model, optimizer, Progress(25), average=2, pause=True)
    assert names(tmp_path) == ["pause-00000025", "step-00000010", "step-00000020"]
    assert has_optimizer(tmp_path) == ["pause-00000025", "step-00000010", "step-00000020"]
    assert checkpoint.newest(tmp_path) == tmp_path / "pause-00000025"
    checkpoint.save(tmp_path, model, optimizer, Progress(27), average=2, pause=True)
    assert names(tmp_path) == ["pause-00000027", "step-00000010", "step-00000020"]
    checkpoint.save(tmp_path, model, optimizer, Progress(30), average=2)
    assert names(tmp_path) == ["step-00000020", "step-00000030"]
    assert has_optimizer(tmp_path) == ["step-00000020", "step-00000030"]


def test_a_pause_is_not_averaged(tmp_path: Path) -> None:
    model, optimizer = make()
    for step, pause in ((10, False), (20, False), (25, True)):
        checkpoint.save(tmp_path, model, optimizer, Progress(step), average=5, pause=pause)
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step-00000010", "step-00000020"]


def test_the_average_is_the_mean(tmp_path: Path) -> None:
    model, optimizer = make()
    saved = []
    for step in (10, 20, 30):
        update(model, optimizer)
        checkpoint.save(tmp_path, model, optimizer, Progress(step), average=5)
        saved.append({name: weight.detach().clone() for name, weight in model.named_parameters()})
    mean = checkpoint.average(checkpoint.steps(tmp_path))
    assert mean.keys() == saved[0].keys()
    for name, weight in mean.items():
        assert weight.dtype == torch.float32
        assert torch.allclose(weight, torch.stack([each[name] for each in saved]).mean(0), atol=1e-7)
        assert not torch.equal(weight, saved[-1][name])


def test_nothing_yet(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "none") is None
    assert checkpoint.steps(tmp_path / "none") == []


def test_a_crash_while_writing_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = make()
    checkpoint.save(tmp_path, model, optimizer, Progress(10), average=1)

    def crash(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.storage, "write_text", crash)
        with pytest.raises(RunError, match=r"step-00000020: the disk is full\. Make room, then resume with --resume"):
            checkpoint.save(tmp_path, model, optimizer, Progress(20), average=1)
    assert names(tmp_path) == ["step-00000010"]
    assert checkpoint.newest(tmp_path) == tmp_path / "step-00000010"
    assert checkpoint.restore(tmp_path / "step-00000010", *make()).step == 10
    checkpoint.save(tmp_path, model, optimizer, Progress(20), average=1)  # what the crash left is in nobody's way
    assert names(tmp_path) == ["step-00000010", "step-00000020"]


def test_the_same_step_again_replaces(tmp_path: Path) -> None:
    model, optimizer = make()
    checkpoint.save(tmp_path, model, optimizer, Progress(10), average=2)
    update(model, optimizer)
    checkpoint.save(tmp_path, model, optimizer, replace(Progress(10), stale=4), average=2)
    assert checkpoint.restore(tmp_path / "step-00000010", *make()).stale == 4
    assert torch.equal(load_file(tmp_path / "step-00000010" / "weights.safetensors")["0.weight"], model[0].weight)


@pytest.mark.parametrize("file", ["weights.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("how", ["cut", "emptied", "removed"])
def test_a_damaged_checkpoint_is_told_in_one_line(tmp_path: Path, file: str, how: str) -> None:
    model, optimizer = make()
    update(model, optimizer)
    checkpoint.save(tmp_path, model, optimizer, Progress(10), average=1)
    path = tmp_path / "step-00000010" / file
    content = path.read_bytes()
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if how == "cut" else b"")
    with pytest.raises(RunError, match="cannot be read") as raised:
        checkpoint.restore(tmp_path / "step-00000010", *make())
    assert str(tmp_path / "step-00000010") in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_checkpoint_of_another_model(tmp_path: Path) -> None:
    model, optimizer = make()
    checkpoint.save(tmp_path, model, optimizer, Progress(10), average=1)
    other = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    with pytest.raises(RunError, match=r"weight 0\.bias has shape \[4\], the settings require \[5\]\)"):
        checkpoint.restore(tmp_path / "step-00000010", other, Adam(other.parameters(), Training()))


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    model, optimizer = make()
    (tmp_path / ".pause-00000007.part").mkdir()
    (tmp_path / ".pause-00000007.part" / "weights.safetensors").write_bytes(b"half")
    checkpoint.save(tmp_path, model, optimizer, Progress(10), average=1)
    assert names(tmp_path) == ["step-00000010"]


def test_damaged_ones_after_the_newest_whole_one_do_not_count(tmp_path: Path) -> None:
    """Else the next would be pruned for them, and the average would read them."""
    model, optimizer = make()
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, model, optimizer, Progress(step), average=3, keep=2)
    (tmp_path / "step-00000030" / "weights.safetensors").write_bytes(b"")
    assert checkpoint.newest_intact(tmp_path) == tmp_path / "step-00000020"
    assert names(tmp_path) == ["step-00000010", "step-00000020"]
    checkpoint.save(tmp_path, model, optimizer, Progress(26), average=3, keep=1)
    assert has_optimizer(tmp_path) == ["step-00000026"]


def test_a_damaged_validation_after_a_whole_pause_of_the_same_step(tmp_path: Path) -> None:
    model, optimizer = make()
    checkpoint.save(tmp_path, model, optimizer, Progress(30), average=3, pause=True)
    (tmp_path / "step-00000030").mkdir()
    assert checkpoint.newest_intact(tmp_path) == tmp_path / "pause-00000030"
    assert names(tmp_path) == ["pause-00000030"]


def test_none_is_whole(tmp_path: Path) -> None:
    """Then nothing is thrown away, and nothing is begun from the start without a word."""
    model, optimizer = make()
    checkpoint.save(tmp_path, model, optimizer, Progress(10), average=3)
    (tmp_path / "step-00000010" / "state.json").write_text("{")
    with pytest.raises(RunError, match="no checkpoint is intact"):
        checkpoint.newest_intact(tmp_path)
    assert names(tmp_path) == ["step-00000010"]


def test_a_new_folder_is_on_the_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = make()
    synced: list[Path] = []
    monkeypatch.setattr(checkpoint.storage, "sync", synced.append)
    checkpoint.save(tmp_path / "checkpoints", model, optimizer, Progress(10), average=1)
    assert tmp_path in synced


@pytest.mark.parametrize(
    "wrong",
    [
        {"best": "low"},
        {"best": [1.0]},
        {"best": float("nan")},
        {"sums": [0.0] * 5},
        {"sums": [0.0, 0.0, 0.0, float("nan")]},
        {"seconds": 10**400},
        {"micro_tokens": 10**30},
        {"position": {"epoch": 0, "window": 10**30, "batch": 0}},
        {"device": 3},
        {"files": [1]},
        {"files": {"weights.safetensors": None}},
    ],
)
def test_a_state_without_checksum_is_still_looked_at(tmp_path: Path, wrong: dict[str, object]) -> None:
    model, optimizer = make()
    checkpoint.save(tmp_path, model, optimizer, Progress(10), average=1)
    path = tmp_path / "step-00000010"
    state = json.loads((path / "state.json").read_text())
    del state["crc32"]
    (path / "state.json").write_text(json.dumps(state))
    assert checkpoint.damage(path) is None
    (path / "state.json").write_text(json.dumps(state | wrong))
    assert str(checkpoint.damage(path)).count("state.json: ") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"0.weight": torch.zeros(9, 9)},
        {"0.weight": torch.zeros(4, 3, dtype=torch.complex64)},
        {"0.weight": torch.zeros(4, 3, dtype=torch.int8)},
        {"more": torch.zeros(1)},
    ],
)
def test_checkpoints_with_other_weights_are_not_averaged(tmp_path: Path, change: dict[str, torch.Tensor]) -> None:
    """A run folder may come from anybody, with checksums that are right."""
    model, optimizer = make()
    for step in (1, 2):
        checkpoint.save(tmp_path, model, optimizer, Progress(step=step), average=2)
    path = tmp_path / "step-00000002" / "weights.safetensors"
    bundle.write_tensors(path, load_file(path) | change)
    with pytest.raises(RunError, match=r"weight|expected F32"):
        checkpoint.average(checkpoint.with_weights(tmp_path, 2))


def test_an_optimizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    model, optimizer = make()
    update(model, optimizer)
    checkpoint.save(tmp_path, model, optimizer, Progress(step=1), average=1)
    path = tmp_path / "step-00000001" / "optimizer.safetensors"
    state = load_file(path)
    name = next(name for name in state if not name.startswith("random."))
    bundle.write_tensors(path, state | {name: state[name].to(torch.complex64)})
    with pytest.raises(RunError, match=r"complex64, expected torch\.float32"):
        checkpoint.restore(tmp_path / "step-00000001", *make())
