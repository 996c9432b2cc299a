"""The Transformer and the systems that it replaced, with about as many parameters each."""

from typing import Any

import torch

from seq2see import config
from seq2see.config import Model
from seq2see.lab.learning import SMALL
from seq2see.model.build import build, count_parameters
from seq2see.model.interface import Seq2Seq

RIVALS = ("transformer", "rnn-attention", "rnn")


def rival(kind: str, seed: int, vocabularies: tuple[int, int], **changes: Any) -> Seq2Seq:
    """A small Transformer with some changes, or an RNN of one layer that has as many parameters as it."""
    transformer = config.check_keys({"model": {**SMALL, **changes}}).model
    torch.manual_seed(seed)
    if kind == "transformer":
        return build(transformer, *vocabularies)
    wanted = count_parameters(transformer, *vocabularies)
    return build(as_large(kind, wanted, vocabularies, dropout=transformer.dropout, tie=transformer.tie), *vocabularies)


def as_large(kind: str, parameters: int, vocabularies: tuple[int, int], **options: Any) -> Model:
    """The RNN of this kind whose number of parameters is nearest; its state is as wide as its embeddings."""
    common = {"architecture": kind, "encoder_layers": 1, "decoder_layers": 1, **options}
    choices = (config.check_keys({"model": {**common, "d_model": width}}).model for width in range(8, 4096, 4))

    def too_many(model: Model) -> int:
        return count_parameters(model, *vocabularies) - parameters

    best = next(choices)
    for model in choices:
        if abs(too_many(model)) < abs(too_many(best)):
            best = model
        if too_many(model) > 0:
            break
    return best
