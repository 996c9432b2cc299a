"""Whatever happens to the files of a run folder: the right result or one clear line, never a trace, never a wait.

FUZZ_EXAMPLES=3000 in the environment looks closer than the default tests do.
"""

import base64
import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seq2see import api, bundle, run
from seq2see.data import tokenizer
from seq2see.errors import SeqError
from seq2see.model.build import build
from seq2see.prepare import reopen
from seq2see.training import checkpoint, journal
from seq2see.training.optimizer import adam

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "15"))
in_one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
    max_examples=EXAMPLES,
)
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


@pytest.fixture(scope="module")
def copy(good: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that may be damaged in one file at a time."""
    return Path(shutil.copytree(good, tmp_path_factory.mktemp("copy") / "run"))


@contextlib.contextmanager
def damaged(path: Path, content: bytes) -> Iterator[None]:
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def said(folder: Path) -> list[str] | None:
    """What the run answers; None where it is refused in one line."""
    try:
        used = run.load(folder)
        return [result.text for result in used.search(LINES, beam=2, engine=used.engine("torch"))]
    except SeqError:
        return None


def go_on(folder: Path) -> bool:
    """Read all that a resumed training reads; False where it is refused in one line."""
    try:
        prepared = reopen(folder, [])
        torch.manual_seed(1)
        sizes = len(prepared.tokenizers.source), len(prepared.tokenizers.target)
        model = build(prepared.settings.model, *sizes)
        if newest := checkpoint.newest(folder / "checkpoints"):
            checkpoint.restore(newest, model, adam(model.parameters(), prepared.settings.training))
        everything = torch.arange(len(prepared.train)).numpy()
        prepared.train.gather(everything)
    except SeqError:
        return False
    finally:
        journal.read(folder)
    return True


damage = st.one_of(
    st.tuples(st.just("cut"), st.floats(0, 1), st.just(b"")),
    st.tuples(st.just("changed"), st.floats(0, 1), st.binary(min_size=1, max_size=8)),
    st.tuples(st.just("inserted"), st.floats(0, 1), st.binary(min_size=1, max_size=8)),
    st.tuples(st.just("replaced"), st.just(0.0), st.binary(max_size=100)),
)


@pytest.mark.parametrize("name", FILES)
@given(damage=damage)
@in_one_folder
def test_damaged_bytes(good: Path, copy: Path, name: str, damage: tuple[str, float, bytes]) -> None:
    kind, share, by = damage
    content = (copy / name).read_bytes()
    place = int(share * len(content))
    rest = {"cut": b"", "changed": content[place + len(by) :], "inserted": content[place:], "replaced": b""}[kind]
    with damaged(copy / name, content[:place] + by + rest):
        if name in FOR_ANSWERS:
            answer = said(copy)
            if name == "model.safetensors":
                assert answer in (None, said(good))
        if name == "settings.toml":  # a wish for longer answers is a wish that is granted
            with contextlib.suppress(SeqError):
                bundle.load(copy)
        if name != "model.safetensors":
            go_on(copy)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        "source.tokenizer.json",
        "corpus/train/store.json",
        "checkpoints/step-00000006/state.json",
        "settings.toml",
    ],
)
@given(data=st.data())
@in_one_folder
def test_values_of_another_kind(copy: Path, name: str, data: st.DataObject) -> None:
    """Any value in the place of another, at any key."""
    value = data.draw(anything)
    if name == "settings.toml":
        lines = (copy / name).read_text().splitlines()
        number = data.draw(st.integers(0, len(lines) - 1))
        lines[number] = f"{lines[number].partition(' = ')[0]} = {json.dumps(value)}"
        content = "\n".join(lines)
    else:
        facts = json.loads((copy / name).read_text())
        facts.pop("crc32", None)
        facts[data.draw(st.sampled_from(sorted(facts)))] = value
        content = json.dumps(facts)
    with damaged(copy / name, content.encode("utf-8", "surrogatepass")):
        if name in FOR_ANSWERS:
            said(copy)
        with contextlib.suppress(SeqError):
            bundle.load(copy)
        go_on(copy)


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


@given(share=st.floats(0, 1), by=st.binary(max_size=8), cut=st.booleans())
@in_one_folder
def test_a_damaged_model_of_subwords(
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
