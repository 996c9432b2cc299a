"""`export`: write a run in the format of another program, then check that this program gives the same output."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seq2see import storage
from seq2see.bundle import load
from seq2see.decoding import ct2_engine
from seq2see.decoding.ct2_engine import Ct2Engine
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.decoding.translator import translate
from seq2see.errors import RunError, SettingError, nearest
from seq2see.text.corpora import Pairs
from seq2see.text.pair import Pair
from seq2see.tokens.store import Tokenizers
from seq2see.tokens.tokenizers import Subwords

MOST_SENTENCES = 1000


@dataclass(frozen=True)
class Parity:
    """Comparison of an exported model with ours on the validation sentences of the run."""

    sentences: int
    same: int
    ours: list[str]
    theirs: list[str]
    references: list[str]

    @property
    def share(self) -> float:
        return 100 * self.same / self.sentences


def export(run: Path, folder: Path, to: str, precision: str, force: bool = False) -> Parity:
    """Write the model of `run` and its tokenizers into a new `folder`, and compare the two models."""
    if to not in FORMATS:
        raise SettingError(f"--to {to}: unknown format. {nearest(to, FORMATS)}")
    if folder.exists() and not force:
        raise RunError(f"{folder}: exists already. Choose another folder, or replace it with --force")
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / "model.bin").exists())):
        raise RunError(f"{folder}: not an exported model, so it is not replaced")
    place = Path(os.path.realpath(folder))  # the user may name a link to a folder, or `.`
    beside = place.with_name(f".{place.name}.part")
    with storage.in_one_line(folder, storage.REPEAT):
        place.parent.mkdir(parents=True, exist_ok=True)
        storage.refuse_link(beside)
        storage.remove(beside)
        beside.mkdir()
        try:
            parity = FORMATS[to](run, beside, precision)
            storage.sync_all(beside)
            storage.remove(place)
            beside.rename(place)
        finally:
            with contextlib.suppress(OSError):
                storage.remove(beside)
    return parity


def _ctranslate2(run: Path, folder: Path, precision: str) -> Parity:
    """Write a CTranslate2 model, and subword tokenizers as SentencePiece files whose tokens are its vocabulary."""
    precisions = (*ct2_engine.PRECISIONS, "float16")
    if precision not in precisions:
        raise SettingError(f"--precision {precision}: unknown. {nearest(precision, precisions)}")
    ct2_engine.convert(run, folder, precision, add_source_eos=True)
    tokenizers = Tokenizers.load(run)
    tokenizers.save(folder)
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        if isinstance(tokenizer, Subwords):
            (folder / f"{side}.spm").write_bytes(tokenizer.sentencepiece_model())
    bundle = load(run)
    pairs: list[Pair] = list(Pairs(run / "validation.jsonl"))[:MOST_SENTENCES]
    sources = [pair.source for pair in pairs]
    computed = "float32" if precision == "float16" else precision  # no CPU computes in float16
    theirs = translate(Ct2Engine(folder, tokenizers, computed), tokenizers, bundle.settings, sources)
    ours = translate(TorchEngine(bundle.model), tokenizers, bundle.settings, sources)
    best = zip(*([result.translations[0].tokens for result in side] for side in (ours, theirs)), strict=True)
    return Parity(
        sentences=len(pairs),
        same=sum(one == other for one, other in best),
        ours=[result.text for result in ours],
        theirs=[result.text for result in theirs],
        references=[pair.target for pair in pairs],
    )


FORMATS: dict[str, Callable[[Path, Path, str], Parity]] = {"ctranslate2": _ctranslate2}
