"""Models without weights have the shapes of real ones, and are made without random numbers and large imports."""

import subprocess
import sys

import pytest
import torch

from seq2see import config
from seq2see.model.build import build, without_weights


@pytest.mark.parametrize("architecture", ["transformer", "convolutional", "rnn", "rnn-dot"])
def test_a_model_without_weights_has_the_shapes_of_a_real_one_and_draws_no_random_numbers(architecture):
    settings = config.resolve({"model": {"architecture": architecture, "tie": "decoder"}}).model
    dice = torch.random.get_rng_state()
    with without_weights():
        planned = build(settings, 20, 30)
    assert torch.equal(torch.random.get_rng_state(), dice)
    assert {weight.device.type for weight in planned.parameters()} == {"meta"}
    real = build(settings, 20, 30)
    assert {name: weight.shape for name, weight in planned.named_parameters()} == {
        name: weight.shape for name, weight in real.named_parameters()
    }
    planned.to_empty(device="cpu").load_state_dict(real.state_dict())


def test_a_model_without_weights_does_not_import_the_compiler_of_pytorch():
    """The import of 800 modules, SymPy among them, takes seconds at the start of a training on a GPU."""
    code = """
import sys
from seq2see.config import Model
from seq2see.model.build import build, without_weights
with without_weights():
    build(Model(), 20, 30)
sys.exit(", ".join({"sympy", "torch._dynamo"} & set(sys.modules)) or None)
"""
    found = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
