"""The steps of a new training, in order: from pairs to a run folder, and from there to events of the training loop.

1. The pairs are opened (`open_corpus`, `open_validation`); after the survey they are checked and read (`check_corpus`,
   `read_validation`).
2. All settings are chosen (`choose_settings`), and it is checked that the model fits into memory (`check_memory`).
3. `write_corpus` makes the run folder: tokenizers, the tokenised corpus in `corpus/train` and `corpus/valid`,
   `validation.jsonl` and `settings.toml`.
4. The model is built (`new_model`) and described (`choose_micro_tokens`, `record_start`), and trained (`run_loop`).

Resumed runs, and all processes under torchrun but the first, need only step 4.
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
from seq2see.errors import DataError, SettingError
from seq2see.evaluation import validation
from seq2see.evaluation.evaluations import error_unit
from seq2see.kernels import threads
from seq2see.machine import Group, Stop
from seq2see.model.build import build, count_parameters
from seq2see.model.interface import Seq2Seq
from seq2see.model.transformer import Transformer
from seq2see.session import hallucination, suggest
from seq2see.session.request import Base, Began, Prepared, Request, Said, Watch, noting_sources
from seq2see.session.survey import HASH, Decides, Survey, as_count, by_either, by_source, held_out, to_hold_out
from seq2see.text import corpora
from seq2see.text.corpora import Corpus
from seq2see.text.pair import Pair, Sides
from seq2see.text.rows import write_pairs
from seq2see.text.tags import tagged
from seq2see.tokens import aligner, store
from seq2see.tokens.store import Store, Tokenizers
from seq2see.training import graphs, loop
from seq2see.training.checkpoint import Progress
from seq2see.training.events import Event, Stepped, ThreadsChanged, Validated

MANY = 50
"""The user is warned if more than one pair in this many is too long for training or, with the metric "exact", if the
tokenizer cannot reproduce more than one validation target in this many. If so many pairs are too long, or if they have
more than one character in `MUCH` of the corpus, settings are chosen for the shorter pairs only.
"""
MUCH = 5
LONGEST = 2048
"""Upper bound of the automatic `data.max_length`, since memory and time of attention grow with its square."""
ENOUGH_TO_MEASURE = 20_000
"""Maximum number of pairs from which a temporary tokenizer is trained that only measures the lengths of texts."""
MEASURED, MOST_RATIO, MOST_EXTRA = 100_000, 10.0, 1000
"""For the limit of output lengths (`_with_output_limit`): the maximum number of training pairs measured, and the upper
bounds of `decoding.max_ratio` and `decoding.max_extra`. If 99.9 % of the targets need it, `max_ratio` is higher.
"""


def reporter(request: Request) -> Callable[[str], None]:
    """Return a function that reports a line of text to the caller of `train`, as the event `Said`."""
    return lambda line: request.watch(Said(line))


# 1. The pairs


def open_corpus(request: Request) -> Corpus:
    """Open the requested training pairs; download the corpus if it is not in the cache."""
    return corpora.open_corpus(request.pairs, request.reading, request.watch)


def open_validation(request: Request, corpus: Corpus) -> Iterable[Pair] | None:
    """Return the user's or the corpus's validation pairs, not read yet; None if training pairs are to be held out."""
    if to_hold_out(request.valid) is not None:
        return None
    if request.valid is None:
        return corpus.valid
    if str(request.valid).startswith("-"):
        raise SettingError(f"--valid {request.valid}: expected pairs, or how many to hold out, such as 500 or 2%")
    return corpora.for_validation(str(request.valid), request.reading, request.watch)


def wants_tags(request: Request, base: Base | None) -> bool:
    """Return whether sources get a tag of their target language: as in `base` or, if that is None, if the user asks."""
    asked = request.tag or any(overlay.get("data", {}).get("tags") for overlay in request.overlays)
    return asked if base is None else bool(base.tags)


def check_corpus(corpus: Corpus, survey: Survey, request: Request) -> None:
    """Report the notes about how the files of the corpus were read; raise an error if they have no pairs."""
    for note in corpus.train.notes:
        request.watch(Said(note))
    if not survey.pairs:
        raise DataError(f"{', '.join(corpus.train.files)}: no usable pair (a pair needs text on both sides)")


def read_validation(given: Iterable[Pair] | None) -> list[Pair]:
    """Return the validation pairs as a list, empty for None; faulty files, and files without pairs, raise an error."""
    pairs = [] if given is None else list(given)
    if given is not None and not pairs:
        names = ", ".join(given.files) if isinstance(given, corpora.Parts) else "the validation set"
        raise DataError(f"{names}: no usable pair to validate on (a pair needs text on both sides)")
    return pairs


# 2. The settings


@dataclass(frozen=True)
class Chosen:
    """The settings of a new run, and what they were chosen from."""

    settings: Settings
    reasons: dict[str, str]
    """Reasons for the settings, keyed by the rows of `suggest.ROWS`."""
    survey: Survey
    """Survey of the corpus; if many pairs are too long for these settings, an estimate for the shorter ones only."""
    candidates: tuple[dict[str, Any], ...] = ()
    """Tokenizer settings that short trainings may compare (`trials`), as overlays for `data`, the suggested ones first;
    empty in a fine-tuning.
    """


def choose_settings(
    survey: Survey, corpus: Corpus, overlays: Sequence[Overlay], hold_out: float | None = None
) -> Chosen:
    """Choose all settings of a new run: the user's, else those known for a named corpus, else by the survey.

    Args:
        overlays: The user's settings; later ones override earlier ones.
        hold_out: The number of pairs to validate on, or their share if below 1; None if the user has not set it.
    """
    model, data, training = (chosen_in(section, overlays) for section in ("model", "data", "training"))
    propose = partial(suggest.suggest, chosen=model, known=corpus.settings, training=training, data=data)
    suggestion = propose(survey)
    found = config.resolve(suggestion.settings, *overlays)
    is_set = "data.max_length" in config.keys(corpus.settings, *overlays)
    most = found.data.max_length if is_set else min(LONGEST, found.model.longest - 1)
    limit, kept = limit_length(survey, found.data, None, most)
    if kept.left_out:
        suggestion = propose(kept)  # of a convolutional model, with positions for these pairs
        limit = min(limit, config.check_keys(suggestion.settings, *overlays).model.longest - 1)
    known = [name for name, keys in suggest.ROWS.items() if config.keys(corpus.settings).intersection(keys)]
    reasons = suggestion.reasons | dict.fromkeys(known, "tuned for this corpus")
    derived: dict[str, Any] = {"max_length": limit}
    if hold_out is not None:
        derived["validation_pairs"] = as_count(hold_out, kept.pairs)
    if survey.languages:
        derived["tags"] = " ".join(sorted(survey.languages.union(found.data.tags.split())))
    reads = {"max_source": max(config.Decoding.max_source, limit + 1)}  # one token is for the end
    settings = config.resolve({"decoding": reads}, suggestion.settings, *overlays, {"data": derived})
    return Chosen(settings, reasons, kept, suggestion.candidates)


def chosen_in(section: str, overlays: Sequence[Overlay]) -> dict[str, Any]:
    """Return the user's settings of a section, such as `model`, by name."""
    return {key: value for overlay in overlays for key, value in overlay.get(section, {}).items()}


