"""Whatever happens to the files of a run folder: the right result or one clear line, never a trace, never a wait.

Each in two forms: a few cases, and 2,000 (marked slow). FUZZ_EXAMPLES in the environment asks for other numbers.
"""

import base64
import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seq2see import api, bundle, run
from seq2see.data import tokenizer
from seq2see.errors import SeqError
from seq2see.training import checkpoint, loop

FEW, MANY = (int(os.environ.get("FUZZ_EXAMPLES", number)) for number in ("15", "2000"))


def in_one_folder(examples: int) -> settings:
    health = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(suppress_health_check=health, deadline=None, max_examples=examples)


SETTINGS = {
    "data": {"source_tokenizer": "characters", "target_tokenizer": "characters"},
    "model": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "heads": 2, "d_ff": 12, "tie": "decoder"},
    "training": {"max_steps": 6, "warmup_steps": 2, "batch_tokens": 200, "validate_every": 3, "log_every": 1},
}
FILES = [
    "manifest.json",
    "settings.toml",
    "model.safetensors",
    "source.tokenizer.json",
    "target.tokenizer.json",
    "validation.jsonl",
    "metrics.jsonl",
    *(f"corpus/train/{name}" for name in ("store.json", "source.tokens", "source.offsets", "target.offsets")),
    *(f"checkpoints/step-00000006/{name}" for name in (*checkpoint.TENSORS, "state.json")),
]
LINES = ["ab", "dcba", "c"]
FOR_ANSWERS = ("manifest.json", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    texts = [f"{one}{two}{three}" for one in "abcd" for two in "abcd" for three in ("", "a", "bc")]
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{text[::-1]}\n" for text in texts))
    api.train(folder / "pairs.tsv", folder / "run", settings=SETTINGS)
    return folder / "run"


@pytest.fixture(autouse=True)
def _nothing_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power cut is played here, and waiting for the disk would be most of the time."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run can be put, damaged, used and thrown away."""
    return tmp_path_factory.mktemp("copy") / "run"


def put_damaged(good: Path, folder: Path, name: str, content: bytes) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good, folder)
    (folder / name).write_bytes(content)


def said(folder: Path) -> list[str] | None:
    """What the run answers; None where it is refused in one line."""
    try:
        used = run.load(folder)
        return [result.text for result in used.search(LINES, beam=2, engine=used.engine("torch"))]
    except SeqError:
        return None


class EnoughError(Exception):
    pass


def go_on(folder: Path) -> bool:
    """Resume the training, up to its first new step; False where it is refused in one line."""

    def watch(event: api.Event) -> None:
        if isinstance(event, loop.Stepped | loop.Validated | loop.Finished):
            raise EnoughError

    try:
        longer = {"training": {"max_steps": 8}}
        api.train(folder.parent / "pairs.tsv", folder, settings=longer, resume=True, watch=watch)
    except EnoughError:
        return True
    except SeqError:
        return False
    return True


damage = st.one_of(
    st.tuples(st.just("cut"), st.floats(0, 1), st.just(b"")),
    st.tuples(st.just("changed"), st.floats(0, 1), st.binary(min_size=1, max_size=8)),
    st.tuples(st.just("inserted"), st.floats(0, 1), st.binary(min_size=1, max_size=8)),
    st.tuples(st.just("replaced"), st.just(0.0), st.binary(max_size=100)),
)


def look_at_damaged_bytes(good: Path, folder: Path, name: str, damage: tuple[str, float, bytes]) -> None:
    kind, share, by = damage
    content = (good / name).read_bytes()
    place = int(share * len(content))
    rest = {"cut": b"", "changed": content[place + len(by) :], "inserted": content[place:], "replaced": b""}[kind]
    put_damaged(good, folder, name, content[:place] + by + rest)
    if name in FOR_ANSWERS:
        answer = said(folder)
        if name == "model.safetensors":
            assert answer in (None, said(good))
    if name == "settings.toml":  # a wish for longer answers is a wish that is granted
        with contextlib.suppress(SeqError):
            bundle.load(folder)
    if name != "model.safetensors":
        go_on(folder)


@pytest.mark.parametrize("name", FILES)
@given(damage=damage)
@in_one_folder(FEW)
def test_damaged_bytes(good: Path, folder: Path, name: str, damage: tuple[str, float, bytes]) -> None:
    look_at_damaged_bytes(good, folder, name, damage)


@pytest.mark.slow
@given(name=st.sampled_from(FILES), damage=damage)
@in_one_folder(MANY)
def test_many_damaged_bytes(good: Path, folder: Path, name: str, damage: tuple[str, float, bytes]) -> None:
    look_at_damaged_bytes(good, folder, name, damage)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


