"""Beam search with lexical constraints: outputs must contain given sequences of tokens, such as the terms of a
glossary.

Dynamic beam allocation (Post and Vilar, 2018): the bank of a hypothesis is the number of constraint tokens that it
contains. The beam is divided among the banks, so that hypotheses with few of these improbable tokens do not crowd
out those with more. Below the length limit, a hypothesis ends only when it has met all of its constraints. A
constraint may have several forms (token sequences); one of them is enough. Constraints that share a form need one
occurrence each. All forms of a sentence are in one trie, and a hypothesis is at one of its nodes.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from seq2see import special
from seq2see.decoding.hypothesis import Constraint

FIRST, LATER = 0, 1
"""Indices of the two root nodes of the trie of forms: `FIRST` for the first token of a hypothesis, `LATER` for a later
token that begins a form.
"""


class TrieProgress(NamedTuple):
    """Progress of a hypothesis: its node in the `Trie`, the constraints it has met, and the one just completed."""

    node: int = FIRST
    met: int = 0
    """Bit mask of the constraints that have been met."""
    just_met: int = -1
    """Index of the constraint that the last token completed; -1 if there is none."""


@dataclass
class _Node:
    depth: int = 0
    children: dict[int, int] = field(default_factory=dict)
    part_of: int = 0
    """Bit mask of the constraints one of whose forms has a prefix that ends at this node."""
    completes: list[int] = field(default_factory=list)
    """Indices of the constraints one of whose forms ends at this node, those with the fewest forms first."""


class Trie:
    """Trie of the token sequences of all forms of the constraints of one sentence."""

    def __init__(self, constraints: Sequence[Constraint]) -> None:
        self.constraints = constraints
        self.everything = (1 << len(constraints)) - 1
        self.never = sorted(frozenset().union(*(each.never for each in constraints)))
        """Tokens that no output of this sentence may contain."""
        self._nodes = [_Node(), _Node()]
        # Of several that share a form, the one with the fewest others has it first.
        for number, constraint in sorted(enumerate(constraints), key=lambda each: len(each[1].later)):
            for root, forms in ((FIRST, constraint.first), (LATER, constraint.later)):
                for form in forms:
                    self._add(root, number, form)
        self._lengths = [min(map(len, (*each.first, *each.later))) for each in constraints]
        self._children_of: dict[tuple[int, int], list[int]] = {}

    def _add(self, root: int, number: int, form: Sequence[int]) -> None:
        at = root
        for depth, token in enumerate(form, 1):
            after = self._nodes[at].children.setdefault(token, len(self._nodes))
            if after == len(self._nodes):
                self._nodes.append(_Node(depth))
            at = after
            self._nodes[at].part_of |= 1 << number
        self._nodes[at].completes.append(number)

    def after(self, progress: TrieProgress, token: int) -> TrieProgress:
        """Return the progress of a hypothesis after one more token; a form that the token does not continue is
        abandoned.
        """
        at = self._nodes[progress.node].children.get(token)
        if at is None:
            at = self._nodes[LATER].children.get(token, LATER)
        node, met, just_met = self._nodes[at], progress.met, -1
        if node.completes:
            just_met = next((number for number in node.completes if not met >> number & 1), node.completes[0])
            met |= 1 << just_met
        return TrieProgress(at if node.children else LATER, met, just_met)

    def is_met(self, progress: TrieProgress) -> bool:
        """Return whether a hypothesis has met all constraints."""
        return progress.met == self.everything

    def bank(self, progress: TrieProgress) -> int:
        """Return the number of constraint tokens that a hypothesis has generated.

        A constraint that is met counts as many tokens as its shortest form; one that is being generated counts its
        tokens so far.
        """
        node = self._nodes[progress.node]
        begun = node.depth if node.part_of & ~progress.met else 0
        return begun + sum(length for number, length in enumerate(self._lengths) if progress.met >> number & 1)

    def wanted(self, progress: TrieProgress) -> list[int]:
        """Return the tokens that begin or continue a form of an unmet constraint."""
        key = progress.node, progress.met
        if key not in self._children_of:
            roots = {progress.node, LATER} if progress.node != FIRST else {FIRST}
            children = itertools.chain.from_iterable(self._nodes[node].children.items() for node in roots)
            self._children_of[key] = sorted(
                {token for token, node in children if self._nodes[node].part_of & ~progress.met}
            )
        return self._children_of[key]

    def banned(self, progress: TrieProgress) -> Sequence[int]:
        """Return the tokens that must not follow: END before all constraints are met, and tokens that would continue
        the last word of a constraint that has just been completed, unless they continue a longer form.
        """
        found = [] if self.is_met(progress) else [special.END]
        if progress.just_met >= 0:
            longer = self._nodes[progress.node].children if progress.node != LATER else {}
            found += [each for each in self.constraints[progress.just_met].not_after if each not in longer]
        return found


class _Candidate(NamedTuple):
    """A hypothesis extended by one token."""

    total: float
    row: int
    token: int
    progress: TrieProgress
    bank: int = 0
    done: bool = False


NOTHING = _Candidate(-torch.inf, 0, special.PAD, TrieProgress(LATER))
"""Candidate of probability zero, which fills the rows of the beam of a sentence that has fewer candidates than rows."""


class Ranked(NamedTuple):
    """The candidates of one step, as in `search.SearchStep`: W that are picked, then W that end with this step.

    If there are fewer, `NOTHING` fills the rows.
    """

    parents_BC: Tensor
    tokens_BC: Tensor
    totals_BC: Tensor
    done_BC: Tensor
    picked_BW: Tensor


class ConstrainedBeam:
    """The constraints of B sentences, and how far each of their W hypotheses has met them."""

    def __init__(self, constraints: Sequence[Sequence[Constraint]], width: int) -> None:
        self._tries = [Trie(each) for each in constraints]
        self._progress = [[TrieProgress()] * width for _ in constraints]
        self._width = width

    def keep_sentences(self, sentences: Sequence[int]) -> None:
        """Drop all sentences except the given ones."""
        self._tries = [self._tries[each] for each in sentences]
        self._progress = [self._progress[each] for each in sentences]

    def rank(self, logs_RV: Tensor, totals_BW: Tensor, at_limit: Sequence[bool], complete: Sequence[int]) -> Ranked:
        """Choose, for each sentence, W continuations that stay open, divided among the banks, and those that end.

        Args:
            logs_RV: log-probabilities of the next token; this method sets those of forbidden tokens to -inf.
            totals_BW: sums of log-probabilities so far.
            at_limit: whether each sentence has reached its maximum length.
            complete: number of finished hypotheses of each sentence.
        """
        W, device = self._width, logs_RV.device
        self._ban(logs_RV)
        chosen = [
            self._dealt(sentence, found, at_limit[sentence], complete[sentence])
            for sentence, found in enumerate(self._candidates(logs_RV, totals_BW.tolist()))
        ]
        self._progress = [[each.progress for each in rows[:W]] for rows in chosen]
        return Ranked(
            torch.tensor([[each.row for each in rows] for rows in chosen], device=device),
            torch.tensor([[each.token for each in rows] for rows in chosen], device=device),
            torch.tensor([[each.total for each in rows] for rows in chosen], dtype=totals_BW.dtype, device=device),
            torch.tensor([[each.done for each in rows] for rows in chosen], device=device),
            torch.arange(W, device=device).expand(len(chosen), -1),
        )

    def _ban(self, logs_RV: Tensor) -> None:
        """Set the log-probabilities of tokens that a constraint forbids at this step to -inf."""
        for sentence, (trie, rows) in enumerate(zip(self._tries, self._progress, strict=True)):
            first = sentence * self._width
            if trie.never:
                logs_RV[first : first + self._width, trie.never] = -torch.inf
            for row, progress in enumerate(rows):
                if banned := trie.banned(progress):
                    logs_RV[first + row, banned] = -torch.inf

    def _candidates(self, logs_RV: Tensor, totals: list[list[float]]) -> Iterator[list[_Candidate]]:
        """Yield the candidates of each sentence, the most probable first: for each of its hypotheses, the W + 1 best
        tokens and the tokens that begin or continue an unmet constraint.
        """
        W, device = self._width, logs_RV.device
        wanted = [
            (sentence * W + row, token)
            for sentence, (trie, rows) in enumerate(zip(self._tries, self._progress, strict=True))
            for row, progress in enumerate(rows)
            for token in trie.wanted(progress)
        ]
        places_N2 = torch.tensor(wanted, dtype=torch.int64, device=device).view(-1, 2)
        best_RC, tokens_RC = logs_RV.topk(min(W + 1, logs_RV.shape[-1]))
        found = [dict(zip(*row, strict=True)) for row in zip(tokens_RC.tolist(), best_RC.tolist(), strict=True)]
        for (row, token), log in zip(wanted, logs_RV[places_N2[:, 0], places_N2[:, 1]].tolist(), strict=True):
            found[row][token] = log
        for sentence, (trie, rows) in enumerate(zip(self._tries, self._progress, strict=True)):
            candidates = []
            for row, progress in enumerate(rows):
                for token, log in found[sentence * W + row].items():
                    if (total := totals[sentence][row] + log) > -torch.inf:
                        after = trie.after(progress, token)
                        candidates.append(_Candidate(total, row, token, after, trie.bank(after)))
            yield sorted(candidates, reverse=True, key=lambda each: each.total)

    def _dealt(self, sentence: int, found: list[_Candidate], at_limit: bool, complete: int) -> list[_Candidate]:
        """Return W candidates that stay open, divided among the banks, and then W that end; see `Ranked`.

        A hypothesis may end if it is among the W best of its bank. At the maximum length, open candidates that have met
        all constraints are finished, too; if no hypothesis ever has, all open candidates are.

        Args:
            found: candidates, the most probable first.
            complete: number of hypotheses of the sentence that have ended before.
        """
        W, trie = self._width, self._tries[sentence]
        banks: dict[int, list[_Candidate]] = {}
        for each in found:
            banks.setdefault(each.bank, []).append(each)
        order = sorted(banks, reverse=True)
        ends = [each for bank in order for each in banks[bank][:W] if each.token == special.END]
        open_ = [[each for each in banks[bank] if each.token != special.END] for bank in order]
        in_turn = [each for row in itertools.zip_longest(*open_) for each in row if each is not None]
        picked = sorted(in_turn[:W], reverse=True, key=lambda each: (each.bank, each.total))
        if at_limit:
            met = [trie.is_met(each.progress) for each in picked]
            all_end = not (any(met) or ends or complete)
            picked = [each._replace(done=all_end or is_met) for each, is_met in zip(picked, met, strict=True)]
        ended = [each._replace(done=True) for each in ends[:W]]
        return [*picked, *[NOTHING] * (W - len(picked)), *ended, *[NOTHING] * (W - len(ended))]
