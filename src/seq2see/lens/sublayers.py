"""One attention sub-layer in steps (scores, softmax, heads, W_O, residual sum, norm), and one word in two contexts."""

import re
from dataclasses import dataclass

import numpy as np
import torch

from seq2see.bundle import Bundle
from seq2see.config import Place
from seq2see.errors import SettingError
from seq2see.lens.answers import Look
from seq2see.lens.capture import capture
from seq2see.lens.reading import ATTENTIONS, Answer, Floats, Reading, decoded
from seq2see.tokens import spans

AROUND = {"encoder": "around_attention", "decoder": "around_self", "cross": "around_cross"}


@dataclass(frozen=True, repr=False)
class Sublayer(Answer):
    """All tensors of one attention sub-layer for one sentence and its translation.

    L queries attend to M keys in H heads; a query or key has d_key numbers, a value V, and a state of the model D.
    """

    place: Place
    layer: int
    """Number of the layer, from 0."""
    queries: list[str]
    """The L tokens that attend, one for each row of `scores`."""
    keys: list[str]
    """The M tokens that are attended to, one for each column of `scores`."""
    scores: Floats
    """HLM (heads, queries, keys): query . key / sqrt(d_key), before mask and softmax."""
    keep: np.ndarray
    """LM (queries, keys): true where a query may attend to a key."""
    weights: Floats
    """HLM (heads, queries, keys): the softmax of each row of `scores`, with weight 0 where `keep` is false."""
    heads: Floats
    """HLV (heads, queries, width of a value): the output of each head: the sums of the values weighted by `weights`."""
    w_o: Floats
    """(H V) x D: the output projection, which is applied to the concatenated heads."""
    output: Floats
    """LD (queries, model width): the concatenated heads times `w_o`, plus its bias."""
    before: Floats
    """LD (queries, model width): the input of the sub-layer, which the residual connection adds to `output`."""
    sum: Floats
    """LD (queries, model width): `before` plus `output`."""
    normed: Floats
    """LD (queries, model width): the layer norm of `sum`, which is the output of the sub-layer. With pre-norm, the
    layer norm of `before`; queries and, in self-attention, keys and values are projections of it.
    """
    pre_norm: bool


def sublayer(bundle: Bundle, reading: Reading, place: Place, layer: int) -> Sublayer:
    """Run the model over a sentence and its translation, and return one of its attention sub-layers."""
    if bundle.settings.model.architecture != "transformer":
        raise SettingError(f"a model of the kind '{bundle.settings.model.architecture}' has no Transformer layers")
    stack, attention = ATTENTIONS[place]
    modules = getattr(bundle.model, stack)
    if not 0 <= layer < len(modules):
        raise SettingError(f"no layer {layer} in the {stack}: it has {len(modules)}, counted from 0")
    begin = f"{stack}.{layer}."
    with torch.inference_mode(), capture(bundle.model, lambda name: name.startswith(begin)) as seen:
        decoded(bundle, [reading.source_ids], [reading.target_ids])

    def recorded(name: str) -> Floats:
        array: Floats = seen[begin + name][0].float().numpy()
        return array

    around, module = AROUND[place], getattr(modules[layer], attention)
    weights_HLM = recorded(f"{attention}.weights")[0]
    L, M = weights_HLM.shape[1:]
    output_LD, sum_LD = recorded(f"{attention}.output"), recorded(f"{around}.sum")
    heads_LHV = recorded(f"{attention}.heads").reshape(L, module.heads, -1)
    return Sublayer(
        place,
        layer,
        reading.source_tokens if place == "encoder" else reading.input_tokens,
        reading.input_tokens if place == "decoder" else reading.source_tokens,
        recorded(f"{attention}.scores")[0],
        np.tri(L, M, dtype=bool) if place == "decoder" else np.ones((L, M), bool),
        weights_HLM,
        heads_LHV.transpose(1, 0, 2),
        module.w_o.weight.detach().float().cpu().numpy().T,
        output_LD,
        sum_LD - output_LD,
        sum_LD,
        recorded(f"{around}.normed"),
        bundle.settings.model.norm == "pre",
    )


@dataclass(frozen=True, repr=False)
class WordInContexts(Answer):
    """One word in two source sentences: where it attends in each, and how similar its vectors are, layer by layer."""

    word: str
    sentences: tuple[str, str]
    tokens: tuple[list[str], list[str]]
    places: tuple[list[int], list[int]]
    """Indices of the tokens that the word consists of, in each sentence."""
    weights: tuple[list[Floats], list[Floats]]
    """For each sentence and each encoder layer, HS: the weights with which the word attends, in H heads, to the S
    tokens of the sentence, averaged over the tokens of the word.
    """
    stages: list[str]
    """Names of the stages at which the vectors are compared: embedding, with positions, then each encoder layer."""
    similarity: list[float]
    """Cosine similarity, at each stage, of the word's vectors (the means over its tokens) in the two sentences."""


def word_in_contexts(word: str, first: Look, second: Look) -> WordInContexts:
    """Compare the first occurrence of a word in each of two source sentences, given what a model computed for them."""
    looks = first, second
    places = tuple(_tokens_of(word, look) for look in looks)
    names = ["source_embedding.without_positions", "source_embedding.with_positions"]
    names += [name for name in first.vectors if name.startswith("encoder.")]
    vectors = [
        [look.vectors[name][chosen].mean(0) for name in names] for look, chosen in zip(looks, places, strict=True)
    ]
    weights = [
        [layer_HSS[:, chosen].mean(1) for layer_HSS in look.encoder] for look, chosen in zip(looks, places, strict=True)
    ]
    return WordInContexts(
        word,
        (first.source, second.source),
        (first.source_tokens, second.source_tokens),
        (places[0], places[1]),
        (weights[0], weights[1]),
        ["embedding", "with position", *(f"layer {number + 1}" for number in range(len(names) - 2))],
        [float(a @ b / np.sqrt((a @ a) * (b @ b))) for a, b in zip(*vectors, strict=True)],
    )


def _tokens_of(word: str, look: Look) -> list[int]:
    """Return the indices of the source tokens of a word's first occurrence; raise a SettingError if there is none."""
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", look.source) if word.strip() else None
    if found is None:
        raise SettingError(f"the word {word!r} is not in the sentence {look.source!r}")
    return spans.touching(look.source_spans, found.span())
