"""What the README tells people to type works."""

import json
import re
import shlex
from pathlib import Path

import pytest

import seq2see

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
INSIDE = (Path(__file__).parents[2] / "docs" / "inside.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]
OWN_PAIRS = next(text for _, text in BLOCKS if "train pairs.tsv" in text)


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_python(number: int, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is short-cut to a run that is there; the rest is as printed."""
    monkeypatch.setattr(seq2see, "train", lambda pairs: seq2see.load(trained), raising=False)
    exec(compile(PYTHON[number], "README.md", "exec"), {})


def test_the_inside_by_name(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of docs/inside.md, one after another."""
    run = seq2see.load(trained)
    monkeypatch.setattr(seq2see, "load", lambda folder: run, raising=False)
    code = "\n".join(re.findall(r"```python\n(.*?)```", INSIDE, re.DOTALL))
    exec(compile(code, "docs/inside.md", "exec"), {})


def test_every_field_of_an_answer_is_documented(trained: Path, cli) -> None:
    run = seq2see.load(trained)
    pairs = [("bad", "BAD")]
    worth, statistics = run.head_worth(pairs, [[]]), run.head_statistics(pairs)
    names = {*run.look("bad").json(), *run.importance("bad").json(), *worth.json(), *worth.whole._fields}
    names |= {*statistics.json(), *statistics.heads[0]._fields}
    keys = json.loads(cli("look", trained, "bad", "--json").out)
    names |= {re.sub(r"(?<=/).*", "", key) for key in keys} | {*keys["summary"]} - {"languages"}
    missing = {name for name in names if not re.search(rf"\b{name}(\b|PLACE|NAME)", INSIDE)}
    assert not missing


@pytest.mark.parametrize("line", [line for line in OWN_PAIRS.splitlines() if "train" not in line.split("#")[0]])
def test_commands(cli, line: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("pairs", "other"):
        (tmp_path / "runs" / name).symlink_to(trained)
    for name in ("pairs.tsv", "test.tsv"):
        (tmp_path / name).write_text("abc\tABC\n")
    command = line.split("#")[0].rpartition("seq2see ")[2]
    ended = cli(*shlex.split(command), stdin=b"abc\n")
    assert ended.code == 0, ended.err


def test_the_demo_shown_is_the_demo_run() -> None:
    """The commands in the README's demo are those of the Makefile, in their order."""
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    shown = re.findall(r"^\.venv/bin/(seq2see .*)$", README, re.MULTILINE)
    run = re.findall(r"^\t@?\$\(BIN\)/(seq2see (?:train|evaluate|look) .*)$", makefile, re.MULTILINE)
    assert shown == run
