"""CTranslate2 says what our own engine says, for every kind of model that it can run."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from seq2see import bundle, config, special, storage
from seq2see.decoding import ct2_engine
from seq2see.decoding.hypothesis import Task
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.decoding.translator import limit, translate
from seq2see.errors import PassingError, RunError, SettingError
from seq2see.model.build import build
from seq2see.model.interface import Seq2Seq
from seq2see.text.tags import NO_TAGS, TagWords
from seq2see.tokens import tokenizers
from seq2see.tokens.store import Tokenizers

pytest.importorskip("ctranslate2", reason="the extra `fast` is not installed")
LINES = [" ".join(chr(97 + (7 * i + 3 * j * j) % 9) for j in range(1 + i % 11)) for i in range(60)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own cache"))


def make_run(folder: Path, model: dict[str, object], decoding: dict[str, object] | None = None) -> Path:
    """A run folder with random weights, large ones, so that the next word is seldom a close call."""
    shared = model.get("tie", "all") == "all"
    overlay = {
        "data": {"source_tokenizer": "symbols", "target_tokenizer": "symbols", "shared": shared, "max_length": 60},
        "model": {"encoder_layers": 2, "decoder_layers": 1, "d_model": 16, "heads": 2, "d_ff": 24, **model},
        "decoding": {"max_ratio": 1.0, "max_extra": 3, **(decoding or {})},
    }
    settings = config.resolve(overlay)
    one = tokenizers.train("symbols", LINES, 100)
    other = one if shared else tokenizers.train("symbols", ["x y z </s> v w"], 100)
    torch.manual_seed(3)
    made = build(settings.model, len(one), len(other))
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.3)
    folder.mkdir()
    Tokenizers(one, other).save(folder)
    config.write_toml(settings, folder / "settings.toml")
    bundle.save_weights(made, folder / "model.safetensors")
    storage.write_manifest(folder, {"state": "finished"})
    return folder


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"norm": "pre", "positions": "rotary"},
        {"positions": "learned", "max_positions": 64, "tie": "decoder", "activation": "gelu"},
        {"positions": "none", "tie": "none", "output_bias": True, "activation": "silu"},
        {"d_key": 5, "norm_epsilon": 1e-3},
        {"d_key": 6, "norm": "pre", "positions": "rotary", "decoder_layers": 3},
    ],
    ids=str,
)
def test_the_same_tokens_and_scores_as_our_own_engine(tmp_path: Path, model: dict[str, object]) -> None:
    run = make_run(tmp_path / "run", model)
    ours = bundle.load(run)
    settings = config.resolve(config.read_toml(run / "settings.toml"), {"decoding": {"beam": 1}})
    one = translate(TorchEngine(ours.model), ours.tokenizers, settings, LINES)
    other = translate(ct2_engine.open_engine(run, "float32"), ours.tokenizers, settings, LINES)
    for left, right in zip(one, other, strict=True):
        assert left.translations[0].tokens == right.translations[0].tokens
        assert right.translations[0].score == pytest.approx(left.translations[0].score, abs=1e-4)


@pytest.mark.parametrize("beam", [1, 3])
def test_limits_that_differ_in_a_batch_are_each_kept(tmp_path: Path, beam: int) -> None:
    run = make_run(tmp_path / "run", {})
    engine = ct2_engine.open_engine(run, "float32")
    tokens = Tokenizers.load(run).source.encode(LINES)
    tasks = [Task([*each, special.END], 1 + place % 7, []) for place, each in enumerate(tokens)]
    settings = config.Decoding(beam=beam)
    together = engine.search(tasks, settings)
    for task, found in zip(tasks, together, strict=True):
        alone = engine.search([task], settings)[0]
        assert [each.tokens for each in found] == [each.tokens for each in alone]
        assert [each.score for each in found] == pytest.approx([each.score for each in alone], abs=1e-5)
    assert all(len(each.tokens) <= task.limit for task, found in zip(tasks, together, strict=True) for each in found)
    assert any(len(each.tokens) == task.limit for task, found in zip(tasks, together, strict=True) for each in found)


def test_prefixes_and_n_best(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {})
    loaded = bundle.load(run)
    engine = ct2_engine.open_engine(run, "float32")
    forced = translate(engine, loaded.tokenizers, loaded.settings, LINES[:9], prefixes=["b c"] * 9)
    assert all(result.text.startswith("b c") for result in forced)
    many = translate(engine, loaded.tokenizers, loaded.settings, LINES[:9], n_best=4)
    for result in many:
        scores = [each.score for each in result.translations]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("alpha", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("beam", [1, 4])
def test_the_same_probabilities_as_our_own_model(tmp_path: Path, alpha: float, beam: int) -> None:
    """Said token by token, with the end where there is one: at its limit a hypothesis has none."""
    run = make_run(tmp_path / "run", {}, {"length_penalty": alpha, "beam": beam})
    loaded = bundle.load(run)
    cut = 0
    for engine in (TorchEngine(loaded.model), ct2_engine.open_engine(run, "float32")):
        for result in translate(engine, loaded.tokenizers, loaded.settings, LINES[:20], n_best=beam):
            most = limit(len(result.source), 1.0, 3)
            for each in result.translations:
                at_limit = len(each.tokens) == most
                cut += at_limit
                tokens = [*each.tokens] if at_limit else [*each.tokens, special.END]
                assert each.probability == pytest.approx(said(loaded.model, result.source, tokens), rel=1e-3)
    assert cut


@torch.inference_mode()
def said(model: Seq2Seq, source: tuple[int, ...], tokens: list[int]) -> float:
    """The probability of these tokens, one after the other."""
    state = model.start(model.encode(torch.tensor(source), torch.tensor([0, len(source)])))
    last, total = special.BEGIN, 1.0
    for token in tokens:
        logits_1V = model.step(torch.tensor([last]), state).float()
        logits_1V[:, [special.PAD, special.BEGIN]] = -torch.inf  # which no output contains
        total *= float(logits_1V.softmax(-1)[0, token])
        last = token
    return total


def test_a_forced_beginning_leaves_the_probability_untold(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {})
    loaded = bundle.load(run)
    ours, theirs = (
        translate(engine, loaded.tokenizers, loaded.settings, ["a b", ""], prefixes=["b c", "b c"])
        for engine in (TorchEngine(loaded.model), ct2_engine.open_engine(run, "float32"))
    )
    assert theirs[0].translations[0].probability is None
    assert 0 < ours[0].translations[0].probability < 1
    assert ours[1].translations[0].probability == theirs[1].translations[0].probability == 1


def test_blanks_around_a_line_do_not_count(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {})
    loaded = bundle.load(run)
    for engine in (TorchEngine(loaded.model), ct2_engine.open_engine(run, "float32")):
        bare, padded = translate(engine, loaded.tokenizers, loaded.settings, ["a b", "  a b\t"])
        assert bare == padded


def test_it_is_converted_once_and_anew_when_the_weights_change(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {})
    ct2_engine.open_engine(run, "int8")
    (first,) = (run / "engines").iterdir()
    made = (first / "model.bin").stat().st_mtime_ns
    ct2_engine.open_engine(run, "int8")
    assert (first / "model.bin").stat().st_mtime_ns == made
    (run / "model.safetensors").touch()
    ct2_engine.open_engine(run, "int8")
    (second,) = (run / "engines").iterdir()
    assert second != first


def test_it_is_converted_anew_when_a_tokenizer_changes(tmp_path: Path) -> None:
    """Its words are in the conversion: with others beside it, an answer would be one that no tokenizer knows."""
    run = make_run(tmp_path / "run", {})
    ct2_engine.open_engine(run, "int8")
    (first,) = (run / "engines").iterdir()
    path = run / "source.tokenizer.json"
    path.write_text(path.read_text() + "\n")
    ct2_engine.open_engine(run, "int8")
    (second,) = (run / "engines").iterdir()
    assert second != first


def test_wide_beams_search_in_small_batches() -> None:
    tasks = [Task([5] * 9 + [3], 10, [])] * 60
    for beam, most in ((5, 25), (60, 13), (200, 4)):
        settings = config.Decoding(beam=beam)
        batches = list(ct2_engine._by_limit(range(len(tasks)), tasks, settings))
        assert sorted(index for batch in batches for index in batch) == list(range(60))
        assert max(map(len, batches)) == most


def forged(run: Path) -> tuple[Path, bytes]:
    """The conversion of a run with another in its place, of the same size and time; and what was there."""
    (folder,) = (run / "engines").iterdir()
    path = folder / "model.bin"
    before, times = path.read_bytes(), path.stat()
    path.write_bytes(before[:-4] + b"evil")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return path, before


def test_a_conversion_that_was_changed_is_not_loaded(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {})
    ct2_engine.open_engine(run, "int8")
    path, before = forged(run)
    ct2_engine.open_engine(run, "int8")
    assert path.read_bytes() == before


def test_a_conversion_that_somebody_else_made_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", {})
    ct2_engine.open_engine(run, "int8")
    path, before = forged(run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another user"))
    ct2_engine.open_engine(run, "int8")
    assert path.read_bytes() == before


def test_a_conversion_that_only_looks_otherwise_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a backup was put back, say: it is looked through once, and then known again."""
    run = make_run(tmp_path / "run", {})
    ct2_engine.open_engine(run, "int8")
    (folder,) = (run / "engines").iterdir()
    shutil.copytree(folder, tmp_path / "backup")
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)
    monkeypatch.setattr(ct2_engine, "convert", None)
    ct2_engine.open_engine(run, "int8")
    monkeypatch.setattr(ct2_engine, "_checksum", None)
    ct2_engine.open_engine(run, "int8")


