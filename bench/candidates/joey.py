"""JoeyNMT 2.3, with its own model, loss and settings of the paper's size; random weights."""

import logging
from pathlib import Path

import numpy as np
import torch
import work
from candidates.padded import Padded
from joeynmt.model import build_model
from joeynmt.vocabulary import Vocabulary

JOEY_PAD = 1
"""JoeyNMT wants the unknown token first."""


class Candidate(Padded):
    def __init__(self, size: work.Size, weights: Path, tuned: bool) -> None:
        logging.disable(logging.INFO)
        side = {
            "type": "transformer",
            "num_layers": size.layers,
            "num_heads": size.heads,
            "embeddings": {"embedding_dim": size.d_model, "scale": True, "dropout": 0.0},
            "hidden_size": size.d_model,
            "ff_size": size.d_ff,
            "dropout": work.DROPOUT,
            "layer_norm": "post",
        }
        settings = {"encoder": dict(side), "decoder": dict(side), "tied_embeddings": True, "tied_softmax": True}
        vocabulary = _vocabulary(size.vocabulary)
        self.model = build_model(settings, vocabulary, vocabulary)
        self.model.loss_function = ("crossentropy", work.SMOOTHING)
        self.start_training(tuned)

    def _loss(self, batch: work.Batch) -> torch.Tensor:
        source, inputs, labels = (
            torch.from_numpy(np.where(table == work.PAD, JOEY_PAD, table)) for table in work.rectangles(batch)
        )
        total, *_ = self.model(
            return_type="loss",
            src=source,
            trg_input=inputs,
            trg=labels,
            src_mask=(source != JOEY_PAD)[:, None, :],
            trg_mask=(labels != JOEY_PAD)[:, None, :],
            src_length=(source != JOEY_PAD).sum(1),
            trg_length=(labels != JOEY_PAD).sum(1),
        )
        return total / (labels != JOEY_PAD).sum()


def _vocabulary(size: int) -> Vocabulary:
    """Return a vocabulary as large as those of the others."""
    from types import SimpleNamespace

    special = SimpleNamespace(
        pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>",
        unk_id=0, pad_id=JOEY_PAD, bos_id=2, eos_id=3, sep_token=None, sep_id=None, lang_tags=[],
    )  # fmt: skip
    return Vocabulary([f"w{number}" for number in range(4, size)], special)