def limit_length(found: Survey, data: Data, tokenizers: Tokenizers | None, most: int) -> tuple[int, Survey]:
    """Return the maximum number of tokens of a side, and a survey of the pairs to choose settings for.

    The maximum is `data.max_length`. If many pairs (more than one in `MANY`) are longer, it is raised, up to `most`, so
    that 99.5 % of the pairs fit. If many are longer even then, or few have much of the text (`MUCH`), the survey
    returned is that of the shorter pairs, which will be trained on; otherwise it is `found`. Counting tokens needs a
    tokenizer: if `tokenizers` is None, one is trained on a part of the sample.
    """
    sample, limit = found.sample, data.max_length
    sizes = [max(len(pair.source.encode()), len(pair.target.encode())) for pair in sample]
    if not _matter(sample, sizes, limit):  # a token has at least one byte
        return limit, found
    tokenizers = tokenizers or Tokenizers.learn(sample[:: 1 + len(sample) // ENOUGH_TO_MEASURE], data)
    lengths = store.longer_sides(sample, tokenizers)
    if _are_many(sum(length > limit for length in lengths), len(lengths)):
        enough = sorted(lengths)[int(0.995 * len(lengths))]
        limit = max(limit, min(most, 64 * math.ceil(enough / 64)))
    kept = [pair for pair, length in zip(sample, lengths, strict=True) if length <= limit]
    return limit, found.only(kept) if kept and _matter(sample, lengths, limit) else found


def _matter(sample: Sequence[Pair], lengths: Sequence[int], limit: int) -> bool:
    """Return whether the pairs longer than a limit are many, or have much of the text."""
    longer = [pair for pair, length in zip(sample, lengths, strict=True) if length > limit]
    some, text = (sum(len(pair.source) + len(pair.target) for pair in pairs) for pairs in (longer, sample))
    return _are_many(len(longer), len(sample)) or MUCH * some > text


def _are_many(some: int, total: int) -> bool:
    return MANY * some > total


def check_memory(settings: Settings, device: torch.device) -> None:
    """Raise an error if weights, gradients, Adam's moments and CUDA graphs exceed the free memory of the device."""
    model, training = settings.model, settings.training
    weights = count_parameters(model, settings.data.source_vocabulary, settings.data.target_vocabulary)
    recorded = device.type == "cuda" and graphs.are_expected(model, training)
    extra = graphs.extra_bytes(model, weights, loop.in_bfloat16(training, device)) if recorded else 0
    machine.check_memory(weights, device, extra)


# 3. The run folder


def write_corpus(
    folder: Path, corpus: Corpus, chosen: Chosen, given: list[Pair], request: Request, base: Base | None
) -> Prepared:
    """Train tokenizers, and write them, the tokenised corpus and the settings into a new run folder.

    Args:
        given: The pairs to validate on. If there are none, training pairs are held out or, if there are too few for
            that, used for both training and validation.
        base: In a fine-tuning, the run that it starts from, whose tokenizers are used instead of new ones.
    """
    began = time.perf_counter()
    settings, survey, yours, say = chosen.settings, chosen.survey, config.keys(*request.overlays), reporter(request)
    limit, total = settings.data.max_length, survey.pairs + survey.left_out
    given = [*map(_tagging(settings), given)]
    _check_metric(settings, given or survey.sample)
    is_held_out = _held_out(corpus, chosen, bool(given), request, base)
    tokenizers = _learn_tokenizers(chosen, is_held_out, request) if base is None else base.bundle.tokenizers
    tokenizers.save(folder)
    say(f"tokenising {total:,} pair{'s' * (total != 1)}")
    valid_pairs = store.for_validation("the validation set", given, tokenizers, limit, say, refuse=True)
    train, kept_out, too_long, met = _write_training(folder, corpus, is_held_out, given, settings, tokenizers, base)
    counts = {"pairs": len(train), "source_tokens": train.source_tokens, "target_tokens": train.target_tokens}
    if settings.data.hallucination:
        train = hallucination.rewrite(folder, corpus, is_held_out, survey.sample, settings, tokenizers)
        counts |= {"stored_pairs": len(train), "stored_tokens": train.source_tokens + train.target_tokens}
    left = f"{counts['pairs']:,} for training" + ("" if valid_pairs else f" and {len(kept_out):,} for validation")
    _warn_about_length(too_long, total, limit, left, say)
    valid_pairs = valid_pairs or kept_out
    is_learned = not valid_pairs
    if is_learned:
        valid_pairs = _learned_pairs(chosen, tokenizers)
        few = "--valid held no pair out" if to_hold_out(request.valid) else "too few different sources to hold some out"
        say(f"{few}: validation uses training pairs. Give other pairs with --valid")
    _warn_about_characters(valid_pairs, settings, tokenizers, say)
    valid, _ = store.write_tokenised(folder, "valid", valid_pairs, tokenizers, limit, "the validation set")
    write_pairs(folder / "validation.jsonl", valid_pairs)
    settings = _with_output_limit(settings, train, yours, base is not None)
    if settings.training.alignment_weight:
        settings = aligner.prepare(settings, train, valid, tokenizers.equal_tokens(), say, yours, request.call)
    config.write_toml(settings, folder / "settings.toml")
    facts = {
        "corpus": corpus.name,
        "languages": corpus.train.languages._asdict(),
        "state": "prepared",
        **counts,
        "validation_pairs": len(valid),
        "held_out_by": HASH if base is None else base.held_out_by,
        "dropped_empty": corpus.train.dropped,
        "dropped_too_long": too_long.total(),
        "validation_dropped_too_long": max(0, len(given) - len(valid)),
        "prepared_in_seconds": round(time.perf_counter() - began, 1),
        **({"validated_on_training_pairs": True} if is_learned else {}),
    }
    if _are_many(seen := sum(pair.source in met for pair in valid_pairs), len(valid_pairs)):
        facts["validation_pairs_with_training_sources"] = seen
    return Prepared(settings, tokenizers, train, valid, valid_pairs, facts, chosen.reasons, yours)


def write_otherwise(
    corpus: Corpus, chosen: Chosen, valid_pairs: list[Pair], request: Request, folder: Path, settings: Settings
) -> Prepared:
    """Write a run folder with other `settings` and tokenizers, as `write_corpus` does, without progress messages."""
    quiet = replace(request, watch=lambda event: None)
    return write_corpus(folder, corpus, replace(chosen, settings=settings), valid_pairs, quiet, None)


def _tagging(settings: Settings) -> Callable[[Pair], Pair]:
    """Return a function that puts the tag of its target language before the source of a pair, if the run has tags."""
    languages = settings.data.tags.split()
    return (lambda pair: tagged(pair, languages)) if languages else lambda pair: pair


def _check_metric(settings: Settings, pairs: list[Pair]) -> None:
    """Raise an error if the best model is to be chosen by BLEU, but BLEU does not apply to the targets of the pairs."""
    if settings.training.metric == "bleu":
        from seq2see.evaluation import metrics

        metrics.check_metric("bleu", [[pair.target, *pair.references] for pair in pairs])


def _held_out(corpus: Corpus, chosen: Chosen, given: bool, request: Request, base: Base | None) -> Decides:
    """Return a function that tells if a training pair is held out; none is if validation pairs are given (`given`)."""
    data, survey = chosen.settings.data, chosen.survey
    key = by_either([part.languages for part in corpus.train.parts]) if data.tags else by_source
    wanted = 0 if given else data.validation_pairs
    asked = to_hold_out(request.valid) is not None
    return held_out(survey.sample, survey.pairs, wanted, asked, key, HASH if base is None else base.held_out_by)


def _learn_tokenizers(chosen: Chosen, is_held_out: Decides, request: Request) -> Tokenizers:
    """Train tokenizers on the pairs of the sample that are not held out for validation, or on all if all are."""
    used = [pair for pair in chosen.survey.sample if not is_held_out(pair)] or chosen.survey.sample
    request.watch(Said(f"training tokenizers on {len(used):,} pair{'s' * (len(used) != 1)}"))
    return request.call(Tokenizers.learn, used, chosen.settings.data)


def _write_training(
    folder: Path,
    corpus: Corpus,
    is_held_out: Decides,
    given: list[Pair],
    settings: Settings,
    tokenizers: Tokenizers,
    base: Base | None,
) -> tuple[Store, list[Pair], store.TooLong, set[str]]:
    """Tokenise the training pairs into the store `corpus/train`, and return it, with the pairs held out for validation.

    Of both, pairs that are too long are left out; their counts are returned, too, and the sources of `given` that are
    also training sources. The pairs are read once, and only those that are held out are kept in memory.
    """
    limit, with_tag = settings.data.max_length, _tagging(settings)
    kept_out: list[Pair] = []

    def training() -> Iterator[Pair]:
        for pair in corpus.train:
            if is_held_out(pair):
                kept_out.append(with_tag(pair))
            else:
                yield with_tag(pair)

    met: set[str] = set()
    pairs = training() if base is None else base.noting_sources(training())
    pairs = noting_sources(pairs, given, met) if given else pairs
    train, too_long = store.write_tokenised(folder, "train", pairs, tokenizers, limit, corpus.name)
    kept_out, also_too_long = store.short_enough(kept_out, tokenizers, limit)
    return train, kept_out, too_long + also_too_long, met


def _learned_pairs(chosen: Chosen, tokenizers: Tokenizers) -> list[Pair]:
    """Return up to 100 training pairs to validate on, for a corpus from which no pairs can be held out."""
    learned = [*map(_tagging(chosen.settings), chosen.survey.sample[:1000])]
    fit, _ = store.short_enough(learned, tokenizers, chosen.settings.data.max_length)
    return (fit or learned)[:100]


def _warn_about_length(too_long: store.TooLong, total: int, limit: int, left: str, say: Callable[[str], None]) -> None:
    if _are_many(lost := too_long.total(), total):
        most, enough = ", most of the corpus," if 2 * lost > total else "", store.enough(too_long, total)
        say(
            f"warning: {lost:,} of {total:,} pairs{most} are left out, which leaves {left}: longer than "
            f"data.max_length = {limit} tokens. --set data.max_length={enough} keeps nearly all"
        )


def _warn_about_characters(
    valid_pairs: list[Pair], settings: Settings, tokenizers: Tokenizers, say: Callable[[str], None]
) -> None:
    lost = store.unreachable(valid_pairs, tokenizers) if settings.training.metric == "exact" else 0
    if _are_many(lost, len(valid_pairs)):
        say(
            f"warning: {lost:,} of {len(valid_pairs):,} validation targets cannot be written by the target tokenizer "
            "(letter case, spaces, unknown words or characters): the metric exact counts them as wrong. Change them, "
            "or use --metric loss"
        )


def _with_output_limit(settings: Settings, train: Store, yours: set[str], is_fine_tuned: bool) -> Settings:
    """Return settings with a limit of output lengths: `max_ratio` times the length of the source, plus `max_extra`.

    The ratio lets outputs be twice as long as targets are on average. If that is too short for 99.9 % of the targets,
    `max_extra` grows before `max_ratio` does: long sources need no higher limit. The ratio of a fine-tuned model is not
    lowered. Both stay so low that `config.check_decoding` accepts them with the beam width and longest source of the
    user. If the user has set `decoding.max_ratio` (it is in `yours`), nothing is changed.
    """
    decoding = settings.decoding
    if "decoding.max_ratio" in yours:
        return settings
    some = np.arange(0, len(train), 1 + len(train) // MEASURED)
    sources, targets = train.source_lengths(some), train.target_lengths(some)
    ratio = min(MOST_RATIO, max(0.1, round(2 * train.target_tokens / train.source_tokens, 1)))
    extra = int(1.25 * np.quantile(targets - ratio * sources, 0.999, method="higher"))  # others may be longer
    extra = decoding.max_extra if "decoding.max_extra" in yours else min(MOST_EXTRA, max(decoding.max_extra, extra))
    least = math.ceil(10 * float(np.quantile((targets - extra) / sources, 0.999, method="higher"))) / 10
    ratio = max(ratio, least, decoding.max_ratio if is_fine_tuned else 0)
    grown = config.MOST_GROWN // decoding.beam  # the longest output for a source of 8 tokens
    highest = min(100.0, (grown - decoding.max_extra) / 8, (config.MOST_OUTPUT - extra) / (decoding.max_source + 8))
    ratio = min(ratio, math.floor(10 * highest) / 10)
    decoding = replace(decoding, max_ratio=ratio, max_extra=min(extra, grown - int(8 * ratio)))
    config.check_decoding(decoding)
    return replace(settings, decoding=decoding)


# 4. The model, and its training


def new_model(folder: Path, prepared: Prepared, device: torch.device) -> Seq2Seq:
    """Return a model with random weights or, in a fine-tuning, with those in `start.safetensors`."""
    settings = prepared.settings
    torch.manual_seed(settings.training.seed)
    model = build(settings.model, *prepared.tokenizers.sizes).to(device)
    if isinstance(model, Transformer) and settings.training.initial_gain != 1:
        model.scale_sublayers(settings.training.initial_gain)
    if "fine_tuning" in prepared.facts:
        bundle.read_weights(model, folder / "start.safetensors")
    return model


def choose_micro_tokens(prepared: Prepared, before: Progress, device: torch.device, watch: Watch) -> int:
    """Return the tokens per forward pass: as the user set it, else as before on such a device, else by the memory."""
    known = before.micro_tokens if before.device in ("", device.type) else 0  # equal bits are for equal devices
    found = prepared.settings.training.micro_batch_tokens or known or machine.micro_tokens(device)
    if before.micro_tokens not in (0, found):
        watch(Said(f"{found:,} tokens per forward pass from now on, {before.micro_tokens:,} before"))
    return found


def record_start(
    folder: Path, prepared: Prepared, model: Seq2Seq, before: Progress, micro_tokens: int, group: Group, watch: Watch
) -> Prepared:
    """Record model, device, versions and settings of the training in the manifest, and report them as event `Began`."""
    settings, sizes, device = prepared.settings, prepared.tokenizers.sizes, next(model.parameters()).device
    name = machine.name(device) if group.alone else f"{group.world} x {machine.name(device)}"
    facts: dict[str, Any] = prepared.facts | {
        "state": "training",
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "device": name,
        "versions": {"seq2see": seq2see.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    precision = "bfloat16" if loop.in_bfloat16(settings.training, device) else "float32"
    here = f"{name}, {precision}, {micro_tokens:,} tokens per forward pass"
    reasons = prepared.reasons | {"machine": "detected here; does not change the model"}
    rows = suggest.choices(settings, reasons, prepared.yours, facts, sizes, here)
    facts["choices"] = [asdict(row) for row in rows]
    storage.write_manifest(folder, facts)
    watch(
        Began(
            folder,
            settings,
            pairs=facts["pairs"],
            validation_pairs=len(prepared.valid),
            dropped={reason: facts[f"dropped_{reason}"] for reason in ("empty", "too_long")},
            parameters=facts["parameters"],
            vocabularies=sizes,
            device=name,
            step=before.step,
            seconds=before.seconds,
            languages=Sides(**facts.get("languages", {})),
            choices=rows,
        )
    )
    return replace(prepared, facts=facts)


def run_loop(
    folder: Path, prepared: Prepared, model: Seq2Seq, micro_tokens: int, stop: Stop, group: Group
) -> Generator[Event]:
    """Train the model on this rank, in step with all others; yield the events of the loop.

    In one process on a CPU, the number of threads of a Transformer is adapted to the load of other programs. That of
    other architectures is not: the gradients of an RNN depend on it, because PyTorch splits their sums among threads.
    """
    settings = prepared.settings
    is_on_cpu = next(model.parameters()).device.type == "cpu"
    may_change = is_on_cpu and group.alone and settings.model.architecture == "transformer"
    searched = partial(validation.searched, prepared.valid_pairs, prepared.valid.target_tokens, settings.training)

    def validate() -> dict[str, float]:
        pairs = searched()
        used = Bundle(settings, prepared.tokenizers, model.eval())
        with group.all_or_none(stop):
            mine = validation.measure(used, prepared.valid, pairs, group.rank, group.world)
        return validation.scores(used, pairs, error_unit(settings), group.all_gather(mine))

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
            translated=lambda: len(searched()),
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