def test_without_a_cache_it_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", {})
    (tmp_path / "cache").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        ct2_engine.open_engine(run, "int8")


def test_a_read_only_run_uses_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", {})
    (run / "engines").write_text("in the way: no folder can be made here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ct2_engine.open_engine(run, "float32")
    assert list((tmp_path / "cache" / "seq2see" / "engines").rglob("model.bin"))


def in_the_way(run: Path) -> None:
    """Make a place where no folder of conversions can be created, also by root."""
    (run / "engines").write_text("in the way")


def full(*places: Path) -> Callable[[Path, Path, str], None]:
    """Return a `convert` that finds no room on the disks of these places, after a part of the work."""
    real = ct2_engine.convert

    def convert(run: Path, folder: Path, precision: str) -> None:
        if any(folder.is_relative_to(place) for place in places):
            (folder / "model.bin").write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(run, folder, precision)

    return convert


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_of_the_run_uses_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    run = make_run(tmp_path / "run", {})
    monkeypatch.setattr(errno, "ENOSPC", number)
    monkeypatch.setattr(ct2_engine, "convert", full(run))
    ct2_engine.open_engine(run, "int8")
    assert list((run / "engines").iterdir()) == []
    (model,) = (tmp_path / "own cache").rglob("model.bin")
    monkeypatch.setattr(ct2_engine, "convert", None)
    ct2_engine.open_engine(run, "int8")
    assert model.exists()


def test_with_no_room_anywhere_the_error_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", {})
    monkeypatch.setattr(ct2_engine, "convert", full(run, tmp_path / "own cache"))
    ct2_engine.open_engine(run, "int8")  # a temporary one
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ct2_engine, "convert", full(tmp_path))
    with pytest.raises(PassingError, match=r"No space left on device.*--engine torch"):
        ct2_engine.open_engine(run, "int8")
    assert not list(tmp_path.rglob("model.bin"))


