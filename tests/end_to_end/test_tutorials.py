"""The commands and programs of docs/tutorials work, with trainings cut to two steps."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import QUICK

from seq2see.text import dates

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = DOCS / "tutorials"
PROGRAMS = ["tutorial-names", "ko/tutorial-names", "image-patches"]
"""Pages whose Python blocks are one program."""
TALK = "".join(f"안녕 {number}\t반가워요 {number}\n" for number in range(60))


def blocks(name: str) -> list[tuple[str, str]]:
    """Return (language, text) of the blocks of a tutorial that are to be run, in their order."""
    text = (TUTORIALS / f"{name}.md").read_text(encoding="utf-8")
    return re.findall(r"^```(sh|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", sorted(path.stem for path in TUTORIALS.glob("*.md")))
def test_a_tutorial(name: str, cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dates, "SIZES", {"test": 100, "valid": 100, "train": 2000})
    (tmp_path / "talk.tsv").write_text(TALK, encoding="utf-8")
    found = blocks(name)
    assert found
    for language, text in found:
        if language == "python":
            run_python(text, tmp_path)
            continue
        for line in text.splitlines():
            run_command(line, cli)


def run_python(text: str, folder: Path) -> None:
    """Run a program; the one that writes the data of a tutorial writes less of it."""
    text = text.replace("20_000", "2_000")
    saved = folder / "make_numbers.py" if "csv.writer" in text else folder / "program.py"
    saved.write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, saved], cwd=folder, check=True, timeout=120)


def run_command(line: str, cli) -> None:
    before, _, command = line.rpartition("seq2see ")
    if not before and line.startswith("python "):
        return  # run_python has saved and run it
    words = shlex.split(command)
    if words[:3] == ["data", "get", "chatbot-ko"]:
        return  # needs a network; tests/unit/text/test_downloads.py has the command
    if words[:2] == ["train", "chatbot-ko"]:
        words = ["train", "talk.tsv", "--out", "runs/chatbot-ko", *words[2:]]
    if words[0] == "train":
        words += QUICK
    said = shlex.split(before.partition("|")[0])[1:] if before else ["hello"]
    ended = cli(*words, stdin=" ".join(said).encode() + b"\n")
    assert ended.code == 0, f"{line}\n{ended.err}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_a_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("weights.npz", *keras_weights(vocabulary=9000, d_model=16, d_ff=24))
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert code
    exec(compile(code.replace("STEPS = 900", "STEPS = 3"), name, "exec"), {})


@pytest.mark.slow
def test_pictures_of_digits_are_read_after_a_minute_of_training() -> None:
    text = (DOCS / "image-patches.md").read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    exec(
        compile("\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)), "page", "exec"), found
    )
    assert found["right"] > 0.95
    assert (found["weights"].argmax(1) == found["torch"].arange(4)).all()


def keras_weights(vocabulary: int, d_model: int, d_ff: int) -> list[np.ndarray]:
    """Return weights of the Keras tutorial's model with one layer, in the order of `get_weights()`."""
    attention = [(d_model, d_model), (d_model,)] * 4 + [(d_model,)] * 2
    rest = [(d_model, d_ff), (d_ff,), (d_ff, d_model), *[(d_model,)] * 3]
    table = (vocabulary, d_model)
    shapes = [table, *attention, *rest, table, *attention * 2, *rest, (d_model, vocabulary), (vocabulary,)]
    return [np.full(shape, 0.1, np.float32) for shape in shapes]
