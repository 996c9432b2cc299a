"""`export --to onnx`: encoder and decoder in the layout of Optimum and transformers.js, and a check in onnxruntime.

config.json, generation_config.json                  as for Hugging Face's Marian, the class that both programs use
tokenizer.json, target/tokenizer.json                for the source, and for the target if it has one of its own
onnx/encoder_model.onnx, decoder_model_merged.onnx   the two that transformers.js loads (int8: *_quantized.onnx)
onnx/decoder_model.onnx, decoder_with_past_model.onnx
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see import bundle, config, special
from seq2see.config import Settings
from seq2see.decoding import ct2_engine, translator
from seq2see.decoding.translator import Result, Translation
from seq2see.errors import SettingError
from seq2see.interop import huggingface_writer
from seq2see.interop.huggingface_writer import write_json
from seq2see.interop.onnx_graph import HIDDEN, KINDS, TransformerGraph
from seq2see.tokens import sentencepiece_models
from seq2see.tokens.interface import Tokenizer
from seq2see.tokens.store import Tokenizers
from seq2see.tokens.tokenizers import Characters, Imported, Subwords

if TYPE_CHECKING:
    from numpy.typing import NDArray

AT_ONCE = 32
QUANTIZED = "_quantized"
"""Suffix of the names of int8 models, as transformers.js expects it (`dtype: "q8"`)."""


def write(run: Path, folder: Path, precision: str) -> None:
    """Write graphs, configuration and tokenizers of a run into the folder; unsupported settings raise an error."""
    import onnx

    settings, tokenizers = config.read_settings(run), Tokenizers.load(run)
    if settings.model.architecture != "transformer":
        raise SettingError(
            f"{run}: model.architecture = '{settings.model.architecture}': only a Transformer can be exported to ONNX"
        )
    for side in ("source", "target"):
        kind = getattr(settings.data, f"{side}_tokenizer")
        if kind not in ("unigram", "characters", "imported"):
            raise SettingError(
                f"{run}: data.{side}_tokenizer = '{kind}' cannot be written as tokenizer.json. Use --to ctranslate2"
            )
        if (where := getattr(settings.data, f"{side}_tags")) != "none":
            raise SettingError(
                f"{run}: data.{side}_tags = '{where}': tags that are tokens cannot be written as tokenizer.json. Use "
                "--to ctranslate2, or train anew with --set data.source_tags=none --set data.target_tags=none"
            )
    if settings.data.normalization != "identity":
        raise SettingError(
            f"{run}: data.normalization = '{settings.data.normalization}' cannot be written as tokenizer.json. "
            "Use --to ctranslate2"
        )
    weights = bundle.read_arrays(run, settings, tokenizers)
    tables, turns = ct2_engine.position_tables(settings, weights)
    graphs = TransformerGraph(settings.model, weights, tables, turns, fold=precision == "int8")
    place = folder / "onnx"
    place.mkdir()
    for kind in KINDS if precision == "float32" else (KINDS[0], KINDS[3]):
        model = graphs.build(kind)
        onnx.checker.check_model(model)
        onnx.save(model, str(place / f"{kind}.onnx"))
        if precision == "int8":
            _quantize(place / f"{kind}.onnx", place / f"{kind}{QUANTIZED}.onnx")
    huggingface_writer.write_configuration(folder, settings, tokenizers)
    write_tokenizer(folder, tokenizers.source)
    if tokenizers.target is not tokenizers.source and settings.model.tie != "all":
        (folder / "target").mkdir()
        write_tokenizer(folder / "target", tokenizers.target)


def _quantize(path: Path, smaller: Path) -> None:
    """Replace the model file `path` by `smaller`, with int8 matrices; activations are quantized at run time."""
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.disable(logging.WARNING)  # it recommends to preprocess the model, which changes nothing here
    try:
        quantize_dynamic(str(path), str(smaller), weight_type=QuantType.QInt8, per_channel=True)
    finally:
        logging.disable(logging.NOTSET)
    path.unlink()


# tokenizer.json, which `tokenizers` and transformers.js read


def write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Write `tokenizer_config.json`, and `tokenizer.json` with a unigram model, whose tokens are single characters if
    `tokenizer` splits text into characters.
    """
    steps: list[dict[str, Any]] = []
    reading: dict[str, Any] = {"type": "Fuse"}
    if not isinstance(tokenizer, Characters):
        if isinstance(tokenizer, Imported):
            steps += _normalizers(tokenizer)
        steps += [{"type": "Prepend", "prepend": "▁"}, _replace(" ", "▁")]
        parts = [{"type": "ByteFallback"}, {"type": "Fuse"}, _replace("▁", " ")]
        reading = {"type": "Sequence", "decoders": [*parts, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    spellings = [*dict.fromkeys(f"{id:08} {each}" for id, each in enumerate(tokenizer.spellings()))]
    spelled = [each[9:] for each in spellings]
    named = [*enumerate(special.SPELLINGS), *((tokenizer.encode([f"{tag} "])[0][0], tag) for tag in tokenizer.tags)]
    ending = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    about = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": content in tokenizer.tags}
            | {"normalized": False, "special": True}
            for id, content in sorted(dict(named).items())
        ],
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, ending],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, ending, {"Sequence": {"id": "B", "type_id": 0}}, ending],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [special.END], "tokens": ["</s>"]}},
        },
        "decoder": reading,
        "model": {
            "type": "Unigram",
            "unk_id": special.UNKNOWN,
            "vocab": list(map(list, zip(spelled, _scores(tokenizer), strict=True))),
            "byte_fallback": isinstance(tokenizer, Subwords),
        },
    }
    write_json(folder / "tokenizer.json", about)
    names = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>", "model_max_length": 512}
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def _normalizers(tokenizer: Imported) -> list[dict[str, Any]]:
    """Return the normalisation steps of an imported SentencePiece model: its table, stripping, merging of spaces."""
    found: list[dict[str, Any]] = []
    if table := sentencepiece_models.table(tokenizer.sentencepiece_model):
        found.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode("ascii")})
    blanks = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    return [*found, {"type": "Strip", "strip_left": True, "strip_right": True}, blanks]


