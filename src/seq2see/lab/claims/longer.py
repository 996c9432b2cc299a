"""Claim: sinusoids extrapolate beyond the lengths of training; the trials are those of `order`."""

from functools import partial

from seq2see.lab.claim import Measurements, Value
from seq2see.lab.claims import order

ROWS_OF = "order"
trials, measure = order.trials, order.measure


def _kept(rows: Measurements, of: str) -> float:
    """Return the gain in accuracy by positions `of` over none beyond the trained lengths, divided by that within."""
    beyond, within = (order.gain(rows, "none", of, number) for number in ("tokens_beyond", "tokens"))
    return beyond / within


VALUES: dict[str, Value] = {
    "within": lambda rows: order.gain(rows, over="none"),
    "beyond": partial(_kept, of="sinusoid"),
}
CONTROLS: dict[str, Value] = {"beyond": partial(_kept, of="learned")}
