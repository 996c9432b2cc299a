"""What the README tells people to type works."""

import re
import shlex
from pathlib import Path

import pytest

import seq2see

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]
OWN_PAIRS = next(text for _, text in BLOCKS if "train pairs.tsv" in text)


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_python(number: int, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is short-cut to a run that is there; the rest is as printed."""
    monkeypatch.setattr(seq2see, "train", lambda pairs: seq2see.load(trained), raising=False)
    exec(compile(PYTHON[number], "README.md", "exec"), {})


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
