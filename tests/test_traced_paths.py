"""The paths through the code that docs/architecture.md shows are those that calls really take.

Each list has the files of which at least one function is entered, in the order in which they are first entered, in one
process on a CPU. To write the lists anew after a change: UPDATE_DOCS=1 pytest tests/test_traced_paths.py
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

import seq2see
from conftest import TINY, random_words
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.session import finish
from tracing import traced

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
MOST = {"train": 20, "translate": 10, "serve": 10}
"""Files that a path may enter: a reader follows it in one go."""


def check(name: str, files: Iterable[str]) -> None:
    """Compare a list with the one between the comments `<!-- path NAME -->` and `<!-- end -->` of the page."""
    files = list(files)
    assert len(files) <= MOST.get(name, 0), f"{len(files)} files: give the new code another home"
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"(<!-- path {name} -->\n)(.*?)(<!-- end -->)", text, re.DOTALL)
    assert found, f"docs/architecture.md has no list with the name '{name}'"
    listed = "".join(f"{number}. `{file}`\n" for number, file in enumerate(files, 1))
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(text[: found.start(2)] + listed + text[found.end(2) :], encoding="utf-8")
        return
    assert found[2] == listed, (
        "the path has changed. Look at it, then run: UPDATE_DOCS=1 pytest tests/test_traced_paths.py"
    )


def test_from_pairs_to_the_first_loss(tmp_path: Path) -> None:
    """In a process of its own: what earlier trainings left in caches would hide files."""
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{word}\t{word.upper()}\n" for word in random_words(200, 1)), encoding="utf-8")
    words = [sys.executable, __file__, str(pairs), str(tmp_path / "run")]
    ended = subprocess.run(words, check=True, capture_output=True, text=True)
    check("train", json.loads(ended.stdout))


def trace_training(pairs: str, out: str) -> None:
    """Print the files that a training enters before its first loss, as JSON."""
    settings = {"model": TINY["model"], "training": {**TINY["training"], "max_steps": 1}}
    train = seq2see.train  # loaded before it is traced
    with traced(until="teacher_forced") as trace:
        train(pairs, out, settings=settings)
    print(json.dumps(list(trace.files)))


def test_from_a_line_to_its_translation(trained: Path) -> None:
    run = seq2see.load(trained)
    engine = TorchEngine(run.model)
    run.search(["a"], engine=engine)  # tables of positions are made once
    with traced() as trace:
        assert run.search(["abc"], engine=engine)[0].text
    check("translate", trace.files)


def test_a_served_request(trained: Path) -> None:
    """Trace the server's process from the request to the answer, then the engine's from the job to its result.

    The engine is the default one on a CPU.
    """
    pytest.importorskip("fastapi", reason="needs the extra seq2see[serve]")
    pytest.importorskip("ctranslate2", reason="needs the extra seq2see[fast]")
    from starlette.testclient import TestClient

    from seq2see.run import Run
    from seq2see.serve import app
    from seq2see.serve.engine_process import Worker
    from seq2see.serve.jobs import Asked, Key, Setup
    from seq2see.serve.service import Service

    body = {"text": "abc"}
    service = Service({"run": Run(trained)}, "auto")
    # The app runs in a thread of the client, which is traced because it is started meanwhile.
    with traced() as trace, TestClient(app.build(service)) as client:
        give_up = time.monotonic() + 120
        while client.get("/ready").status_code != 200:
            assert time.monotonic() < give_up, "the engines were not loaded"
            time.sleep(0.05)
        assert client.post("/v1/translate", json=body).status_code == 200  # the first one loads tokenizers
        while trace.files:  # the server may still be busy with the end of the first request
            assert time.monotonic() < give_up, "the server is never idle"
            trace.files.clear()
            time.sleep(0.2)
        assert client.post("/v1/translate", json=body).status_code == 200
        in_server = list(trace.files)
    answers: list[tuple[object, ...]] = []
    worker = Worker(Setup({"run": trained}, "auto", None, 100, False), answers.append, set())
    worker.do(Key("translate", "run", 1), [(1, Asked(["a"]))])  # the first one loads the model
    with traced() as in_engine:
        worker.do(Key("translate", "run", 1), [(1, Asked(["abc"]))])
    assert [kind for kind, *_ in answers].count("done") == 2
    check("serve", [*in_server, *(file for file in in_engine.files if file not in in_server)])


def test_a_path_that_has_changed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPDATE_DOCS", raising=False)
    with pytest.raises(AssertionError, match="the path has changed"):
        check("train", ["config.py"])
    with pytest.raises(AssertionError, match="no list with the name"):
        check("nothing", [])


def test_imports_and_class_bodies_do_not_count() -> None:
    with traced() as trace:
        finish.in_words(61.0)
    assert list(trace.files) == ["session/finish.py"]


if __name__ == "__main__":
    trace_training(*sys.argv[1:])
