"""Attention during training: the weights for one or two validation pairs, recorded at each validation.

The decoder is forced to the reference, so that rows and columns stay the same over the whole training. `Recorder` keeps
the record in `attention.json` in the run folder; `load` reads it. Recording runs the model once over these short pairs,
without dropout: it draws no random number and changes no weight. The file stays small, whatever the training: if there
are too many validations, some that are close to their neighbours are dropped.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seq2see import special, storage
from seq2see.bundle import Bundle
from seq2see.errors import RunError
from seq2see.lens.reading import Answer, Floats, attention_of
from seq2see.tokens import spans
from seq2see.tokens.store import Store
from seq2see.training.events import Event, Returned, Validated

FILE = "attention.json"
PAIRS, USUAL, LONGEST = 2, 12, 32
"""Maximum number of validation pairs whose attention is recorded; the preferred and the maximum number of tokens of the
longer side of a pair.
"""
LOOKED_AT = 2000
"""Maximum number of validation pairs, counted from the first, among which `choose` selects those to record."""
MOST, NUMBERS = 60, 150_000
"""Maximum number of validations, and of attention weights, in the file: about 500 kB. Above these limits, `thinned`
drops validations, but at least the first and the last stay.
"""
UNIT = 1000
"""Number of units in a weight of 1: the file has weights in whole thousandths, which are short to write, and finer than
colours show.
"""


@dataclass(frozen=True)
class PairHistory(Answer):
    """The attention of one pair at P validations."""

    source: str
    target: str
    source_tokens: list[str]
    target_tokens: list[str]
    cross: Floats
    """PLTS: cross-attention weights of T target to S source tokens at P validations, averaged over the heads of each of
    L decoder layers.
    """
    heads: Floats
    """PHTS: cross-attention weights of T target to S source tokens at P validations, for H heads of the last layer."""
    encoder: Floats | None
    """PSS: self-attention weights between S source tokens at P validations, the mean of the heads of the last encoder
    layer; None if the encoder has no self-attention.
    """


@dataclass(frozen=True, repr=False)
class AttentionHistory(Answer):
    """The attention of fixed validation pairs during a training, with the reference as the output."""

    steps: list[int]
    """Training step of each of the P recorded validations."""
    pairs: list[PairHistory]

    def __repr__(self) -> str:
        shown = ", ".join(f"{pair.source!r} -> {pair.target!r} cross {pair.cross.shape}" for pair in self.pairs)
        return f"AttentionHistory({len(self.steps)} validations up to step {self.steps[-1]:,}; {shown})"


def choose(store: Store) -> list[int]:
    """Return the indices of the validation pairs to record: up to `PAIRS`, with different sources, whose longer side is
    nearest to `USUAL` tokens and has at most `LONGEST`.

    They are the same in each training with the same validation set and the same tokenizers.
    """
    some = np.arange(min(len(store), LOOKED_AT))
    longer = np.maximum(store.source_lengths(some), store.target_lengths(some))
    chosen: dict[tuple[int, ...], int] = {}
    for index in np.argsort(np.abs(longer - USUAL), kind="stable"):
        if len(chosen) == PAIRS or longer[index] > LONGEST:
            break
        source = tuple(store.gather(np.array([index]))[0].tolist())
        chosen.setdefault(source, int(index))  # not the same sentence twice
    return list(chosen.values())


class Recorder:
    """Adds the attention weights of the chosen pairs to `attention.json` after each validation.

    A failure ends the recording, never the training. A model without cross-attention is not recorded.

    Args:
        used: the model that is trained, with its tokenizers.
        valid: the validation set.
        step: the training step at which training starts or resumes. Records of later steps are dropped, because these
            steps will be recorded again.
    """

    def __init__(self, run: Path, used: Bundle, valid: Store, step: int) -> None:
        self._path, self._used, self._step = run / FILE, used, step
        self._valid: Store | None = valid if "cross" in used.settings.model.attention else None
        self._ids: list[tuple[list[int], list[int]]] = []
        self._kept: dict[str, Any] = {}

    def after(self, event: Event) -> str | None:
        """Record after a validation of the trained model; drop later records when training returns to an earlier step.

        Return a warning for the user if that failed; nothing is recorded any more then. Return None otherwise.
        """
        if self._valid is None:
            return None
        try:
            if isinstance(event, Returned):
                self._begin(event.step)
            elif isinstance(event, Validated) and event.what == "model":
                if not self._ids:
                    self._begin(self._step)
                self._record(event.step)
        except Exception as problem:
            self._valid = None
            return f"warning: the attention during training is no longer recorded: {problem}".split("\n", maxsplit=1)[0]
        return None

    def _begin(self, step: int) -> None:
        """Choose the pairs to record, and read what an existing file has about the same pairs up to `step`.

        If all validation pairs are too long, nothing is recorded.
        """
        assert self._valid is not None
        tokenizers, pairs = self._used.tokenizers, []
        self._ids = []
        for index in choose(self._valid):
            source, _, target, _ = (each.tolist() for each in self._valid.gather(np.array([index])))
            self._ids.append((source, target))
            sides = (("source", tokenizers.source, source), ("target", tokenizers.target, target))
            pair: dict[str, Any] = {name: cut.decode(ids[:-1]) for name, cut, ids in sides}
            end = special.SPELLINGS[special.END]
            pairs.append(pair | {f"{name}_tokens": [*spans.labels(cut, ids[:-1]), end] for name, cut, ids in sides})
        if not pairs:
            self._valid = None  # all are long
            return
        before = _read(self._path)
        rows = before["validations"] if before and before["pairs"] == pairs else []
        rows = [row for row in rows if row["step"] <= step]
        self._kept = {"format": 1, "unit": 1 / UNIT, "pairs": pairs, "validations": rows}

    def _record(self, step: int) -> None:
        if not self._ids:
            return
        model = self._used.model
        was_training = model.training
        model.eval()
        try:
            weights = self._weights()
        finally:
            model.train(was_training)
        if weights is None:
            return
        rows = [row for row in self._kept["validations"] if row["step"] < step]
        rows.append({"step": step, "weights": weights})
        self._kept["validations"] = thinned(rows, max(2, min(MOST, NUMBERS // _count(weights))))
        storage.write_text(self._path, json.dumps(self._kept, ensure_ascii=False, separators=(",", ":")))

    def _weights(self) -> list[dict[str, Any]] | None:
        """Return the attention weights of each recorded pair in thousandths; None if some of them are not finite."""
        sources, targets = zip(*self._ids, strict=True)
        found: dict[int, dict[str, Any]] = {}
        for index, weights in attention_of(self._used, sources, targets, ("cross", "encoder")):
            cross_LHTS = weights["cross"]
            kept = {"cross": cross_LHTS.mean(1), "heads": cross_LHTS[-1]}
            if "encoder" in weights:
                kept["encoder"] = weights["encoder"][-1].mean(0)
            if not all(np.isfinite(each).all() for each in kept.values()):
                return None
            found[index] = {name: np.rint(UNIT * each).astype(int).tolist() for name, each in kept.items()}
        return [found[index] for index in range(len(self._ids))]


def thinned(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Drop one validation after another until `most` are left, but never the first and the last.

    Each time, the one is dropped whose two neighbours have the fewest steps between them, relative to the step of the
    later neighbour: attention changes fast at the start of training, so that more of the early validations are kept.
    """
    rows = list(rows)
    while len(rows) > most:
        steps = [row["step"] for row in rows]
        gaps = [(after - before) / after for before, after in zip(steps, steps[2:], strict=False)]
        del rows[1 + gaps.index(min(gaps))]
    return rows


