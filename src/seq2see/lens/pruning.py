"""Head pruning curves: loss and score while attention heads are removed one after the other.

    found = prune(bundle, pairs, score)
    found.curve("encoder").loss                         # with 0, 1, 2, ... heads removed, the least important first

The importance of a head is how far the loss rises without this head alone (Michel et al., 2019); the least important
head is removed first. A control removes heads in random orders: the ranking is informative where its loss stays below
that of the random orders. Every second pair ranks the heads, and the others measure the curves, because an order looks
better on the pairs that chose it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, NamedTuple

import numpy as np

from seq2see.bundle import Bundle
from seq2see.config import Place
from seq2see.display import notebook
from seq2see.display.wording import translated
from seq2see.errors import DataError, SettingError
from seq2see.lens import heads
from seq2see.lens.heads import Head, Scorer
from seq2see.lens.reading import ATTENTIONS, Answer, Watch, encode, unwatched
from seq2see.text.pair import Pair

Part = Place | Literal["all"]
Order = Literal["importance", "random"]
PAIRS = 200
"""Maximum number of validation pairs that are used if the user gives no pairs: half of them rank the heads by
importance, and the other half measure the curves.
"""
ORDERS = 3
"""Default number of random orders in which heads are removed, as a control for the order of importance."""
POINTS = 10
"""Default maximum number of points of a curve, besides that of the whole model; for each point, all pairs that measure
the curves are translated once.
"""
TOLERANCE = 0.1
"""Share of the loss of the whole model by which the loss may rise for heads to count as removable."""


@dataclass(frozen=True)
class Curve(Answer):
    """Loss and score of a model from which more and more heads are removed; a point for each number in `removed`."""

    part: Part
    """Kind of attention from which heads are removed: `encoder`, `decoder` or `cross`; `all` for heads of every
    kind.
    """
    order: Order
    heads: list[Head]
    """All heads of this kind in the order in which they are removed."""
    removed: list[int]
    """Number of heads that have been removed at each point of the curve, from 0 to all."""
    loss: list[float]
    """Mean loss per target token, in nats, at each point."""
    score: list[float]
    """Score of the greedy translations, by the metric `Pruning.metric`, at each point."""

    @property
    def removable(self) -> int:
        """Return the largest number of removed heads at which, and at all points before, the loss is at most a tenth
        (`TOLERANCE`) above that of the whole model.
        """
        most = (1 + TOLERANCE) * self.loss[0]
        points = zip(self.removed, self.loss, strict=True)
        return max(count for count, _ in takewhile(lambda point: point[1] <= most, points))


class Rise(NamedTuple):
    """Importance of a head: how far the loss rises without it alone, in nats per target token."""

    head: Head
    rise: float


@dataclass(frozen=True)
class Pruning(Answer):
    """Head pruning curves of each kind of attention and of all together, by importance and in random orders."""

    pairs: int
    """Number of pairs on which the curves were measured."""
    ranked_on: int
    """Number of other pairs on which the importance of the heads was measured."""
    metric: str
    """Name of the score that the curves show besides the loss."""
    seed: int
    """Seed of the random orders in which heads were removed."""
    importance: list[Rise]
    """For every head, the rise of the loss without it; the least important head is first."""
    curves: list[Curve]

    @property
    def parts(self) -> list[Part]:
        """Return the kinds of attention that the model has, then `all` if it has several."""
        return list(dict.fromkeys(each.part for each in self.curves))

    def curve(self, part: Part = "all") -> Curve:
        """Return the curve of a kind of attention, or of all, in the order of importance."""
        return next(each for each in self.curves if (each.part, each.order) == (part, "importance"))

    def random(self, part: Part = "all") -> list[Curve]:
        """Return the curves of a kind of attention, or of all, in random orders."""
        return [each for each in self.curves if (each.part, each.order) == (part, "random")]

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows: how many heads of each kind of attention can be removed."""
        rows = [(part, len(self.curve(part).heads), *self._removable(part)) for part in self.parts]
        columns = ["attention", "heads", "removable by importance", "removable in random order"]
        return notebook.table(
            translated("heads that can be removed before the loss rises by more than 10 %"), columns, rows
        )

    def _removable(self, part: Part) -> tuple[int, str]:
        return self.curve(part).removable, ", ".join(str(each.removable) for each in self.random(part))


