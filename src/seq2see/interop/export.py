"""`export`: write a run in the format of another program, then check that this program gives the same output."""

import contextlib
import importlib.util
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seq2see import special, storage
from seq2see.bundle import Bundle, load
from seq2see.decoding import ct2_engine
from seq2see.decoding.ct2_engine import Ct2Engine
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.decoding.translator import Result, translate
from seq2see.errors import RunError, SettingError, nearest
from seq2see.interop import argos, huggingface_writer, onnx_export
from seq2see.text.corpora import Pairs
from seq2see.text.pair import NOTHING, Pair, Sides
from seq2see.tokens.store import Tokenizers
from seq2see.tokens.tokenizers import Imported, Subwords, Tagged

MOST_SENTENCES, FEWER_SENTENCES = 1000, 200


@dataclass(frozen=True)
class Parity:
    """Comparison of an exported model with our engine, on validation pairs or, if the run has none, on random texts.

    `same` is the number of sentences for which both have the same output tokens.
    """

    sentences: int
    same: int
    ours: list[str]
    theirs: list[str]
    references: list[str]
    """Reference translations of the sentences that were compared; empty if they are random texts."""

    @property
    def share(self) -> float:
        return 100 * self.same / self.sentences


def export(run: Path, folder: Path, to: str, precision: str, force: bool = False, languages: Sides = NOTHING) -> Parity:
    """Write the model of `run` and its tokenizers into a new `folder`, and compare its translations with ours.

    Args:
        to: The format, a key of `FORMATS`.
        force: Replace an earlier export.
        languages: Codes of source and target for a package of Argos; by default those of the run.
    """
    if to not in FORMATS:
        raise SettingError(f"--to {to}: unknown format. {nearest(to, FORMATS)}")
    if folder.exists() and not force:
        raise RunError(f"{folder}: exists already. Choose another folder, or replace it with --force")
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not is_export(folder))):
        raise RunError(f"{folder}: not an exported model, so it is not replaced. Choose another folder")
    place = Path(os.path.realpath(folder))  # the user may name a link to a folder, or `.`
    beside = place.with_name(f".{place.name}.part")
    with storage.in_one_line(folder, storage.REPEAT):
        place.parent.mkdir(parents=True, exist_ok=True)
        storage.refuse_link(beside)
        storage.remove(beside)
        beside.mkdir()
        try:
            parity = FORMATS[to](run, beside, precision, languages)
            storage.sync_all(beside)
            storage.remove(place)
            beside.rename(place)
        finally:
            with contextlib.suppress(OSError):
                storage.remove(beside)
    return parity


def is_export(folder: Path) -> bool:
    """Return whether `export` has written a folder, judged by the names of its files, which no run folder has."""
    return any((folder / name).exists() for name in ("model.bin", "config.json", "metadata.json"))


def _ctranslate2(run: Path, folder: Path, precision: str, languages: Sides) -> Parity:
    """Write a CTranslate2 model and tokenizers (of subwords, also SentencePiece models); compare outputs with ours."""
    check_precision(precision, (*ct2_engine.PRECISIONS, "float16"))
    ct2_engine.convert(run, folder, precision, add_source_eos=True)
    tokenizers = Tokenizers.load(run)
    tokenizers.save(folder)
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        if isinstance(tokenizer, Tagged):
            tokenizer = tokenizer.inner  # the ids of tags follow those of its tokens
        if isinstance(tokenizer, Subwords | Imported):
            (folder / f"{side}.spm").write_bytes(tokenizer.sentencepiece_model)
    computed = "float32" if precision == "float16" else precision  # no CPU computes in float16
    engine = Ct2Engine(folder, tokenizers, computed)
    used = load(run)
    return compare(run, used, lambda texts: translate(engine, tokenizers, used.settings, texts))


