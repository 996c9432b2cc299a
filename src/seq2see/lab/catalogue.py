"""The claims by name, in the order of the report; this module does not import torch."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Final

from seq2see.errors import SettingError, nearest
from seq2see.lab.claim import Chart, Claim, Expectation

_TEXTS: Final = tomllib.loads(Path(__file__).with_name("claims").joinpath("claims.toml").read_text(encoding="utf-8"))
CLAIMS: Final = {name: str(text["gist"]) for name, text in _TEXTS.items()}
"""Names of the claims, each with a summary in one line."""


def pick(names: Sequence[str]) -> list[Claim]:
    """Return the claims with the given names in the order of the catalogue; all claims if no name is given."""
    for name in names:
        if name not in CLAIMS:
            raise SettingError(f"unknown claim '{name}'. {nearest(name, CLAIMS)}")
    return [find(name) for name in CLAIMS if not names or name in names]


def find(name: str) -> Claim:
    """Return a claim, made from its entry in `claims.toml` and its module, whose name has `_` for `-`."""
    module = import_module(f"seq2see.lab.claims.{name.replace('-', '_')}")
    rows_of = getattr(module, "ROWS_OF", "")
    text = _TEXTS.get(rows_of, {}) | _TEXTS[name]  # claims that share their trials share what is measured and drawn
    expected = {key: Expectation(value=module.VALUES[key], **each) for key, each in text["expectations"].items()}
    controls = (  # the same decision by the same effect that matters
        replace(expected[key], value=module.CONTROLS[key], **each) for key, each in text["controls"].items()
    )
    return Claim(
        name=name,
        words=text["words"],
        source=text["source"],
        measured=text["measured"],
        trials=module.trials,
        measure=module.measure,
        expectations=tuple(expected.values()),
        controls=tuple(controls),
        charts=tuple(Chart(**each) for each in text["charts"]),
        alone=getattr(module, "ALONE", False),
        places=getattr(module, "PLACES", ""),
        quick_seeds=text.get("quick_seeds", 0),
        full_seeds=text.get("full_seeds", 0),
        rows_of=rows_of,
    )
