"""Claim: sinusoids extrapolate beyond the lengths of training; the trials are those of `order`."""

from functools import partial

from seq2see.lab.claim import Measurements, Value
from seq2see.lab.claims import order

ROWS_OF = "order"
trials, measure = order.trials, order.measure


def _kept(rows: Measurements, of: str) -> float:
    """Return `order.gain` of the positions `of` over no positions on longer sequences than in training, divided by the
    gain on sequences of trained lengths: 1 if all of it is kept, 0 if nothing.
    """
    beyond, within = (order.gain(rows, "none", of, number) for number in ("tokens_beyond", "tokens"))
    return beyond / within


VALUES: dict[str, Value] = {
    "within": lambda rows: order.gain(rows, over="none"),
    "beyond": partial(_kept, of="sinusoid"),
}
CONTROLS: dict[str, Value] = {"beyond": partial(_kept, of="learned")}
