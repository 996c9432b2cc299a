"""Run folders of a size, as every candidate reads them: one with random weights, one with weights that copy."""

import math
from collections.abc import Callable
from pathlib import Path

import torch

from bench import work
from seq2see import bundle, config, special, storage
from seq2see.model.build import build
from seq2see.model.transformer import Transformer
from seq2see.tokens import tokenizers
from seq2see.tokens.store import Tokenizers


def random_run(folder: Path, size: work.Size) -> Path:
    """Random weights, and an output bias that rules the end out: outputs are then of a set length."""

    def forbid_end(model: Transformer) -> None:
        model.output.bias[special.END] = -30

    return _run(folder, size, forbid_end)


def copying_run(folder: Path, size: work.Size) -> Path:
    """Weights made by hand that copy the source: outputs end where they should, at the cost of any other weights.

    Tokens live in all columns but the first K, whose waves tell the place, and the slowest sine, which stays at zero
    and so tells what a norm has subtracted. The first decoder layer looks at the same place in the source by these
    columns, and adds what it finds, four times as strong as what is there. All other layers add zeros.
    """

    def fill(model: Transformer) -> None:
        D, K = size.d_model, size.d_model // size.heads
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.zero_()
        tokens = model.source_embedding.tokens.weight
        tokens.normal_()
        tokens[:, :K] = tokens[:, D - 2] = 0
        tokens.mul_(30 / math.sqrt(D) / tokens.norm(dim=1, keepdim=True))
        across = model.decoder[0].cross_attention
        query, key, value = across.w_qkv.weight.chunk(3)
        for head in range(size.heads):
            rows = slice(head * K, (head + 1) * K)
            query[rows, :K] = key[rows, :K] = 20 * torch.eye(K)
            query[rows, D - 2] = key[rows, D - 2] = -20
        value.copy_(torch.eye(D))
        across.w_o.weight.copy_(4 * torch.eye(D))

    return _run(folder, size, fill)


def _run(folder: Path, size: work.Size, change: Callable[[Transformer], None]) -> Path:
    """A run folder of the paper's architecture; `change` gets its freshly initialised model."""
    assert (work.PAD, work.UNKNOWN, work.BEGIN, work.END) == (special.PAD, special.UNKNOWN, special.BEGIN, special.END)
    if (folder / "manifest.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    model = {
        "encoder_layers": size.layers,
        "decoder_layers": size.layers,
        "d_model": size.d_model,
        "heads": size.heads,
        "d_ff": size.d_ff,
        "dropout": work.DROPOUT,
        "output_bias": True,
    }
    data = {"source_tokenizer": "symbols", "target_tokenizer": "symbols", "shared": True}
    settings = config.resolve({"model": model, "data": data})
    words = " ".join(f"w{number}" for number in range(special.COUNT, size.vocabulary))
    one = tokenizers.train("symbols", [words], size.vocabulary, "identity")
    assert len(one) == size.vocabulary, len(one)
    torch.manual_seed(1)
    built = build(settings.model, size.vocabulary, size.vocabulary)
    with torch.no_grad():
        change(built)
    config.write_toml(settings, folder / "settings.toml")
    Tokenizers(one, one).save(folder)
    bundle.save_weights(built, folder / "model.safetensors")
    storage.write_manifest(folder, {"corpus": folder.name, "state": "finished"})
    return folder
