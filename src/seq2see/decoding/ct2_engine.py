"""CTranslate2: the same model in a fast C++ engine for CPUs, converted once and kept. Never imports torch.

The conversion reads our safetensors with numpy and fills CTranslate2's own specification of a Transformer, layer by
layer; our fused projections already lie as it wants them.
"""

import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from hashlib import file_digest, sha256
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see import bundle, special
from seq2see.bundle import Tokenizers
from seq2see.config import Decoding, Model, Settings
from seq2see.data.tokenizer import Tokenizer
from seq2see.decoding import translator
from seq2see.decoding.hypothesis import Hypothesis, Task
from seq2see.errors import SettingError, nearest

if TYPE_CHECKING:
    import ctranslate2
    import numpy as np
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]

os.environ.setdefault("CT2_USE_MKL", "0")
"""oneDNN instead, in which int8 takes 9 % less time (docs/log.md). CTranslate2 reads this when it is imported."""

PRECISIONS = ("float32", "int8")
"""What a CPU computes in. `convert` writes float16 as well, for cards."""

CONVERSION = 1
"""Of what `convert` writes: raised when that changes, so that older conversions are made anew."""
TOKENS_AT_ONCE, FEWEST_AT_ONCE = 256, 5
"""Of the sources, in one batch of one worker: about ten sentences, of long ones at least five. More were no faster, and
fewer long ones slower (docs/log.md)."""
PATIENCE, FEW_WORDS = 2.0, 1000
"""Finished hypotheses to wait for, in beam widths, where there are fewer words than that. Among letters a wrong end is
as likely as any other slip, and such ends fill the list before the right one is complete; our own search waits while a
better one still grows. Among thousands of words that does not happen, and waiting costs a sixth of the time
(docs/log.md)."""


