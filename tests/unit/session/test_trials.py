"""Trials: who takes part, what beats what, and that neither they nor an interruption change a model."""

import os
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import seq2see
from seq2see import config, storage
from seq2see.errors import PassingError, RunError, SettingError
from seq2see.lens import history
from seq2see.session import candidates, finish, resume, trials
from seq2see.session.candidates import DEFAULT, CandidateResult
from seq2see.session.request import Began, Interrupted, Said
from seq2see.tokens import aligner
from seq2see.training import checkpoint

TINY = {
    "model": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 16, "heads": 2, "dropout": 0.1},
    "training": {"max_steps": 8, "learning_rate": 0.01, "validate_every": 3, "batch_tokens": 300},
}


class Crash(BaseException):
    """The end of a process."""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    found = {}
    for name, first, last in (("train", 100, 300), ("valid", 300, 360)):
        path = tmp_path / f"{name}.tsv"
        path.write_text("".join(f"{n}\t{' '.join(str(n))}\n" for n in range(first, last)), encoding="utf-8")
        found[name] = str(path)
    return found


def train(files: dict[str, str], out: Path, **more: Any) -> seq2see.Run:
    return seq2see.train(files["train"], out, valid=files["valid"], **({"settings": TINY} | more))


def test_who_takes_part() -> None:
    settings = config.resolve({"data": {"shared": False}, "model": {"tie": "decoder"}})
    own = {"source_tokenizer": "unigram", "target_tokenizer": "unigram", "shared": False}
    other = own | {"source_tokenizer": "characters"}

    def names(yours: set[str], minutes: float | None) -> list[str]:
        return [each.name for each in trials.challengers([own, other], settings, yours, minutes)]

    assert names(set(), None) == ["characters-to-unigram"]
    assert names({"training.seed", "decoding.beam"}, None) == ["characters-to-unigram"]
    assert names(set(), 0) == []
    assert names({"model.dropout"}, None) == []
    assert names({"training.max_minutes"}, None) == [], "each candidate would take as long"
    assert "more-dropout" in names(set(), 10)
    assert "more-dropout" not in names({"model.dropout"}, 10)
    assert "characters-to-unigram" not in names({"data.source_tokenizer"}, 10)


def test_trials_cost_no_more_than_the_guide_says() -> None:
    """At most twice as much as the training itself, and at most 30 % of it with many pairs."""
    of_few = trials.MOST_CHALLENGERS * trials.EARLY + (1 - trials.EARLY)  # the best of them is trained to the end
    assert of_few <= 2
    assert trials.MOST_CHALLENGERS * trials.EARLY_OF_MANY <= 0.3 + 1e-9


def result(name: str, losses: list[float], score: float | None = None) -> CandidateResult:
    return CandidateResult(name, 10, {str(place): loss for place, loss in enumerate(losses)}, score, 1.0, 1.0)


def test_only_a_significant_difference_counts() -> None:
    noisy = [1.0 + (place % 7) for place in range(100)]
    default = result(DEFAULT, noisy, 50.0)
    little = result("little", [loss - 0.05 * (-1) ** place - 0.001 for place, loss in enumerate(noisy)], 60.0)
    much = result("much", [loss - 0.3 for loss in noisy], 60.0)
    assert not trials.is_better(little, default, lower_is_better=False)
    assert trials.is_better(
        result("much", [loss - 0.3 + 0.01 * (place % 3) for place, loss in enumerate(noisy)], 50.0), default, False
    )
    assert trials.is_better(much, default, lower_is_better=False)
    assert not trials.is_better(much, default, lower_is_better=True)  # worse by the metric
    assert not trials.is_better(result("few", [0.0] * 20), default, lower_is_better=False)