def compare(run: Path, used: Bundle, theirs: Callable[[list[str]], list[Result]], beam: int | None = None) -> Parity:
    """Translate the `samples` of a run with an exported model and with our engine, and compare the outputs.

    Args:
        theirs: Translates sources with the exported model.
        beam: Beam width of our engine; by default that of the run.
    """
    pairs = samples(run, used.tokenizers)
    sources = [pair.source for pair in pairs]
    ours = translate(TorchEngine(used.model), used.tokenizers, used.settings, sources, beam=beam)
    found = theirs(sources)
    best = zip(*([result.translations[0].tokens for result in side] for side in (ours, found)), strict=True)
    return Parity(
        sentences=len(pairs),
        same=sum(one == other for one, other in best),
        ours=[result.text for result in ours],
        theirs=[result.text for result in found],
        references=[pair.target for pair in pairs if pair.target],
    )


def samples(run: Path, tokenizers: Tokenizers) -> list[Pair]:
    """Return the first validation pairs of a run, at most `MOST_SENTENCES`; if it has none, texts of random source
    tokens without references.
    """
    if (run / "validation.jsonl").exists():
        return list(Pairs(run / "validation.jsonl"))[:MOST_SENTENCES]
    dice, cut = random.Random(1), tokenizers.source
    tag = f"{cut.tags[0]} " if cut.tags else ""
    tokens = range(special.COUNT, len(cut))
    texts = (tag + cut.decode(dice.choices(tokens, k=dice.randint(2, 12))) for _ in range(FEWER_SENTENCES))
    return [Pair(text, "", f"sample {number}") for number, text in enumerate(texts, start=1) if text.strip()]


def _huggingface(run: Path, folder: Path, precision: str, languages: Sides) -> Parity:
    """Write a folder in Hugging Face's Marian format, and compare its greedy translations in `transformers`
    with ours.
    """
    check_precision(precision, ("float32", "float16"))
    need("transformers", "huggingface")
    huggingface_writer.write(run, folder, precision)
    used = load(run)
    return compare(run, used, lambda texts: huggingface_writer.generate(folder, used.settings, texts), beam=1)


def _onnx(run: Path, folder: Path, precision: str, languages: Sides) -> Parity:
    """Write ONNX graphs, and compare their greedy translations in onnxruntime with ours."""
    check_precision(precision, ("float32", "int8"))
    need("onnx", "onnx")
    need("onnxruntime", "onnx")
    onnx_export.write(run, folder, precision)
    used = load(run)
    return compare(run, used, lambda texts: onnx_export.greedy(folder, used.settings, used.tokenizers, texts), beam=1)


def _argos(run: Path, folder: Path, precision: str, languages: Sides) -> Parity:
    """Write a package of Argos Translate, and compare translations by its calls of CTranslate2 with ours."""
    check_precision(precision, (*ct2_engine.PRECISIONS, "float16"))
    need("ctranslate2", "argos", "fast")
    argos.write(run, folder, precision, languages)
    used = load(run)
    used = replace(used, settings=argos.as_argos(used.settings))
    computed = "float32" if precision == "float16" else precision
    parity = compare(run, used, lambda texts: argos.translate(folder, used.tokenizers, computed, texts))
    argos.keep_package_only(folder)
    return parity


def check_precision(precision: str, known: Sequence[str]) -> None:
    """Raise an error if a format does not support a precision."""
    if precision not in known:
        raise SettingError(f"--precision {precision}: not supported by this format. {nearest(precision, known)}")


def need(package: str, to: str, extra: str = "export") -> None:
    """Raise an error if a Python package that a format needs, also to check the export, is not installed."""
    if importlib.util.find_spec(package) is None:
        raise SettingError(f"--to {to}: needs {package}, which is not installed: pip install 'seq2see[{extra}]'")


FORMATS: dict[str, Callable[[Path, Path, str, Sides], Parity]] = {
    "ctranslate2": _ctranslate2,
    "huggingface": _huggingface,
    "onnx": _onnx,
    "argos": _argos,
}