def obstacle(settings: Settings) -> str | None:
    """Why CTranslate2 cannot run a model with these settings here, in words; None if it can."""
    model, decoding = settings.model, settings.decoding
    if importlib.util.find_spec("ctranslate2") is None:
        return "ctranslate2 is not installed: pip install 'seq2see[fast]'"
    if model.architecture != "transformer":
        return f"ctranslate2 runs Transformers only (model.architecture = '{model.architecture}')"
    if model.d_value not in (0, model.d_key or model.d_model // model.heads):
        return "ctranslate2 has no heads whose values are wider or narrower than their keys (model.d_value)"
    if decoding.length_formula != "power":
        return f'ctranslate2 has no length penalty "{decoding.length_formula}" (decoding.length_formula)'
    return None


def cuda_is_here() -> bool:
    """Whether there is a card, asked without torch."""
    import ctranslate2

    return bool(ctranslate2.get_cuda_device_count())


def open_engine(run: Path, precision: str) -> "Ct2Engine":
    """The engine of a run in a precision; converted on first use and kept in `RUN/engines`, or in the user's cache."""
    if precision not in PRECISIONS:
        raise SettingError(f"--precision {precision}: unknown. {nearest(precision, PRECISIONS)}")
    settings = bundle.read_settings(run)
    if problem := obstacle(settings):
        raise SettingError(f"{run}: {problem}. Use --engine torch")
    tokenizers = Tokenizers.load(run)
    return Ct2Engine(_converted(run, precision), tokenizers, precision)


class Ct2Engine:
    """A converted model, with a worker of one thread for each core: by far the fastest way to share them."""

    def __init__(self, folder: Path, tokenizers: Tokenizers, precision: str) -> None:
        import ctranslate2

        self.name = f"ctranslate2 {precision}"
        self._source = _words(tokenizers.source)
        self._target = _words(tokenizers.target)
        self._ids = {spelling: id for id, spelling in enumerate(self._target)}
        self._translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=precision, inter_threads=_cores(), intra_threads=1
        )

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        if settings.length_formula != "power":
            raise SettingError(f'ctranslate2 has no length penalty "{settings.length_formula}". Use --engine torch')
        found: list[list[Hypothesis]] = [[] for _ in tasks]
        everyone = list(range(len(tasks)))
        # A batch has one limit, and small batches are slow. Greedy outputs that stay below their own limit never knew
        # of it, so there the largest will do, and who went past their own search again. Of a beam that cannot be said.
        first = _like_length(everyone, tasks) if settings.beam == 1 else _by_limit(everyone, tasks, settings)
        for batches in (first, _by_limit(_past_limit(tasks, found), tasks, settings) if settings.beam == 1 else ()):
            pending = [(batch, self._start(batch, tasks, settings)) for batch in batches]
            for batch, answers in pending:
                for index, answer in zip(batch, answers, strict=True):
                    result = answer.result()
                    found[index] = [
                        Hypothesis(
                            [self._ids[token] for token in tokens],
                            score,
                            _log_probability(score, len(tokens), tasks[index], settings.length_penalty),
                        )
                        for tokens, score in zip(result.hypotheses, result.scores, strict=True)
                    ]
        return found

    def _start(
        self, batch: list[int], tasks: list[Task], settings: Decoding
    ) -> "list[ctranslate2.AsyncTranslationResult]":
        """Queue one batch for the workers. Everything that has a default of its own is said: limits are ours."""
        prefixes = [[self._target[id] for id in tasks[index].prefix] for index in batch]
        return self._translator.translate_batch(  # type: ignore[no-any-return]
            [[self._source[id] for id in tasks[index].source] for index in batch],
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


def _log_probability(score: float, tokens: int, task: Task, alpha: float) -> float | None:
    """Back from a score, which is the sum over length^alpha. Of forced tokens CTranslate2 does not tell."""
    if task.prefix:
        return None
    return float(score * min(tokens + 1, task.limit) ** alpha)  # at the limit there is no end


def _cores() -> int:
    """Cores that this process may use: in a container often fewer than the machine has; under torchrun its share."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, here // max(1, int(processes) if processes.isdecimal() else 1))


def _like_length(indices: list[int], tasks: list[Task], hypotheses: int | None = None) -> Iterator[list[int]]:
    """Yield tasks of similar length together, the longest first so that workers end together.

    Args:
        hypotheses: the most in one batch, where a wide beam would make it larger than memory.
    """
    at_once, fewest = TOKENS_AT_ONCE, FEWEST_AT_ONCE
    if hypotheses is not None and hypotheses < at_once:
        at_once, fewest = max(1, hypotheses), 1
    for batch in translator.batches([len(tasks[index].source) for index in indices], at_once, fewest):
        yield [indices[place] for place in batch]


def _by_limit(indices: Iterable[int], tasks: list[Task], settings: Decoding) -> Iterator[list[int]]:
    """Yield the same, with tasks of one limit together."""
    order = sorted(indices, key=lambda index: -tasks[index].limit)
    for _, same in groupby(order, key=lambda index: tasks[index].limit):
        yield from _like_length(list(same), tasks, settings.batch_tokens // settings.beam)


def _past_limit(tasks: list[Task], found: list[list[Hypothesis]]) -> Iterator[int]:
    """Tasks whose output would have been cut off by their limit."""
    for index, task in enumerate(tasks):
        if any(len(hypothesis.tokens) >= task.limit for hypothesis in found[index]):
            yield index


def _words(tokenizer: Tokenizer) -> list[str]:
    """The vocabulary in words, as CTranslate2 wants it; one that stands there already gets its id behind it."""
    words: dict[str, None] = {}
    for id, word in enumerate(tokenizer.spellings()):
        while word in words:
            word += f"#{id}"
        words[word] = None
    return list(words)


def _converted(run: Path, precision: str) -> Path:
    """The folder of the conversion that belongs to the present weights; made if there is none."""
    weights, texts = bundle.weights_file(run), [run / "settings.toml", *Tokenizers.files(run)]
    times = [(file.stat().st_mtime_ns, file.stat().st_size) for file in (weights, *texts)]
    contents = b"".join(file.read_bytes() for file in texts)
    stamp = sha256(repr(times).encode() + _header(weights) + contents).hexdigest()
    name = f"ctranslate2-{precision}-{CONVERSION}-{stamp[:16]}"
    places = run / "engines", _cache(run)
    if _is_whole(places[0] / name) and _is_ours(run, places[0] / name):
        return places[0] / name
    if _is_whole(places[1] / name):
        return places[1] / name
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
            for old in place.glob(f"ctranslate2-{precision}-*"):  # of weights that are no more, or not made by us
                shutil.rmtree(old)
            beside = Path(tempfile.mkdtemp(prefix=".part-", dir=place))
        except OSError:
            continue
        try:
            convert(run, beside, precision)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        beside.chmod(0o777 & ~_umask())  # a temporary folder is its maker's alone
        beside.rename(place / name)
        if place == run / "engines":
            _remember(run, place / name)
        return place / name
    raise SettingError(f"{run}: neither {run / 'engines'} nor the cache can be written to. Use --engine torch")


def _header(weights: Path) -> bytes:
    """The beginning of a safetensors file: names, shapes, and the checksum of all numbers that we put there."""
    with weights.open("rb") as file:
        return file.read(min(int.from_bytes(file.read(8), "little"), 2**24))


def _is_whole(folder: Path) -> bool:
    return os.access(folder / "model.bin", os.R_OK)


# A run folder may come from anybody, and CTranslate2 believes what it loads. So the user's cache says which
# conversions were made here: how their files looked then, which is quickly compared, and a checksum for when they
# look otherwise (restored from a backup, unpacked from the layer of a container).


def _is_ours(run: Path, folder: Path) -> bool:
    try:
        look, checksum = _note(run, folder).read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return False
    if look == _look(folder):
        return True
    if checksum != _checksum(folder):
        return False
    _remember(run, folder)
    return True


def _remember(run: Path, folder: Path) -> None:
    note = _note(run, folder)
    with contextlib.suppress(OSError):  # no cache: then it is converted each time
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(f"{_look(folder)} {_checksum(folder)}\n", encoding="ascii")


def _note(run: Path, folder: Path) -> Path:
    return _cache(run) / f"{folder.name.rpartition('-')[0]}.made"


def _look(folder: Path) -> str:
    seen = [(path.name, path.lstat()) for path in sorted(folder.iterdir())]
    facts = [(name, each.st_mode, each.st_size, each.st_mtime_ns, each.st_ctime_ns, each.st_ino) for name, each in seen]
    return sha256(repr(facts).encode()).hexdigest()


def _checksum(folder: Path) -> str:
    total = sha256()
    for path in sorted(folder.iterdir()):
        total.update(f"{path.name}/".encode())
        with path.open("rb") as file:
            total.update(file_digest(file, "sha256").digest())
    return total.hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _cache(run: Path) -> Path:
    """What the user's cache has of a run: short, whatever the path, and of no other."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = run.resolve()
    return base / "seq2see" / "engines" / f"{place.name[:60]}-{sha256(os.fsencode(place)).hexdigest()[:16]}"


def convert(run: Path, folder: Path, precision: str) -> None:
    """Write a run's model as a CTranslate2 model into an existing folder."""
    settings, tokenizers = bundle.read_settings(run), Tokenizers.load(run)
    if problem := obstacle(settings):
        raise SettingError(f"{run}: {problem}")
    weights = bundle.read_arrays(run, settings, tokenizers)
    spec = _specification(settings.model, weights, settings)
    spec.register_source_vocabulary(_words(tokenizers.source))
    spec.register_target_vocabulary(_words(tokenizers.target))
    _, unknown, begin, end = special.SPELLINGS
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = unknown, begin, end
    spec.config.decoder_start_token = begin
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.config.layer_norm_epsilon = settings.model.norm_epsilon
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    spec.save(str(folder))


def _specification(model: Model, weights: "Weights", settings: Settings) -> Any:
    """CTranslate2's description of the model, with our weights in it."""
    from ctranslate2.specs import TransformerSpec, common_spec
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    activations = {
        "relu": common_spec.Activation.RELU,
        "gelu": common_spec.Activation.GELU,
        "silu": common_spec.Activation.SWISH,
    }
    options: dict[str, Any] = {"pre_norm": model.norm == "pre", "activation": activations[model.activation]}
    if model.positions == "rotary":
        options |= {"rotary_dim": 0, "rotary_interleave": True}
    if model.d_key:
        options["head_dim"] = model.d_key
    encoder = TransformerEncoderSpec(model.encoder_layers, model.heads, **options)
    decoder = TransformerDecoderSpec(model.decoder_layers, model.heads, **options)
    fill = _Filler(model, weights)
    for number, layer in enumerate(encoder.layer):
        name = f"encoder.{number}"
        fill.attention(layer.self_attention, f"{name}.self_attention", f"{name}.around_attention")
        fill.feed_forward(layer.ffn, name)
    for number, layer in enumerate(decoder.layer):
        name = f"decoder.{number}"
        fill.attention(layer.self_attention, f"{name}.self_attention", f"{name}.around_self")
        fill.cross_attention(layer.attention, f"{name}.cross_attention", f"{name}.around_cross")
        fill.feed_forward(layer.ffn, name)
    for stack, name in ((encoder, "encoder"), (decoder, "decoder")):
        if model.norm == "pre":
            fill.norm(stack.layer_norm, f"{name}_norm")
    source = weights["source_embedding.tokens.weight"]
    target = weights.get("target_embedding.tokens.weight", source)  # tied weights are saved once
    encoder.embeddings[0].weight, decoder.embeddings.weight = source, target
    decoder.projection.weight = weights.get("output.weight", target)
    if "output.bias" in weights:
        decoder.projection.bias = weights["output.bias"]
    if model.positions != "rotary":
        for stack, side in ((encoder, "source"), (decoder, "target")):
            stack.position_encodings.encodings = _positions(model, weights, side, settings.decoding)
    return TransformerSpec(encoder, decoder)


def _positions(model: Model, weights: "Weights", side: str, decoding: Decoding) -> "NDArray[np.float32]":
    """A table of positions, as long as the longest sequence that decoding allows."""
    import numpy as np

    if model.positions == "learned":
        return weights[f"{side}_embedding.places.weight"]
    length = int(decoding.max_ratio * (decoding.max_source + 8)) + decoding.max_extra + 1
    table = np.zeros((max(length, decoding.max_source), model.d_model), dtype=np.float32)
    if model.positions == "sinusoid":
        angle = np.arange(len(table))[:, None] / 10_000 ** (np.arange(0, model.d_model, 2) / model.d_model)
        table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return table


class _Filler:
    """Puts our weights into the places of a specification, by name."""

    def __init__(self, model: Model, weights: "Weights") -> None:
        self.weights = weights
        self.query_rows = model.heads * (model.d_key or model.d_model // model.heads)

    def linear(self, place: Any, name: str, rows: slice = slice(None)) -> None:
        place.weight, place.bias = self.weights[f"{name}.weight"][rows], self.weights[f"{name}.bias"][rows]

    def norm(self, place: Any, name: str) -> None:
        place.gamma, place.beta = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]

    def attention(self, place: Any, name: str, around: str) -> None:
        self.linear(place.linear[0], f"{name}.w_qkv")
        self.linear(place.linear[1], f"{name}.w_o")
        self.norm(place.layer_norm, f"{around}.norm")

    def cross_attention(self, place: Any, name: str, around: str) -> None:
        self.linear(place.linear[0], f"{name}.w_qkv", slice(None, self.query_rows))
        self.linear(place.linear[1], f"{name}.w_qkv", slice(self.query_rows, None))
        self.linear(place.linear[2], f"{name}.w_o")
        self.norm(place.layer_norm, f"{around}.norm")

    def feed_forward(self, place: Any, layer: str) -> None:
        self.linear(place.linear_0, f"{layer}.feed_forward.w_1")
        self.linear(place.linear_1, f"{layer}.feed_forward.w_2")
        self.norm(place.layer_norm, f"{layer}.around_feed_forward.norm")
