"""Hugging Face's Marian folders (OPUS-MT): convert them to the parts of a run.

config.json, generation_config.json     sizes, ids of special tokens
vocab.json, target_vocab.json           ids of tokens; one file if both sides share them
source.spm, target.spm                  SentencePiece models
model.safetensors or pytorch_model.bin  weights
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seq2see import bundle, config, special, storage
from seq2see.config import Model, Overlay, Settings
from seq2see.errors import RunError, SettingError, shown
from seq2see.interop import names
from seq2see.interop.names import refuse
from seq2see.text.tags import language_tag
from seq2see.tokens.interface import LONGEST_TOKEN, SURROGATE, TokenizerSetup
from seq2see.tokens.store import Tokenizers
from seq2see.tokens.tokenizers import Imported

if TYPE_CHECKING:
    from seq2see.interop.names import Weights

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}
"""Names of activation functions in `config.json` of Marian models, and our name of each."""
MUTED = -100.0
"""Bias added to the logit of a token that must never be generated: it multiplies its probability by about 4e-44."""
LANGUAGE = re.compile(r"[\w@.+-]{1,40}")
"""Pattern of a language code in a tag of a model: `fra`, `cmn_Hans`."""
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"


@dataclass(frozen=True)
class Foreign:
    """An imported model, converted to the parts of a run: settings, tokenizers, weights and facts."""

    settings: Settings
    tokenizers: Tokenizers
    weights: "Weights"
    facts: dict[str, Any] = field(default_factory=dict)
    """Entries of `manifest.json` in addition to those of every imported run."""
    notes: tuple[str, ...] = ()
    """Notes for the user about differences between the outputs of the run and of the program that the model comes
    from.
    """


@dataclass(frozen=True)
class SideVocabulary:
    """The vocabulary of one side: the spelling of each token by our ids, and its id in the other program."""

    spellings: list[str]
    rows: list[int]
    """For each of our token ids, the id of the token, and so its row of the embedding matrix, in the other program."""
    muted: list[int]
    """Our ids of tokens that are never generated, because another of our ids stands for the same token of the other
    program, or because the other program has no such token.
    """

    @property
    def languages(self) -> list[str]:
        """Return the languages that a source can request by a tag such as `>>fra<<`."""
        found = [each[2:-2] for each in self.spellings if each.startswith(">>") and each.endswith("<<")]
        return sorted({each for each in found if LANGUAGE.fullmatch(each)})


def renumbered(
    where: Path, vocabulary: Mapping[str, int], size: int, pad: int, unknown: int, start: int, end: int
) -> SideVocabulary:
    """Return a vocabulary in our order of ids: padding, unknown, begin, end, then all other tokens by increasing id.

    Args:
        vocabulary: Ids of the other program by token.
        size: Number of rows of its embedding matrix.
        pad, unknown, start, end: Its ids of the special tokens, which may be equal.
    """
    if not all(type(id) is int and 0 <= id < size for id in (*vocabulary.values(), pad, unknown, start, end)):
        raise RunError(
            f"{where}: the id of a token is not a number from 0 to {size - 1:,}, the last row of the embeddings"
        )
    bad = [token for token in vocabulary if len(token) > LONGEST_TOKEN or SURROGATE.search(token)]
    if bad:
        raise RunError(f"{where}: the token {shown(bad[0])} is very long, or holds half of a surrogate pair. Refused")
    by_id = {id: token for token, id in vocabulary.items()}
    if len(by_id) < len(vocabulary):
        raise RunError(f"{where}: two tokens have the same id. Copy the folder again")
    first = [pad, unknown, start, end]
    owners = {special_id: place for place, special_id in reversed(list(enumerate(first)))}
    owners |= {start: special.BEGIN}  # also where padding is what outputs begin with, as in all Marian models
    owners |= {end: special.END, unknown: special.UNKNOWN}
    rest = [id for id in range(size) if id not in owners]
    return SideVocabulary(
        spellings=[*special.SPELLINGS, *(by_id.get(id, f"<unused{id}>") for id in rest)],
        rows=[*first, *rest],
        muted=[place for place, id in enumerate(first) if owners[id] != place],
    )


def read(folder: Path) -> Foreign:
    """Convert the folder of a Marian model; raise an error if it is damaged, or has features that we do not support."""
    about = _read_json(folder / "config.json")
    said = folder / "generation_config.json"
    if said.exists():
        about |= {key: value for key, value in _read_json(said).items() if key in SEARCH}
    model = _model(folder / "config.json", about)
    source, target = _sides(folder, about)
    files = [folder / name for name in (SAFETENSORS, PICKLE) if (folder / name).exists()]
    if not files:
        raise RunError(
            f"{folder}: neither {SAFETENSORS} nor {PICKLE} is there. Weights in several files are not supported"
        )
    stored = _read_weights(files[0])
    weights, chosen = _converted(files[0], stored, about, model, source, target)
    notes = _without_bad_words(said if said.exists() else folder / "config.json", about, target, weights)
    chosen = replace(chosen, output_bias="output.bias" in weights)
    settings = settings_of(said if said.exists() else folder / "config.json", chosen, about, source, target)
    tokenizers = tokenizers_of(folder, source, target)
    named = folder / "tokenizer_config.json"
    codes = _read_json(named) if named.exists() else {}
    sides = {side: _language(codes.get(f"{side}_lang")) for side in ("source", "target")}
    notes += [
        f"{key} = {shown(about[key])} is not used" for key, usual in UNUSED.items() if about.get(key) not in usual
    ]
    facts = {"languages": sides, "weights": files[0].name}
    return Foreign(settings, tokenizers, weights, facts, tuple(notes))


IDS = ("decoder_start_token_id", "eos_token_id", "pad_token_id", "forced_eos_token_id", "bad_words_ids")
UNUSED: dict[str, tuple[Any, ...]] = {
    "do_sample": (None, False),
    "early_stopping": (None, False),
    "no_repeat_ngram_size": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "repetition_penalty": (None, 1),
    "encoder_repetition_penalty": (None, 1),
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "num_beam_groups": (None, 1),
    "diversity_penalty": (None, 0),
    "exponential_decay_length_penalty": (None,),
    "forced_bos_token_id": (None,),
    "suppress_tokens": (None, []),
    "begin_suppress_tokens": (None, []),
    "sequence_bias": (None, {}),
}
"""Keys of `generation_config.json` that change outputs and that our search does not support, with the values that have
no effect.
"""
SEARCH = {"num_beams", "length_penalty", "max_length", "max_new_tokens", *IDS, *UNUSED}
"""Keys of `generation_config.json` that override those of `config.json`; its other keys are ignored. Those in `UNUSED`
only cause a note to the user.
"""


def _without_bad_words(path: Path, about: Mapping[str, Any], target: SideVocabulary, weights: "Weights") -> list[str]:
    """Forbid single tokens of `bad_words_ids` by a negative bias; return a note if it has sequences, which are ignored.

    Padding, which every model forbids, begin and end are left as they are: our search never outputs the first two.
    """
    import numpy as np

    words = about.get("bad_words_ids") or []
    size = len(target.rows) - len(target.muted)
    if not isinstance(words, list) or not all(
        isinstance(word, list) and word and all(type(id) is int and 0 <= id < size for id in word) for word in words
    ):
        raise RunError(f"{path}: bad_words_ids is not a list of lists of ids from 0 to {size - 1:,}")
    single = {word[0] for word in words if len(word) == 1}
    kept = (special.PAD, special.BEGIN, special.END)
    banned = [place for place, id in enumerate(target.rows) if id in single and place not in kept]
    if banned:
        bias_V = weights.setdefault("output.bias", np.zeros(len(target.rows), np.float32))
        bias_V[banned] += MUTED
    longer = sum(len(word) > 1 for word in words)
    return [f"bad_words_ids: {longer:,} words of several tokens are not forbidden"] if longer else []


def _language(code: Any) -> str | None:
    return code if isinstance(code, str) and LANGUAGE.fullmatch(code) else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = storage.read_json(path)
    except FileNotFoundError:
        raise RunError(f"{path}: no such file. Is this the folder of a Hugging Face Marian model?") from None
    except (ValueError, OSError) as problem:
        raise RunError(f"{path}: not JSON ({str(problem)[:100]}). Copy the folder again") from None
    if not isinstance(found, dict):
        raise RunError(f"{path}: not a JSON object. Copy the folder again")
    return found


MUST_BE: dict[str, Any] = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "add_bias_logits": False,
}
"""Keys of Marian's `config.json` that change the model, each with the only value that our model supports."""