RARE = -1000.0
"""Score, in `tokenizer.json`, of tokens of a shared vocabulary that the SentencePiece model of this side does not have:
so low that no text is segmented into them.
"""


def _scores(tokenizer: Tokenizer) -> list[float]:
    import sentencepiece

    if not isinstance(tokenizer, Subwords | Imported):
        return [0.0] * len(tokenizer)
    reader = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.sentencepiece_model)
    scores = {reader.id_to_piece(id): reader.get_score(id) for id in range(reader.get_piece_size())}
    return [float(scores.get(spelling, RARE)) for spelling in tokenizer.spellings()]


# onnxruntime


class OnnxModel:
    """An exported model in onnxruntime, with greedy search."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime

        def session(kind: str) -> Any:
            ending = QUANTIZED if (folder / "onnx" / f"{kind}{QUANTIZED}.onnx").exists() else ""
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            path = str(folder / "onnx" / f"{kind}{ending}.onnx")
            return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

        self._encoder, self._decoder = session(KINDS[0]), session(KINDS[3])
        self._past = [each for each in self._decoder.get_inputs() if each.name.startswith("past")]
        self._outputs = [each.name for each in self._decoder.get_outputs()]

    def search(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """Return the output ids without END, at most `limits` for each source; the source ids must end with END."""
        found: list[list[int]] = []
        for begin in range(0, len(sources), AT_ONCE):
            found += self._search(sources[begin : begin + AT_ONCE], limits[begin : begin + AT_ONCE])
        return found

    def _search(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        import numpy as np

        B, S = len(sources), max(map(len, sources))
        ids_BS = np.array([[*source, *[special.PAD] * (S - len(source))] for source in sources], np.int64)
        mask_BS = np.array([[1] * len(source) + [0] * (S - len(source)) for source in sources], np.int64)
        (memory_BSD,) = self._encoder.run(None, {"input_ids": ids_BS, "attention_mask": mask_BS})
        fixed = {"encoder_attention_mask": mask_BS, "encoder_hidden_states": memory_BSD}
        past: dict[str, NDArray[np.float32]] = {
            each.name: np.zeros((B, each.shape[1], 0, each.shape[3]), np.float32) for each in self._past
        }
        tokens_B1 = np.full((B, 1), special.BEGIN, np.int64)
        outputs: list[list[int]] = [[] for _ in sources]
        going = set(range(B))
        for step in range(max(limits)):
            branch = {"use_cache_branch": np.array([step > 0])}
            logits, *present = self._decoder.run(None, {"input_ids": tokens_B1, **fixed, **past, **branch})
            past = {
                name.replace("present", "past_key_values"): each
                for name, each in zip(self._outputs[1:], present, strict=True)
            }
            logits_BV = logits[:, -1]
            logits_BV[:, [special.PAD, special.BEGIN]] = HIDDEN
            tokens_B1 = logits_BV.argmax(-1)[:, None]
            for place in sorted(going):
                token = int(tokens_B1[place, 0])
                if token != special.END:
                    outputs[place].append(token)
                if token == special.END or len(outputs[place]) >= limits[place]:
                    going.discard(place)
            if not going:
                break
        return outputs


def greedy(folder: Path, settings: Settings, tokenizers: Tokenizers, lines: Sequence[str]) -> list[Result]:
    """Translate lines with onnxruntime by greedy search."""
    encoded = tokenizers.source.encode([line.strip() for line in lines])
    sources = [[*ids[: settings.decoding.max_source - 1], special.END] for ids in encoded]
    ratio, extra = settings.decoding.max_ratio, settings.decoding.max_extra
    limits = [translator.limit(len(source), ratio, extra) for source in sources]
    found = OnnxModel(folder).search(sources, limits)
    return [Result((Translation(tokenizers.target.decode(ids), 0.0, tuple(ids)),)) for ids in found]
