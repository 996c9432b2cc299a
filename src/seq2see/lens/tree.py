"""The beam as a tree: every beginning that a search kept, finished or gave up, with its score."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from seq2see import special
from seq2see.config import Decoding
from seq2see.decoding import search
from seq2see.lens.reading import Answer
from seq2see.tokens.tokenizers import Tokenizer

State = Literal["root", "kept", "finished", "pruned"]


class Node(NamedTuple):
    """A token after those of its parents.

    JSON: `{"parent": 0, "step": 0, "row": 2, "token": "1", "log_probability": -0.1, "score": -0.1, "state": "kept"}`.
    """

    parent: int
    """Its place among the nodes; -1 for the root."""
    step: int
    """Of the search, from 0; -1 for the root. Item `step` of a decoder's list in `capture` is where it was chosen."""
    row: int
    """Which hypothesis it is in the next step: its row there; -1 where it does not go on."""
    token: str
    log_probability: float
    """Of all tokens up to this one."""
    score: float
    """What hypotheses are ranked by: `log_probability` over the length penalty."""
    state: State
    """kept: the search went on from it; finished: a translation; pruned: not among the best, and given up."""


@dataclass(frozen=True)
class Tree(Answer):
    """All that a search looked at. JSON: `{"nodes": [...], "best": 17}`; parents come before their children."""

    nodes: list[Node]
    best: int
    """The node at which the translation ends; 0, the root, where nothing was searched."""

    def path(self, end: int) -> list[Node]:
        """From the first token to the node at `end`."""
        found = []
        while end > 0:
            found.append(self.nodes[end])
            end = self.nodes[end].parent
        return found[::-1]


def plant(steps: Sequence[search.SearchStep], tokenizer: Tokenizer, decoding: Decoding) -> Tree:
    """The tree of the first sentence of a watched search."""
    penalty = search.penalty_of(decoding)
    nodes = [Node(-1, -1, 0, special.SPELLINGS[special.BEGIN], 0.0, 0.0, "root")]
    rows = [0]
    for number, step in enumerate(steps):
        picked, done = step.picked_BW[0].tolist(), step.done_BC[0].tolist()
        following = [0] * len(picked)
        parents, tokens, totals = (each[0].tolist() for each in (step.parents_BC, step.tokens_BC, step.totals_BC))
        for place, (parent, token, total) in enumerate(zip(parents, tokens, totals, strict=True)):
            if total == -float("inf"):
                continue
            ends = done[place]
            goes_on = place in picked and not ends and token != special.END and number < len(steps) - 1
            row = picked.index(place) if goes_on else -1
            state: State = "finished" if ends else "kept" if row >= 0 else "pruned"
            if row >= 0:
                following[row] = len(nodes)
            label = tokenizer.pieces([token])[0]
            nodes.append(Node(rows[parent], number, row, label, total, total / penalty(number + 1), state))
        rows = following
    finished = [place for place, node in enumerate(nodes) if node.state == "finished"]
    return Tree(nodes, max(finished, key=lambda place: nodes[place].score, default=0))
