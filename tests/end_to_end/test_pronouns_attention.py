"""What a pronoun stands for, over three seeds: the encoder's output decides it; attention weights show it in part only.

The control, where the pronoun is always the same, shows neither.
"""

from pathlib import Path

import numpy as np
import pytest

import seq2see
from seq2see.run import Run
from seq2see.text import pronouns
from seq2see.text.pronouns import Sentence, Split

SEEDS = 1, 2, 3


def row_of_pronoun(tokens: list[str]) -> int:
    return next(row for row, token in enumerate(tokens) if row > 3 and token.strip("▁") in ("er", "sie", "es", "se"))


def preferences(run: Run, split: Split, language: str) -> np.ndarray:
    """Return by how much each head prefers the referent to the other noun when the pronoun is written, (layer, head).

    Doers and places as referents count equally, so that a head that always attends to the same of the two has 0.
    """
    found: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for each in pronouns.sentences(split)[:100]:
        seen = run.look(each.english, target=getattr(each, language))
        source = [token.strip("▁") for token in seen.source_tokens]
        referent, other = source.index(each.referent), source.index(each.other)
        row_LHS = np.stack(seen.cross)[:, :, row_of_pronoun(seen.target_tokens)]
        found[referent < other].append(row_LHS[..., referent] - row_LHS[..., other])
    return (np.mean(found[True], 0) + np.mean(found[False], 0)) / 2


def partners() -> list[tuple[Sentence, Sentence]]:
    """Return pairs of test sentences that differ in the last word only, and in the German pronoun."""
    by_start: dict[str, list[Sentence]] = {}
    for each in pronouns.sentences("test"):
        by_start.setdefault(each.english.rsplit(maxsplit=1)[0], []).append(each)
    return [
        (one, other)
        for same in by_start.values()
        for one in same
        for other in same
        if one.de.split("weil ")[1].split()[0] != other.de.split("weil ")[1].split()[0]
    ]


def effect(run: Run, one: Sentence, other: Sentence) -> float:
    """Return how many nats the pronoun of `one` loses if the decoder gets the encoder's output of `other` instead."""
    patched = run.patch(one.english, donor=other.english)
    row = row_of_pronoun(patched.target_tokens)
    return float(np.log(patched.probability[row] / patched.changed_probability[row]))


@pytest.mark.slow
def test_the_encoder_decides_what_the_pronoun_stands_for_and_attention_shows_it_in_part(tmp_path: Path) -> None:
    attention: dict[str, list[float]] = {}
    for corpus, language in pronouns.LANGUAGES.items():
        for seed in SEEDS:
            run = seq2see.train(corpus, tmp_path / f"{corpus}-{seed}", settings={"training": {"seed": seed}})
            assert run.evaluate(corpus).scores["exact"].value > 95
            chosen = np.unravel_index(preferences(run, "valid", language).argmax(), (2, 4))
            attention.setdefault(corpus, []).append(float(preferences(run, "test", language)[chosen]))
            effects = [effect(run, *pair) for pair in partners()[:20]]
            assert min(effects) > 1 if corpus == "pronouns" else max(map(abs, effects)) < 0.5
    control = np.abs(attention["pronouns-fi"])
    assert control.max() < 0.05
    assert np.mean(attention["pronouns"]) > 0.03 + control.mean()
