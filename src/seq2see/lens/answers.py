"""Questions about one translation, answered with plain arrays and token labels.

    reading = read(bundle, "12 mars 1987")              # translated; read(bundle, sentence, "1987-03-12") forces it
    importance(bundle, reading).left_out[0]             # what its first token owes to each input token
    look(bundle, "12 mars 1987").json()                 # what a page shows, ready for json.dumps

Every answer is a frozen dataclass, and its `json()` has the fields under their own names, arrays as nested lists.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see import special
from seq2see.bundle import Bundle
from seq2see.decoding import search
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.decoding.translator import longest, translate
from seq2see.lens.capture import Seen, capture
from seq2see.lens.tree import Tree, plant

Floats = NDArray[np.float32]
Weights = Floats
Span = tuple[int, int]

CANDIDATES = 5
"""Next tokens that are shown for each place."""
AT_ONCE = 8192
"""Tokens in one pass where a sentence is read many times over."""


class Answer:
    """What has a JSON form: the fields by name, arrays as nested lists of numbers with five decimals."""

    def json(self) -> dict[str, Any]:
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.round(5).tolist() if value.dtype.kind == "f" else value.tolist()
    if isinstance(value, Answer):
        return value.json()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


@dataclass(frozen=True)
class Reading:
    """A sentence and the translation that is looked into, in tokens."""

    source: str
    translation: str
    source_ids: list[int]
    """The end included, as it was read."""
    target_ids: list[int]
    """The end included, as it was said."""
    source_tokens: list[str]
    target_tokens: list[str]
    beam: Tree
    """How the search found its translation, which is this one unless that was forced."""

    @property
    def input_ids(self) -> list[int]:
        """What the decoder had read when it said each target token."""
        return [special.BEGIN, *self.target_ids[:-1]]

    @property
    def input_tokens(self) -> list[str]:
        return [special.SPELLINGS[special.BEGIN], *self.target_tokens[:-1]]


class Candidate(NamedTuple):
    """One possible next token. JSON: `{"token": "▁mars", "probability": 0.93}`."""

    token: str
    probability: float


@dataclass(frozen=True)
class Confidence(Answer):
    """How sure the decoder was of each token that it said.

    JSON: `{"probability": [T], "candidates": [T][K] of {"token", "probability"}}`, candidates likeliest first.
    """

    probability: Floats
    """T: of the token that was said; their product is the probability of the translation."""
    candidates: list[list[Candidate]]


@dataclass(frozen=True)
class Layers(Answer):
    """What each decoder layer would say if it were the last (logit lens).

    JSON: `{"probability": [layers][T], "rank": [layers][T], "candidates": [layers][T][K] of {"token", "probability"}}`.
    """

    probability: Floats
    """LT: of the token that was said in the end."""
    rank: NDArray[np.int64]
    """LT: the place of that token among all, 1 where the layer would say it."""
    candidates: list[list[list[Candidate]]]


@dataclass(frozen=True)
class Importance(Answer):
    """What each output token (row) owes to each input token (column), in nats of its log-probability.

    JSON: `{"source_tokens": [S], "target_tokens": [T], "gradient": [T][S], "left_out": [T][S]}`.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    gradient: Floats
    """Gradient x input: of the log-probability, times the token's embedding (without its position)."""
    left_out: Floats
    """How much the log-probability falls when the token is left out of the source. Negative: it rises."""


@dataclass(frozen=True, repr=False)
class Look(Answer):
    """The inside of one translation. Row i of a weight array is where token i looks.

    JSON, with S source tokens, T target tokens, H heads:
    `{"source": text, "translation": text, "source_tokens": [S], "target_tokens": [T], "input_tokens": [T],
    "encoder": [layers][H][S][S], "decoder": [layers][H][T][T], "cross": [layers][H][T][S], "confidence": Confidence,
    "layers": Layers, "vectors": {name: [S or T][D]}, "beam": Tree}`.
    """

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
    confidence: Confidence
    layers: Layers
    vectors: dict[str, Floats]
    """The stream by the names of `capture`: embeddings without and with positions, and after each layer
    (`encoder.0`, `decoder.0`, ...)."""
    beam: Tree

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name} {[each.shape for each in getattr(self, name)]}" for name in ("encoder", "decoder", "cross")
        )
        return f"Look({self.source!r} -> {self.translation!r}, {shapes})"