def test_a_conversion_in_a_cache_that_has_become_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", {})
    in_the_way(run)
    ct2_engine.open_engine(run, "int8")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for module, name in ((storage, "create"), (storage, "remove"), (Path, "mkdir")):
        monkeypatch.setattr(module, name, read_only)
    monkeypatch.setattr(ct2_engine, "convert", None)
    ct2_engine.open_engine(run, "int8")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "missing": Path.unlink,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: (path.rename(path.with_name("moved")), path.symlink_to("moved")),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("in_cache", [False, True])
def test_a_damaged_conversion_is_made_again(tmp_path: Path, damage: str, in_cache: bool) -> None:
    """CTranslate2 would end the process on some of these."""
    run = make_run(tmp_path / "run", {})
    if in_cache:
        in_the_way(run)
    ct2_engine.open_engine(run, "int8")
    (model,) = tmp_path.rglob("model.bin")
    whole = {path: path.read_bytes() for path in model.parent.iterdir()}
    for path in whole:
        DAMAGES[damage](path)
        engine = ct2_engine.open_engine(run, "int8")
        assert engine.search([Task([4, 5], 5, [])], config.read_settings(run).decoding)
        assert {path: path.read_bytes() for path in model.parent.iterdir()} == whole


def test_a_conversion_for_another_version_of_ctranslate2_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", {})
    ct2_engine.open_engine(run, "int8")
    real, refusals, made = ct2_engine.Ct2Engine, 2, []

    def engine(*words: object) -> object:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise RuntimeError("Unsupported model binary version")
        return real(*words)

    def convert(run: Path, folder: Path, precision: str) -> None:
        made.append(folder)
        real_convert(run, folder, precision)

    real_convert = ct2_engine.convert
    monkeypatch.setattr(ct2_engine, "Ct2Engine", engine)
    monkeypatch.setattr(ct2_engine, "convert", convert)
    ct2_engine.open_engine(run, "int8")
    assert len(made) == 1
    refusals = 99
    with pytest.raises(RunError, match=r"Unsupported model binary version.*--engine torch"):
        ct2_engine.open_engine(run, "int8")


