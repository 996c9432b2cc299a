"""The CTranslate2 engine: runs a converted model on a CPU in a fast C++ library, without importing torch.

The conversion reads our safetensors files with numpy and fills CTranslate2's specification of a Transformer, which has
the same fused projections as ours.
"""

import contextlib
import importlib.util
import json
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import file_digest, sha256
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2see import bundle, config, machine, special, storage
from seq2see.config import Decoding, Settings
from seq2see.decoding import translator
from seq2see.decoding.hypothesis import Hypothesis, Task
from seq2see.errors import INSTALL_ALL, PassingError, RunError, SettingError, nearest
from seq2see.tokens.interface import Tokenizer
from seq2see.tokens.store import Tokenizers

if TYPE_CHECKING:
    import ctranslate2
    import numpy as np
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]

os.environ.setdefault("CT2_USE_MKL", "0")
"""Use oneDNN instead of MKL, unless the user has set this: decoding in int8 takes 9 % less time (docs/log.md).
CTranslate2 reads the variable when it is imported.
"""

PRECISIONS = ("float32", "int8")
"""Precisions in which this engine, which runs on a CPU, can compute; `convert` can also write float16, for GPUs."""
CONVERSION = 1
"""Version of the conversion to CTranslate2's format; stored models that another version converted are not used."""
PART = ".part-"
"""Prefix of the names of temporary folders in which a conversion is written before it is renamed."""
TOKENS_AT_ONCE, FEWEST_AT_ONCE = 256, 5
"""Maximum number of source tokens in a batch, and minimum number of sentences, which takes precedence; wide beams lower
both (`_by_length`). Larger batches were no faster, and fewer long sentences were slower (docs/log.md).
"""
SCORED_AT_ONCE = 2048
"""Argument `max_batch_size`, in tokens, of CTranslate2's `score_batch`, by which `score` evaluates given targets."""
PATIENCE, FEW_WORDS = 2.0, 1000
"""CTranslate2 stops when `patience * beam` hypotheses are finished, whatever `decoding.stop_against` says. The patience
is `PATIENCE` if the beam is wider than 1 and the target vocabulary has fewer than `FEW_WORDS` tokens, else 1: with few
tokens a wrong end is as likely as any other wrong token, and such ends fill the list before the right hypothesis is
complete. With thousands of tokens that is rare (36 of 1,000 sentences), and a patience of 2 takes at least 17 % more
time (docs/log.md)."""