def _model(path: Path, about: Mapping[str, Any]) -> Model:
    """Return the model settings, except those that the weights decide: tied embeddings, output bias and positions."""
    if about.get("model_type") != "marian":
        raise refuse(path, f"model_type is {shown(about.get('model_type'))}, not 'marian'")
    for key, value in MUST_BE.items():
        if about.get(key, value) != value:
            raise refuse(path, f"{key} = {shown(about[key])}")
    for key in ("attention_heads", "ffn_dim"):
        if about.get(f"encoder_{key}") != about.get(f"decoder_{key}"):
            raise refuse(path, f"encoder_{key} and decoder_{key} differ")
    if str(about.get("activation_function")) not in ACTIVATIONS:
        raise refuse(path, f"activation_function = {shown(about.get('activation_function'))}")
    numbers = {
        "encoder_layers": about.get("encoder_layers"),
        "decoder_layers": about.get("decoder_layers"),
        "d_model": about.get("d_model"),
        "heads": about.get("encoder_attention_heads"),
        "d_ff": about.get("encoder_ffn_dim"),
        "max_positions": about.get("max_position_embeddings", 1024),
        "activation": ACTIVATIONS[about["activation_function"]],
        "dropout": float(about["dropout"]) if type(about.get("dropout")) in (int, float) else 0.1,
    }
    return checked(path, {"model": numbers}).model


