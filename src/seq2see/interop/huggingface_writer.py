"""Write runs as Hugging Face's Marian folders without loss; settings that Marian does not support raise an error."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see import bundle, config, special
from seq2see.config import Settings
from seq2see.decoding import translator
from seq2see.decoding.translator import Result, Translation
from seq2see.errors import SettingError
from seq2see.interop import names
from seq2see.interop.huggingface import ACTIVATIONS, EMBEDDINGS, LOGITS_BIAS, OUTPUT, SAFETENSORS, SHARED
from seq2see.tokens import sentencepiece_models
from seq2see.tokens.interface import Tokenizer
from seq2see.tokens.sentencepiece_models import SPACE_MARK
from seq2see.tokens.store import Tokenizers
from seq2see.tokens.tokenizers import Characters, Imported, Subwords

if TYPE_CHECKING:
    from seq2see.interop.names import Weights

AT_ONCE = 50
"""Maximum number of sentences that `generate` of Hugging Face Transformers translates in one batch when the exported
model is compared with the run.
"""


def obstacle(settings: Settings) -> str | None:
    """Return, as a text, the first setting that Marian does not support; None if the model can be exported."""
    model, data = settings.model, settings.data
    needed: list[tuple[str, Any, Any]] = [
        ("model.architecture", model.architecture, "transformer"),
        ("model.norm", model.norm, "post"),
        ("model.positions", model.positions, "sinusoid"),
        ("model.norm_epsilon", model.norm_epsilon, 1e-5),
        ("model.d_key", model.d_key or model.d_model // model.heads, model.d_model // model.heads),
        ("model.d_value", model.d_value, 0),
        ("data.normalization", data.normalization, "identity"),
    ]
    for key, value, must in needed:
        if value != must:
            return f"{key} = {value!r}, Marian supports only {must!r}"
    return tokenizer_obstacle(settings)


def tokenizer_obstacle(settings: Settings) -> str | None:
    """Return, as a text, the first tokenizer setting that SentencePiece models cannot represent; None if they can."""
    for side in ("source", "target"):
        kind = getattr(settings.data, f"{side}_tokenizer")
        if kind not in ("unigram", "bpe", "characters", "imported"):
            return f"data.{side}_tokenizer = {kind!r} cannot be written as a SentencePiece model"
        if (where := getattr(settings.data, f"{side}_tags")) != "none":
            return f"data.{side}_tags = {where!r}: tags that are tokens cannot be written as a SentencePiece model"
    return None


def check(run: Path, settings: Settings) -> None:
    """Raise an error if Marian cannot represent a run exactly."""
    if problem := obstacle(settings):
        raise SettingError(f"{run}: {problem}. A run of `seq2see train PAIRS --for huggingface` can be exported")


def write(run: Path, folder: Path, precision: str) -> None:
    """Write a run as a Marian folder; the weights are bit-identical to those of the run (rounded for float16)."""
    settings, tokenizers = config.read_settings(run), Tokenizers.load(run)
    check(run, settings)
    weights = bundle.read_arrays(run, settings, tokenizers)
    _write_weights(folder / SAFETENSORS, stored(weights, settings), precision)
    write_tokenizers(folder, tokenizers, settings)
    write_configuration(folder, settings, tokenizers)


def stored(weights: "Weights", settings: Settings) -> "Weights":
    """Return our weights under Marian's names, with columns in its order."""
    import numpy as np

    model, order = settings.model, names.halves(settings.model.d_model)
    back = np.argsort(order)
    found = names.parted(names.huggingface(model), weights, order)
    source = weights["source_embedding.tokens.weight"][:, back]
    if model.tie == "all":
        found[SHARED] = source
    else:
        found[EMBEDDINGS["source"]] = source
        found[EMBEDDINGS["target"]] = weights["target_embedding.tokens.weight"][:, back]
    if model.tie == "none":
        found[OUTPUT] = weights["output.weight"][:, back]
    if "output.bias" in weights:
        found[LOGITS_BIAS] = weights["output.bias"][None]
    return found


def _write_weights(path: Path, weights: "Weights", precision: str) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    kind = np.float16 if precision == "float16" else np.float32
    save_file({name: np.ascontiguousarray(weight, kind) for name, weight in weights.items()}, path, {"format": "pt"})
    path.chmod(0o644)