def obstacle(settings: Settings) -> str | None:
    """Return why CTranslate2 cannot run a model with these settings on this machine; None if it can."""
    model, decoding = settings.model, settings.decoding
    if importlib.util.find_spec("ctranslate2") is None:
        return "ctranslate2 is not installed: pip install 'seq2see[fast]'"
    if model.architecture != "transformer":
        return f"ctranslate2 runs Transformers only (model.architecture = '{model.architecture}')"
    if model.d_value not in (0, model.d_key or model.d_model // model.heads):
        return f"ctranslate2 needs values as wide as keys (model.d_value = {model.d_value})"
    if decoding.length_formula != "power":
        return f'ctranslate2 has no length penalty "{decoding.length_formula}" (decoding.length_formula)'
    return None


def _advice() -> str:
    """Return advice to use the PyTorch engine instead, or to install PyTorch if it is missing."""
    return "Use --engine torch" if machine.has_torch() else f"The other engine needs PyTorch: {INSTALL_ALL}"


def cuda_is_here() -> bool:
    """Return whether CTranslate2 finds a CUDA GPU; torch is not imported."""
    import ctranslate2

    return bool(ctranslate2.get_cuda_device_count())


def open_engine(run: Path, precision: str) -> "Ct2Engine":
    """Return the CTranslate2 engine of a run folder in a precision; the model is converted if that has not been done.

    The converted model is kept in `RUN/engines`, or in the user's cache if that folder cannot be written. If neither
    can be written, it is temporary. It is converted again when files of the run have changed.
    """
    if precision not in PRECISIONS:
        raise SettingError(f"--precision {precision}: unknown. {nearest(precision, PRECISIONS)}")
    settings = config.read_settings(run)
    if problem := obstacle(settings):
        raise SettingError(f"{run}: {problem}. {_advice()}")
    tokenizers = Tokenizers.load(run)
    name, places = _name(run, precision), _places(run, precision)
    for place in places:
        with contextlib.suppress(OSError, RuntimeError, ValueError), storage.locked(place.folder, shared=True):
            if _is_whole(place, name):
                return Ct2Engine(place.folder / name, tokenizers, precision)
    for place in places:
        with contextlib.suppress(OSError, storage.LinkError):
            storage.own_folder(place.folder, place.within)
            with storage.locked(place.folder) as alone:
                return _convert_in(place, name, run, tokenizers, precision, alone)
    try:
        with tempfile.TemporaryDirectory(prefix="seq2see-") as folder:
            convert(run, Path(folder), precision)
            return _load(run, Path(folder), tokenizers, precision)
    except OSError as failed:
        raise PassingError(
            f"{run}: the model cannot be converted for CTranslate2: none of {run / 'engines'}, the user's cache and "
            f"{tempfile.gettempdir()} can be written ({failed.strerror or failed}). Free disk space, "
            "make one of them writable, or use --engine torch"
        ) from None


class Ct2Engine:
    """An engine with a converted model and one single-threaded worker per core, by far the fastest use of the cores."""

    constrains = False

    def __init__(self, folder: Path, tokenizers: Tokenizers, precision: str) -> None:
        import ctranslate2

        self.name = f"ctranslate2 {precision}"
        self._source = _words(tokenizers.source)
        self._target = _words(tokenizers.target)
        self._ids = {spelling: id for id, spelling in enumerate(self._target)}
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._adds_end = bool(config.get("add_source_eos"))  # an exported model; our own conversions leave it to us
        self._translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=precision, inter_threads=_cores(), intra_threads=1
        )

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        if settings.length_formula != "power":
            raise SettingError(f'ctranslate2 has no length penalty "{settings.length_formula}". {_advice()}')
        found: list[list[Hypothesis]] = [[] for _ in tasks]
        rest = list(range(len(tasks)))
        if settings.beam == 1:
            # A batch has one limit, and small batches are slow. A greedy output that is shorter than its own limit does
            # not depend on it, so that all tasks can have the largest; only the others are searched again.
            self._search(_by_length(rest, tasks), tasks, settings, found)
            rest = [i for i in rest if any(len(each.tokens) >= tasks[i].limit for each in found[i])]
        self._search(_by_limit(rest, tasks, settings), tasks, settings, found)
        return found

    def _search(
        self, batches: Iterable[list[int]], tasks: list[Task], settings: Decoding, found: list[list[Hypothesis]]
    ) -> None:
        """Search for the tasks of all batches (indices into `tasks`) in parallel; store the hypotheses in `found`."""
        pending = [(batch, self._start(batch, tasks, settings)) for batch in batches]
        for batch, answers in pending:
            for index, answer in zip(batch, answers, strict=True):
                result, task, alpha = answer.result(), tasks[index], settings.length_penalty
                found[index] = [
                    Hypothesis(
                        [self._ids[token] for token in tokens], score, _log_probability(score, len(tokens), task, alpha)
                    )
                    for tokens, score in zip(result.hypotheses, result.scores, strict=True)
                ]

    def _start(
        self, batch: list[int], tasks: list[Task], settings: Decoding
    ) -> "list[ctranslate2.AsyncTranslationResult]":
        """Queue one batch (indices into `tasks`) for the workers, and return a pending result for each task."""
        sources = [tasks[index].source[: -1 if self._adds_end else None] for index in batch]
        prefixes = [[self._target[id] for id in tasks[index].prefix] for index in batch]
        return self._translator.translate_batch(  # type: ignore[no-any-return]
            [[self._source[id] for id in source] for source in sources],
            target_prefix=prefixes if any(prefixes) else None,
            asynchronous=True,
            max_batch_size=0,
            beam_size=settings.beam,
            num_hypotheses=settings.beam,
            patience=PATIENCE if settings.beam > 1 and len(self._target) < FEW_WORDS else 1.0,
            length_penalty=settings.length_penalty,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=max(tasks[index].limit for index in batch),
            suppress_sequences=[[special.SPELLINGS[special.PAD]], [special.SPELLINGS[special.BEGIN]]],
            return_scores=True,
        )

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probability of each token of given targets; see `Engine.score`."""
        texts = [[self._source[id] for id in ids[: -1 if self._adds_end else None]] for ids in sources]
        outputs = [[self._target[id] for id in ids] for ids in targets]
        found = self._translator.score_batch(
            texts, outputs, max_batch_size=SCORED_AT_ONCE, batch_type="tokens", max_input_length=0
        )
        return [list(each.log_probs) for each in found]


def _log_probability(score: float, tokens: int, task: Task, alpha: float) -> float | None:
    """Return the sum of the log-probabilities of an output; None with a forced prefix, which is not scored.

    CTranslate2's score is this sum divided by length^alpha; the length counts the end token, which is missing at the
    length limit.
    """
    if task.prefix:
        return None
    return float(score * min(tokens + 1, task.limit) ** alpha)  # at the limit there is no end token


def _cores() -> int:
    """Return the number of cores that this process may use; under torchrun, its share of them."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, machine.cores() // max(1, int(ranks) if ranks.isdecimal() else 1))