def test_trials_that_the_default_wins_leave_the_model_as_it_is(files: dict[str, str], tmp_path: Path) -> None:
    lines: list[str] = []
    plain = train(files, tmp_path / "plain")
    assert "trials" not in plain.manifest
    tried = train(
        files,
        tmp_path / "tried",
        tune=60,
        watch=lambda event: lines.append(event.line if isinstance(event, Said) else ""),
    )
    found = tried.manifest["trials"]
    assert found["winner"] in found["candidates"]
    assert found["candidates"].keys() == {"suggested", "more-agreement", "more-decay"}
    assert found["relative_cost"] > 0
    assert any(line.startswith("trials: ") and "loss per sentence" in line for line in lines)
    assert not (tried.folder / "trials").exists()
    assert "trials" in (tried.folder / "report.html").read_text(encoding="utf-8")
    if found["winner"] == DEFAULT:
        assert weights(tried) == weights(plain)
    again = seq2see.train(
        files["train"], tmp_path / "again", valid=files["valid"], config_file=tried.folder / "settings.toml"
    )
    assert "trials" not in again.manifest
    assert weights(again) == weights(tried)
    assert recorded(again) == recorded(tried)


def weights(run: seq2see.Run) -> bytes:
    return (run.folder / "model.safetensors").read_bytes()


def recorded(run: seq2see.Run) -> str:
    """The attention at each validation."""
    return (run.folder / history.FILE).read_text(encoding="utf-8")


def test_the_winner_takes_the_place_of_the_default(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "is_better", lambda one, other, lower_is_better: other.name == DEFAULT)
    run = train(files, tmp_path / "run", tune=60)
    winner = run.manifest["trials"]["winner"]
    assert winner != DEFAULT
    [changed] = run.manifest["trials"]["candidates"][winner]["changes"]
    assert changed in ("training.agreement", "training.weight_decay")
    [row] = [row for row in run.manifest["choices"] if row["name"] == "dropout"]
    assert row["settings"][changed] == getattr(run.settings.training, changed.partition(".")[2])
    monkeypatch.undo()
    again = train(files, tmp_path / "again", settings=None, config_file=run.folder / "settings.toml")
    assert weights(again) == weights(run)
    assert recorded(again) == recorded(run)


SHARED = trials.Challenger(
    "shared",
    {
        "data": {"source_tokenizer": "unigram", "target_tokenizer": "unigram", "shared": True},
        "model": {"tie": "all"},
    },
)


def test_a_winner_with_one_tokenizer_leaves_none_of_the_two_of_the_default(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "is_better", lambda one, other, lower_is_better: other.name == DEFAULT)
    monkeypatch.setattr(trials, "challengers", lambda *given: [SHARED])
    run = train(files, tmp_path / "run", tune=60)
    assert run.manifest["trials"]["winner"] == "shared"
    assert "data.shared" in run.manifest["trials"]["candidates"]["shared"]["changes"]
    assert not (run.folder / "target.tokenizer.json").exists()
    assert seq2see.load(run.folder).translate(["123"])


