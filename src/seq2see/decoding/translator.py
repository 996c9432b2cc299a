"""Strings in, strings out: tokenise, batch by length, search, and put everything back in order."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from seq2see import special
from seq2see.bundle import Bundle
from seq2see.config import Decoding
from seq2see.decoding import search
from seq2see.decoding.search import Choose, Hypothesis


@dataclass(frozen=True)
class Translation:
    """One text with its score: log-probability over length penalty. `tokens` are its ids, without the end."""

    text: str
    score: float
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Result:
    """What became of one source line: its n-best translations, best first, and whether the source was cut."""

    translations: tuple[Translation, ...]
    cut: bool = False

    @property
    def text(self) -> str:
        return self.translations[0].text


def translate(
    bundle: Bundle,
    lines: Sequence[str],
    settings: Decoding | None = None,
    *,
    n_best: int = 1,
    prefixes: Sequence[str] | None = None,
    choose: Choose | None = None,
) -> list[Result]:
    """Translate lines by beam search, or token by token where `choose` is given (`search.sampling(...)`).

    A line alone, in any batch and in any order gives the same tokens. Empty lines stay empty.
    """
    settings = settings or bundle.settings.decoding
    encoded = bundle.tokenizers.source.encode(list(lines))
    model = bundle.settings.model
    room = model.max_positions if model.positions == "learned" else sys.maxsize
    most = min(settings.max_source, room)
    sources = [[*ids[: most - 1], special.END] for ids in encoded]
    forced = bundle.tokenizers.target.encode(list(prefixes)) if prefixes is not None else None
    results: list[Result] = [Result((Translation("", 0.0),))] * len(lines)
    asked = [index for index, line in enumerate(lines) if line.strip()]
    for batch in _batches([(index, len(sources[index])) for index in asked], settings.batch_tokens // settings.beam):
        found = _search(
            bundle,
            [sources[index] for index in batch],
            [min(room, int(settings.max_ratio * len(sources[index])) + settings.max_extra) for index in batch],
            settings,
            None if forced is None else [forced[index] for index in batch],
            choose,
            max(n_best, settings.beam),
        )
        for index, hypotheses in zip(batch, found, strict=True):
            translations = tuple(
                Translation(bundle.tokenizers.target.decode(each.tokens), each.score, tuple(each.tokens))
                for each in hypotheses[:n_best]
            )
            results[index] = Result(translations, cut=len(encoded[index]) >= most)
    return results


def _search(
    bundle: Bundle,
    sources: list[list[int]],
    limits: list[int],
    settings: Decoding,
    prefixes: list[list[int]] | None,
    choose: Choose | None,
    width: int,
) -> list[list[Hypothesis]]:
    device = next(bundle.model.parameters()).device
    source_N = torch.tensor([token for source in sources for token in source], device=device)
    offsets = torch.tensor([0, *map(len, sources)]).cumsum(0)
    with torch.inference_mode():
        memory = bundle.model.encode(source_N, offsets)
    formula = search.paper_penalty if settings.length_formula == "paper" else search.power_penalty
    penalty = formula(settings.length_penalty)
    if choose is not None or width == 1:
        return search.one_by_one(bundle.model, memory, limits, penalty, choose or search.greedy, prefixes)
    return search.beam(bundle.model, memory, limits, width, penalty, prefixes)


def _batches(lengths: list[tuple[int, int]], budget: int) -> Iterator[list[int]]:
    """Indices in batches of at most `budget` tokens, sentences of like length together, the longest first."""
    batch: list[int] = []
    tokens = 0
    for index, length in sorted(lengths, key=lambda pair: (-pair[1], pair[0])):
        if batch and tokens + length > budget:
            yield batch
            batch, tokens = [], 0
        batch.append(index)
        tokens += length
    if batch:
        yield batch
