"""Prepare a run folder for training: validation pairs, tokenizers, and the tokenized corpus on disk.

The last part of this file builds the model for a prepared folder and trains it; new runs, resumed runs, trials of
settings and further processes all use it.
"""

import contextlib
import math
import platform
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import seq2see
from seq2see import bundle, config, machine, storage
from seq2see.bundle import Bundle
from seq2see.config import Data, Overlay, Settings
from seq2see.errors import DataError
from seq2see.evaluation import validation
from seq2see.evaluation.evaluations import error_unit
from seq2see.kernels import threads
from seq2see.machine import Group, Stop
from seq2see.model.build import build, count_parameters
from seq2see.model.interface import Seq2Seq
from seq2see.model.transformer import Transformer
from seq2see.session import suggest
from seq2see.session.request import Base, Began, Prepared, Request, Said, Watch
from seq2see.session.survey import HASH, Decides, Survey, as_count, by_either, by_source, held_out, to_hold_out
from seq2see.text import corpora
from seq2see.text.corpora import Corpus
from seq2see.text.pair import Pair, Sides
from seq2see.text.rows import ReadingOptions, write_pairs
from seq2see.text.tags import tagged
from seq2see.tokens import aligner, store
from seq2see.tokens.store import Store, Tokenizers
from seq2see.training import loop
from seq2see.training.checkpoint import Progress
from seq2see.training.events import Event, Stepped, ThreadsChanged, Validated

MANY = 50
"""If more than one pair in this many is too long, settings are chosen for the other pairs only, with a warning."""
LONGEST = 2048
"""Default maximum of tokens per side: memory and time of attention grow with its square."""
ENOUGH_TO_MEASURE = 20_000
"""Number of pairs for training a tokenizer that is only used to measure lengths."""


def reporter(request: Request) -> Callable[[str], None]:
    """Return a function that reports a line to the caller of `train`."""
    return lambda line: request.watch(Said(line))


def open_corpus(request: Request) -> Corpus:
    """Open the requested training pairs; download the corpus if it is not in the cache."""
    return corpora.open_corpus(request.pairs, _reading(request), request.watch)


def validation_pairs(request: Request, corpus: Corpus) -> Iterable[Pair] | None:
    """Return the validation pairs, which have not been read yet; None if training pairs are to be held out."""
    if to_hold_out(request.valid) is not None:
        return None
    if request.valid is None:
        return corpus.valid
    return corpora.for_validation(str(request.valid), _reading(request), request.watch)


def _reading(request: Request) -> ReadingOptions:
    options = request.reading
    columns = (options.get("source_column"), options.get("target_column"))
    languages = Sides(options.get("source_language"), options.get("target_language"))
    return ReadingOptions(
        options.get("format"), Sides(*(None if each is None else str(each) for each in columns)), languages
    )


def wants_tags(request: Request, base: Base | None) -> bool:
    """Return whether each source gets a tag of its target language at the beginning."""
    if base is not None:
        return bool(base.tags)
    return request.tag or any(overlay.get("data", {}).get("tags") for overlay in request.overlays)


def read_validation(corpus: Corpus, survey: Survey, given: Iterable[Pair] | None, request: Request) -> list[Pair]:
    """Check that there are training pairs, and return the validation pairs; faulty or empty files raise an error."""
    for note in corpus.train.notes:
        request.watch(Said(note))
    if not survey.pairs:
        raise DataError(f"{corpus.name}: no usable pair (a pair needs text on both sides)")
    pairs = [] if given is None else list(given)
    if given is not None and not pairs:
        raise DataError("the validation set has no usable pair (a pair needs text on both sides)")
    return pairs


@dataclass(frozen=True)
class Chosen:
    """The settings of a new run."""

    settings: Settings
    reasons: dict[str, str]
    """Reasons for the settings, keyed by the rows of `suggest.ROWS`."""
    survey: Survey
    """The survey of the pairs that are short enough for these settings."""
    candidates: tuple[dict[str, Any], ...] = ()
    """Tokenizer settings that trials may compare, as overlays for `data`; the first is the chosen one."""


