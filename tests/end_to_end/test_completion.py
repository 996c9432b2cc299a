"""Completion in shells, and `--version --verbose`."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import seq2see

HEAVY = {"torch", "numpy", "babel", "pydantic", "rich", "matplotlib"}


def complete(*words: str, shell: str = "bash", options: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    """Ask the program as the script of a shell does, for the last of these words."""
    line = " ".join(words)
    asked = {
        "_SEQ2SEE_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    program = "import sys; sys.argv[0] = 'seq2see'; from seq2see.cli import main; main()"
    return subprocess.run(
        [sys.executable, *options, "-c", program],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["seq2see", "tra"], ["train", "translate"]),
        (["seq2see", "train", "--pre"], ["--preset"]),
        (["seq2see", "train", "--preset", "paper-"], ["paper-base", "paper-big"]),
        (["seq2see", "train", "--set", "model.d_m"], ["model.d_model="]),
        (["seq2see", "translate", "--engine", "c"], ["ctranslate2"]),
        (["seq2see", "draw", "wav"], ["waves"]),
    ],
)
def test_words_are_completed(words, expected) -> None:
    assert complete(*words).stdout.split() == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_descriptions_too(shell) -> None:
    found = complete("seq2see", "tra", shell=shell).stdout
    assert "translate" in found
    assert "Train a model on pairs of sequences" in found


def test_completing_imports_nothing_heavy() -> None:
    ended = complete("seq2see", "tra", options=("-X", "importtime"))
    imported = set(re.findall(r"\| +([\w.]+)$", ended.stderr, re.MULTILINE))
    assert "seq2see.cli.program" in imported
    assert not imported & HEAVY


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_bash_takes_the_script(tmp_path: Path) -> None:
    program = tmp_path / "seq2see"
    program.write_text(f"#!{sys.executable}\nfrom seq2see.cli import main\nmain()\n")
    program.chmod(0o755)
    lines = f"""
        eval "$({program} --show-completion)"
        COMP_WORDS=(seq2see ex) COMP_CWORD=1
        _seq2see_completion {program}
        echo "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.split() == ["export"]


def test_version_for_bug_reports(cli) -> None:
    ended = cli("--version", "--verbose")
    assert ended.code == 0
    first, *rest = ended.out.splitlines()
    assert first == f"seq2see {seq2see.__version__}"
    names = ["distribution", "Python", "platform", "packages", "processor", "memory", "GPU"]
    assert [line.partition(":")[0] for line in rest] == names
    assert str(Path.home()) not in ended.out
    found = json.loads(cli("--version", "--verbose", "--json").out)
    assert found["seq2see"] == seq2see.__version__
    assert found["packages"]["torch"] in ended.out
    assert found["cores"] >= 1
    assert 0 < found["free_memory_gib"] <= found["memory_gib"]
    assert json.loads(cli("--json", "--version").out) == {"seq2see": seq2see.__version__}


def test_verbose_belongs_to_version(cli) -> None:
    ended = cli("--verbose")
    assert (ended.code, ended.err) == (2, "seq2see: --verbose and --json before a command need --version\n")


def test_the_version_alone_imports_no_verb() -> None:
    words = [sys.executable, "-X", "importtime", "-m", "seq2see", "--version"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == f"seq2see {seq2see.__version__}\n"
    imported = set(re.findall(r"\| +([\w.]+)$", ended.stderr, re.MULTILINE))
    assert not imported & {*HEAVY, "seq2see.cli.train", "importlib.metadata"}
