"""The same program on a card: skipped where there is none."""

from pathlib import Path

import pytest
import torch

import seq2see
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.training import checkpoint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA, and this machine has none"),
]
SETTINGS = {
    "model": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "heads": 2, "d_ff": 64},
    "training": {"max_steps": 40, "warmup_steps": 10, "batch_tokens": 500, "validate_every": 20, "average": 2},
}


def pairs(folder: Path) -> Path:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{number}\t{str(number)[::-1]}\n" for number in range(100, 700)))
    return path


def test_a_run_trains_in_bfloat16_and_goes_on(tmp_path: Path) -> None:
    run = seq2see.train(pairs(tmp_path), tmp_path / "run", settings=SETTINGS)
    assert next(run.bundle.model.parameters()).is_cuda
    longer = {"training": {"max_steps": 60}}
    seq2see.train(pairs(tmp_path), tmp_path / "run", settings=longer, resume=True)
    newest = checkpoint.newest(tmp_path / "run" / "checkpoints")
    assert newest is not None
    assert newest.name == "step-00000060"


def test_a_card_says_what_a_processor_says(tmp_path: Path) -> None:
    """Float32 on both, sums in another order: nearly all sentences are equal to the token."""
    run = seq2see.train(pairs(tmp_path), tmp_path / "run", settings=SETTINGS)
    lines = [str(number) for number in range(100, 400)]
    on_card = run.search(lines, beam=3, engine=run.engine("torch"))
    on_processor = run.search(lines, beam=3, engine=TorchEngine(run.bundle.model.cpu()))
    same = sum(one.text == other.text for one, other in zip(on_card, on_processor, strict=True))
    assert same >= 0.97 * len(lines)
