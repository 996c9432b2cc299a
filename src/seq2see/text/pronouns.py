"""A small generated corpus in which a pronoun needs its referent, and a control corpus in which it does not.

    The animal did not cross the street because it was too tired.     Das Tier überquerte die Straße nicht, weil es ...
    The animal did not cross the street because it was too wide.      Das Tier überquerte die Straße nicht, weil sie ...

In German (`pronouns`), "it" is er, sie or es, depending on the gender of the noun that is tired or wide; in Finnish
(`pronouns-fi`, the control), it is always se. No sentence is in two splits.
"""

import hashlib
import itertools
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, NamedTuple

from seq2see.text.pair import Pair

Split = Literal["train", "valid", "test"]
_TOKENS: Final = {"tokenizer": "pattern", "pattern": "words"}
SIZES: Final[dict[Split, int]] = {"test": 500, "valid": 500, "train": 9_800}
LANGUAGES: Final = {"pronouns": "de", "pronouns-fi": "fi"}
"""Built-in corpora of this module by name, and the code of the target language of each."""
ABOUT: Final = {
    "pronouns": "generated; English to German, where 'it' is er, sie or es by what it stands for",
    "pronouns-fi": "the control of pronouns: English to Finnish, where 'it' is always se",
}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    # Whole words, so that a picture of attention has one row for the pronoun. All settings are fixed: which words a
    # model attends to for it depends on them, and on the seed: 2 gives the clearest picture of 1 to 3 (docs/log.md).
    "data": {f"{side}_{key}": value for side in ("source", "target") for key, value in _TOKENS.items()}
    | {"source_vocabulary": 2000, "target_vocabulary": 2000, "shared": False},
    "model": {"encoder_layers": 2, "decoder_layers": 2, "d_model": 64, "heads": 4, "d_ff": 256, "dropout": 0.1}
    | {"norm": "pre", "positions": "rotary", "tie": "decoder"},
    "training": {"batch_tokens": 2048, "max_steps": 600, "validate_every": 150, "agreement": 0.0, "metric": "exact"}
    | {"schedule": "cosine", "warmup_steps": 400, "learning_rate": 1e-3, "weight_decay": 0.3, "label_smoothing": 0.1}
    | {"alignment_weight": 0.0, "seed": 2},
}
"""Training settings for both corpora."""


class Sentence(NamedTuple):
    """An English sentence, its translations, the noun that "it" stands for (`referent`), and the other noun."""

    english: str
    de: str
    fi: str
    referent: str
    other: str


def pairs(corpus: str, split: Split) -> Iterator[Pair]:
    """Yield the pairs of a split, the same on every machine."""
    language = LANGUAGES[corpus]
    for each in sentences(split):
        yield Pair(each.english, getattr(each, language), f"{corpus} {split}")


def sentences(split: Split) -> list[Sentence]:
    """Return the sentences of a split: all sentences, sorted by their hashes, are divided among the splits."""
    names = list(SIZES)
    start = sum(SIZES[name] for name in names[: names.index(split)])
    return _all()[start : start + SIZES[split]]


@cache
def _all() -> list[Sentence]:
    words = tomllib.loads(resources.files(__package__).joinpath("pronouns.toml").read_text("utf-8"))
    pronouns, accusatives = words["pronouns"], words["accusatives"]
    found = []
    for doer, place, verb in itertools.product(words["doers"], words["places"], words["verbs"]):
        for about, qualities in ((doer, words["of_doers"]), (place, words["of_places"])):
            other = place if about is doer else doer
            for english, german, finnish in qualities:
                article, noun = doer["de"].split()
                object_article, object_noun = place["de"].split()
                found.append(
                    Sentence(
                        f"The {doer['en']} did not {verb['en']} the {place['en']} because it was too {english}.",
                        f"{article.capitalize()} {noun} {verb['de']} {accusatives[object_article]} {object_noun} "
                        f"nicht, weil {pronouns[about['de'].split()[0]]} zu {german} war.",
                        f"{doer['fi'].capitalize()} ei {verb['fi']} {place['fi']}, koska se oli liian {finnish}.",
                        about["en"],
                        other["en"],
                    )
                )
    found.sort(key=lambda each: hashlib.sha256(each.english.encode()).digest())
    return found
