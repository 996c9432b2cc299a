"""Questions about one translation, answered with plain arrays and token labels."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from seq2see import special
from seq2see.bundle import Bundle
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.decoding.translator import longest, translate
from seq2see.lens.capture import Seen, capture

Weights = NDArray[np.float32]


@dataclass(frozen=True, repr=False)
class Look:
    """All attention inside one translation, by layer and head. Row i of an array is where token i looks."""

    source: str
    translation: str
    source_tokens: list[str]
    target_tokens: list[str]
    """What the decoder said, the end included."""
    input_tokens: list[str]
    """What the decoder had read when it said so: `target_tokens` moved by one, with the begin in front."""
    encoder: list[Weights]
    """For each layer HSS: source tokens looking at source tokens."""
    decoder: list[Weights]
    """For each layer HTT: decoder inputs looking at themselves and what came before."""
    cross: list[Weights]
    """For each layer HTS: decoder inputs looking at source tokens."""

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name} {[each.shape for each in getattr(self, name)]}" for name in ("encoder", "decoder", "cross")
        )
        return f"Look({self.source!r} -> {self.translation!r}, {shapes})"


def look(bundle: Bundle, sentence: str) -> Look:
    """Translate a sentence, then read the translation once more with everything visible."""
    result = translate(TorchEngine(bundle.model), bundle.tokenizers, bundle.settings, [sentence])[0]
    source, target = bundle.tokenizers.source, bundle.tokenizers.target
    source_ids = list(result.source)
    target_ids = list(result.translations[0].tokens)[: longest(bundle.settings) - 1]
    device = next(bundle.model.parameters()).device
    with torch.inference_mode(), capture(bundle.model) as seen:
        memory = bundle.model.encode(torch.tensor(source_ids, device=device), torch.tensor([0, len(source_ids)]))
        inputs_N = torch.tensor([special.BEGIN, *target_ids], device=device)
        bundle.model.decode(inputs_N, torch.tensor([0, len(inputs_N)]), memory)
    words = target.pieces(target_ids)
    return Look(
        sentence,
        result.text,
        [*source.pieces(source_ids[:-1]), special.SPELLINGS[special.END]],
        [*words, special.SPELLINGS[special.END]],
        [special.SPELLINGS[special.BEGIN], *words],
        _layers(seen, "encoder", "self_attention"),
        _layers(seen, "decoder", "self_attention"),
        _layers(seen, "decoder", "cross_attention"),
    )


def _layers(seen: Seen, stack: str, place: str) -> list[Weights]:
    names = [name for name in seen if name.startswith(f"{stack}.") and name.endswith(f".{place}.weights")]
    return [seen[name][0][0].float().numpy() for name in names]
