"""Whether waves reach beyond the lengths of training; the trials are those of `order`."""

from dataclasses import replace

from seq2see.lab import order
from seq2see.lab.claim import Chart, Expectation

CLAIM = replace(
    order.CLAIM,
    name="longer",
    rows_of="order",
    words="Waves may allow the model to extrapolate to sequences longer than those of training.",
    source="Vaswani et al. 2017, section 3.5, end",
    expectations=(
        Expectation(
            "with waves, the task is learned within the lengths of training, so there is a quality to keep",
            "tokens right, waves - none",
            lambda rows: rows.get("tokens", positions="sinusoid") - rows.get("tokens", positions="none"),
            at_least=0.2,
        ),
        Expectation(
            "with waves, at least half of the quality is left on sequences up to half as long again",
            "tokens right, beyond / within, waves",
            lambda rows: rows.get("tokens_beyond", positions="sinusoid") / rows.get("tokens", positions="sinusoid"),
            at_least=0.5,
        ),
    ),
    charts=(
        Chart("tokens right, lengths of training", "tokens", "positions"),
        Chart("tokens right, longer than in training", "tokens_beyond", "positions"),
    ),
)