STARTED_AT_ONCE = """
import json, sys
from pathlib import Path
import ctranslate2.specs
from seq2see import run
from seq2see.decoding import ct2_engine
made, convert = [], ct2_engine.convert
ct2_engine.convert = lambda *words: (made.append(1), convert(*words), KILLED)
print("ready", flush=True)
sys.stdin.readline()
said = run.load(sys.argv[1]).translate(["a b c", "d"])
print(json.dumps([said, len(made)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 2])
def test_many_processes_convert_a_new_run_once(tmp_path: Path, killed: int) -> None:
    """Four translate at once; before that, some may be killed in the middle of the conversion."""
    run = make_run(tmp_path / "run", {})
    kill = "__import__('os').kill(__import__('os').getpid(), 9)"
    codes = [STARTED_AT_ONCE.replace("KILLED", kill)] * killed + [STARTED_AT_ONCE.replace("KILLED", "0")] * 4
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", code, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for code in codes
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes[:killed]:
            process.communicate("\n", timeout=60)
            assert process.returncode == -9
        assert len(list(run.glob("engines/.part-*"))) == min(killed, 1)  # the second has removed that of the first
        for process in processes[killed:]:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        ended = [json.loads(process.communicate(timeout=60)[0]) for process in processes[killed:]]
    assert len({str(said) for said, _ in ended}) == 1
    assert sum(made for _, made in ended) == 1
    assert [path.name.partition("-")[0] for path in (run / "engines").iterdir()] == ["ctranslate2"]


def test_many_threads_convert_a_new_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process left is removed."""
    run = make_run(tmp_path / "run", {})
    (run / "engines" / ".part-left").mkdir(parents=True)
    (run / "engines" / ".part-left" / "model.bin").write_bytes(b"half")
    made, real, together = [], ct2_engine.convert, threading.Barrier(4)

    def convert(run: Path, folder: Path, precision: str) -> None:
        made.append(folder)
        real(run, folder, precision)

    def opened(_: int) -> ct2_engine.Ct2Engine:
        together.wait(120)
        return ct2_engine.open_engine(run, "int8")

    monkeypatch.setattr(ct2_engine, "convert", convert)
    with ThreadPoolExecutor(4) as pool:
        engines = list(pool.map(opened, range(4)))
    assert len(engines) == 4
    assert len(made) == 1
    (folder,) = (run / "engines").iterdir()
    assert folder.stat().st_mode & 0o777 == run.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("model", "decoding", "words"),
    [
        ({"d_value": 4}, {}, "model.d_value"),
        ({}, {"length_formula": "paper"}, "decoding.length_formula"),
    ],
)
def test_what_it_cannot_run_is_said(
    tmp_path: Path, model: dict[str, object], decoding: dict[str, object], words: str
) -> None:
    run = make_run(tmp_path / "run", model, decoding)
    with pytest.raises(SettingError, match=words):
        ct2_engine.open_engine(run, "float32")


