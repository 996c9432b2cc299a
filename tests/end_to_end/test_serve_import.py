"""An imported model is served like any other run: the answers are those of `generate`."""

from pathlib import Path

import pytest
from serving import Server

import marian
from seq2see.interop.importing import import_model
from seq2see.run import load

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("fastapi", reason="the extra `serve` is not installed")


@pytest.mark.slow
def test_a_served_import_answers_as_transformers_generates(tmp_path: Path) -> None:
    model = marian.make(tmp_path / "model", tags=[">>fra<<", ">>deu<<"])
    import_model(tmp_path / "model", tmp_path / "run")
    run = load(tmp_path / "run")
    both = marian.Comparison(model, tmp_path / "model", run)
    lines = marian.sentences(20, 31)
    found = both.generated([f">>fra<< {line}" for line in lines], 1)
    with Server(tmp_path / "run", "--engine", "torch", "--quiet") as server:
        answer = server.post("/v1/translate", text=lines, to="fra", beam=1)
    assert answer.status == 200, answer.body
    texts = [each["translations"][0]["text"] for each in answer.json()["results"]]
    for text, ids in zip(texts, found, strict=True):  # `generate` stops at 60 tokens, the service at its own limit
        assert text.startswith(run.tokenizers.target.decode(ids))
