"""Whatever happens to the files of a run folder: the right result or one clear line, never a traceback, never a wait.

Each in two forms: a few cases, and 2,000 (marked slow); of mutations, 40 and 5,000. FUZZ_EXAMPLES in the environment
asks for other numbers.
"""

import base64
import contextlib
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seq2see import api, bundle, run
from seq2see.errors import SeqError
from seq2see.tokens import tokenizers
from seq2see.training import checkpoint, events

FEW, MANY = (int(os.environ.get("FUZZ_EXAMPLES", number)) for number in (settings.default.max_examples // 4, 2000))


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
        if isinstance(event, events.Stepped | events.Validated | events.Finished):
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
    tokenizers.train("unigram", ["the cat sat on the mat", "a dog ate the cat"] * 20, 300).save(path)
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
        loaded = tokenizers.load(path)
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


# A stranger, who changes files on purpose. Each folder is used in a child process, with both engines.


@pytest.fixture(scope="module")
def users() -> Iterator[hostile.Users]:
    with hostile.Users() as ready:
        yield ready


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("bases")
    return {name: hostile.make_run(root / name, overlay) for name, overlay in hostile.BASES.items()}


def test_the_runs_to_begin_with_translate(bases: dict[str, Path], users: hostile.Users, tmp_path: Path) -> None:
    for name, base in bases.items():
        outcome = users.use(Path(shutil.copytree(base, tmp_path / name / "run")))
        assert outcome.pop("torch") == "translated"
        assert outcome["ctranslate2"] == "translated" or (
            name in ("recurrent", "convolutional") and "Transformers only" in str(outcome)
        )


def test_a_child_that_crashes_hangs_or_raises_is_told(tmp_path: Path) -> None:
    """The watchman is awake: a folder is used by code that does each of these."""
    assert hostile.is_well({"torch": "translated", "ctranslate2": "refused: a line"})
    for bad in ("signal 11", "signal 9", "traceback: ...", "a long story: ...", "exit code 1"):
        assert not hostile.is_well({"torch": "translated", "end": bad})


def use_mutated(bases: dict[str, Path], users: hostile.Users, place: Path, seed: int) -> tuple[str, dict[str, str]]:
    dice = random.Random(seed)
    name = dice.choice(list(bases))
    shutil.rmtree(place, ignore_errors=True)
    folder = Path(shutil.copytree(bases[name], place / "run"))
    what = hostile.mutate(folder, dice)
    return f"{name}, {what}", users.use(folder)


def look_at_mutations(bases: dict[str, Path], users: hostile.Users, place: Path, seeds: range) -> Counter[str]:
    kinds: Counter[str] = Counter()
    wrong = {}
    for seed in seeds:
        what, outcome = use_mutated(bases, users, place, seed)
        kinds[", ".join(f"{name} {said.partition(':')[0]}" for name, said in outcome.items())] += 1
        if not hostile.is_well(outcome):
            wrong[seed] = what, outcome
    assert not wrong
    return kinds


def test_mutations(bases: dict[str, Path], users: hostile.Users, tmp_path: Path) -> None:
    count = int(os.environ.get("FUZZ_EXAMPLES", "40"))
    kinds = look_at_mutations(bases, users, tmp_path / "place", range(count))
    assert len(kinds) > 1, "all had the same outcome: the mutations do too much, or nothing"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_mutations(bases: dict[str, Path], users: hostile.Users, tmp_path: Path, part: int) -> None:
    count = int(os.environ.get("FUZZ_EXAMPLES", "5000")) // 10
    print(part, look_at_mutations(bases, users, tmp_path / "place", range(part * count, (part + 1) * count)))


def setting(key: str, value: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "settings.toml"
        lines = path.read_text().splitlines()
        assert any(line.startswith(f"{key} = ") for line in lines)
        path.write_text("\n".join(f"{key} = {value}" if line.startswith(f"{key} = ") else line for line in lines))

    return change


def in_json(name: str, **values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        state = json.loads((folder / name).read_text())
        hostile.write(folder / name, json.dumps(state | values))

    return change


def tensor(
    name: str, change: Callable[[str, list[int], bytes], tuple[str, list[int], bytes]]
) -> Callable[[Path], None]:
    def change_file(folder: Path) -> None:
        header, body = hostile.read_safetensors(folder / "model.safetensors")
        header.pop("__metadata__")
        arrays = {
            each: (about["dtype"], about["shape"], body[slice(*about["data_offsets"])])
            for each, about in header.items()
        }
        arrays[name] = change(*arrays[name])
        hostile.write_safetensors(folder / "model.safetensors", arrays)

    return change_file


def evil_pattern(expression: str) -> Callable[[Path], None]:
    return in_json("source.tokenizer.json", kind="pattern", pattern=expression)


EMBEDDING, NORM = "source_embedding.tokens.weight", "encoder.0.around_attention.norm.weight"
LONG = "1" + "0" * 400
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a hundred million layers": (setting("encoder_layers", "100000000"), "model.encoder_layers = 100000000: expected"),
    "a thousand layers": (setting("decoder_layers", "1000"), "the weights do not fit the settings"),
    "a beam of a million": (setting("beam", "1000000"), "decoding.beam = 1000000: expected at most 200"),
    "beam and length": (setting("max_extra", "900\nbeam = 900"), "settings.toml"),
    "endless outputs": (setting("max_source", "1000000"), "allow outputs of 2,000,021 tokens"),
    "400 digits": (setting("d_model", LONG), "model.d_model = 1000"),
    "400 digits of a number": (setting("dropout", LONG), "model.dropout = 1000"),
    "5000 digits": (setting("d_model", "1" * 5000), "not TOML"),
    "1e308": (setting("length_penalty", "1e308"), "decoding.length_penalty = 1e+308: expected at most 10"),
    "not a number": (setting("max_ratio", "nan"), "decoding.max_ratio = nan"),
    "true for 1": (setting("heads", "true"), "model.heads = True: expected a whole number"),
    "a long text": (setting("tags", '"' + "x" * 9000 + '"'), "data.tags: 9,000 characters are too many"),
    "a long line": (setting("tags", '"' + "x" * 20_000 + '"'), "more than 10,000 characters"),
    "many parts": (setting("beam", "2\n" + ".".join("a" * 4000) + " = 1"), "unknown setting 'decoding.a'"),
    "a deep list": (setting("beam", "[" * 3000 + "]" * 3000), "settings.toml"),
    "ids beyond the vocabulary": (in_json("target.tokenizer.json", symbols=[*"abcdefghij"]), "the settings require ["),
    "a vocabulary too small": (in_json("target.tokenizer.json", symbols=["a"]), "the settings require [5, 8]"),
    "a token twice": (in_json("source.tokenizer.json", symbols=["a", "a"]), "a token occurs twice"),
    "no tokens": (in_json("source.tokenizer.json", symbols=[]), "the settings require [4, 8]"),
    "half a surrogate": (in_json("source.tokenizer.json", symbols=["\ud800"]), "half of a surrogate pair"),
    "numbers for tokens": (in_json("source.tokenizer.json", symbols=[1, 2]), "symbols: expected texts"),
    "a pattern too long": (evil_pattern("x|" * 5000 + "y"), "too long for a pattern"),
    "a pattern that matches nothing": (evil_pattern("a*"), "matches the empty text"),
    "a number of pairs": (in_json("manifest.json", pairs=-(10**300)), "'pairs' is '-1000"),
    "float64": (tensor(EMBEDDING, lambda kind, shape, content: ("F64", shape, content * 2)), "type F64, expected F32"),
    "int8": (tensor(NORM, lambda kind, shape, content: ("I8", shape, content[:8])), "type I8, expected F32"),
    "bfloat16": (tensor(NORM, lambda kind, shape, content: ("BF16", shape, content[:16])), "type BF16, expected F32"),
    "turned": (tensor(EMBEDDING, lambda kind, shape, content: (kind, shape[::-1], content)), "the settings require ["),
    "flat": (
        tensor(EMBEDDING, lambda kind, shape, content: (kind, [len(content) // 4], content)),
        "settings require [",
    ),
    "short": (tensor(NORM, lambda kind, shape, content: (kind, [4], content[:16])), "has shape [4], the settings"),
    "long": (tensor(NORM, lambda kind, shape, content: (kind, [800], content * 100)), "has shape [800], the settings"),
    "nothing": (tensor(NORM, lambda kind, shape, content: (kind, [0], b"")), "has shape [0], the settings"),
    "huge": (tensor(NORM, lambda kind, shape, content: (kind, [10**15], content)), "model.safetensors: cannot be read"),
    "complex": (tensor(NORM, lambda kind, shape, content: ("C64", shape, content * 2)), "model.safetensors"),
    "NaN": (
        tensor(NORM, lambda kind, shape, content: (kind, shape, b"\0\0\xc0\x7f" * 8)),
        "not finite, or beyond 1e+06",
    ),
    "infinity": (
        tensor(NORM, lambda kind, shape, content: (kind, shape, b"\0\0\x80\x7f" * 8)),
        "not finite, or beyond",
    ),
    "1e38": (
        tensor(NORM, lambda kind, shape, content: (kind, shape, b"\x99\x76\x96\x7e" * 8)),
        "not finite, or beyond",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_stranger_writes_is_refused_by_both_engines(
    bases: dict[str, Path], users: hostile.Users, tmp_path: Path, name: str
) -> None:
    change, words = REFUSED[name]
    folder = Path(shutil.copytree(bases["characters"], tmp_path / "run"))
    change(folder)
    outcome = users.use(folder)
    for engine in ("torch", "ctranslate2"):
        assert outcome[engine].startswith("refused: "), outcome
        assert words in outcome[engine]


@pytest.mark.parametrize("expression", ["(?:[a-z]+)+!", "(a|a)*b", "(a*)*b", r"(\w+\s?)+$!", "(?=(b+)+c)b"])
def test_evil_patterns_translate_or_are_refused_in_time(
    bases: dict[str, Path], users: hostile.Users, tmp_path: Path, expression: str
) -> None:
    folder = Path(shutil.copytree(bases["characters"], tmp_path / "run"))
    evil_pattern(expression)(folder)
    outcome = users.use(folder)
    for engine in ("torch", "ctranslate2"):
        assert outcome[engine] == "translated" or "takes longer than" in outcome[engine], outcome


def test_outputs_that_fill_all_positions_are_aligned(
    bases: dict[str, Path], users: hostile.Users, tmp_path: Path
) -> None:
    """With learned positions there is no place for the end of an output that has as many tokens."""
    folder = Path(shutil.copytree(bases["subwords"], tmp_path / "run"))
    setting("max_extra", "1000")(folder)
    assert users.use(folder) == {"torch": "translated", "ctranslate2": "translated"}
