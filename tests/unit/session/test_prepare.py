"""The memory that a model needs for training, checked before it is made."""

import pytest
import torch

from seq2see import config
from seq2see.errors import SettingError
from seq2see.kernels import loading
from seq2see.model.build import build, count_parameters
from seq2see.session import prepare
from seq2see.training.graphs import WeightCopies

V = 50
SMALL = {"d_model": 64, "heads": 4, "d_ff": 96, "encoder_layers": 1, "decoder_layers": 2, "positions": "learned"}


def settings_of(model: dict[str, object], **training: object) -> config.Settings:
    data = {"source_vocabulary": V, "target_vocabulary": V}
    return config.resolve({"data": data, "model": model, "training": {"precision": "bfloat16"} | training})


def check(settings: config.Settings, device: str, free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the memory of a device that has `free` bytes, and one byte less, which must be refused."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2**40))
    monkeypatch.setattr(prepare.machine, "free_memory", lambda: free)
    prepare.check_memory(settings, torch.device(device))
    free -= 1
    with pytest.raises(SettingError, match="needs at least"):
        prepare.check_memory(settings, torch.device(device))


def test_copies_of_weights_and_gradients_inside_cuda_graphs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "HAS_TRITON", True)
    model = build(settings_of(SMALL).model, V, V)
    weights = sum(each.numel() for each in model.parameters())
    copied = sum(each.numel() for each in WeightCopies(model).of)
    check(settings_of(SMALL), "cuda", 20 * weights + 4 * copied, monkeypatch)
    check(settings_of(SMALL, precision="float32"), "cuda", 20 * weights, monkeypatch)
    check(settings_of(SMALL), "cpu", 16 * weights, monkeypatch)


@pytest.mark.parametrize(
    ("model", "training", "has_triton"),
    [
        (SMALL, {"deterministic": True}, True),
        (SMALL, {}, False),
        (SMALL | {"d_key": 16, "d_value": 24}, {}, True),
        (SMALL | {"d_key": 4}, {}, True),
        (SMALL | {"d_key": 256}, {}, True),
        ({"architecture": "rnn-attention", "d_model": 64}, {}, True),
    ],
)
def test_a_training_without_cuda_graphs_needs_no_memory_for_them(
    monkeypatch: pytest.MonkeyPatch, model: dict[str, object], training: dict[str, object], has_triton: bool
) -> None:
    monkeypatch.setattr(loading, "HAS_TRITON", has_triton)
    settings = settings_of(model, **training)
    check(settings, "cuda", 16 * count_parameters(settings.model, V, V), monkeypatch)
