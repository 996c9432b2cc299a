"""Claim: sinusoids extrapolate beyond the lengths of training; the trials are those of `order`."""

from seq2see.lab.claim import Value
from seq2see.lab.claims import order

ROWS_OF = "order"
trials, measure = order.trials, order.measure

VALUES: dict[str, Value] = {
    "within": lambda rows: order.gain(rows, over="none"),
    "beyond": lambda rows: rows.get("tokens_beyond", positions="sinusoid") / rows.get("tokens", positions="sinusoid"),
}
