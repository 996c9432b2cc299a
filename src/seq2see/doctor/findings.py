"""Kinds of problems that a corpus can have, and the findings about one corpus."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Severity = Literal["error", "warning", "note"]
Action = Literal["dropped", "repaired", "kept"]
Mask = NDArray[np.bool_]

SHOWN: Final = 3
"""Maximum number of rows that are shown as examples of each finding."""


class Kind(NamedTuple):
    """A kind of finding; below the share of pairs in `tolerated`, a finding has the severity `note`."""

    severity: Severity
    tolerated: float
    action: Action
    what: str
    advice: str


_TABLE: Final = resources.files(__package__).joinpath("findings.toml").read_text("utf-8")
KINDS: Final = {name: Kind(**entry) for name, entry in tomllib.loads(_TABLE).items()}
"""Kinds of findings by name, in the order of `findings.toml`. The reason why a pair is dropped is the first kind that
applies to it and has the action `dropped`.
"""
REASONS: Final = ("", *KINDS)


class Example(NamedTuple):
    line: int | str
    source: str
    target: str


@dataclass(frozen=True)
class Finding:
    """One kind of problem in a corpus: how often it occurs, where, and what a clean copy does about it."""

    name: str
    severity: Severity
    count: int
    share: float
    action: Action
    what: str
    advice: str
    rows: tuple[int, ...] = ()
    """Indices, counted from 0, of the first `SHOWN` rows with the problem, or at which shifts begin; empty if it
    concerns the corpus as a whole.
    """
    examples: tuple[Example, ...] = ()

    @property
    def pairs(self) -> str:
        """Return the count as text, `12 pairs (0.3 %)`; empty where the finding is about the corpus as a whole."""
        if not self.rows:
            return ""
        share = f"{100 * self.share:.2g} %" if 0.0001 <= self.share < 0.1 else f"{100 * self.share:.0f} %"
        share = "< 0.01 %" if self.share < 0.0001 else share
        return f"{self.count:,} pair{'s' * (self.count != 1)} ({share})"


@dataclass(frozen=True)
class Diagnosis:
    """All findings about a corpus, and for each row whether it is kept."""

    rows: int
    findings: tuple[Finding, ...]
    scripts: tuple[str, str]
    """Names of the usual scripts of the sources and of the targets; an empty name if fewer than eight in ten texts with
    letters share one, or there are too few texts.
    """
    lengths: tuple[NDArray[np.uint16], NDArray[np.uint16]]
    """Lengths in characters of the sources, and of the targets, of all pairs that could be read and have no empty side;
    at most 65,535.
    """
    reasons: NDArray[np.uint8]
    """For each row, the index in `REASONS` of the reason why it is dropped; 0 if it is kept."""
    swapped: Mask
    mended: Mask

    @property
    def kept(self) -> int:
        return int((self.reasons == 0).sum())

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity != "note")

    @property
    def changes(self) -> bool:
        """Return whether a clean copy would differ from the corpus."""
        return bool(self.reasons.any() or self.mended.any() or self.swapped.any())


class Book:
    """Collects findings, and the first reason to drop each row."""

    def __init__(self, rows: int, about: Mapping[str, tuple[str, str]]) -> None:
        self.reasons = np.zeros(rows, np.uint8)
        self._about = about
        self._findings: list[Finding] = []

    def add(
        self,
        name: str,
        mask: Mask | None,
        *,
        what: str | None = None,
        advice: str | None = None,
        severity: Severity | None = None,
        action: Action | None = None,
        gravity: float | None = None,
        count: int | None = None,
        rows: tuple[int, ...] = (),
    ) -> None:
        """Add a finding about the rows of a mask, or about the whole corpus (mask None).

        Nothing is added if the mask marks no row; nor without a mask, if there is no `count`, no `what` and no
        description in `about`. `gravity` is the share that is compared with `Kind.tolerated`; by default, `count`
        divided by the number of rows.
        """
        kind = KINDS[name]
        told, to_do = self._about.get(name, ("", ""))
        if mask is not None:
            count = int(mask.sum())
            rows = tuple(np.flatnonzero(mask)[:SHOWN].tolist()) if count else ()
        elif count is None:
            count = max(1, len(self.reasons)) if what or told else 0
        if not count:
            return
        action = action or kind.action
        if mask is not None and action == "dropped":
            self.reasons[(self.reasons == 0) & mask] = REASONS.index(name)
        share = count / max(1, len(self.reasons))
        if severity is None:
            severity = "note" if (share if gravity is None else gravity) < kind.tolerated else kind.severity
        words = what or told or kind.what, advice or to_do or kind.advice
        self._findings.append(Finding(name, severity, count, share, action, *words, rows))

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings, the most severe first."""
        return tuple(sorted(self._findings, key=lambda finding: ("error", "warning", "note").index(finding.severity)))