def checked(path: Path, *overlays: Overlay) -> Settings:
    """Resolve settings (`overlays`) from the file `path` of another program, which the message of an error names."""
    try:
        return config.resolve({"data": IMPORTED}, {"model": {"tie": "none"}}, *overlays)
    except SettingError as problem:
        raise RunError(f"{path}: {problem}") from None


IMPORTED = {"source_tokenizer": "imported", "target_tokenizer": "imported", "shared": False}


def _sides(folder: Path, about: Mapping[str, Any]) -> tuple[SideVocabulary, SideVocabulary]:
    """Return the vocabularies of source and target; the same object if there is no `target_vocab.json`."""
    vocabulary = _read_json(folder / "vocab.json")
    pad, end = about.get("pad_token_id"), about.get("eos_token_id")
    start = about.get("decoder_start_token_id", pad)
    end = end[0] if isinstance(end, list) and len(end) == 1 else end
    target_file = folder / "target_vocab.json"
    separate = target_file.exists()
    listed = _read_json(target_file) if separate else vocabulary
    where = target_file if separate else folder / "vocab.json"
    for path, each in ((folder / "vocab.json", vocabulary), (where, listed)):
        if missing := {"<unk>", "</s>"} - each.keys():
            raise RunError(f"{path}: no {' and '.join(sorted(missing))}. It needs </s> (end) and <unk> (unknown)")
    size = _size(folder / "config.json", about, "vocab_size")
    target_size = about.get("decoder_vocab_size") or size
    target_size = _size(folder / "config.json", {"decoder_vocab_size": target_size}, "decoder_vocab_size")
    ids: list[Any] = [pad, listed["<unk>"], start, end]
    target = renumbered(where, listed, target_size if separate else size, *ids)
    if not separate:
        return target, target
    own_pad = vocabulary.get("<pad>", vocabulary["</s>"])
    ids = [own_pad, vocabulary["<unk>"], vocabulary.get("<s>", own_pad), vocabulary["</s>"]]
    return renumbered(folder / "vocab.json", vocabulary, size, *ids), target


def _size(path: Path, about: Mapping[str, Any], key: str) -> int:
    size = about.get(key)
    if type(size) is not int or not special.COUNT <= size <= 10_000_000:
        raise RunError(f"{path}: {key} = {shown(size)}, expected a number of tokens from 4 to 10,000,000")
    return size


def tokenizers_of(folder: Path, source: SideVocabulary, target: SideVocabulary) -> Tokenizers:
    """Return the tokenizers of a folder with `source.spm` and `target.spm`."""
    tags = [spelling for each in source.languages for spelling in (language_tag(each), f">>{each}<<")]
    return Tokenizers(tokenizer(folder / "source.spm", source, tuple(tags)), tokenizer(folder / "target.spm", target))


def tokenizer(path: Path, side: SideVocabulary, tags: tuple[str, ...] = ()) -> Imported:
    """Return the tokenizer of one side, with the language tags `tags`, from the SentencePiece model in `path`."""
    if not path.is_file() or path.stat().st_size > storage.MOST_TEXT:
        raise RunError(f"{path}: no such file, or far too large for a SentencePiece model")
    try:
        return Imported(
            TokenizerSetup("imported", "identity", tags), side.spellings[special.COUNT :], path.read_bytes()
        )
    except (ValueError, RuntimeError, OSError) as problem:
        why = " ".join(str(problem).split())[:200]
        raise RunError(f"{path}: not a SentencePiece model, or damaged ({why}). Copy the folder again") from None