def settle(survey: Survey, corpus: Corpus, overlays: Sequence[Overlay], hold_out: float | None = None) -> Chosen:
    """Choose all settings of a new run: from the survey of the pairs, settings known for this corpus, and the user's.

    Args:
        overlays: The user's settings; later ones override earlier ones.
        hold_out: The number of pairs to validate on, or their share if below 1, if the user has set it.
    """
    model = {key: value for overlay in overlays for key, value in overlay.get("model", {}).items()}
    steps = [overlay["training"]["max_steps"] for overlay in overlays if "max_steps" in overlay.get("training", {})]
    propose = partial(suggest.suggest, chosen=model, known=corpus.settings, steps=steps[-1] if steps else None)
    suggestion = propose(survey)
    found = config.resolve(suggestion.settings, *overlays)
    data, most = found.data, min(LONGEST, found.model.longest - 1)
    if "data.max_length" in config.keys(corpus.settings, *overlays):
        most = data.max_length
    limit, kept = fitting(survey, data, None, most)
    if kept.left_out:
        suggestion = propose(kept)
    known = [name for name, keys in suggest.ROWS.items() if config.keys(corpus.settings).intersection(keys)]
    reasons = suggestion.reasons | dict.fromkeys(known, "tuned for this corpus")
    derived: dict[str, Any] = {"max_length": limit}
    if hold_out is not None:
        derived["validation_pairs"] = as_count(hold_out, kept.pairs)
    if survey.languages:
        derived["tags"] = " ".join(sorted(survey.languages.union(data.tags.split())))
    reads = {"max_source": max(config.Decoding.max_source, limit + 1)}  # one token is for the end
    settings = config.resolve({"decoding": reads}, suggestion.settings, *overlays, {"data": derived})
    return Chosen(settings, reasons, kept, suggestion.candidates)