def read(bundle: Bundle, sentence: str, target: str | None = None) -> Reading:
    """Translate a sentence as `translate --engine torch` does, or take `target` for its translation."""
    tree: list[search.Step] = []
    engine = TorchEngine(bundle.model, watch=tree.append)
    result = translate(engine, bundle.tokenizers, bundle.settings, [sentence])[0]
    said, text = list(result.translations[0].tokens), result.text
    if target is not None:
        said, text = bundle.tokenizers.target.encode([target.strip()])[0], target.strip()
    said = said[: longest(bundle.settings) - 1]
    end = special.SPELLINGS[special.END]
    return Reading(
        sentence,
        text,
        list(result.source),
        [*said, special.END],
        [*bundle.tokenizers.source.pieces(list(result.source)[:-1]), end],
        [*bundle.tokenizers.target.pieces(said), end],
        plant(tree, bundle.tokenizers.target, bundle.settings.decoding),
    )


def look(bundle: Bundle, sentence: str, target: str | None = None) -> Look:
    """Translate a sentence, then read the translation once more with everything visible."""
    reading = read(bundle, sentence, target)
    device = next(bundle.model.parameters()).device
    with torch.inference_mode(), capture(bundle.model) as seen:
        memory = bundle.model.encode(torch.tensor(reading.source_ids, device=device), _offsets([reading.source_ids]))
        inputs_T = torch.tensor(reading.input_ids, device=device)
        bundle.model.output(bundle.model.decode(inputs_T, _offsets([reading.input_ids]), memory))
        layers = layer_words(bundle, reading, seen)
    logs_TV = _logs(seen["logits"][0])
    return Look(
        reading.source,
        reading.translation,
        reading.source_tokens,
        reading.target_tokens,
        reading.input_tokens,
        _weights(seen, "encoder", "self_attention"),
        _weights(seen, "decoder", "self_attention"),
        _weights(seen, "decoder", "cross_attention"),
        Confidence(_said(logs_TV, reading).exp().numpy(), _candidates(logs_TV, bundle)),
        layers,
        _vectors(bundle, seen),
        reading.beam,
    )


def layer_words(bundle: Bundle, reading: Reading, seen: Seen) -> Layers:
    """The logit lens over what was captured: each layer's stream through the last norm and the output layer."""
    model = bundle.model
    device = next(model.parameters()).device
    found = [
        _logs(model.output(model.decoder_norm(seen[name][0].to(device))).cpu())
        for name in _stream_names(bundle, "decoder")
    ]
    said = [_said(logs_TV, reading) for logs_TV in found]
    return Layers(
        torch.stack(said).exp().numpy(),
        torch.stack([(logs > own[:, None]).sum(-1) + 1 for logs, own in zip(found, said, strict=True)]).numpy(),
        [_candidates(logs_TV, bundle) for logs_TV in found],
    )


def importance(bundle: Bundle, reading: Reading) -> Importance:
    """What each input token did for each output token, by its gradient and by leaving it out."""
    return Importance(
        reading.source_tokens,
        reading.target_tokens,
        gradient_times_input(bundle, reading),
        leave_out(bundle, reading),
    )


def gradient_times_input(bundle: Bundle, reading: Reading) -> Floats:
    """TS: for output token t, the gradient of its log-probability along each input token's own embedding.

    The sentence is read T times side by side, one reading for each output token: one backward pass for many.
    """
    S, T = len(reading.source_ids), len(reading.target_ids)
    held: list[Tensor] = []

    def hold(_: object, __: object, x_ND: Tensor) -> Tensor:
        held.append(x_ND.detach().requires_grad_())
        return held[-1]

    rows = []
    for places in _chunks(range(T), S + T):
        held.clear()
        handle = bundle.model.source_embedding.without_positions.register_forward_hook(hold)
        try:
            logs = _target_logs(bundle, [reading.source_ids] * len(places), reading)
        finally:
            handle.remove()
        total = torch.stack([logs[row, place] for row, place in enumerate(places)]).sum()
        (slope,) = torch.autograd.grad(total, held[0])
        rows.append((slope * held[0].detach()).sum(-1).view(len(places), S))
    return torch.cat(rows).float().cpu().numpy()