def _read_weights(path: Path) -> "Weights":
    """Read all weights of a file as float32. A pickle is only read if it contains nothing but tensors."""
    import torch

    numbers = path.stat().st_size // 2  # as many as there are if all are 16 bits wide
    bundle.check_memory(path, numbers + numbers // 2)
    if path.name == SAFETENSORS:
        stored = bundle.read_tensors(path)
    else:
        try:
            stored = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as problem:  # whatever is in the file: it is refused, and nothing of it was executed
            why = " ".join(str(problem).split())[:120]
            raise RunError(
                f"{path}: not a file of weights alone, so it is refused: reading more could execute code ({why})"
            ) from None
    if not isinstance(stored, dict) or not all(
        isinstance(name, str) and isinstance(weight, torch.Tensor) for name, weight in stored.items()
    ):
        raise RunError(f"{path}: expected a dictionary of tensors by name, found something else. Refused")
    if whole := [name for name, weight in stored.items() if not weight.is_floating_point()]:
        raise refuse(path, f"the weight {min(whole)[:80]} is not of floating-point numbers (a quantized model)")
    return {name: weight.detach().to(torch.float32).numpy() for name, weight in stored.items()}


SHARED, LOGITS_BIAS = "model.shared.weight", "final_logits_bias"
EMBEDDINGS = {"source": "model.encoder.embed_tokens.weight", "target": "model.decoder.embed_tokens.weight"}
POSITIONS = {"source": "model.encoder.embed_positions.weight", "target": "model.decoder.embed_positions.weight"}
OUTPUT = "lm_head.weight"


class _Tables:
    """Embeddings and output layer of a weight file, in which tied ones may be stored under one or several names."""

    def __init__(self, path: Path, stored: "Weights", about: Mapping[str, Any], sizes: tuple[int, int]) -> None:
        self._path, self._stored = path, stored
        width = about["d_model"]
        tied, shared = about.get("tie_word_embeddings", True), about.get("share_encoder_decoder_embeddings", True)
        (source, target), rows = EMBEDDINGS.values(), dict(zip(EMBEDDINGS, sizes, strict=True))
        if shared and sizes[0] != sizes[1]:
            raise RunError(f"{path}: two vocabularies cannot share embeddings (share_encoder_decoder_embeddings)")
        first = (SHARED,) if shared else ()
        self.source = self.read((rows["source"], width), *first, source, *((target, OUTPUT) if shared and tied else ()))
        self.target = self.output = self.source
        if not (shared and tied):
            self.target = self.output = self.read((rows["target"], width), target, *first, *((OUTPUT,) if tied else ()))
        if not tied:
            self.source = self.read((rows["source"], width), source, *first)
            self.output = self.read((rows["target"], width), OUTPUT)

    def read(self, shape: tuple[int, ...], *names: str) -> Any:
        """Return the first of the weights `names` that the file has; raise an error if none, or not of `shape`."""
        found = next((name for name in names if name in self._stored), None)
        if found is None:
            raise RunError(f"{self._path}: no weight {names[0]}. Copy the folder again")
        if self._stored[found].shape != shape:
            has = list(self._stored[found].shape)
            raise RunError(f"{self._path}: {found} has shape {has}, config.json requires {list(shape)}")
        return self._stored[found]


def _converted(
    path: Path,
    stored: "Weights",
    about: Mapping[str, Any],
    model: Model,
    source: SideVocabulary,
    target: SideVocabulary,
) -> tuple["Weights", Model]:
    """Return the weights under our names, and the model settings completed by what the weights determine."""
    import numpy as np

    tables = _Tables(path, stored, about, (len(source.rows) - len(source.muted), len(target.rows) - len(target.muted)))
    order, scale = names.halves(model.d_model), 1.0
    if not about.get("scale_embedding", False):
        scale = model.d_model**-0.5  # ours are multiplied by its inverse
        tables.source, tables.target = tables.source * np.float32(scale), tables.target * np.float32(scale)
    tie: Literal["all", "decoder", "none"] = "none"
    if tables.output is tables.target:
        tie = "all" if tables.source is tables.target else "decoder"
    bias_V = np.zeros(len(tables.output), np.float32)
    if LOGITS_BIAS in stored:
        bias_V = tables.read((1, len(bias_V)), LOGITS_BIAS)[0]
    weights = {"source_embedding.tokens.weight": tables.source[source.rows][:, order]}
    if tie != "all":
        weights["target_embedding.tokens.weight"] = tables.target[target.rows][:, order]
    if tie == "none":
        weights["output.weight"] = tables.output[target.rows][:, order]
    has_bias = bool(bias_V.any() or target.muted)
    if has_bias:
        weights["output.bias"] = bias_V[target.rows]
        weights["output.bias"][target.muted] += MUTED
    model = replace(model, tie=tie, output_bias=has_bias, **_positions(path, stored, model, weights, order))
    own = bundle.transformer_shapes(model, len(source.rows), len(target.rows))
    layers = names.huggingface(model)
    weights |= names.gathered(layers, own, lambda name, shape: tables.read(shape, name), order)
    used = {SHARED, LOGITS_BIAS, OUTPUT, *EMBEDDINGS.values(), *POSITIONS.values()}.union(*layers.values())
    if foreign := sorted(stored.keys() - used):
        raise refuse(path, f"a weight {foreign[0][:80]}")
    return weights, model


def _positions(path: Path, stored: "Weights", model: Model, weights: "Weights", order: Any) -> dict[str, Any]:
    """Add position tables to the weights unless the file has none or only sinusoids; return the settings of positions.

    Old files contain the sinusoids as well, rounded to 16 bits; ours are exact.
    """
    import numpy as np

    found = {side: stored[name] for side, name in POSITIONS.items() if name in stored}
    if not found:
        return {"positions": "sinusoid"}
    shape = (model.max_positions, model.d_model)
    for side, table in found.items():
        if table.shape != shape:
            raise RunError(f"{path}: {POSITIONS[side]} is {list(table.shape)}, expected {list(shape)}")
    angle = np.arange(shape[0])[:, None] / 10_000 ** (np.arange(0, shape[1], 2) / shape[1])
    waves = np.concatenate([np.sin(angle), np.cos(angle)], 1).astype(np.float32)
    if all(np.abs(table - waves).max() < 1e-3 for table in found.values()):
        return {"positions": "sinusoid"}
    for side in POSITIONS:
        weights[f"{side}_embedding.places.weight"] = found.get(side, waves)[:, order]
    return {"positions": "learned"}


def settings_of(
    path: Path, model: Model, about: Mapping[str, Any], source: SideVocabulary, target: SideVocabulary
) -> Settings:
    """Return the settings of the run: those of the model, of its search, and defaults for fine-tuning it."""
    longest = model.max_positions
    languages = source.languages
    data = IMPORTED | {"source_vocabulary": len(source.rows), "target_vocabulary": len(target.rows)}
    data |= {"tags": " ".join(languages), "max_length": min(256, longest - 1)}
    penalty = about.get("length_penalty", 1.0)
    decoding: dict[str, Any] = {"beam": about.get("num_beams", 4), "max_source": min(longest, MOST_SOURCE)}
    decoding |= {"length_penalty": float(penalty) if type(penalty) is int else penalty}
    if (most := _most_output(path, about)) is not None:
        decoding |= {"max_ratio": 0.0, "max_extra": min(most, MOST_OUTPUT)}
    return checked(path, {"data": data, "model": asdict(model), "training": FINE_TUNED, "decoding": decoding})


MOST_OUTPUT, MOST_SOURCE = 1000, 8192
"""Maximum of `decoding.max_extra` (tokens of an output, as `max_ratio` is 0) and of `decoding.max_source` in an
imported run; larger values of the model's configuration are reduced to these.
"""


def _most_output(path: Path, about: Mapping[str, Any]) -> int | None:
    """Return the maximum number of output tokens without END, as `generate` counts them; None if it is not set.

    `max_length` includes the start token. If the end is forced (`forced_eos_token_id`), it takes the last position.
    """
    key, begins = ("max_length", 1) if about.get("max_new_tokens") is None else ("max_new_tokens", 0)
    given = about.get(key)
    if given is None:
        return None
    if type(given) is not int or not 3 <= given <= 10**9:
        raise RunError(f"{path}: {key} = {shown(given)}, expected the maximum number of output tokens, at least 3")
    return given - begins - (about.get("forced_eos_token_id") is not None)


FINE_TUNED = {"learning_rate": 1e-4, "batch_tokens": 4096, "metric": "bleu"}
"""Training settings recorded for an imported model; `train --from` uses a fifth of this learning rate."""