@pytest.mark.parametrize("architecture", ["rnn", "rnn-attention", "rnn-dot", "convolutional"])
def test_other_models_are_not_for_it(architecture: str) -> None:
    problem = ct2_engine.obstacle(config.resolve({"model": {"architecture": architecture}}))
    assert problem == f"ctranslate2 runs Transformers only (model.architecture = '{architecture}')"


def test_torch_stays_out_once_converted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {})
    ct2_engine.open_engine(run, "int8")  # ctranslate2's own specifications import torch where it is installed
    code = (
        "import json, sys; from seq2see.run import load; "
        f"said = load({str(run)!r}).translate(['a b c']); print(json.dumps([said, 'torch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, torch_is_there = json.loads(done.stdout)
    assert len(said) == 1
    assert not torch_is_there


@pytest.mark.parametrize(
    ("kind", "pattern", "texts"),
    [
        ("pattern", "smiles", ["CC(=O)Oc1ccccc1", "[C@@H](Br)Cl>>C%12", "</s>#4 <s>"]),
        ("pattern", r"</?\w+>(#\d)?|\s+", ["</s> <s>\t<s>#9 </s>#4", "<unk><pad>"]),
        ("jamo", "", ["한글 \u1100\u1161 ㅋㅋ", "\ufdd0가"]),
        ("characters", "", ["<N;SG> walk V;PST", "<N> a ;SG V"]),
    ],
)
def test_every_token_of_a_pattern_or_of_korean_letters_is_a_word_of_its_own(kind, pattern, texts, tmp_path):
    run = make_run(tmp_path / "run", {})
    words = TagWords(frozenset({"<N", ";SG", "> ", "<N> "}), frozenset({" V", ";PST"}))
    one = tokenizers.train(kind, texts, 100, pattern=pattern, words=words if "V" in texts[0] else NO_TAGS)
    settings = config.read_settings(run)
    made = build(settings.model, len(one), len(one))
    Tokenizers(one, one).save(run)
    bundle.save_weights(made, run / "model.safetensors")
    assert len(set(ct2_engine._words(one))) == len(one)
    engine = ct2_engine.open_engine(run, "float32")
    both = Tokenizers.load(run)
    found = translate(engine, both, settings, texts)
    ours = translate(TorchEngine(made.eval()), both, settings, texts)
    assert [list(each.translations[0].tokens) for each in found] == [list(each.translations[0].tokens) for each in ours]


@pytest.mark.parametrize(("processes", "cores"), [("1", 8), ("3", 2), ("8", 1), ("100", 1), ("0", 8), ("many", 8)])
def test_processes_on_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch, processes: str, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    assert ct2_engine._cores() == cores
