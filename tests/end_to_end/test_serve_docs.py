"""The examples of docs/serve.md do what they say."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from serving import Server

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"```(sh|python|js)\n(.*?)```", (ROOT / "docs" / "serve.md").read_text(encoding="utf-8"), re.S)
COMMANDS = {"sh": ["bash", "-e"], "python": [sys.executable], "js": ["node"]}
SUFFIXES = {"sh": ".sh", "python": ".py", "js": ".mjs"}


def test_there_are_examples():
    assert {kind for kind, _ in EXAMPLES} == set(COMMANDS)


@pytest.mark.parametrize(("kind", "text"), EXAMPLES, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(EXAMPLES)])
def test_an_example_runs(server: Server, tmp_path: Path, kind: str, text: str):
    if not shutil.which(COMMANDS[kind][0]):
        pytest.skip(f"{COMMANDS[kind][0]} is not installed")
    script = tmp_path / f"example{SUFFIXES[kind]}"
    script.write_text(text.replace("http://127.0.0.1:8000", server.url), encoding="utf-8")
    ended = subprocess.run([*COMMANDS[kind], str(script)], capture_output=True, text=True, timeout=120, env=os.environ)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()
    assert "error" not in ended.stdout
    if kind == "js":
        assert ended.stdout.splitlines()[-1].startswith("end ")


def test_every_route_is_in_the_docs(server: Server):
    text = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    assert all(path in text for path in server.get("/openapi.json").json()["paths"])