@pytest.mark.parametrize("challenger", [SHARED, trials.Challenger("more-decay", {"training": {"weight_decay": 0.3}})])
def test_the_winner_knows_the_size_of_the_files(
    challenger: trials.Challenger, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that `--resume` can warn if they have changed."""
    monkeypatch.setattr(trials, "is_better", lambda one, other, lower_is_better: other.name == DEFAULT)
    monkeypatch.setattr(trials, "challengers", lambda *given: [challenger])
    run = train(files, tmp_path / "run", tune=60)
    assert run.manifest["trials"]["winner"] == challenger.name
    assert run.manifest["corpus_bytes"] == Path(files["train"]).stat().st_size


def test_a_challenger_with_other_tokenizers_has_its_own_alignment_loss(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the tokens of the suggested settings cannot be aligned, as single letters often cannot."""
    align = aligner.prepare

    def only_subwords(settings: config.Settings, *given: Any) -> config.Settings:
        if settings.data.shared:
            return align(settings, *given)
        return replace(settings, training=replace(settings.training, alignment_weight=0.0))

    def stop(event: object) -> None:
        if isinstance(event, Said) and event.line.startswith("trials: 2 settings"):
            raise Crash

    monkeypatch.setattr(aligner, "prepare", only_subwords)
    monkeypatch.setattr(trials, "challengers", lambda *given: [SHARED])
    settings = TINY | {"training": TINY["training"] | {"alignment_weight": 0.05}}
    with pytest.raises(Crash):
        train(files, tmp_path / "run", tune=60, settings=settings, watch=stop)
    assert config.read_settings(tmp_path / "run").training.alignment_weight == 0
    shared = config.read_settings(tmp_path / "run" / "trials" / "shared")
    assert shared.training.alignment_weight == 0.05


@pytest.fixture
def decided(files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder whose process crashed when the challenger `shared` had won, before any of its files were moved."""

    def crash(folder: Path) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(trials, "is_better", lambda one, other, lower_is_better: other.name == DEFAULT)
        patch.setattr(trials, "challengers", lambda *given: [SHARED])
        patch.setattr(trials, "move_winner", crash)
        with pytest.raises(Crash):
            train(files, tmp_path / "run", tune=60)
    return tmp_path / "run"


def crash_before(number: int, patch: pytest.MonkeyPatch) -> None:
    """Let the process crash before it deletes, renames or replaces files for this time; 0 for the first."""
    steps = iter(range(1_000_000))

    def crashing(work: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            if next(steps) == number:
                raise Crash
            return work(*given, **named)

        return call

    patch.setattr(Path, "replace", crashing(Path.replace))
    patch.setattr(Path, "unlink", crashing(Path.unlink))
    patch.setattr(shutil, "rmtree", crashing(shutil.rmtree))


def test_a_winner_that_has_moved_in_part_is_moved_whole(
    decided: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the process crashed."""
    whole = shutil.copytree(decided, tmp_path / "whole")
    trials.move_winner(whole)
    number, crashes = 0, True
    while crashes:
        folder = shutil.copytree(decided, tmp_path / str(number))
        with monkeypatch.context() as patch:
            crash_before(number, patch)
            try:
                trials.move_winner(folder)
                crashes = False
            except Crash:
                number += 1
        trials.move_winner(folder)
        assert contents(folder) == contents(whole)
        assert resume.reopen(folder, []).settings.data.shared
    assert number > 10


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a run folder, without the number of the process that locked it."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != storage.LOCK]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("number", [4, 8])
def test_a_run_resumes_after_a_crash_while_the_winner_moves(
    number: int, decided: Path, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        crash_before(number, patch)
        with pytest.raises(Crash):
            trials.move_winner(decided)
    run = train(files, decided, tune=60, resume=True)
    assert run.manifest["trials"]["winner"] == "shared"
    assert not (decided / "trials").exists()
    [row] = [row for row in run.manifest["choices"] if row["name"] == "source"]
    assert row["why"] == "the best of 2 settings in trials"


def test_several_processes_continue_with_a_winner_that_is_moving(
    decided: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        crash_before(4, patch)
        with pytest.raises(Crash):
            trials.move_winner(decided)
    trials.move_winner(decided)
    prepared = resume.reopen(decided, [])
    assert trials.decide(decided, prepared, [], lambda event: None, alone=False).settings.data.shared


def test_a_crash_while_trials_are_deleted_does_no_harm(
    decided: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trials.move_winner(decided)
    prepared = resume.reopen(decided, [])
    with monkeypatch.context() as patch:
        crash_before(1, patch)
        with pytest.raises(Crash):
            trials.decide(decided, prepared, [], lambda event: None, alone=True)
    (decided / "trials" / "shared" / "manifest.json").unlink()
    assert train(files, decided, tune=60, resume=True).manifest["trials"]["winner"] == "shared"
    assert not (decided / "trials").exists()


WILD = trials.Challenger("wild", {"training": {"learning_rate": 1e30}})
"""Settings with which the loss is soon not finite."""


@pytest.mark.parametrize("steps", [8, 40], ids=["only its validation loss is not finite", "updates fail"])
def test_a_challenger_that_fails_does_not_win_and_ends_nothing(
    steps: int, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(trials, "_more", lambda settings: [WILD])
    training = {"max_steps": steps, "validate_every": steps // 4, "batch_tokens": 300, "clip_norm": 0.0, "log_every": 5}
    settings = {"model": TINY["model"], "training": training}
    plain = train(files, tmp_path / "plain", settings=settings)
    watch = lambda event: lines.append(event.line if isinstance(event, Said) else "")  # noqa: E731
    tried = train(files, tmp_path / "tried", settings=settings, tune=60, watch=watch)
    failed_at = 3 if steps == 8 else 11  # after a quarter of the steps; where the log first counts five failed updates
    assert any(line.startswith(f"trials: wild failed before step {failed_at}: ") for line in lines)
    assert tried.manifest["trials"]["winner"] == DEFAULT
    assert tried.manifest["trials"]["candidates"].keys() == {DEFAULT}
    assert weights(tried) == weights(plain)


def test_a_challenger_for_which_memory_does_not_suffice_loses(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it runs out: here when the model is made, or when its losses are computed."""
    new_model, losses, lines = candidates.prepare.new_model, candidates.validation.losses, list[str]()

    def no_model(folder: Path, *given: Any) -> Any:
        if folder.name == "more-agreement":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return new_model(folder, *given)

    def no_losses(model: Any, store: Any) -> list[float]:
        if "more-decay" in str(store.folder):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return losses(model, store)

    monkeypatch.setattr(candidates.prepare, "new_model", no_model)
    monkeypatch.setattr(candidates.validation, "losses", no_losses)
    watch = lambda event: lines.append(event.line if isinstance(event, Said) else "")  # noqa: E731
    run = train(files, tmp_path / "run", tune=60, watch=watch)
    assert "trials: more-agreement failed before step 1: out of memory" in lines
    assert "trials: more-decay failed before step 3: out of memory" in lines
    assert not {"more-agreement", "more-decay"} & run.manifest["trials"]["candidates"].keys()


def test_a_full_disk_is_no_failure_of_a_challenger(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpoint.save

    def full(folder: Path, *given: Any, **options: Any) -> None:
        if "trials" in str(folder):
            raise PassingError("the disk is full")
        save(folder, *given, **options)

    whole = train(files, tmp_path / "whole", tune=60)
    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(PassingError):
        train(files, tmp_path / "run", tune=60)
    monkeypatch.undo()
    run = train(files, tmp_path / "run", tune=60, resume=True)
    assert run.manifest["trials"] | {"seconds": 0} == whole.manifest["trials"] | {"seconds": 0}


def test_suggested_settings_that_fail_in_trials_are_reported_as_without_trials(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_more", lambda settings: [trials.Challenger("other", {"model": {"dropout": 0.3}})])
    wild = {"model": TINY["model"], "training": {**TINY["training"], **WILD.overlay["training"], "max_steps": 40}}
    with pytest.raises(RunError, match="not finite"):
        train(files, tmp_path / "run", settings=wild, tune=60)


def test_challengers_whose_settings_contradict_yours_are_left_out(files: dict[str, str], tmp_path: Path) -> None:
    lines: list[str] = []
    settings = {"model": {"encoder_layers": 1, "decoder_layers": 1, "heads": 16}, "training": TINY["training"]}
    run = train(
        files,
        tmp_path / "run",
        settings=settings,
        tune=60,
        watch=lambda event: lines.append(event.line if isinstance(event, Said) else ""),
    )
    [left_out] = [line for line in lines if "is not tried" in line]
    assert left_out.startswith("trials: narrower is not tried: rotary positions need an even width")
    assert "more-decay" in run.manifest["trials"]["candidates"]


def test_a_challenger_that_does_not_fit_into_memory_is_left_out(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    check_memory = trials.preparation.check_memory

    def check(settings: config.Settings, device: torch.device) -> None:
        if settings.training.weight_decay > 0.5:
            raise SettingError("a model of 5 weights needs at least 9.9 GiB to train")
        check_memory(settings, device)

    monkeypatch.setattr(trials.preparation, "check_memory", check)
    watch = lambda event: lines.append(event.line if isinstance(event, Said) else "")  # noqa: E731
    run = train(files, tmp_path / "run", tune=60, watch=watch)
    assert "trials: more-decay is not tried: a model of 5 weights needs at least 9.9 GiB to train" in lines
    assert "more-agreement" in run.manifest["trials"]["candidates"]


@pytest.mark.parametrize("has_links", [True, False], ids=["hard links", "no hard links"])
def test_challengers_with_the_same_tokens_share_their_files(
    has_links: bool, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    def stop(event: object) -> None:
        if isinstance(event, Said) and event.line.startswith("trials: 3 settings"):
            raise Crash

    if not has_links:
        monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(Crash):
        train(files, tmp_path / "run", tune=60, watch=stop)
    name, other = "corpus/train/source.tokens", tmp_path / "run" / "trials" / "more-decay"
    assert (tmp_path / "run" / name).read_bytes() == (other / name).read_bytes()
    assert (tmp_path / "run" / name).samefile(other / name) == has_links
    assert config.read_settings(tmp_path / "run").training.weight_decay == 0.5
    assert config.read_settings(other).training.weight_decay == 1.0


@pytest.mark.parametrize("longest", [240, 420])
def test_a_challenger_may_not_leave_out_many_pairs(tmp_path: Path, longest: int) -> None:
    """Texts without spaces that fit as subwords, of which `characters` would leave out many."""
    dice, lines = random.Random(1), list[str]()
    words = ["".join(chr(0x4E00 + dice.randrange(300)) for _ in range(dice.randint(2, 4))) for _ in range(150)]
    texts = ["".join(dice.choices(words, k=dice.randint(6, longest // 4))) for _ in range(600)]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{text}\t{text[2:]}{words[0]}\n" for text in texts), encoding="utf-8")

    class DoneError(Exception):
        pass

    def watch(event: object) -> None:
        lines.append(event.line if isinstance(event, Said) else "")
        if isinstance(event, Began) or lines[-1].startswith("trials: "):
            raise DoneError

    with pytest.raises(DoneError):
        seq2see.train(path, tmp_path / "run", watch=watch)
    if longest > 256:
        assert lines[-1].startswith("trials: characters is not tried: ")
        assert "longer than data.max_length = 256" in lines[-1]
    else:
        assert lines[-1].startswith("trials: 2 settings")


def test_an_interruption_loses_nothing(files: dict[str, str], tmp_path: Path) -> None:
    whole = train(files, tmp_path / "whole", tune=60)
    told = []

    def interrupt(event: object) -> None:
        if isinstance(event, Said) and "step" in event.line and event.line.startswith("trials: more") and not told:
            told.append(event.line)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(files, tmp_path / "run", tune=60, watch=interrupt)
    assert (tmp_path / "run" / "trials").is_dir()
    run = train(files, tmp_path / "run", tune=60, resume=True)
    assert weights(run) == weights(whole)
    compared = run.manifest["trials"] | {"seconds": 0}
    assert compared == whole.manifest["trials"] | {"seconds": 0}


def test_trials_begun_on_a_gpu_use_the_micro_batches_of_a_cpu_when_they_are_resumed_on_one(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(event: object) -> None:
        if isinstance(event, Said) and event.line.startswith(f"trials: {DEFAULT}, step"):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(files, tmp_path / "run", tune=60, watch=interrupt)
    read, run_loop, used = checkpoint.read_progress, candidates.prepare.run_loop, list[int]()
    on_gpu = lambda path: replace(read(path), device="cuda", micro_tokens=65_536)  # noqa: E731
    monkeypatch.setattr(checkpoint, "read_progress", on_gpu)
    monkeypatch.setattr(candidates.prepare, "run_loop", lambda *given: used.append(given[3]) or run_loop(*given))
    until = TINY["training"]["max_steps"]
    candidates.advance(DEFAULT, tmp_path / "run", until)
    assert used == [4096]


def test_a_second_comparison_does_not_repeat_the_first(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then the finalists are further than the others, which a comparison would take for an advantage."""
    whole = train(files, tmp_path / "whole", tune=60)
    told: list[str] = []

    def interrupt(event: object) -> None:
        if isinstance(event, Said) and event.line.startswith(f"trials: {DEFAULT}, step"):
            told.append(event.line)
            if len(told) == 2:  # it has been trained to the end, and the other finalist has not
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(files, tmp_path / "run", tune=60, watch=interrupt)
    lengths: list[int] = []
    train_all = candidates.train_all
    monkeypatch.setattr(candidates, "train_all", lambda *given: lengths.append(given[1]) or train_all(*given))
    run = train(files, tmp_path / "run", tune=60, resume=True)
    assert lengths == [TINY["training"]["max_steps"]]
    assert run.manifest["trials"] | {"seconds": 0} == whole.manifest["trials"] | {"seconds": 0}
    assert weights(run) == weights(whole)


def test_the_average_of_a_finalist_is_made_up_for_after_an_interruption(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its best checkpoint would be compared, which is another model."""
    monkeypatch.setattr(checkpoint.Progress, "with_average", lambda progress, *given: progress)
    whole, average, calls = train(files, tmp_path / "whole", tune=60), checkpoint.average, list[object]()

    def interrupted(paths: Any) -> Any:
        calls.append(paths)
        if len(calls) == 2:  # that of the second finalist
            raise KeyboardInterrupt
        return average(paths)

    monkeypatch.setattr(checkpoint, "average", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(files, tmp_path / "run", tune=60)
    monkeypatch.setattr(checkpoint, "average", average)
    run = train(files, tmp_path / "run", tune=60, resume=True)
    assert run.manifest["trials"] | {"seconds": 0} == whole.manifest["trials"] | {"seconds": 0}
    assert weights(run) == weights(whole)


def test_trials_end_if_settings_are_changed_while_they_run(files: dict[str, str], tmp_path: Path) -> None:
    """The candidates would be compared after different numbers of steps, for example."""
    lines: list[str] = []
    whole = train(files, tmp_path / "whole", tune=60)

    def interrupt(event: object) -> None:
        if isinstance(event, Said) and event.line.startswith(f"trials: {DEFAULT}, step"):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(files, tmp_path / "run", tune=60, watch=interrupt)
    for name in ("changed", "untuned"):
        shutil.copytree(tmp_path / "run", tmp_path / name)
    longer = {"model": TINY["model"], "training": {**TINY["training"], "max_steps": 12}}
    watch = lambda event: lines.append(event.line if isinstance(event, Said) else "")  # noqa: E731
    changed = train(files, tmp_path / "changed", tune=60, resume=True, settings=longer, watch=watch)
    assert "no further trials: settings that candidates have in common were changed" in lines
    assert changed.manifest["steps"] == 12
    assert "trials" not in changed.manifest
    rows = {row["name"]: row for row in changed.manifest["choices"]}
    assert rows["target"]["why"]
    assert "model.d_model" in rows["model"]["yours"]
    untuned = train(files, tmp_path / "untuned", tune=0, resume=True, watch=watch)
    assert "no further trials: --tune 0" in lines
    assert "trials" not in untuned.manifest
    harmless = {"model": TINY["model"], "training": {**TINY["training"], "log_every": 3}}
    assert weights(train(files, tmp_path / "run", tune=60, resume=True, settings=harmless)) == weights(whole)


def test_on_a_cpu_a_line_says_how_long_trials_take(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "FORECAST_AFTER", 1)
    lines: list[str] = []
    train(
        files,
        tmp_path / "run",
        tune=60,
        watch=lambda event: lines.append(event.line if isinstance(event, Said) else ""),
    )
    [line] = [line for line in lines if line.startswith("trials and training: at most")]
    assert "for 18 steps" in line  # three settings for 2 of 8 steps, and two of them to the end
    assert lines.index(line) < next(place for place, line in enumerate(lines) if "loss per sentence" in line)


def test_losses_of_sentences_are_compared_and_reported_not_those_of_tokens(
    files: dict[str, str], tmp_path: Path
) -> None:
    """The loss of a token depends on how a sentence is split."""
    lines: list[str] = []
    settings = TINY | {"training": TINY["training"] | {"metric": "loss"}}
    run = train(
        files,
        tmp_path / "run",
        settings=settings,
        tune=60,
        watch=lambda event: lines.append(event.line if isinstance(event, Said) else ""),
    )
    [said] = [line for line in lines if "; mean validation loss per sentence: " in line]
    for name, row in run.manifest["trials"]["candidates"].items():
        assert f"{name} {row['loss']:.3f} (step {row['step']})" in said


def test_a_damaged_plan_is_refused(tmp_path: Path) -> None:
    early = '{"challengers": {"x": []}, "compare_after": 1, "reasons": {}, "early": {"x": {"name": "x"}}}'
    for text in (
        "[]",
        '{"challengers": {"../x": []}, "compare_after": 1, "reasons": {}}',
        "{",
        '{"challengers": {}}',
        early,
        '{"challengers": {"x": []}, "compare_after": 1, "reasons": {}, "winner": "x", "result": {}, "files": ["../x"]}',
    ):
        storage.write_text(tmp_path / "plan.json", text)
        with pytest.raises(RunError, match="damaged"):
            trials.read_plan(tmp_path / "plan.json")


def test_minutes_are_checked(files: dict[str, str], tmp_path: Path) -> None:
    for minutes in (-1.0, float("nan"), float("inf")):
        with pytest.raises(SettingError, match="--tune"):
            train(files, tmp_path / "run", tune=minutes)
    assert issubclass(Interrupted, KeyboardInterrupt)
