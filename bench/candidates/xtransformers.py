"""x-transformers: its own architecture (pre-norm, no biases) in the same size, with random weights."""

from pathlib import Path

import work
from candidates.padded import Padded
from torch import Tensor
from x_transformers import XTransformer


class Candidate(Padded):
    def __init__(self, size: work.Size, weights: Path, tuned: bool) -> None:
        options = {
            "num_tokens": size.vocabulary,
            "max_seq_len": 512,
            "depth": size.layers,
            "heads": size.heads,
            "attn_dim_head": size.d_model // size.heads,
            "ff_mult": size.d_ff // size.d_model,
            "attn_flash": True,
            "layer_dropout": 0.0,
            "ff_dropout": work.DROPOUT,
            "emb_dropout": work.DROPOUT,
        }
        named = {f"{side}_{key}": value for side in ("enc", "dec") for key, value in options.items()}
        whole = XTransformer(dim=size.d_model, tie_token_emb=True, **named)
        whole.decoder = whole.decoder.net  # its wrapper computes a loss of its own
        whole.decoder.to_logits.weight = whole.encoder.token_emb.emb.weight
        self.model = whole
        self.start_training(tuned)

    def logits(self, source: Tensor, inputs: Tensor) -> Tensor:
        keep = source != work.PAD
        memory = self.model.encoder(source, mask=keep, return_embeddings=True)
        return self.model.decoder(inputs, context=memory, context_mask=keep)
