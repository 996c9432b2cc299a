"""A small model that says something, and tasks for it: for tests that compare one search with another."""

import random

import torch

from seq2see.decoding.hypothesis import Task
from seq2see.model.transformer import Transformer


def talkative(
    positions: str = "sinusoid",
    norm: str = "post",
    *,
    words: int = 30,
    end: float = 1.0,
    encoder_layers: int = 1,
    d_model: int = 32,
    heads: int = 2,
) -> Transformer:
    """With scores far apart, and an end that is not too rare: `end` is added to its score."""
    torch.manual_seed(1)
    sizes = {"encoder_layers": encoder_layers, "decoder_layers": 2, "d_model": d_model, "d_ff": 2 * d_model}
    made = Transformer(words, words, heads=heads, positions=positions, norm=norm, output_bias=True, **sizes).eval()
    with torch.no_grad():
        made.output.weight.mul_(4)
        made.output.bias[3] += end
    return made


def some_tasks(count: int = 23, words: int = 30, longest: int = 60) -> list[Task]:
    """Of mixed length, limit and prefix; `longest` bounds the limits, and sources are up to two thirds of it long."""
    dice = random.Random(2)

    def tokens(length: int) -> list[int]:
        return [dice.randint(4, words - 1) for _ in range(length)]

    return [
        Task([*tokens(dice.randint(1, longest * 2 // 3)), 3], dice.randint(1, longest), tokens(dice.choice([0, 0, 2])))
        for _ in range(count)
    ]
