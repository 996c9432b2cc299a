"""Write a synthetic corpus of any size: `python -m bench.corpus PAIRS FILE.tsv [--seed 1]`.

Sentences of 3 to 20 words, drawn by Zipf's law from 50,000 invented ones; the target says the same word by word in
another invented language, so that a model can learn it. The same seed gives the same file.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

WORDS = 50_000
BLOCK = 10_000


def language(dice: np.random.Generator, consonants: str, vowels: str) -> list[str]:
    """Different words of one to four syllables, short ones first as in any language."""
    found: dict[str, None] = {}
    while len(found) < WORDS:
        syllables = 1 + min(3, len(found) // 150 + int(dice.integers(2)))
        found["".join(dice.choice(list(consonants)) + dice.choice(list(vowels)) for _ in range(syllables))] = None
    return list(found)


def write(pairs: int, path: Path, seed: int) -> None:
    """Memory does not grow with the number of pairs."""
    dice = np.random.default_rng(seed)
    source = language(dice, "bcdfghklmnprstvz", "aeiou")
    target = language(dice, "bdfgjklmnprstvwxyz", "aeiouäöü")
    often = np.cumsum(1 / (np.arange(WORDS) + 2.7))
    often /= often[-1]
    with path.open("w", encoding="utf-8") as file:
        for done in range(0, pairs, BLOCK):
            lengths = dice.integers(3, 21, min(BLOCK, pairs - done))
            words = np.searchsorted(often, dice.random(int(lengths.sum()))).tolist()
            ends = dice.choice([".", ".", ".", "?", "!", ", 7.", " (12)."], len(lengths)).tolist()
            place = 0
            lines = []
            for length, end in zip(lengths.tolist(), ends, strict=True):
                said = words[place : place + length]
                place += length
                left, right = (" ".join([each[word] for word in said]).capitalize() for each in (source, target))
                lines.append(f"{left}{end}\t{right}{end}\n")
            file.writelines(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    sys.exit(write(asked.pairs, asked.file, asked.seed))