class PruningPlan(NamedTuple):
    """How heads are pruned: the seed and number of random orders, and the maximum number of points of a curve."""

    seed: int = 1
    orders: int = ORDERS
    points: int = POINTS


def prune(
    bundle: Bundle,
    pairs: Sequence[Pair],
    score: Scorer,
    metric: str = "",
    plan: PruningPlan = PruningPlan(),  # noqa: B008  it is immutable
    watch: Watch = unwatched,
) -> Pruning:
    """Rank all heads by the loss without each, then remove them in this order and in random orders.

    Args:
        pairs: every second pair is used to rank, and the others to measure the curves.
        score: function that scores the greedy translations.
        metric: the name of that score.
    """
    if plan.orders < 0 or plan.points < 1:
        raise SettingError(
            f"orders={plan.orders}, points={plan.points}: expected at least 0 random orders and 1 curve point"
        )
    ranking, measuring = pairs[::2], pairs[1::2]
    if not measuring:
        raise DataError("pruning needs at least 2 pairs: one half ranks the heads, the other half measures the curves")
    importance = rank(bundle, ranking, watch)
    parts = _parts([each.head for each in importance])
    dice = random.Random(plan.seed)
    orders: list[tuple[Part, Order, list[Head]]] = [(part, "importance", order) for part, order in parts]
    for _ in range(plan.orders):
        orders += [(part, "random", dice.sample(order, len(order))) for part, order in parts]
    counts = {part: _counts(len(order), plan.points) for part, order in parts}
    wanted = {frozenset(order[:count]): order[:count] for part, _, order in orders for count in counts[part] if count}
    worth = heads.worth(bundle, measuring, list(wanted.values()), score, watch)
    found = dict(zip(wanted, worth.without, strict=True)) | {frozenset(): worth.whole}
    curves = []
    for part, kind, order in orders:
        points = [found[frozenset(order[:count])] for count in counts[part]]
        losses, scores = [each.loss for each in points], [each.score or 0.0 for each in points]
        curves.append(Curve(part, kind, order, counts[part], losses, scores))
    return Pruning(len(measuring), len(ranking), metric, plan.seed, importance, curves)


def rank(bundle: Bundle, pairs: Sequence[Pair], watch: Watch = unwatched) -> list[Rise]:
    """Return every head with its importance (`Rise`), the least important first; nothing is translated."""
    sides, every = encode(bundle, pairs), heads.every_head(bundle)
    whole, found = heads.mean_loss(bundle, *sides), []
    for number, head in enumerate(every, start=1):
        with heads.switched_off(bundle.model, [head]):
            found.append(Rise(head, heads.mean_loss(bundle, *sides) - whole))
        watch("ranking heads by the loss without each", number, len(every))
    return sorted(found, key=lambda each: each.rise)


def _parts(order: list[Head]) -> list[tuple[Part, list[Head]]]:
    """Return the heads of each kind of attention, in the given order, then all heads if there are several kinds."""
    parts: list[tuple[Part, list[Head]]] = []
    for place in ATTENTIONS:
        chosen = [head for head in order if head.place == place]
        parts += [(place, chosen)] if chosen else []
    return [*parts, ("all", order)] if len(parts) > 1 else parts


def _counts(heads: int, points: int) -> list[int]:
    """Return the numbers of removed heads at which a curve is measured: from 0 to all, evenly spaced, rounded."""
    return sorted({round(float(count)) for count in np.linspace(0, heads, min(heads, points) + 1)})