def write_configuration(folder: Path, settings: Settings, tokenizers: Tokenizers) -> None:
    """Write `config.json` and `generation_config.json`. Special tokens keep our ids."""
    model, decoding = settings.model, settings.decoding
    theirs = {ours: name for name, ours in reversed(ACTIVATIONS.items())}
    longest = int(decoding.max_ratio * (decoding.max_source + 8)) + decoding.max_extra + 1
    ids = {"pad_token_id": special.PAD, "eos_token_id": special.END, "bos_token_id": special.BEGIN}
    ids |= {"decoder_start_token_id": special.BEGIN}
    about = {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "vocab_size": len(tokenizers.source),
        "decoder_vocab_size": len(tokenizers.target),
        "d_model": model.d_model,
        "encoder_layers": model.encoder_layers,
        "decoder_layers": model.decoder_layers,
        "num_hidden_layers": model.encoder_layers,
        "encoder_attention_heads": model.heads,
        "decoder_attention_heads": model.heads,
        "encoder_ffn_dim": model.d_ff,
        "decoder_ffn_dim": model.d_ff,
        "activation_function": theirs[model.activation],
        "dropout": model.dropout,
        "max_position_embeddings": max(longest, decoding.max_source),
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "share_encoder_decoder_embeddings": model.tie == "all",
        "tie_word_embeddings": model.tie != "none",
        "is_encoder_decoder": True,
        "forced_eos_token_id": None,
        **ids,
    }
    never = [[special.PAD], [special.BEGIN]]
    search = {"bad_words_ids": never, "num_beams": decoding.beam, "length_penalty": decoding.length_penalty}
    search |= {"renormalize_logits": True}  # as our search: the probability of these two is given to all others
    write_json(folder / "config.json", about)
    most = 512 if decoding.max_ratio else decoding.max_extra + 1  # Marian has no limit that grows with the source
    write_json(folder / "generation_config.json", ids | search | {"max_length": most, "forced_eos_token_id": None})


def write_tokenizers(folder: Path, tokenizers: Tokenizers, settings: Settings) -> None:
    """Write SentencePiece models, the ids of their tokens, and `tokenizer_config.json`."""
    write_json(folder / "vocab.json", vocabulary(tokenizers.source))
    separate = tokenizers.target is not tokenizers.source and settings.model.tie != "all"
    if separate:
        write_json(folder / "target_vocab.json", vocabulary(tokenizers.target))
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        (folder / f"{side}.spm").write_bytes(sentencepiece_model(tokenizer))
    about = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate, "model_max_length": 512}
    about |= {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
    write_json(folder / "tokenizer_config.json", about)


def vocabulary(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of tokens by SentencePiece spelling; language tags are spelled as in Marian models (`>>fra<<`)."""
    tags = {tag: f">>{tag[2:-1]}<<" for tag in tokenizer.tags if tag.startswith("<2")}
    spellings = [tags.get(each, each) for each in tokenizer.spellings()]
    if isinstance(tokenizer, Characters):
        spellings = [SPACE_MARK if each == " " else each for each in spellings]
    found: dict[str, int] = {}
    for id, spelling in enumerate(spellings):
        found.setdefault(spelling, id)
    return found


def sentencepiece_model(tokenizer: Tokenizer) -> bytes:
    """Return a SentencePiece model that splits text in the same way as a tokenizer."""
    if isinstance(tokenizer, Subwords | Imported):
        return tokenizer.sentencepiece_model
    return sentencepiece_models.of_characters(list(vocabulary(tokenizer))[special.COUNT :])


def write_json(path: Path, about: dict[str, Any]) -> None:
    path.write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def generate(folder: Path, settings: Settings, sources: Sequence[str]) -> list[Result]:
    """Translate with `transformers` by greedy search, with the length limits of the run."""
    import warnings

    from transformers import MarianMTModel, MarianTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends sacremoses, which it does not use here
        tokenizer = MarianTokenizer.from_pretrained(folder)
    model: Any = MarianMTModel.from_pretrained(folder)
    model, found = model.float().eval(), []
    ratio, extra = settings.decoding.max_ratio, settings.decoding.max_extra
    sources = [re.sub("^<2([^>]+)> *", r">>\1<<", source) for source in sources]  # as Marian's models spell tags
    for begin in range(0, len(sources), AT_ONCE):
        batch = tokenizer(list(sources[begin : begin + AT_ONCE]), return_tensors="pt", padding=True)
        limits = [translator.limit(int(length), ratio, extra) for length in batch["attention_mask"].sum(1)]
        given = model.generate(**batch, num_beams=1, do_sample=False, max_length=max(limits) + 1)
        for row, limit in zip(given.tolist(), limits, strict=True):
            ids = row[1 : 1 + limit]
            ids = ids[: ids.index(special.END)] if special.END in ids else ids
            text = tokenizer.decode(ids, skip_special_tokens=True)
            found.append(Result((Translation(text, 0.0, tuple(ids)),)))
    return found
