"""The work that every candidate is given: sizes, training batches, sources. Needs numpy only, so that all read it."""

from dataclasses import dataclass

import numpy as np

PAD, UNKNOWN, BEGIN, END = range(4)


@dataclass(frozen=True)
class Size:
    """The paper's architecture in some size: post-norm, sinusoidal positions, one embedding for all three uses."""

    layers: int
    d_model: int
    heads: int
    d_ff: int
    vocabulary: int

    @property
    def weights_per_pair(self) -> int:
        """Weights that one source token and one target token pass through, the look-up of embeddings left out."""
        attention, feed_forward = 4 * self.d_model**2, 2 * self.d_model * self.d_ff
        return self.layers * (3 * attention + 2 * feed_forward) + self.vocabulary * self.d_model


SIZES = {"small": Size(3, 256, 4, 1024, 8000), "base": Size(6, 512, 8, 2048, 32_000)}
BATCH_TOKENS = 4096
"""Source and target together."""
DROPOUT, SMOOTHING = 0.1, 0.1

Batch = list[tuple[list[int], list[int]]]
"""Pairs of token ids. A source ends with END; a target too, and BEGIN is the decoder's first input."""


def batches(
    size: Size, count: int, seed: int = 1, batch_tokens: int = BATCH_TOKENS, pairs: int = 20_000
) -> list[Batch]:
    """Return batches of pairs of similar length, as every toolkit makes them; sentences have 25 tokens on average."""
    dice = np.random.default_rng(seed)
    source_lengths = np.clip(np.exp(dice.normal(3.05, 0.6, pairs)), 3, 120).astype(int)
    target_lengths = np.clip(source_lengths * dice.normal(1, 0.12, pairs), 3, 120).astype(int)
    order = np.lexsort((source_lengths, target_lengths))
    cut: list[list[int]] = [[]]
    tokens = 0
    for index in order:
        if tokens + source_lengths[index] + target_lengths[index] > batch_tokens:
            cut.append([])
            tokens = 0
        cut[-1].append(index)
        tokens += source_lengths[index] + target_lengths[index]
    spread = np.linspace(0, len(cut) - 2, count + 2).round().astype(int)[1:-1]  # short, middling and long sentences

    def tokens_of(length: int) -> list[int]:
        return [*dice.integers(4, size.vocabulary, length - 1).tolist(), END]

    return [[(tokens_of(source_lengths[i]), tokens_of(target_lengths[i])) for i in cut[place]] for place in spread]


def shuffled(batches: list[Batch], seed: int = 3) -> list[Batch]:
    """Return the same pairs in as many batches, in random order."""
    pairs = [pair for batch in batches for pair in batch]
    order = np.random.default_rng(seed).permutation(len(pairs))
    return [[pairs[place] for place in part] for part in np.array_split(order, len(batches))]


def sources(size: Size, count: int, length: int, seed: int = 2) -> list[list[int]]:
    """Sources of one length, to be decoded to another one length."""
    dice = np.random.default_rng(seed)
    return [[*dice.integers(4, size.vocabulary, length - 1).tolist(), END] for _ in range(count)]


def mixed_sources(size: Size, count: int, seed: int = 4) -> list[list[int]]:
    """Sources of mixed length, from 2 to 100 tokens, in no order."""
    dice = np.random.default_rng(seed)
    lengths = np.clip(np.exp(dice.normal(3.05, 0.7, count)), 2, 100).astype(int)
    return [[*dice.integers(4, size.vocabulary, length - 1).tolist(), END] for length in lengths]


def rectangles(batch: Batch) -> tuple["np.ndarray", "np.ndarray", "np.ndarray"]:
    """Padded sources, decoder inputs and labels."""

    def rectangle(rows: list[list[int]]) -> "np.ndarray":
        table = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
        for place, row in enumerate(rows):
            table[place, : len(row)] = row
        return table

    return (
        rectangle([source for source, _ in batch]),
        rectangle([[BEGIN, *target[:-1]] for _, target in batch]),
        rectangle([target for _, target in batch]),
    )


def waves(length: int, d_model: int):  # a torch tensor, for those who have torch
    """The paper's position waves, sines and cosines in turn."""
    import torch

    angle = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
