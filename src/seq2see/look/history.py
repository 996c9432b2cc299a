"""The part of `report.html` about the attention during training: a slider over heat maps, by the scripts of `look`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from seq2see.evaluation.report import Interactive
from seq2see.lens.history import AttentionHistory
from seq2see.lens.reading import Floats
from seq2see.look import files, page
from seq2see.pictures import labels
from seq2see.text.pair import Sides

SCRIPTS = ("korean.js", "basics.js", "attention.js", "history.js")


def section(found: AttentionHistory, scores: Mapping[int, Mapping[str, float]], languages: Sides) -> Interactive:
    """Return the part of the report about the attention during training.

    Args:
        scores: Validation scores by step, then by name.
        languages: Codes of the source and target language, if they are known.
    """
    given: dict[str, Any] = {
        "steps": found.steps,
        "scores": [{name: round(value, 4) for name, value in scores.get(step, {}).items()} for step in found.steps],
        "languages": {"source": languages.source, "target": languages.target},
        "pairs": [
            {
                "source": pair.source,
                "source_tokens": labels.of(pair.source_tokens),
                "target_tokens": labels.of(pair.target_tokens),
                "cross": _thousandths(pair.cross),
                "heads": _thousandths(pair.heads),
                "encoder": None if pair.encoder is None else _thousandths(pair.encoder),
            }
            for pair in found.pairs
        ],
    }
    html = files.read("history.html").replace("<!-- parts -->", page.blocks({"history": given}))
    return Interactive(html, files.read("maps.css"), "\n".join(map(files.read, SCRIPTS)))


def _thousandths(weights: Floats) -> Any:
    """Return attention weights as nested lists of whole thousandths, which take half the room of decimals."""
    return np.rint(1000 * weights).astype(int).tolist()