@torch.inference_mode()
def leave_out(bundle: Bundle, reading: Reading) -> Floats:
    """TS: how far the log-probability of output token t falls without input token s. The end is never left out: 0."""
    S = len(reading.source_ids)
    full_T = _target_logs(bundle, [reading.source_ids], reading)[0]
    columns = [torch.zeros_like(full_T)]
    for places in _chunks(range(S - 1), S + len(reading.target_ids)):
        shorter = [[*reading.source_ids[:place], *reading.source_ids[place + 1 :]] for place in places]
        columns[-1:-1] = full_T - _target_logs(bundle, shorter, reading)
    return torch.stack(columns, -1).float().cpu().numpy()


def _chunks(places: range, tokens: int) -> list[range]:
    """Places in groups that make passes of about `AT_ONCE` tokens."""
    size = max(1, AT_ONCE // tokens)
    return [places[first : first + size] for first in range(0, len(places), size)]


def _target_logs(bundle: Bundle, sources: Sequence[Sequence[int]], reading: Reading) -> Tensor:
    """BT: the log-probability of each token of one translation, for each of several sources."""
    device = next(bundle.model.parameters()).device
    inputs, count = reading.input_ids, len(sources)
    memory = bundle.model.encode(
        torch.tensor([token for source in sources for token in source], device=device), _offsets(sources)
    )
    hidden_ND = bundle.model.decode(torch.tensor(inputs * count, device=device), _offsets([inputs] * count), memory)
    logs_NV = _logs(bundle.model.output(hidden_ND))
    said_N = torch.tensor(reading.target_ids * count, device=device)
    return logs_NV.gather(-1, said_N[:, None]).view(count, -1)


def _offsets(sequences: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([0, *map(len, sequences)]).cumsum(0)


def _logs(logits_NV: Tensor) -> Tensor:
    """Log-probabilities as a search has them: nothing for tokens that no output contains."""
    scores_NV = logits_NV.float().clone()
    scores_NV[:, search.NEVER] = -math.inf
    return scores_NV.log_softmax(-1)


def _said(logs_TV: Tensor, reading: Reading) -> Tensor:
    return logs_TV.gather(-1, torch.tensor(reading.target_ids)[:, None])[:, 0]


def _candidates(logs_TV: Tensor, bundle: Bundle) -> list[list[Candidate]]:
    values_TC, ids_TC = search.top(logs_TV, min(CANDIDATES, logs_TV.shape[-1] - len(search.NEVER)))
    pieces = bundle.tokenizers.target.pieces
    return [
        [Candidate(token, math.exp(log)) for token, log in zip(pieces(ids), logs, strict=True)]
        for ids, logs in zip(ids_TC.tolist(), values_TC.tolist(), strict=True)
    ]


def _weights(seen: Seen, stack: str, place: str) -> list[Weights]:
    names = [name for name in seen if name.startswith(f"{stack}.") and name.endswith(f".{place}.weights")]
    return [seen[name][0][0].float().numpy() for name in names]


def _stream_names(bundle: Bundle, stack: str) -> list[str]:
    """What leaves each layer of a stack, by the names of `capture`."""
    last = "sum" if bundle.settings.model.norm == "pre" else "normed"
    return [f"{stack}.{layer}.around_feed_forward.{last}" for layer in range(len(getattr(bundle.model, stack)))]


def _vectors(bundle: Bundle, seen: Seen) -> dict[str, Floats]:
    found = {
        name: seen[name][0].float().numpy()
        for side in ("source", "target")
        for name in (f"{side}_embedding.without_positions", f"{side}_embedding.with_positions")
    }
    for stack in ("encoder", "decoder"):
        for name in _stream_names(bundle, stack):
            found[name.partition(".around")[0]] = seen[name][0].float().numpy()
    return found
