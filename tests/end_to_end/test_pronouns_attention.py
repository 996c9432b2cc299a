"""What a pronoun stands for, over three seeds: the decoder attends to that noun, and the encoder's output decides it.

The noun may be that of the source or that of the translation: which one, and in which head, differs between seeds. The
control, where the pronoun is always the same, shows neither.
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


def phrases_of(tokens: list[str], language: str) -> tuple[list[int], list[int]]:
    """Return the positions of the doer and of the place in a translation, in German with their articles."""
    words = [place for place, token in enumerate(tokens) if token.strip("▁")]
    end = next(number for number, place in enumerate(words) if tokens[place].strip("▁") in ("nicht", ","))
    length = 2 if language == "de" else 1
    return words[:length], words[end - length : end]


def preferences(run: Run, split: Split, language: str) -> np.ndarray:
    """Return by how much the decoder prefers the referent to the other noun when it writes the pronoun: (cross- or
    self-attention, layer, head).

    Doers and places as referents count equally, so that a head that always attends to the same of the two has 0.
    """
    found: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for each in pronouns.sentences(split)[:100]:
        seen = run.look(each.english, target=getattr(each, language))
        source = [token.strip("▁") for token in seen.source_tokens]
        nouns = sorted((source.index(each.referent), source.index(each.other)))
        row = row_of_pronoun(seen.target_tokens)
        cross, own = np.stack(seen.cross)[:, :, row], np.stack(seen.decoder)[:, :, row, 1:]  # 1: after the start token
        phrases = phrases_of(seen.target_tokens, language)
        weights = [cross[..., nouns], np.stack([own[..., phrase].sum(-1) for phrase in phrases], -1)]
        is_doer = source[nouns[0]] == each.referent
        doer, place = np.moveaxis(np.stack(weights), -1, 0)
        found[is_doer].append(doer - place if is_doer else place - doer)
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
@pytest.mark.parametrize("corpus", pronouns.LANGUAGES)
def test_the_pronoun_attends_to_its_referent_and_the_encoder_decides_which(corpus: str, tmp_path: Path) -> None:
    language = pronouns.LANGUAGES[corpus]
    for seed in SEEDS:
        run = seq2see.train(corpus, tmp_path / f"{corpus}-{seed}", settings={"training": {"seed": seed}})
        assert run.evaluate(corpus).scores["exact"].value > 95
        chosen = np.unravel_index(preferences(run, "valid", language).argmax(), (2, 2, 4))
        preference = float(preferences(run, "test", language)[chosen])
        effects = [effect(run, *pair) for pair in partners()[:20]]
        if corpus == "pronouns":
            assert preference > 0.25
            assert min(effects) > 1
        else:
            assert abs(preference) < 0.03
            assert max(map(abs, effects)) < 0.5