WITH_VALUES = [
    "manifest.json",
    "source.tokenizer.json",
    "corpus/train/store.json",
    "checkpoints/step-00000006/state.json",
    "settings.toml",
]


def look_at_values_of_another_kind(good: Path, folder: Path, name: str, data: st.DataObject) -> None:
    """Any value in the place of another, at any key, or none at all."""
    value = data.draw(anything)
    if name == "settings.toml":
        lines = (good / name).read_text().splitlines()
        number = data.draw(st.integers(0, len(lines) - 1))
        lines[number] = f"{lines[number].partition(' = ')[0]} = {json.dumps(value)}"
        content = "\n".join(lines)
    else:
        facts = json.loads((good / name).read_text())
        facts.pop("crc32", None)
        key = data.draw(st.sampled_from(sorted(facts)))
        if data.draw(st.integers(0, 4)):
            facts[key] = value
        else:
            del facts[key]
        content = json.dumps(facts)
    put_damaged(good, folder, name, content.encode("utf-8", "surrogatepass"))
    if name in FOR_ANSWERS:
        said(folder)
    with contextlib.suppress(SeqError):
        bundle.load(folder)
    go_on(folder)


@pytest.mark.parametrize("name", WITH_VALUES)
@given(data=st.data())
@in_one_folder(FEW)
def test_values_of_another_kind(good: Path, folder: Path, name: str, data: st.DataObject) -> None:
    look_at_values_of_another_kind(good, folder, name, data)


@pytest.mark.slow
@given(name=st.sampled_from(WITH_VALUES), data=st.data())
@in_one_folder(MANY)
def test_many_values_of_another_kind(good: Path, folder: Path, name: str, data: st.DataObject) -> None:
    look_at_values_of_another_kind(good, folder, name, data)


@pytest.mark.parametrize("name", [*FILES, "corpus", "checkpoints", "corpus/train", "checkpoints/step-00000006"])
@pytest.mark.parametrize("how", ["gone", "a folder", "a pipe", "a link out"])
def test_other_things_in_the_place_of_a_file(good: Path, tmp_path: Path, name: str, how: str) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "run"))
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how == "a pipe":
        os.mkfifo(path)
    elif how == "a link out":
        path.symlink_to(good / name)
    answer, goes_on = said(folder), go_on(folder)
    if how in ("a pipe", "a link out"):
        assert answer is None
        assert not goes_on


@pytest.mark.parametrize("name", ["step-abc", "step-1", "pause-", "step-00000009", "pause-99999999999999", "other"])
def test_other_things_among_the_checkpoints(good: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "run"))
    (folder / "checkpoints" / name).mkdir()
    newest = checkpoint.newest(folder / "checkpoints")
    assert newest is not None
    assert newest.name == "step-00000006"
    assert go_on(folder)


@pytest.fixture(scope="module")
def subwords(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    path = tmp_path_factory.mktemp("subwords") / "a.tokenizer.json"
    tokenizer.train("unigram", ["the cat sat on the mat", "a dog ate the cat"] * 20, 300).save(path)
    return json.loads(path.read_text())


def look_at_a_damaged_model_of_subwords(
    subwords: dict[str, object], tmp_path: Path, share: float, by: bytes, cut: bool
) -> None:
    content = base64.b64decode(str(subwords["model"]))
    place = int(share * len(content))
    content = content[:place] + by + (b"" if cut else content[place + len(by) :])
    path = tmp_path / "a.tokenizer.json"
    path.write_text(json.dumps(subwords | {"model": base64.b64encode(content).decode()}))
    with contextlib.suppress(SeqError):
        loaded = tokenizer.load(path)
        for ids in loaded.encode(["the cat", "ein Hund", ""]):
            loaded.decode(ids)


of_subwords = given(share=st.floats(0, 1), by=st.binary(max_size=8), cut=st.booleans())


@of_subwords
@in_one_folder(FEW)
def test_a_damaged_model_of_subwords(
    subwords: dict[str, object], tmp_path: Path, share: float, by: bytes, cut: bool
) -> None:
    look_at_a_damaged_model_of_subwords(subwords, tmp_path, share, by, cut)


@pytest.mark.slow
@of_subwords
@in_one_folder(MANY)
def test_many_damaged_models_of_subwords(
    subwords: dict[str, object], tmp_path: Path, share: float, by: bytes, cut: bool
) -> None:
    look_at_a_damaged_model_of_subwords(subwords, tmp_path, share, by, cut)
