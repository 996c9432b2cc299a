"""The claims by name, in the order of the report; nothing here needs torch."""

from collections.abc import Sequence
from importlib import import_module
from typing import Final

from seq2see.errors import SettingError, nearest
from seq2see.lab.claim import Claim

CLAIMS: Final = {
    "scaling": "dividing by sqrt(d_k) keeps the softmax alive",
    "order": "without positions there is no order, and waves do as well as learned places",
    "longer": "waves reach beyond the lengths of training",
    "masks": "without the look-ahead mask a model learns to cheat",
    "cost": "attention costs n² d at once, recurrence n d² one after the other",
    "heads": "several heads see different things, and are better than one",
    "warm-up": "the rate must rise slowly where the norm comes last",
    "residuals": "sums and norms around each part let deep stacks learn",
    "bottleneck": "one vector for a whole sentence is too small for long ones",
    "path-length": "what is far away is found in one step, or not",
    "parallelism": "the Transformer learns from more tokens a second",
    "comparison": "Transformer, RNN with attention, RNN: score, time, parameters; on dates or --pairs",
    "recipe": "label smoothing, dropout, averaging and a beam: what each is worth",
}
"""Name and gist; the module of a claim bears its name, with `_` for `-`."""


def pick(names: Sequence[str]) -> list[Claim]:
    """The claims of these names, in the order of the catalogue; all where none is named."""
    for name in names:
        if name not in CLAIMS:
            raise SettingError(f"unknown claim '{name}'. {nearest(name, CLAIMS)}")
    return [find(name) for name in CLAIMS if not names or name in names]


def find(name: str) -> Claim:
    claim: Claim = import_module(f"seq2see.lab.{name.replace('-', '_')}").CLAIM
    return claim
