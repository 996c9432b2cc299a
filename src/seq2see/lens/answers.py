"""What a model computes for one translation: attention, confidence, predictions of layers, alignment, beam search.

seen = look(bundle, read(bundle, "12 mars 1987"))
seen.cross[-1]                                      # heads, output tokens, input tokens
seen.json()                                         # ready for json.dumps
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see import special
from seq2see.bundle import Bundle
from seq2see.config import Decoding, Place
from seq2see.decoding import search
from seq2see.lens import alignment
from seq2see.lens.alignment import Alignment, Method
from seq2see.lens.capture import Seen, capture
from seq2see.lens.reading import Answer, Floats, Reading, decoded, log_probabilities, place_of
from seq2see.tokens import spans
from seq2see.tokens.interface import Tokenizer
from seq2see.tokens.spans import Span

State = Literal["root", "kept", "finished", "pruned"]

CANDIDATES = 5
"""Maximum number of most probable tokens that are listed for each output position."""


class Candidate(NamedTuple):
    """One possible next token."""

    token: str
    probability: float
    id: int


@dataclass(frozen=True)
class Confidence(Answer):
    """Probabilities of each output token and of its alternatives."""

    probability: Floats
    """For each of T output tokens, its probability given the tokens before it; their product is the probability of the
    translation.
    """
    candidates: list[list[Candidate]]
    """For each of the T output positions, the most probable tokens, the best first."""


@dataclass(frozen=True)
class Layers(Answer):
    """Predictions of each decoder layer as if it were the last (logit lens); an RNN counts as one layer."""

    probability: Floats
    """LT (layers, output tokens): the probability of the output token according to each layer."""
    rank: NDArray[np.int64]
    """LT (layers, output tokens): the rank of the output token in the vocabulary, ordered by the probabilities of
    each layer; 1 is the most probable.
    """
    candidates: list[list[list[Candidate]]]


class Node(NamedTuple):
    """One token of a hypothesis in the search tree."""

    parent: int
    """Index in `Tree.nodes` of the token before this one; -1 for the root."""
    step: int
    """The step of the search, from 0; -1 for the root. If the search is recorded by `capture`, also the index in the
    lists of the decoder's tensors.
    """
    row: int
    """Index of this hypothesis in the beam of the next step, 0 for the root; -1 if the search did not continue from it.
    """
    token: str
    log_probability: float
    """Sum of the log-probabilities, in nats, of all tokens of the hypothesis up to this one."""
    score: float
    """Score by which hypotheses are ranked: `log_probability` divided by the length penalty."""
    state: State
    """State of the hypothesis: `root`, `kept` (the search went on from it), `finished` (a translation) or `pruned`."""


@dataclass(frozen=True)
class Tree(Answer):
    """The tree of a beam search: the candidates that it ranked at each step (`SearchStep`), parents before children."""

    nodes: list[Node]
    best: int
    """Index in `nodes` of the end of the best finished hypothesis; 0, the root, if no hypothesis was finished."""

    def path(self, end: int) -> list[Node]:
        """Return the nodes from the first token, which is after the root, to the node at index `end`."""
        found = []
        while end > 0:
            found.append(self.nodes[end])
            end = self.nodes[end].parent
        return found[::-1]


@dataclass(frozen=True, repr=False)
class Look(Answer):
    """What a model computes for one translation. Row i of attention weights: those with which token i attends."""

    source: str
    translation: str
    source_tokens: list[str]
    target_tokens: list[str]
    """The T output tokens of the decoder, including the end token."""
    input_tokens: list[str]
    """The input tokens of the decoder: `target_tokens` shifted by one, after the begin token."""
    source_spans: list[Span]
    """Span of `source` for each of `source_tokens`, in characters; empty for the end token."""
    target_spans: list[Span]
    """Span of `translation` for each of `target_tokens`, in characters; empty for the end token."""
    encoder: list[Floats]
    """Self-attention weights of H heads in each encoder layer, HSS: from each source token to each source token. Empty
    if there are none.
    """
    decoder: list[Floats]
    """Self-attention weights of H heads in each decoder layer, HTT: from each decoder input to itself and earlier
    inputs. Empty if there are none.
    """
    cross: list[Floats]
    """Cross-attention weights of H heads in each decoder layer, HTS: from each decoder input to each source token.
    Empty if there are none.
    """
    confidence: Confidence
    layers: Layers
    alignment: Alignment
    vectors: dict[str, Floats]
    """Vectors of the residual stream by name: embeddings without and with positions, and the output of each layer
    (`encoder.0`, ...).
    """
    beam: Tree
    """Tree of the search that found `own_translation`."""
    method: Method
    """How `alignment` was computed: the heads whose weights were used, and how reliable they are."""
    own_translation: str
    """The translation that the model's own search found; `translation` may differ from it if the user gave one."""
    notes: list[str]
    """Notes for the user, for example that a text was truncated or has characters without a token."""

    @property
    def linked(self) -> list[tuple[int, int]]:
        """Return the alignment by tokens: pairs of indices into `source_tokens` and `target_tokens`."""
        return [
            (source, target)
            for link in self.alignment.links
            for target in spans.touching(self.target_spans, link.target)
            for source in spans.touching(self.source_spans, link.source)
        ]

    def _repr_html_(self) -> str | None:
        """Return the page that `seq2see look` writes; None if `Run.look` did not make this object in a notebook."""
        page = vars(self).get("page")
        return page() if page else None

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name} {[each.shape for each in getattr(self, name)]}" for name in ("encoder", "decoder", "cross")
        )
        return f"Look({self.source!r} -> {self.translation!r}, {shapes})"


