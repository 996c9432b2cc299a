"""The machine: whether it gives the same bits each time."""

import pytest
import torch

from seq2see import machine
from seq2see.errors import SettingError


def test_what_has_no_deterministic_form_is_refused_and_not_only_warned_of() -> None:
    with (
        pytest.raises(SettingError, match=r"training\.deterministic: put_ gives other bits"),
        machine.deterministic(True),
    ):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
    assert not torch.are_deterministic_algorithms_enabled()
    with machine.deterministic(False):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), machine.deterministic(True):
        torch.ones(2, 3) @ torch.ones(2, 3)