def _by_length(indices: list[int], tasks: list[Task], most: int = sys.maxsize) -> Iterator[list[int]]:
    """Yield batches of indices into `tasks`: sources of similar length together, the longest first, so that all workers
    end at about the same time.

    Args:
        most: maximum number of source tokens in a batch, used instead of `TOKENS_AT_ONCE` if it is lower: wide beams
            need much memory.
    """
    at_once, fewest = TOKENS_AT_ONCE, FEWEST_AT_ONCE
    if most < at_once:
        at_once, fewest = max(1, most), 1
    for batch in translator.batches([len(tasks[index].source) for index in indices], at_once, fewest):
        yield [indices[place] for place in batch]


def _by_limit(indices: Iterable[int], tasks: list[Task], settings: Decoding) -> Iterator[list[int]]:
    """Yield batches of indices into `tasks`, with the same maximum output length and similar source lengths."""
    order = sorted(indices, key=lambda index: -tasks[index].limit)
    for _, same in groupby(order, key=lambda index: tasks[index].limit):
        yield from _by_length(list(same), tasks, settings.batch_tokens // settings.beam)


def _words(tokenizer: Tokenizer) -> list[str]:
    """Return the vocabulary for CTranslate2, which needs unique words: a repeated word gets `#` and its id appended."""
    words: dict[str, None] = {}
    for id, word in enumerate(tokenizer.spellings()):
        while word in words:
            word += f"#{id}"
        words[word] = None
    return list(words)


class _Place(NamedTuple):
    """A folder where converted models of a run may be kept."""

    folder: Path
    within: Path
    """Leading part of the path of `folder` that the user chose and that may contain symbolic links; the folders below
    must not be links.
    """
    note: Path
    """A file in the user's cache with two digests of a finished conversion, one of its files' metadata and one of their
    contents, by which `_is_whole` notices that they have changed.
    """


def _places(run: Path, precision: str) -> list[_Place]:
    """Return the folders where a converted model may be kept, the preferred first: in the run, in the user's cache."""
    base = storage.cache_folder()
    path = run.resolve()
    # Short whatever the path of the run is, and different for each run.
    cache = base / "seq2see" / "engines" / f"{path.name[:60]}-{sha256(os.fsencode(path)).hexdigest()[:16]}"
    kind = f"ctranslate2-{precision}-{CONVERSION}"
    return [
        _Place(run / "engines", run, cache / f"{kind}.made"),
        _Place(cache, base, cache / f"{kind}.cached.made"),
    ]


def _name(run: Path, precision: str) -> str:
    """Return a name for the converted model that changes with the weights, settings and tokenizers of the run."""
    weights, texts = bundle.weights_file(run), [run / "settings.toml", *Tokenizers.files(run)]
    times = [(file.stat().st_mtime_ns, file.stat().st_size) for file in (weights, *texts)]
    contents = b"".join(file.read_bytes() for file in texts)
    with weights.open("rb") as file:  # a safetensors file begins with names, shapes, and our checksum of all numbers
        header = file.read(min(int.from_bytes(file.read(8), "little"), 2**24))
    stamp = sha256(repr(times).encode() + header + contents).hexdigest()
    return f"ctranslate2-{precision}-{CONVERSION}-{stamp[:16]}"


def _convert_in(
    place: _Place, name: str, run: Path, tokenizers: Tokenizers, precision: str, alone: bool
) -> "Ct2Engine":
    """Convert a model into a folder and load it; if another process has just converted it there, only load it.

    Before a conversion, all others in this precision are removed: they are damaged, or of earlier weights.

    Args:
        alone: whether this process holds the lock of the folder. Unfinished conversions in it then belong to processes
            that were killed, and are removed, too.
    """
    final = place.folder / name
    if _is_whole(place, name):  # made by another process while this one waited for the lock
        with contextlib.suppress(RuntimeError, ValueError):  # made by another version of CTranslate2
            return Ct2Engine(final, tokenizers, precision)
    for old in place.folder.iterdir():
        is_old = old.name.startswith(f"ctranslate2-{precision}-") and old.suffix != ".made"
        if is_old or (alone and old.name.startswith(PART)):
            storage.remove(old)
    beside = place.folder / f"{PART}{secrets.token_hex(8)}"
    beside.mkdir()
    try:
        convert(run, beside, precision)
        storage.sync_all(beside)
        storage.remove(final)
        beside.rename(final)
        storage.sync(place.folder)
    except BaseException:
        with contextlib.suppress(OSError):
            storage.remove(beside)
        raise
    _remember(place, name)
    return _load(run, final, tokenizers, precision)


def _load(run: Path, folder: Path, tokenizers: Tokenizers, precision: str) -> "Ct2Engine":
    """Load a model that was just converted; if CTranslate2 cannot load it, raise an error with advice."""
    try:
        return Ct2Engine(folder, tokenizers, precision)
    except (RuntimeError, ValueError) as problem:
        raise RunError(f"{run}: CTranslate2 cannot load the model ({problem}). {_advice()}") from None


# A run folder may come from anybody, disks fail, and CTranslate2 trusts what it loads: a damaged model can end the
# process. So the user's cache has a note of each conversion that was made here: the facts of its files, which are
# compared quickly, and a checksum for when they differ (restored from a backup, unpacked from a container image).


def _is_whole(place: _Place, name: str) -> bool:
    """Return whether the folder has a conversion of this name that, by its note, is unchanged since it was made."""
    folder = place.folder / name
    try:
        if not place.note.is_file():
            return False
        facts, checksum = place.note.read_text(encoding="ascii").split()
        if facts == _facts(folder):
            return True
        if checksum != _checksum(folder):
            return False
    except (OSError, ValueError):
        return False
    _remember(place, name)
    return True


def _remember(place: _Place, name: str) -> None:
    """Write the note about a finished conversion; if it cannot be written, the model is converted at each start."""
    folder = place.folder / name
    with contextlib.suppress(OSError, RunError):
        storage.own_folder(place.note.parent, storage.cache_folder())
        storage.write_text(place.note, f"{_facts(folder)} {_checksum(folder)}\n")


def _files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """Return the files of a conversion and their status, sorted by name; raise a ValueError for links or folders."""
    found = [(path, path.lstat()) for path in sorted(folder.iterdir())]
    if folder.is_symlink() or not all(stat.S_ISREG(each.st_mode) for _, each in found):
        raise ValueError(f"{folder}: not only files")
    return found


def _facts(folder: Path) -> str:
    facts = [
        (path.name, each.st_mode, each.st_size, each.st_mtime_ns, each.st_ctime_ns, each.st_ino)
        for path, each in _files(folder)
    ]
    return sha256(repr(facts).encode()).hexdigest()


def _checksum(folder: Path) -> str:
    total = sha256()
    for path, _ in _files(folder):
        total.update(f"{path.name}/".encode())
        with path.open("rb") as file:
            total.update(file_digest(file, "sha256").digest())
    return total.hexdigest()


def convert(run: Path, folder: Path, precision: str, add_source_eos: bool = False) -> None:
    """Write a run's model as a CTranslate2 model into an existing folder.

    The model needs the end token after every source. With `add_source_eos`, CTranslate2 appends it; without, callers
    such as `Ct2Engine` do.
    """
    settings, tokenizers = config.read_settings(run), Tokenizers.load(run)
    if problem := obstacle(settings):
        raise SettingError(f"{run}: {problem}")
    weights = bundle.read_arrays(run, settings, tokenizers)
    spec = _specification(settings, weights)
    spec.register_source_vocabulary(_words(tokenizers.source))
    spec.register_target_vocabulary(_words(tokenizers.target))
    _, unknown, begin, end = special.SPELLINGS
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = unknown, begin, end
    spec.config.decoder_start_token = begin
    spec.config.add_source_bos, spec.config.add_source_eos = False, add_source_eos
    spec.config.layer_norm_epsilon = settings.model.norm_epsilon
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    spec.save(str(folder))


def _specification(settings: Settings, weights: "Weights") -> Any:
    """Return CTranslate2's specification of a Transformer with our weights."""
    from ctranslate2.specs import TransformerSpec, common_spec
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    model = settings.model
    names = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}
    activation = common_spec.Activation[names[model.activation]]
    options: dict[str, Any] = {"pre_norm": model.norm == "pre", "activation": activation}
    if model.positions == "rotary":
        options |= {"rotary_dim": 0, "rotary_interleave": True}
    if model.d_key:
        options["head_dim"] = model.d_key
    align = {}
    if settings.training.alignment_weight:  # the weights that `return_attention` gives are those of this head
        layer, _ = special.alignment_head(model.decoder_layers)
        align = {"alignment_layer": layer, "alignment_heads": 1}
    encoder = TransformerEncoderSpec(model.encoder_layers, model.heads, **options)
    decoder = TransformerDecoderSpec(model.decoder_layers, model.heads, **options, **align)
    query_rows = model.heads * (model.d_key or model.d_model // model.heads)

    def linear(place: Any, name: str, rows: slice = slice(None)) -> None:
        place.weight, place.bias = weights[f"{name}.weight"][rows], weights[f"{name}.bias"][rows]

    def norm(place: Any, name: str) -> None:
        place.gamma, place.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def attention(place: Any, name: str, around: str, *rows: slice) -> None:
        for each, some in zip(place.linear, rows, strict=False):
            linear(each, f"{name}.w_qkv", some)
        linear(place.linear[-1], f"{name}.w_o")
        norm(place.layer_norm, f"{around}.norm")

    for stack, side, around in ((encoder, "encoder", "around_attention"), (decoder, "decoder", "around_self")):
        for number, layer in enumerate(stack.layer):
            name = f"{side}.{number}"
            attention(layer.self_attention, f"{name}.self_attention", f"{name}.{around}", slice(None))
            if side == "decoder":
                parts = slice(None, query_rows), slice(query_rows, None)
                attention(layer.attention, f"{name}.cross_attention", f"{name}.around_cross", *parts)
            linear(layer.ffn.linear_0, f"{name}.feed_forward.w_1")
            linear(layer.ffn.linear_1, f"{name}.feed_forward.w_2")
            norm(layer.ffn.layer_norm, f"{name}.around_feed_forward.norm")
        if model.norm == "pre":
            norm(stack.layer_norm, f"{side}_norm")
    source = weights["source_embedding.tokens.weight"]
    target = weights.get("target_embedding.tokens.weight", source)  # tied weights are saved once
    encoder.embeddings[0].weight, decoder.embeddings.weight = source, target
    decoder.projection.weight = weights.get("output.weight", target)
    if "output.bias" in weights:
        decoder.projection.bias = weights["output.bias"]
    tables, _ = position_tables(settings, weights)
    for stack, side in ((encoder, "source"), (decoder, "target")):
        if side in tables:
            stack.position_encodings.encodings = tables[side]
    return TransformerSpec(encoder, decoder)


def position_tables(
    settings: Settings, weights: "Weights"
) -> "tuple[dict[str, NDArray[np.float32]], NDArray[np.float32] | None]":
    """Return the position table of each side (`source`, `target`), and the sines and cosines of rotary positions.

    The tables are the trained embeddings, sinusoids, or zeros if the model has no positions. With rotary positions
    there are none; the second result then has the sine and cosine of the angle of each pair of columns of a head, and
    is None otherwise. Except for trained embeddings, there is a row for each position that decoding allows.
    """
    import numpy as np

    model, decoding = settings.model, settings.decoding
    if model.positions == "learned":
        return {side: weights[f"{side}_embedding.places.weight"] for side in ("source", "target")}, None
    length = max(int(decoding.max_ratio * (decoding.max_source + 8)) + decoding.max_extra + 1, decoding.max_source)

    def waves(width: int) -> "NDArray[np.float32]":
        angle = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
        return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(length, width).astype(np.float32)

    if model.positions == "rotary":
        return {}, waves(model.d_key or model.d_model // model.heads)
    table = waves(model.d_model) if model.positions == "sinusoid" else np.zeros((length, model.d_model), np.float32)
    return {"source": table, "target": table}, None
