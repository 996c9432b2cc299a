"""Error rates and power of `seq2see evaluate --against`, simulated: `python -m bench.comparisons` prints the tables.

Systems are simulated, not trained. The quality of a run on a sentence is the sum of random effects: the sentence, the
system on this sentence (`shared`), the seed, and chance. Two equal systems have the same mean quality over all
sentences and seeds; a comparison that calls one of them better or worse makes an error, which may happen in 5 % of
comparisons.

- `exact`: a sentence is right or wrong, by a logistic function of its quality.
- `error_rate`: edits of a sentence of 3 to 30 tokens, a skewed distribution of many zeros and a few large numbers.
- `bleu`: matching n-grams of a sentence of 4 to 30 tokens, and BLEU without a brevity penalty.

The effect of a seed is normal, exponential (`skewed`), or, for `failing`, a small normal effect and one seed in ten
that is far worse. With `unequal`, the seeds of one system vary four times as much as those of the other.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seq2see.config import LOWER_IS_BETTER
from seq2see.evaluation import compare
from seq2see.evaluation.metrics import Score, Scores, ratio

Floats = NDArray[np.float64]
Verdicts = Callable[[list[Scores], list[Scores]], list[compare.Difference]]


@dataclass(frozen=True)
class World:
    """A pair of systems, the test set they are compared on, and the number of runs of each."""

    metric: Literal["exact", "error_rate", "bleu"] = "exact"
    sentences: int = 500
    ours: int = 4
    theirs: int = 4
    seeds: Literal["normal", "skewed", "failing", "unequal"] = "normal"
    deviation: float = 0.3
    """Standard deviation of the effect of a seed, in logits; that of a sentence is 1.5."""
    shared: float = 0.0
    """Standard deviation of the effect of a system on a sentence, the same for all of its runs."""
    gain: float = 0.0
    """Advantage of our system in logits; 0 for equal systems."""


def draw(world: World, dice: np.random.Generator) -> tuple[list[Scores], list[Scores]]:
    """Scores of the runs of two systems, drawn at random."""
    N = world.sentences
    sentence_N, length_N = dice.normal(0, 1.5, N), dice.integers(4, 31, N)
    sides = []
    for side, (runs, gain) in enumerate(((world.ours, world.gain), (world.theirs, 0.0))):
        quality_N = sentence_N + dice.normal(0, world.shared, N) + gain
        deviation = world.deviation * (4 if world.seeds == "unequal" and side == 0 else 1)
        scored = []
        for _ in range(runs):
            p_N = 1 / (1 + np.exp(-quality_N - _seed(world, deviation, dice)))
            scored.append(Scores((_score(world.metric, p_N, length_N, dice),)))
        sides.append(scored)
    return sides[0], sides[1]


def _seed(world: World, deviation: float, dice: np.random.Generator) -> float:
    if world.seeds == "skewed":
        return float(deviation * (1 - dice.exponential()))
    if world.seeds == "failing":
        return float(dice.normal(0, deviation / 3) - 10 * deviation * (dice.random() < 0.1))
    return float(dice.normal(0, deviation))


def _score(metric: str, p_N: Floats, length_N: NDArray[np.int64], dice: np.random.Generator) -> Score:
    if metric == "exact":
        return ratio("exact", "", [[float(right), 1.0] for right in dice.random(len(p_N)) < p_N])
    if metric == "error_rate":
        wrong_N = dice.random(len(p_N)) > p_N
        edits_N = wrong_N * np.minimum(dice.geometric(0.3, len(p_N)), length_N)
        return ratio("error_rate", "", np.stack([edits_N, length_N], 1).astype(float).tolist())
    found_ON = [dice.binomial(length_N - order, p_N ** (1 + order / 2)) for order in range(4)]
    counts = np.stack([*found_ON, *(length_N - order for order in range(4))], 1).astype(float).tolist()
    return Score("bleu", _bleu([*np.sum(counts, 0)]), "", counts, _bleu)


def _bleu(sums: Sequence[float]) -> float:
    """BLEU of outputs that are as long as the references: the geometric mean of four precisions."""
    return 100 * math.prod(max(found, 0.5) / total for found, total in zip(sums[:4], sums[4:], strict=True)) ** 0.25


def verdict(world: World, seed: int, verdicts: Verdicts = compare.compare) -> tuple[str, float]:
    """The verdict of one comparison, on the models where a side has one run, and the detectable difference."""
    (found,) = verdicts(*draw(world, np.random.default_rng(seed)))
    said = found.models if found.models else found.verdict
    return said, found.detectable or math.nan


def rate(world: World, trials: int, verdicts: Verdicts = compare.compare) -> float:
    """The share of comparisons that end with "better" or "worse"."""
    return sum(verdict(world, seed, verdicts)[0] in ("better", "worse") for seed in range(trials)) / trials


def worlds() -> Iterator[tuple[str, World]]:
    """Equal systems, by the name of the table that they belong to."""
    runs = ((4, 4), (8, 8), (3, 6))
    for metric in ("exact", "error_rate", "bleu"):
        for ours, theirs in runs:
            for sentences in (50, 500):
                yield "Equal systems, normal seeds", World(metric, sentences, ours, theirs)
    for seeds in ("skewed", "failing", "unequal"):
        for ours, theirs in runs:
            yield f"Equal systems, {seeds} seeds", World("exact", 500, ours, theirs, seeds)
    for deviation in (0.0, 0.3):
        for ours, theirs in runs:
            world = World("exact", 200, ours, theirs, deviation=deviation, shared=1.0)
            yield "Equal means, but better on different sentences", world
    for metric in ("exact", "error_rate", "bleu"):
        for sentences in (20, 50, 200, 1000):
            yield "Two models, one run each, equal but for chance", World(metric, sentences, 1, 1, deviation=0.0)
    for deviation in (0.1, 0.3):
        yield "Two models, one run each, of equal systems", World("exact", 1000, 1, 1, deviation=deviation)


def _rate(asked: tuple[World, int]) -> float:
    return rate(*asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args().trials
    tables = [*worlds()]
    last = ""
    with ProcessPoolExecutor(2) as processes:
        found = processes.map(_rate, [(world, trials) for _, world in tables])
        for (title, world), share in zip(tables, found, strict=True):
            if title != last:
                print(f"\n### {title}\n\n| score | pairs | runs | seeds | errors |\n|---|---|---|---|---|")
                last = title
            spread = f"{world.deviation:g}" if world.deviation else "none"
            runs = f"{world.ours} + {world.theirs}"
            print(f"| {world.metric} | {world.sentences} | {runs} | {spread} | {share:.1%} |", flush=True)
    print("\n### Power\n\n| score | pairs | runs | systems differ by | found |\n|---|---|---|---|---|")
    for ours in (4, 6, 8):
        world = World("exact", 500, ours, ours, gain=0.0)
        detectable = float(np.median([verdict(world, seed)[1] for seed in range(trials // 10)]))
        world = replace(world, gain=gain_for(world, detectable))
        print(f"| exact | 500 | {ours} + {ours} | {detectable:.1f} | {rate(world, trials):.0%} |", flush=True)


def gain_for(world: World, difference: float) -> float:
    """The gain in logits that makes a difference of so many points of `exact`."""
    dice = np.random.default_rng(0)
    quality = dice.normal(0, math.hypot(1.5, world.deviation), 200_000)
    share = lambda gain: 100 * float(np.mean(1 / (1 + np.exp(-quality - gain))))  # noqa: E731
    gains = np.linspace(0, 3, 61)
    sign = -1 if world.metric in LOWER_IS_BETTER else 1
    return sign * float(np.interp(difference, [share(gain) - share(0) for gain in gains], gains))


if __name__ == "__main__":
    main()
