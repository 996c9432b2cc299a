"""Measure how much each output token depends on each input token, and align output with input by attention.

    method = choose(bundle, pairs)                          # once; a run keeps it in its manifest
    align(bundle, method, [sentence], [source_ids], [target_ids])[0].pharaoh        # "0-2 1-1 2-0"

Not every head attends to the input token that an output token comes from. How much an output token depends on an input
token is known for sure by leaving this input token out, a forward pass for each of them. So that is done for some
validation pairs, and the heads that agree with it best are used from then on, in one forward pass. Half of these pairs
choose the heads, and the other half measures how well they agree: the best of many heads always looks better on the
pairs that chose it.

A run with `training.alignment_weight` has a head that was taught to align (`training.guided_alignment`). Then nothing
is chosen, and the agreement of this head with the aligner that taught it is measured (`measure_guided`).

An output token that follows surely from the one before it does not depend on the input when it is predicted: after the
digit 2, the years of this century continue with 0. But in the next step, whose input this output token is, the decoder
attends to the input token that it comes from. So the weights of that next step may be used for the token, too. When
heads are chosen, a token also gets a small part of the importance of its neighbours (`LENT`).
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see import special
from seq2see.bundle import Bundle
from seq2see.config import Place, Settings
from seq2see.decoding.translator import Result
from seq2see.errors import SettingError
from seq2see.lens.reading import AT_ONCE, Answer, Floats, Reading, Watch, attention_of, encode, target_logs, unwatched
from seq2see.text.pair import Pair
from seq2see.tokens import spans
from seq2see.tokens.spans import Span
from seq2see.tokens.store import Store

MOST_PAIRS = 100
MOST_TOKENS = 20_000
"""Maximum total number of tokens of the forward passes by which `choose` selects heads; each pass leaves out one source
token. They take one or two seconds with a small model. Pairs that would exceed the maximum are skipped.
"""
CROSS: Final[tuple[Place, ...]] = ("cross",)
WEAK = 0.5
"""Value of `Method.agreement` below which users are told that an alignment is weak: most links may be wrong."""
LENT = 0.05
"""When heads are chosen, the importance of an input token for an output token is increased by this share of its
importance for the previous and for the next output token (docs/log.md).
"""

# --- importance ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Importance(Answer):
    """Importance of each input token (column) for the log-probability of each output token (row), in nats."""

    source_tokens: list[str]
    target_tokens: list[str]
    gradient: Floats
    """Gradient of the output token's log-probability with respect to the input token's embedding (without position),
    multiplied by the embedding and summed over its dimensions.
    """
    left_out: Floats
    """Decrease of the output token's log-probability, in nats, when the input token is left out of the source; negative
    if it increases, and 0 for the end token, which is never left out.
    """
    integrated: Floats | None = None
    """Integrated gradients; the baseline is the source with all token embeddings set to zero and its positions kept. A
    row sums approximately to the log-probability of its output token minus its log-probability at the baseline. None
    unless requested.
    """


def importance(bundle: Bundle, reading: Reading, watch: Watch = unwatched, steps: int = 0) -> Importance:
    """Return the importance of each input token for each output token: by its gradient, by leaving it out and, if
    `steps` is above 0, by integrated gradients.

    Args:
        steps: number of points at which gradients are integrated; 0 for no integrated gradients.
    """
    if steps < 0:
        raise SettingError(
            f"steps={steps}: expected a number of points for integrated gradients, or 0 to leave them out"
        )
    by_gradient, left_out = gradient_times_input(bundle, reading, watch), leave_out(bundle, reading, watch)
    integrated = integrated_gradients(bundle, reading, steps, watch) if steps else None
    return Importance(reading.source_tokens, reading.target_tokens, by_gradient, left_out, integrated)


def gradient_times_input(bundle: Bundle, reading: Reading, watch: Watch = unwatched) -> Floats:
    """Return TS (output by input tokens): the gradient of each output token's log-probability with respect to each
    input token's embedding, times this embedding, summed over its dimensions.

    There is one forward pass, and one backward pass for each output token.
    """
    return _gradients(bundle, reading, [1.0], [1.0], watch)


def integrated_gradients(bundle: Bundle, reading: Reading, steps: int, watch: Watch = unwatched) -> Floats:
    """Return TS (output by input tokens): gradient times input, with the gradient averaged while all source
    embeddings are scaled from 0 to 1 (Sundararajan et al., 2017).

    The integral is computed by Gauss-Legendre quadrature with `steps` points. Positions are not scaled.
    """
    points, weights = np.polynomial.legendre.leggauss(steps)
    return _gradients(bundle, reading, ((1 + points) / 2).tolist(), (weights / 2).tolist(), watch)


def _gradients(
    bundle: Bundle, reading: Reading, scales: Sequence[float], weights: Sequence[float], watch: Watch
) -> Floats:
    """Return TS (output by input tokens): gradients of log-probabilities at source embeddings scaled by each of
    `scales`, times the unscaled embeddings, summed over their dimensions and, weighted by `weights`, over the scales.
    """
    S, T = len(reading.source_ids), len(reading.target_ids)
    size = max(1, AT_ONCE // (S + T))
    parts = range(0, len(scales), size)
    rows_TS = torch.zeros(T, S)
    for number, first in enumerate(parts):
        C = len(scales[first : first + size])
        scale_CS1 = torch.tensor(scales[first : first + size], dtype=torch.float32)[:, None, None].expand(C, S, 1)
        weight_C1 = torch.tensor(weights[first : first + size], dtype=torch.float32)[:, None]
        logs_CT, x_CSD, scaled_ND = _scaled(bundle, reading, scale_CS1)
        for t in range(T):
            (slope_ND,) = torch.autograd.grad(logs_CT[:, t].sum(), scaled_ND, retain_graph=t < T - 1)
            along_CS = (slope_ND.view_as(x_CSD) * x_CSD).sum(-1).float().cpu()
            rows_TS[t] += (weight_C1 * along_CS).sum(0)
            watch("computing gradients of output tokens", number * T + t + 1, len(parts) * T)
    return rows_TS.numpy()


def _scaled(bundle: Bundle, reading: Reading, scale_CS1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run the model over C copies of a sentence, with source embeddings multiplied by `scale_CS1`.

    Return the log-probabilities CT of the output tokens, the unscaled embeddings CSD, and the scaled ones ND, with
    respect to which gradients can be taken.
    """
    held: list[Tensor] = []
    C, S, _ = scale_CS1.shape

    def hold(_: object, __: object, x_ND: Tensor) -> Tensor:
        x_CSD = x_ND.detach().view(C, S, -1)
        held.extend([x_CSD, (x_CSD * scale_CS1.to(x_CSD)).view_as(x_ND).requires_grad_()])
        return held[-1]

    handle = bundle.model.source_embedding.without_positions.register_forward_hook(hold)
    try:
        logs_N = target_logs(bundle, [reading.source_ids] * C, [reading.target_ids] * C)
    finally:
        handle.remove()
    x_CSD, scaled_ND = held
    return logs_N.view(C, -1), x_CSD, scaled_ND