def look(bundle: Bundle, reading: Reading, method: Method | None = None) -> Look:
    """Run the model over a sentence and its translation in one forward pass, and return what it computed.

    Args:
        method: the method of alignment; by default `alignment.standard`.
    """
    with torch.inference_mode(), capture(bundle.model) as seen:
        bundle.model.output(decoded(bundle, [reading.source_ids], [reading.target_ids]))
    layers = _layers(bundle, reading, seen)
    method = method or alignment.standard(bundle)
    logs_TV = log_probabilities(seen["logits"][0])
    return Look(
        reading.source,
        reading.translation,
        reading.source_tokens,
        reading.target_tokens,
        reading.input_tokens,
        [*spans.read(bundle.tokenizers.source, reading.source)[: len(reading.source_ids) - 1], (0, 0)],
        [*spans.written(bundle.tokenizers.target, reading.target_ids[:-1]), (0, 0)],
        _weights(seen, "encoder"),
        _weights(seen, "decoder"),
        _weights(seen, "cross"),
        Confidence(_said(logs_TV, reading).exp().numpy(), _candidates(logs_TV, bundle)),
        layers,
        _alignment(bundle, reading, seen, method),
        _vectors(bundle, seen),
        plant(reading.steps, bundle.tokenizers.target, bundle.settings.decoding),
        method,
        reading.own_translation,
        reading.notes,
    )


def _alignment(bundle: Bundle, reading: Reading, seen: Seen, method: Method) -> Alignment:
    """Return the alignment; empty if the model has no cross-attention."""
    cross = _weights(seen, "cross")
    if not cross:
        return Alignment("", [])
    return alignment.of_weights(bundle, method, reading.source, reading.target_ids[:-1], np.stack(cross))


@torch.inference_mode()
def _layers(bundle: Bundle, reading: Reading, seen: Seen) -> Layers:
    """Return predictions from the output of each decoder layer, by the last norm and the output layer (logit lens)."""
    model = bundle.model
    device = next(model.parameters()).device
    found = [
        log_probabilities(model.output(model.decoder_norm(seen[name][0].to(device))).cpu())
        for name in layer_outputs(bundle, "decoder")
    ]
    said = [_said(logs_TV, reading) for logs_TV in found]
    return Layers(
        torch.stack(said).exp().numpy(),
        torch.stack([(logs > own[:, None]).sum(-1) + 1 for logs, own in zip(found, said, strict=True)]).numpy(),
        [_candidates(logs_TV, bundle) for logs_TV in found],
    )


def _said(logs_TV: Tensor, reading: Reading) -> Tensor:
    return logs_TV.gather(-1, torch.tensor(reading.target_ids)[:, None])[:, 0]


def _candidates(logs_TV: Tensor, bundle: Bundle) -> list[list[Candidate]]:
    values_TC, ids_TC = search.top(logs_TV, min(CANDIDATES, logs_TV.shape[-1] - len(search.NEVER)))
    pieces = bundle.tokenizers.target.pieces
    return [
        [Candidate(*each) for each in zip(pieces(ids), map(math.exp, logs), ids, strict=True)]
        for ids, logs in zip(ids_TC.tolist(), values_TC.tolist(), strict=True)
    ]


def _weights(seen: Seen, place: Place) -> list[Floats]:
    return [seen[name][0][0].float().numpy() for name in seen if place_of(name) == place]


def layer_outputs(bundle: Bundle, stack: str) -> list[str]:
    """Return the names under which `capture` records the output of each layer of a stack, `encoder` or `decoder`."""
    model = bundle.settings.model
    if model.architecture != "transformer":
        return [f"{stack}.{layer}.states" for layer in range(len(getattr(bundle.model, stack)))]
    last = "sum" if model.norm == "pre" else "normed"
    return [f"{stack}.{layer}.around_feed_forward.{last}" for layer in range(len(getattr(bundle.model, stack)))]


def _vectors(bundle: Bundle, seen: Seen) -> dict[str, Floats]:
    found = {
        name: seen[name][0].float().numpy()
        for side in ("source", "target")
        for name in (f"{side}_embedding.without_positions", f"{side}_embedding.with_positions")
    }
    for stack in ("encoder", "decoder"):
        for name in layer_outputs(bundle, stack):
            found[".".join(name.split(".")[:2])] = seen[name][0].float().numpy()
    return found


def plant(steps: Sequence[search.SearchStep], tokenizer: Tokenizer, decoding: Decoding) -> Tree:
    """Return the search tree of the first sentence of a search, given all its steps."""
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
            continues = place in picked and not ends and token != special.END and number < len(steps) - 1
            row = picked.index(place) if continues else -1
            state: State = "finished" if ends else "kept" if row >= 0 else "pruned"
            if row >= 0:
                following[row] = len(nodes)
            label = tokenizer.pieces([token])[0]
            nodes.append(Node(rows[parent], number, row, label, total, total / penalty(number + 1), state))
        rows = following
    finished = [place for place, node in enumerate(nodes) if node.state == "finished"]
    return Tree(nodes, max(finished, key=lambda place: nodes[place].score, default=0))
