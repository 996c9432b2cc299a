"""Validation of a model that is still being trained, by one process or by several that divide the work."""

import math
import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import torch
from torch.nn import functional as F

from seq2see import machine, special
from seq2see.bundle import Bundle
from seq2see.config import Training
from seq2see.decoding import translator
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.distributed import ranks
from seq2see.evaluation import metrics
from seq2see.model.interface import Seq2Seq
from seq2see.text.pair import Pair
from seq2see.tokens.batches import Batches, make_batch, split
from seq2see.tokens.store import Int64s, Store
from seq2see.training import loop

AT_ONCE = 1024
"""Maximum number of source and target tokens in one forward pass of `losses`, which holds the logits of all targets in
memory; a pair with more has a pass of its own.
"""
UNKNOWN_LOSS = math.log(sys.maxunicode)
"""Loss in nats that is added for each unknown target token: that of choosing its character among all Unicode code
points with equal probability.
"""
Measured = tuple[float, int, list[str]]
"""Measurements of one process on its share of the validation pairs: summed loss in nats, number of target tokens, and
translations if the metric needs them.
"""

SEARCHED, FEWEST = 0.0075, 1000
"""Maximum number of target tokens of the pairs that a validation translates, as a share of the tokens trained on
between two validations; and the number of pairs up to which a validation translates all, even if their tokens exceed
this share.
"""


def validate(used: Bundle, store: Store, pairs: list[Pair], unit: metrics.Unit) -> dict[str, float]:
    """Return the mean loss per target token, without label smoothing, and `training.metric` of greedy translations.

    Args:
        store: the pairs for the loss, as tokens, without those that are too long.
        pairs: the pairs to be translated for the metric; unused if the metric is the loss.
        unit: what an error rate counts.
    """
    return scores(used, pairs, unit, [measure(used, store, pairs)])


def searched(pairs: list[Pair], target_tokens: int, training: Training) -> list[Pair]:
    """Return the validation pairs that are translated for the metric: all, or a part that is evenly spread over a large
    set.

    Translating a token of a small model takes about as long as training on one or two on a CPU, and on seven on a GPU.
    If more than `FEWEST` pairs are translated, they have at most a share of `SEARCHED` of the tokens trained on between
    two validations, so that this takes below a tenth of the time. The choice depends on settings and pairs alone, not
    on the machine.

    The set is divided into stretches of equal length, and a random pair of each is taken: every n-th pair would all be
    of one kind where kinds alternate.

    Args:
        target_tokens: number of tokens in the targets of all pairs.
    """
    room = SEARCHED * training.validate_every * training.batch_tokens
    most = max(FEWEST, int(len(pairs) * room / max(1, target_tokens)))
    count, dice = min(len(pairs), most), random.Random(0)
    starts = [number * len(pairs) // count for number in range(count)]
    return [pairs[dice.randrange(start, end)] for start, end in pairwise([*starts, len(pairs)])]


@torch.inference_mode()
def measure(used: Bundle, store: Store, pairs: list[Pair], rank: int = 0, world: int = 1) -> Measured:
    """Return the measurements of process `rank` of `world` on its share; with smaller batches if memory runs out."""
    at_once = machine.micro_tokens(next(used.model.parameters()).device)
    batches = [indices for indices, _ in Batches(store, at_once, len(store), seed=0).one_epoch()]
    summed_loss = partial(_summed_loss, used.model, store, batches[rank::world])
    total, count = machine.in_smaller_batches(summed_loss, at_once)
    answers: list[str] = []
    if used.settings.training.metric != "loss":
        decoding = used.settings.decoding
        sources = [pairs[place].source for place in _dealt(pairs, world)[rank]]

        def translated(tokens: int) -> list[str]:
            greedy = replace(used.settings, decoding=replace(decoding, beam=1, batch_tokens=tokens))
            results = translator.translate(TorchEngine(used.model), used.tokenizers, greedy, sources)
            return [result.text for result in results]

        answers = machine.in_smaller_batches(translated, decoding.batch_tokens)
    return total, count, answers


@torch.inference_mode()
def losses(model: Seq2Seq, store: Store) -> list[float]:
    """Return the loss of each pair in nats, summed over the tokens of its target.

    `UNKNOWN_LOSS` is added for each unknown token, so that tokenizers with unknown tokens can be compared with others
    that can write every text.
    """
    device = next(model.parameters()).device
    found = np.zeros(len(store))
    for indices, _ in Batches(store, AT_ONCE, len(store), seed=0).one_epoch():
        batch = make_batch(store, indices).to(device)
        memory = model.encode(batch.source_N, batch.source_offsets)
        logits_NV = model.output(model.decode(batch.inputs_N, batch.target_offsets, memory)).float()
        known_N = F.cross_entropy(logits_NV, batch.target_N, reduction="none").double()
        losses_N = (known_N + UNKNOWN_LOSS * (batch.target_N == special.UNKNOWN)).cpu().numpy()
        found[indices] = np.add.reduceat(losses_N, batch.target_offsets[:-1].numpy())
    return [float(loss) for loss in found]


FEWEST_TO_COMPARE, STANDARD_ERRORS = 50, 2.0
"""Minimum number of validation pairs for a comparison of two models, because with fewer no difference would be
significant; and the number of standard errors by which their mean losses per pair must differ for one to be better.
"""


def by_pair(pairs: list[Pair], losses: list[float]) -> dict[str, float]:
    """Return the loss of each pair by a hash of the pair; none if there are no losses."""
    texts = (f"{pair.source}\t{pair.target}".encode() for pair in pairs)
    return {blake2b(text, digest_size=8).hexdigest(): loss for text, loss in zip(texts, losses, strict=False)}


def are_lower(losses: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Return whether the mean loss is significantly lower than that of another model, over the pairs that both have."""
    differences = [others[key] - losses[key] for key in sorted(losses.keys() & others.keys())]
    if len(differences) < FEWEST_TO_COMPARE:
        return False
    return statistics.fmean(differences) > STANDARD_ERRORS * statistics.stdev(differences) / math.sqrt(len(differences))


def scores(used: Bundle, pairs: list[Pair], unit: metrics.Unit, parts: list[Measured]) -> dict[str, float]:
    """Return the scores from the measurements of all processes, given in the order of their ranks."""
    found = {"loss": sum(total for total, _, _ in parts) / sum(count for _, count, _ in parts)}
    metric, world = used.settings.training.metric, len(parts)
    if metric != "loss":
        answers = ranks.put_back([answers for _, _, answers in parts], _dealt(pairs, world))
        found[metric] = metrics.one(metric, answers, [[pair.target, *pair.references] for pair in pairs], unit)
    return found


def _dealt(pairs: list[Pair], world: int) -> list[list[int]]:
    """Return the indices of the pairs that each process translates."""
    return ranks.dealt([len(pair.source) for pair in pairs], world)


def _summed_loss(model: Seq2Seq, store: Store, batches: list[Int64s], tokens: int) -> tuple[float, int]:
    """Return the summed loss in nats, without label smoothing, and the number of target tokens.

    Batches with more than `tokens` source and target tokens are split.
    """
    device = next(model.parameters()).device
    total, count = 0.0, 0
    for indices in batches:
        for micro_batch in split(indices, store.source_lengths(indices) + store.target_lengths(indices), tokens):
            loss = loop.loss_of(model, make_batch(store, micro_batch).to(device))
            total, count = total + float(loss.plain), count + int(loss.tokens)
    return total, count