@torch.inference_mode()
def leave_out(bundle: Bundle, reading: Reading, watch: Watch = unwatched) -> Floats:
    """Return TS (output by input tokens): the fall, in nats, of the log-probability of output token t when
    input token s is left out of the source; 0 for the end token of the source, which is never left out.
    """
    S, T = len(reading.source_ids), len(reading.target_ids)
    full_T = target_logs(bundle, [reading.source_ids], [reading.target_ids])
    columns = [torch.zeros_like(full_T)]
    size = max(1, AT_ONCE // (S + T))
    for first in range(0, S - 1, size):
        places = range(first, min(first + size, S - 1))
        shorter = [[*reading.source_ids[:place], *reading.source_ids[place + 1 :]] for place in places]
        columns[-1:-1] = full_T - target_logs(bundle, shorter, [reading.target_ids] * len(places)).view(-1, T)
        watch("leaving out input tokens", places.stop, S - 1)
    return torch.stack(columns, -1).float().cpu().numpy()


# --- the heads that align --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method(Answer):
    """The attention heads by which a run aligns, and how reliable they are; `manifest.json` stores these fields."""

    heads: list[list[int]]
    """Decoder layer and number, both from 0, of the heads that are used. Their cross-attention weights are averaged, at
    the step that predicts an output token; `guided` describes an exception.
    """
    reading: float
    """Factor of a second term, which is added to the weights of `heads`: the mean cross-attention weights of all heads
    of all layers at the position where the output token is the decoder's input. It has no effect if `guided`.
    """
    agreement: float = 0.0
    """Share of output tokens that this method aligns with the input token whose omission changes their log-probability
    most (a share `LENT` of the changes of neighbouring output tokens is added); 0 if `pairs` is 0. See also `guided`.
    """
    pairs: int = 0
    """Number of validation pairs on which `agreement` was measured; 0 if it was not measured."""
    chosen_on: int = 0
    """Number of other validation pairs on which the heads were chosen; 0 if they were not chosen, or, in runs of
    earlier releases, if the same pairs were used for both.
    """
    guided: bool = False
    """Whether one head was trained to align (guided alignment). Then only its weights are used, at the step where the
    output token is the decoder's input, one after the step that predicts it. `agreement` is then measured against the
    aligner that supplied the training links (`tokens.aligner`): the share of the output tokens with a link for which
    the head picks the same source token.
    """

    @property
    def is_weak(self) -> bool:
        return self.agreement < WEAK

    @property
    def in_words(self) -> str:
        """Return a text for users about the heads that are used and their reliability."""
        layers = sorted({layer for layer, _ in self.heads})
        one = len(self.heads) == 1
        many = f"head {self.heads[0][1] + 1} of " if one else f"{len(self.heads)} heads of "
        where = f"layer {layers[0] + 1}" if len(layers) == 1 else f"{len(layers)} layers"
        if not self.pairs:
            return f"by {many}{where}; its reliability is unknown without short validation pairs"
        if self.guided:
            weak = ". Weak: most links may be wrong" if self.is_weak else ""
            return (
                f"by {many}{where}, which was trained for it, and aligns {self.agreement:.0%} of the linked output "
                f"tokens of {self.pairs} validation pairs as the aligner that taught it{weak}"
            )
        share = f"{self.agreement:.0%} of the output tokens of {self.pairs} validation pairs"
        share += (
            f" (chosen on {self.chosen_on} others)"
            if self.chosen_on
            else " (on which they were chosen, so this is too high)"
        )
        weak = ". Weak: most links may be wrong" if self.is_weak else ""
        agree = "agrees" if one else "agree"
        return f"by {many}{where}, which {agree} with the effect of leaving out input tokens for {share}{weak}"


def standard(bundle: Bundle) -> Method:
    """Return the method that uses all heads, for a run without suitable validation pairs."""
    return Method(_every(bundle.settings), 0.25)


def guided(settings: Settings) -> Method | None:
    """Return the method, its agreement not measured, of a run with a head that was trained to align; else None."""
    if not settings.training.alignment_weight:
        return None
    return Method([list(special.alignment_head(settings.model.decoder_layers))], 1.0, guided=True)


def measure_guided(bundle: Bundle, store: Store, watch: Watch = unwatched) -> Method | None:
    """Return the method of a run with a head that was trained to align; None for other runs. The method's agreement is
    measured on up to `MOST_PAIRS` validation pairs if they have links of an aligner.
    """
    method = guided(bundle.settings)
    if method is None or not store.has_links:
        return method
    some = np.arange(min(len(store), MOST_PAIRS))
    source_N, source_offsets, target_N, target_offsets = store.gather(some)
    sources, targets = _unpacked(source_N, source_offsets), _unpacked(target_N, target_offsets)
    links = _unpacked(store.links(some), target_offsets)
    hits = tokens = 0
    for number, (index, weights) in enumerate(attention_of(bundle, sources, targets, CROSS), start=1):
        watch("measuring on validation pairs how well the attention head aligns words", number, len(some))
        wanted_T = np.array(links[index][:-1], np.int64)
        picked_T = _mean(weights["cross"], method)[:-1, :-1].argmax(-1)
        hits += int((picked_T == wanted_T).sum())
        tokens += int((wanted_T >= 0).sum())
    return replace(method, agreement=round(hits / tokens, 4), pairs=len(some)) if tokens else method


def _unpacked(tokens_N: NDArray[np.int64], offsets: NDArray[np.int64]) -> list[list[int]]:
    return [each.tolist() for each in np.split(tokens_N, offsets[1:-1])]


def from_json(kept: Any, settings: Settings) -> Method | None:
    """Return the method that a manifest stores; None if it stores none, or one that does not fit the model."""
    try:
        method = Method(**kept)
        places = [place for place in _every(settings) if place in method.heads]
        are_integers = all(type(number) is int for number in (method.pairs, *itertools.chain(*method.heads)))
        are_shares = all(
            type(share) in (int, float) and 0 <= share <= 1 for share in (method.reading, method.agreement)
        )
    except TypeError:
        return None
    fits = places and len(places) == len(method.heads) and are_integers and are_shares
    fits = fits and type(method.guided) is bool and (not method.guided or len(method.heads) == 1)
    return method if fits and 0 <= method.pairs <= MOST_PAIRS else None


def choose(bundle: Bundle, pairs: Sequence[Pair], watch: Watch = unwatched) -> Method:
    """Choose the heads whose weights point to the input tokens that change the output most when they are left out.

    Of the first `MOST_PAIRS` pairs, those that are short enough (`MOST_TOKENS`) are used: every second one to choose,
    and the others to measure the agreement of the chosen heads. With a single pair nothing is measured, and without any
    the method is `standard`.
    """
    readings = list(_few(bundle, pairs))
    candidates = list(candidate_methods(bundle))
    hits_2C, tokens_2, pairs_2 = np.zeros((2, len(candidates))), [0, 0], [0, 0]
    sources, targets = [each.source_ids for each in readings], [each.target_ids for each in readings]
    for number, (index, weights) in enumerate(attention_of(bundle, sources, targets, CROSS), start=1):
        watch("choosing on validation pairs the attention heads that align words", number, len(readings))
        reading, weights_LHTS = readings[index], weights["cross"]
        visible_S = _visible(bundle, reading.source, spans.read(bundle.tokenizers.source, reading.source))
        if not visible_S.any():
            continue
        part = sum(pairs_2) % 2  # 0: chooses, 1: measures
        wanted_T = _pick(_lent(np.abs(leave_out(bundle, reading))), visible_S)[:-1]  # the end comes from nowhere
        tokens_2[part] += len(wanted_T)
        pairs_2[part] += 1
        for place, candidate in enumerate(candidates):
            hits_2C[part, place] += (_pick(_mean(weights_LHTS, candidate), visible_S)[:-1] == wanted_T).sum()
    if not tokens_2[0]:
        return standard(bundle)
    place = int(hits_2C[0].argmax())
    agreement = round(float(hits_2C[1, place]) / tokens_2[1], 4) if tokens_2[1] else 0.0
    best = candidates[place]
    return Method(best.heads, best.reading, agreement, pairs_2[1] if tokens_2[1] else 0, pairs_2[0])


def _few(bundle: Bundle, pairs: Sequence[Pair]) -> Iterator[Reading]:
    """Yield those of the first `MOST_PAIRS` pairs that are short enough: a pair is skipped if, with those before it,
    leaving out each source token once would take more than `MOST_TOKENS` tokens in all.
    """
    pairs, tokens = pairs[:MOST_PAIRS], 0
    for pair, source, target in zip(pairs, *encode(bundle, pairs), strict=True):
        needed = len(source) * (len(source) + len(target))
        if tokens + needed <= MOST_TOKENS:
            tokens += needed
            yield Reading(pair.source, pair.target, source, target)


def candidate_methods(bundle: Bundle) -> Iterator[Method]:
    """Yield the methods to choose from, for three values of `Method.reading`: all heads, the heads of each layer, and
    each head alone. If several methods agree equally well, the first is chosen.
    """
    every = _every(bundle.settings)
    layers = [[each for each in every if each[0] == layer] for layer in sorted({layer for layer, _ in every})]
    for reading in (0.25, 0.5, 0.0):
        for heads in (every, *reversed(layers), *([each] for each in every)):
            yield Method(heads, reading)


def _every(settings: Settings) -> list[list[int]]:
    layers, heads = settings.model.attention.get("cross", (0, 0))  # an RNN may have none
    return [[layer, head] for layer in range(layers) for head in range(heads)]


# --- alignment -------------------------------------------------------------------------------------------------------


class Link(NamedTuple):
    """A span of characters of the translation, and the span of the source that it is aligned with."""

    source: Span
    target: Span


@dataclass(frozen=True)
class Alignment(Answer):
    """Alignment of a translation with its source: by words (`pharaoh`), and by characters (`links`)."""

    pharaoh: str
    """Links between words in Pharaoh format, such as `0-0 2-1`: index of the input word, index of the output word, both
    from 0, in the order of the output.
    """
    links: list[Link]
    """One link for each output token that has visible characters, in the order of the output."""

    def without_tag(self, length: int) -> "Alignment":
        """Return the alignment for the source without its tag (such as `<2de>`) and the space after it, which have
        `length` characters together; 0 if there is no tag.
        """
        if not length:
            return self
        pairs = [pair.split("-") for pair in self.pharaoh.split()]
        words = " ".join(f"{int(source) - 1}-{target}" for source, target in pairs)
        return Alignment(words, [Link((start - length, end - length), target) for (start, end), target in self.links])


def align(
    bundle: Bundle,
    method: Method,
    sources: Sequence[str],
    source_ids: Sequence[Sequence[int]],
    target_ids: Sequence[Sequence[int]],
) -> list[Alignment]:
    """Align translations with their sources by cross-attention; an empty source or translation has an empty alignment.

    Args:
        source_ids: the tokens of each source with the end token (`Result.source`); empty for an empty line.
        target_ids: the output tokens without the end token (`Translation.tokens`). If they and the end token are more
            than the model has learned positions for, the last ones are left out.
    """
    most = bundle.settings.model.longest - 1
    target_ids = [ids[:most] for ids in target_ids]
    asked = [index for index, sides in enumerate(zip(source_ids, target_ids, strict=True)) if all(sides)]
    ended = [[*target_ids[index], special.END] for index in asked]
    found = [Alignment("", [])] * len(sources)
    for place, weights in attention_of(bundle, [source_ids[index] for index in asked], ended, CROSS):
        index = asked[place]
        found[index] = of_weights(bundle, method, sources[index], target_ids[index], weights["cross"])
    return found


def align_results(
    bundle: Bundle, method: Method, lines: Sequence[str], tagged: Sequence[str], results: Sequence[Result]
) -> list[list[Alignment]]:
    """Align all translations of each line.

    Args:
        tagged: the lines as they were translated, with a tag in front if the model needs one.
    """
    asked = [(line, result, each) for line, result in zip(tagged, results, strict=True) for each in result.translations]
    found = iter(
        align(
            bundle,
            method,
            [line for line, _, _ in asked],
            [result.source for _, result, _ in asked],
            [each.tokens for _, _, each in asked],
        )
    )
    return [
        [next(found).without_tag(len(with_tag) - len(line)) for _ in result.translations]
        for line, with_tag, result in zip(lines, tagged, results, strict=True)
    ]


def of_weights(
    bundle: Bundle, method: Method, source: str, target_ids: Sequence[int], weights_LHTS: Floats
) -> Alignment:
    """Align one translation, given the cross-attention weights of all layers and heads."""
    read = spans.read(bundle.tokenizers.source, source)[: weights_LHTS.shape[-1] - 1]
    visible_S = _visible(bundle, source, read)
    if not visible_S.any():
        return Alignment("", [])
    target = bundle.tokenizers.target.decode(target_ids)
    written = spans.written(bundle.tokenizers.target, target_ids)
    picked_T = _pick(_mean(weights_LHTS, method), visible_S)[:-1].tolist()
    links = [
        Link(read[place], span)
        for place, span in zip(picked_T, written, strict=True)
        if not spans.is_blank(target, span)
    ]
    pairs = {
        (output, input)
        for link in links
        for input in spans.touching(spans.words(source), link.source)
        for output in spans.touching(spans.words(target), link.target)
    }
    return Alignment(" ".join(f"{input}-{output}" for output, input in sorted(pairs)), links)


def _visible(bundle: Bundle, source: str, read: list[Span]) -> NDArray[np.bool_]:
    """Return, for each of the S - 1 source tokens before the end token, whether an output can be aligned with it: with
    spaces and tags it cannot.
    """
    tags = bundle.tokenizers.source.tags
    return np.array([not spans.is_blank(source, span) and source[slice(*span)] not in tags for span in read], np.bool_)


def _mean(weights_LHTS: Floats, method: Method) -> Floats:
    mean_TS: Floats = np.mean([weights_LHTS[layer, head] for layer, head in method.heads], axis=0)
    if method.guided:
        mean_TS[:-1] = mean_TS[1:]
        return mean_TS
    mean_TS[:-1] += method.reading * weights_LHTS[:, :, 1:].mean((0, 1))
    return mean_TS


def _lent(owed_TS: Floats) -> Floats:
    lent_TS = owed_TS.copy()
    lent_TS[1:] += LENT * owed_TS[:-1]
    lent_TS[:-1] += LENT * owed_TS[1:]
    return lent_TS


def _pick(weights_TS: Floats, visible_S: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return T: for each output token, the index of the largest weight among the input tokens marked in `visible_S`."""
    S = weights_TS.shape[-1] - 1
    picked_T: NDArray[np.int64] = np.where(visible_S[:S], weights_TS[:, :S], -1.0).argmax(-1)
    return picked_T