def fitting(found: Survey, data: Data, tokenizers: Tokenizers | None, most: int) -> tuple[int, Survey]:
    """Return the maximum number of tokens of a side, and the survey of the pairs within it if many pairs are longer.

    The maximum is `data.max_length`, or more, up to `most`, if nearly all pairs need more. Settings should suit the
    pairs that are trained on. Counting tokens needs a tokenizer: if there is none yet, one is trained on a part of the
    sample.
    """
    sample, limit = found.sample, data.max_length
    bytes_of_longer = (max(len(pair.source.encode()), len(pair.target.encode())) for pair in sample)
    if MANY * sum(size > limit for size in bytes_of_longer) <= len(sample):  # a token has at least one byte
        return limit, found
    cut = tokenizers or Tokenizers.learn(sample[:: 1 + len(sample) // ENOUGH_TO_MEASURE], data)
    lengths = store.longer_sides(sample, cut)
    if MANY * sum(length > limit for length in lengths) <= len(sample):
        return limit, found
    enough = sorted(lengths)[int(0.995 * len(lengths))]
    limit = max(limit, min(most, 64 * math.ceil(enough / 64)))
    kept = [pair for pair, length in zip(sample, lengths, strict=True) if length <= limit]
    return limit, found.only(kept) if kept and MANY * (len(sample) - len(kept)) > len(sample) else found


def write_corpus(
    folder: Path, corpus: Corpus, chosen: Chosen, valid_pairs: list[Pair], request: Request, base: Base | None
) -> Prepared:
    """Train tokenizers, and write them, the tokenised corpus and the settings into a new run folder."""
    began = time.perf_counter()
    settings, survey = chosen.settings, chosen.survey
    valid_pairs = _tagged(valid_pairs, settings)
    _check_metric(settings, valid_pairs or survey.sample)
    is_held_out = _held_out(corpus, chosen, bool(valid_pairs), request, base)
    if base is None:
        request.watch(Said(f"training tokenizers on {len(survey.sample):,} pairs"))
        learned = [pair for pair in survey.sample if not is_held_out(pair)] or survey.sample
        tokenizers = Tokenizers.learn(learned, settings.data)
    else:
        tokenizers = base.bundle.tokenizers
    tokenizers.save(folder)
    say = reporter(request)
    total, limit = survey.pairs + survey.left_out, settings.data.max_length
    cut = tokenizers
    say(f"tokenising {total:,} pairs")
    given = len(valid_pairs)
    if valid_pairs:
        valid_pairs = store.for_validation("the validation set", valid_pairs, cut, limit, say, refuse=True)
    kept_out: list[Pair] = []
    known: dict[str, Any] = {}
    training = _without(corpus.train, is_held_out, settings, kept_out)
    if base is not None:
        training = base.noting_sources(training)
    train, too_long = store.write_tokenised(folder, "train", training, tokenizers, limit, corpus.name)
    kept_out, also_too_long = store.short_enough(kept_out, cut, limit)
    too_long += also_too_long
    left = f"{len(train):,} for training" + ("" if valid_pairs else f" and {len(kept_out):,} for validation")
    _warn_about_length(too_long, total, limit, left, say)
    valid_pairs = valid_pairs or kept_out
    if not valid_pairs:
        valid_pairs = _learned_pairs(survey, settings, cut)
        few = (
            "so few cannot be held out" if to_hold_out(request.valid) else "too few different sources to hold some out"
        )
        say(f"{few}: validation uses training pairs. Give other pairs with --valid")
        known["validated_on_training_pairs"] = True
    _warn_about_characters(valid_pairs, settings, cut, say)
    valid, _ = store.write_tokenised(folder, "valid", valid_pairs, tokenizers, limit, "the validation set")
    write_pairs(folder / "validation.jsonl", valid_pairs)
    settings = _with_room(settings, train, request, base)
    if settings.training.alignment_weight:
        settings = aligner.prepare(settings, train, valid, say, config.keys(*request.overlays))
    config.write_toml(settings, folder / "settings.toml")
    facts = {
        "corpus": corpus.name,
        "languages": corpus.train.languages._asdict(),
        "state": "prepared",
        "pairs": len(train),
        "validation_pairs": len(valid),
        "held_out_by": HASH if base is None else base.held_out_by,
        "dropped_empty": corpus.train.dropped,
        "dropped_too_long": too_long.total(),
        "validation_dropped_too_long": max(0, given - len(valid)),
        "source_tokens": train.source_tokens,
        "target_tokens": train.target_tokens,
        "prepared_in_seconds": round(time.perf_counter() - began, 1),
        **known,
    }
    yours = config.keys(*request.overlays)
    return Prepared(settings, tokenizers, train, valid, valid_pairs, facts, chosen.reasons, yours)


def write_otherwise(
    corpus: Corpus, chosen: Chosen, valid_pairs: list[Pair], request: Request, folder: Path, settings: Settings
) -> Prepared:
    """Write the corpus into another folder with the tokenizers of other settings, without messages."""
    quiet = replace(request, watch=lambda event: None)
    return write_corpus(folder, corpus, replace(chosen, settings=settings), valid_pairs, quiet, None)


def _with_room(settings: Settings, train: Store, request: Request, base: Base | None) -> Settings:
    """Return settings that let outputs be twice as long as the mean, and at least as long as nearly all targets.

    If targets are much longer than that, the constant part of the limit grows, not the ratio to the source length: long
    sources need no higher limit. A fine-tuned model keeps its limit.
    """
    yours, decoding = config.keys(*request.overlays), settings.decoding
    if "decoding.max_ratio" in yours:
        return settings
    some = np.arange(0, len(train), 1 + len(train) // MEASURED)
    sources, targets = train.source_lengths(some), train.target_lengths(some)
    ratio = min(MOST_RATIO, max(0.1, round(2 * train.target_tokens / train.source_tokens, 1)))
    extra = int(1.25 * np.quantile(targets - ratio * sources, 0.999, method="higher"))  # others may be longer
    extra = decoding.max_extra if "decoding.max_extra" in yours else min(MOST_EXTRA, max(decoding.max_extra, extra))
    ratio = max(ratio, math.ceil(10 * float(np.quantile((targets - extra) / sources, 0.999, method="higher"))) / 10)
    if base is not None:
        ratio = max(ratio, decoding.max_ratio)
    return replace(settings, decoding=replace(decoding, max_ratio=min(ratio, 100.0), max_extra=extra))


MEASURED, MOST_RATIO, MOST_EXTRA = 100_000, 10.0, 1000
"""Number of pairs from which the output limit is derived; maximum ratio, above which `decoding.max_extra` grows
instead; maximum of `max_extra`.
"""


def _tagged(pairs: list[Pair], settings: Settings) -> list[Pair]:
    languages = settings.data.tags.split()
    return [tagged(pair, languages) for pair in pairs] if languages else pairs


def _check_metric(settings: Settings, pairs: list[Pair]) -> None:
    """Raise an error if the best model is to be chosen by BLEU but no target has enough words for it."""
    if settings.training.metric == "bleu":
        from seq2see.evaluation import metrics

        metrics.check_metric("bleu", [[pair.target, *pair.references] for pair in pairs])


def _without(pairs: Iterable[Pair], is_held_out: Decides, settings: Settings, kept_out: list[Pair]) -> Iterator[Pair]:
    """Yield the training pairs with their tags; pairs that are held out are appended to `kept_out`."""
    languages = settings.data.tags.split()
    for pair in pairs:
        whole = tagged(pair, languages) if languages else pair
        if is_held_out(pair):
            kept_out.append(whole)
        else:
            yield whole


def _warn_about_length(too_long: store.TooLong, total: int, limit: int, left: str, say: Callable[[str], None]) -> None:
    if MANY * (lost := too_long.total()) > total:
        most, enough = ", most of the corpus," if 2 * lost > total else "", store.enough(too_long, total)
        say(
            f"warning: {lost:,} of {total:,} pairs{most} are left out, which leaves {left}: longer than "
            f"data.max_length = {limit} tokens. --set data.max_length={enough} keeps nearly all"
        )


def _warn_about_characters(
    valid_pairs: list[Pair], settings: Settings, cut: Tokenizers, say: Callable[[str], None]
) -> None:
    lost = store.unreachable(valid_pairs, cut) if settings.training.metric == "exact" else 0
    if MANY * lost > len(valid_pairs):
        say(
            f"warning: {lost:,} of {len(valid_pairs):,} validation targets cannot be written by the target tokenizer "
            "(letter case, spaces, unknown words or characters): exact counts them as wrong. Change them, or take "
            "--metric loss"
        )


def _learned_pairs(survey: Survey, settings: Settings, cut: Tokenizers) -> list[Pair]:
    """Return some training pairs to validate on, if none can be held out."""
    learned = _tagged(survey.sample[:1000], settings)
    fit, _ = store.short_enough(learned, cut, settings.data.max_length)
    return (fit or learned)[:100]


def _held_out(corpus: Corpus, chosen: Chosen, given: bool, request: Request, base: Base | None) -> Decides:
    """Return a function that decides whether a pair is held out for validation."""
    data, survey = chosen.settings.data, chosen.survey
    key = by_either([part.languages for part in corpus.train.parts]) if data.tags else by_source
    wanted = 0 if given else data.validation_pairs
    asked = to_hold_out(request.valid) is not None
    return held_out(survey.sample, survey.pairs, wanted, asked, key, HASH if base is None else base.held_out_by)


# The model of a run folder that is ready, and its training


def check_memory(settings: Settings, device: torch.device) -> None:
    """Raise an error, before anything is written, if the model does not fit into memory."""
    sizes = settings.data.source_vocabulary, settings.data.target_vocabulary
    machine.check_memory(count_parameters(settings.model, *sizes), device)


def new_model(folder: Path, prepared: Prepared, device: torch.device) -> Seq2Seq:
    """Return a model with new weights, or with the initial weights of a fine-tuning."""
    settings, tokenizers = prepared.settings, prepared.tokenizers
    torch.manual_seed(settings.training.seed)
    model = build(settings.model, *tokenizers.sizes).to(device)
    if isinstance(model, Transformer) and settings.training.initial_gain != 1:
        model.scale_sublayers(settings.training.initial_gain)
    if "fine_tuning" in prepared.facts:
        bundle.read_weights(model, folder / "start.safetensors")
    return model


def run_loop(
    folder: Path, prepared: Prepared, model: Seq2Seq, micro_tokens: int, stop: Stop, group: Group
) -> Generator[Event]:
    """Train the model in the same way on all ranks; yield the events of the loop.

    In one process on a CPU, the number of threads of a Transformer is adapted to the load of other programs. That of an
    RNN is not, because its gradients depend on it: PyTorch splits their sums.
    """
    settings = prepared.settings
    is_on_cpu = next(model.parameters()).device.type == "cpu"
    may_change = is_on_cpu and group.alone and settings.model.architecture == "transformer"

    def validate() -> dict[str, float]:
        searched = validation.searched(prepared.valid_pairs, prepared.valid.target_tokens, settings.training)
        used = Bundle(settings, prepared.tokenizers, model.eval())
        with group.all_or_none(stop):
            mine = validation.measure(used, prepared.valid, searched, group.rank, group.world)
        return validation.scores(used, searched, error_unit(settings), group.from_all(mine))

    with contextlib.ExitStack() as until_the_end:
        until_the_end.enter_context(stop.listening())
        until_the_end.enter_context(machine.deterministic(settings.training.deterministic))
        ours = None if may_change else until_the_end.enter_context(threads.fixed())
        for event in loop.train(
            model,
            prepared.train,
            settings.training,
            window_pairs=settings.data.window_pairs,
            d_model=settings.model.d_model,
            run=folder,
            validate=validate,
            lower_is_better=settings.training.metric in config.LOWER_IS_BETTER,
            micro_tokens=micro_tokens,
            should_stop=stop.asked,
            group=group,
        ):
            yield event
            if ours is None:  # not before: the first update allocates memory, so that its speed says nothing
                ours = until_the_end.enter_context(threads.sharing("training"))
            elif isinstance(event, Validated):
                ours.begin("training")
            elif isinstance(event, Stepped) and ours.after(1):
                yield ThreadsChanged(event.step, ours.count, ours.reason)


def tokens_at_once(prepared: Prepared, before: Progress, device: torch.device, watch: Watch) -> int:
    """Return the number of tokens in a forward pass: set by the user, used before the resume, or fit to the machine."""
    known = before.micro_tokens if before.device in ("", device.type) else 0  # equal bits are for equal devices
    found = prepared.settings.training.micro_batch_tokens or known or machine.micro_tokens(device)
    if before.micro_tokens not in (0, found):
        watch(Said(f"{found:,} tokens per forward pass from now on, {before.micro_tokens:,} before"))
    return found


def describe(
    folder: Path,
    prepared: Prepared,
    model: Seq2Seq,
    before: Progress,
    device: torch.device,
    micro_tokens: int,
    group: Group,
    watch: Watch,
) -> Prepared:
    """Record in the manifest what is going to be trained, and report it as an event."""
    settings, sizes = prepared.settings, prepared.tokenizers.sizes
    name = machine.name(device) if group.alone else f"{group.world} x {machine.name(device)}"
    facts: dict[str, Any] = prepared.facts | {
        "state": "training",
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "device": name,
        "versions": {"seq2see": seq2see.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    precision = "bfloat16" if loop.in_bfloat16(settings.training, device) else "float32"
    reasons = prepared.reasons | {"machine": "detected here; does not change the model"}
    here = f"{name}, {precision}, {micro_tokens:,} tokens per forward pass"
    rows = suggest.choices(settings, reasons, prepared.yours, facts, sizes, here)
    facts["choices"] = [asdict(row) for row in rows]
    storage.write_manifest(folder, facts)
    watch(
        Began(
            folder,
            settings,
            len(prepared.train),
            len(prepared.valid),
            {name: facts[f"dropped_{name}"] for name in ("empty", "too_long")},
            facts["parameters"],
            sizes,
            facts["device"],
            before.step,
            before.seconds,
            Sides(**facts.get("languages", {})),
            rows,
        )
    )
    return replace(prepared, facts=facts)
