"""The same program on a card: skipped where there is none."""

from pathlib import Path

import pytest
import torch

import seq2see
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.model.attention import MultiHeadAttention, Packing, Reach
from seq2see.training import checkpoint
from seq2see.training.graphs import RecordedPasses
from seq2see.training.loop import Trained

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA, and this machine has none"),
]
SETTINGS = {
    "model": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "heads": 2, "d_ff": 64},
    "training": {"max_steps": 40, "warmup_steps": 10, "batch_tokens": 500, "validate_every": 20, "average": 2},
}


def pairs(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
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


def losses(folder: Path, monkeypatch: pytest.MonkeyPatch, recorded: bool, **model: object) -> list[float]:
    """Of 40 updates without dropout, in float32."""
    if not recorded:
        monkeypatch.setattr(RecordedPasses, "can", staticmethod(lambda _: False))
    found = []
    settings = {
        "model": {**SETTINGS["model"], "dropout": 0.0, **model},
        "training": {**SETTINGS["training"], "precision": "float32", "log_every": 1},
    }
    seq2see.train(
        pairs(folder),
        folder / f"run-{recorded}",
        settings=settings,
        watch=lambda event: found.append(event.loss) if isinstance(event, Trained) else None,
    )
    return found


@pytest.mark.parametrize("model", [{}, {"positions": "rotary", "norm": "pre"}, {"positions": "learned"}])
def test_recorded_passes_learn_what_plain_ones_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model) -> None:
    recorded = losses(tmp_path, monkeypatch, True, **model)
    plain = losses(tmp_path, monkeypatch, False, **model)
    assert len(plain) == 40
    assert recorded == pytest.approx(plain, rel=1e-3)


def test_an_agreement_is_recorded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without dropout two passes agree by themselves, so that nothing may change."""
    monkeypatch.setitem(SETTINGS["training"], "agreement", 2.5)
    recorded = losses(tmp_path, monkeypatch, True)
    monkeypatch.setitem(SETTINGS["training"], "agreement", 0.0)
    assert recorded == pytest.approx(losses(tmp_path / "x", monkeypatch, False), rel=1e-3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d_model", [32, 128])
def test_packed_attention_is_that_of_rectangles(d_model: int, causal: bool) -> None:
    torch.manual_seed(1)
    attention = MultiHeadAttention(d_model, heads=2).cuda()
    layout = Packing(torch.tensor([0, 3, 70, 71, 200]), torch.device("cuda"))
    x_ND = torch.randn(200, d_model, device="cuda", requires_grad=True)
    found = attention(x_ND, reach=Reach.packed(layout, layout, causal))
    gradient = torch.autograd.grad(found.square().sum(), [x_ND, *attention.parameters()])
    plain, x_ND = attention.cpu(), x_ND.detach().cpu().requires_grad_()
    layout = Packing(layout.offsets, torch.device("cpu"))
    expected = plain(x_ND, reach=Reach.packed(layout, layout, causal))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(
        gradient, torch.autograd.grad(expected.square().sum(), [x_ND, *plain.parameters()]), strict=True
    ):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-3, atol=1e-3)
