"""A run folder with random weights in a size, as every candidate reads it."""

from pathlib import Path

import torch

from bench import work
from seq2see import bundle, config, special
from seq2see.bundle import Tokenizers
from seq2see.data import tokenizer
from seq2see.model.build import build


def run_folder(folder: Path, size: work.Size) -> Path:
    """The paper's architecture, but with an output bias that rules the end out: outputs are then of a set length."""
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
    one = tokenizer.train("symbols", [words], size.vocabulary, "identity")
    assert len(one) == size.vocabulary, len(one)
    torch.manual_seed(1)
    built = build(settings.model, size.vocabulary, size.vocabulary)
    with torch.no_grad():
        built.output.bias[special.END] = -30
    config.write_toml(settings, folder / "settings.toml")
    Tokenizers(one, one).save(folder)
    bundle.save_weights(built, folder / "model.safetensors")
    bundle.write_manifest(folder, {"corpus": "random", "state": "finished"})
    return folder