def load(run: Path) -> AttentionHistory | None:
    """Read the attention that was recorded in a run folder; return None if there is none.

    Raises:
        RunError: The file is damaged.
    """
    kept = _read(run / FILE)
    if kept is None:
        if (run / FILE).exists():
            raise RunError(f"{run / FILE}: damaged. Delete it: the model does not need it")
        return None
    return _parsed(kept) if kept["validations"] else None


def read(run: Path) -> AttentionHistory:
    """Read the attention that was recorded in a run folder; raise a RunError if there is none, or if it is damaged."""
    found = load(run)
    if found is None:
        raise RunError(f"{run}: no attention was recorded during its training ({FILE})")
    return found


def _read(path: Path) -> dict[str, Any] | None:
    """Return the contents of the file at `path`; None if there is no such file, or if it is damaged."""
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if kept["validations"]:
            _parsed(kept)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return None
    return kept


def _parsed(kept: dict[str, Any]) -> AttentionHistory:
    """Return the contents of `attention.json` as arrays; raise a ValueError, TypeError or similar error if they are not
    valid.
    """
    rows = kept["validations"]
    steps = [row["step"] for row in rows]
    if not all(type(step) is int for step in steps) or steps != sorted(set(steps)):
        raise ValueError("steps")
    pairs = [_pair(pair, [row["weights"][index] for row in rows]) for index, pair in enumerate(kept["pairs"])]
    return AttentionHistory(steps, pairs)


def _pair(about: dict[str, Any], rows: list[dict[str, Any]]) -> PairHistory:
    texts, tokens = (about["source"], about["target"]), (about["source_tokens"], about["target_tokens"])
    if not all(isinstance(text, str) for text in (*texts, *tokens[0], *tokens[1])):
        raise TypeError("texts")
    S, T = map(len, tokens)

    def stacked(name: str, dimensions: int, size: tuple[int, int]) -> Floats:
        values = np.array([row[name] for row in rows], dtype=np.float64) / UNIT
        if values.ndim != dimensions or values.shape[-2:] != size or not ((values >= 0) & (values <= 1)).all():
            raise ValueError(name)
        return values.astype(np.float32)

    encoder = stacked("encoder", 3, (S, S)) if "encoder" in rows[0] else None
    return PairHistory(*texts, *tokens, stacked("cross", 4, (T, S)), stacked("heads", 4, (T, S)), encoder)


def _count(weights: Any) -> int:
    """Return the number of numbers in nested lists and dictionaries."""
    if isinstance(weights, dict):
        weights = list(weights.values())
    return sum(map(_count, weights)) if isinstance(weights, list) else 1
