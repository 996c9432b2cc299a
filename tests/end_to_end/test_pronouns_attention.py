"""The pronoun of a translation attends to the noun that it stands for; in the control it does not."""

from pathlib import Path

import numpy as np
import pytest

import seq2see
from seq2see.text import pronouns


@pytest.mark.slow
@pytest.mark.parametrize("corpus", pronouns.LANGUAGES)
def test_the_pronoun_attends_to_its_referent(corpus: str, tmp_path: Path) -> None:
    run = seq2see.train(corpus, tmp_path / corpus)
    assert run.evaluate(corpus).scores["exact"].value > 95
    found = []
    for each in pronouns.sentences("test")[:60]:
        seen = run.look(each.english)
        source = [token.strip("▁") for token in seen.source_tokens]
        target = [token.strip("▁") for token in seen.target_tokens]
        row = next(place for place, token in enumerate(target) if place > 3 and token in ("er", "sie", "es", "se"))
        columns = [source.index(noun) for noun in (each.referent, each.other)]
        found.append([layer_HTS[:, row, columns] for layer_HTS in seen.cross])
    referent_LH, other_LH = np.moveaxis(np.mean(found, 0), -1, 0)
    preference = float((referent_LH - other_LH).max())
    assert preference > 0.1 if corpus == "pronouns" else preference < 0.05
