"""From pairs to a run folder that is ready to train: settings, tokenizers, and the corpus as tokens on disk.

Two passes over the pairs, whatever their number: one to look (`suggest.survey`), and one to tokenise and to collect the
validation pairs where they are held out. Both use all cores; neither takes more memory for more pairs.
"""

import contextlib
import json
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from seq2see import bundle, config, special, storage
from seq2see.bundle import Tokenizers
from seq2see.config import Data, Overlay, Settings
from seq2see.doctor import examination
from seq2see.errors import DataError, RunError, SeqError
from seq2see.suggest import ROWS, Survey, suggest, survey
from seq2see.text.corpora import Corpus, Pairs, Parts
from seq2see.text.pair import Pair, Sides
from seq2see.text.rows import in_blocks
from seq2see.text.tags import noting_languages, tagged
from seq2see.tokens import held_out, store
from seq2see.tokens.store import Store
from seq2see.training import fine_tuning
from seq2see.training.fine_tuning import Base

Say = Callable[[str], None]

LOOKED_AT = 1 << 20
"""About so many pairs of a larger corpus are examined, evenly taken: what is known of them is kept in memory."""
COUNTED = ("pairs", "validation_pairs", "dropped_empty", "dropped_too_long", "source_tokens", "target_tokens")
"""Facts of a manifest that the rest of a training tells of."""


@dataclass(frozen=True)
class Prepared:
    """What training starts from."""

    settings: Settings
    tokenizers: Tokenizers
    train: Store
    valid: Store
    valid_pairs: list[Pair]
    reasons: dict[str, str]
    """Why the settings are as they are, by the rows of `suggest.ROWS`."""
    yours: set[str]
    """The settings that the user has chosen."""
    old_valid: Store | None = None
    """Of a fine-tuning: what the run that it starts from validated on, where that was at hand."""
    old_valid_pairs: list[Pair] = field(default_factory=list)


def prepare(
    folder: Path,
    corpus: Corpus,
    valid: Iterable[Pair] | None,
    overlays: list[Overlay],
    check: Callable[[Settings], None],
    say: Say,
    *,
    hold_out: float | None = None,
    tag: bool = False,
    base: Base | None = None,
    check_targets: Callable[[str, list[list[str]]], None] = lambda metric, references: None,
) -> Prepared:
    """Make a run folder. It is filled beside its place and moved there when it is whole; what was there goes then.

    Args:
        valid: pairs to validate on; None: those that the corpus brings, else some are held out.
        overlays: the user's settings, over what the corpus suggests.
        check: called with the settings before anything large is done; raises if they cannot work here.
        hold_out: validate on so many of the corpus's own pairs, or on that share of them if it is below 1.
        tag: put the language of its target in front of each source.
        base: a run whose tokenizers, model and tags are kept.
        check_targets: called with the metric and references to validate on; raises if one does not suit the other.
    """
    if base is not None:
        fine_tuning.check(base, overlays, tag)
        tag = bool(base.tags)
    say(f"reading {corpus.name}")
    tag = tag or any(overlay.get("data", {}).get("tags") for overlay in overlays)
    tags: set[str] = set()
    seen = examination.Examination(LOOKED_AT)
    found = survey(noting_languages(corpus.train, tags) if tag else corpus.train, seen)
    for note in corpus.train.notes:
        say(note)
    if not found.pairs:
        raise DataError(f"{corpus.name}: no usable pair (a pair needs text on both sides)")
    given = None if hold_out is not None else corpus.valid if valid is None else valid
    valid_pairs = [] if given is None else list(given)  # read before anything is written: it may be faulty, too
    if given is not None and not valid_pairs:
        raise DataError("the validation set has no usable pair (a pair needs text on both sides)")
    _warn(corpus, seen, valid_pairs, given.files if isinstance(given, Parts) else [], say)
    del seen  # no longer needed, and large
    yours = config.keys(*overlays)
    if base is None:
        chosen = {key: value for overlay in overlays for key, value in overlay.get("model", {}).items()}
        suggestion = suggest(found, chosen)
        data = config.resolve(suggestion.settings, corpus.settings, *overlays).data
        found = _without_too_long(found, data, None)
        if found.left_out:
            suggestion = suggest(found, chosen)
        known = [name for name, keys in ROWS.items() if config.keys(corpus.settings).intersection(keys)]
        reasons = suggestion.reasons | dict.fromkeys(known, f"known to suit {corpus.name}")
        overlays = [suggestion.settings, corpus.settings, *overlays]
    else:
        data = config.resolve(asdict(base.bundle.settings), *overlays).data
        found = _without_too_long(found, data, base.bundle.tokenizers)
        reasons = fine_tuning.reasons(base, found.pairs)
        overlays = [asdict(base.bundle.settings), _for_fine_tuning(base, corpus, found, tags, overlays, say), *overlays]
    if hold_out is not None:
        overlays.append({"data": {"validation_pairs": _as_count(hold_out, found.pairs)}})
    settings = config.resolve(*overlays)
    if tag:
        if base is None:
            overlays.append({"data": {"tags": " ".join(sorted(tags.union(settings.data.tags.split())))}})
            settings = config.resolve(*overlays)
        valid_pairs = [tagged(pair, settings.data.tags.split()) for pair in valid_pairs]
    check(settings)
    check_targets(settings.training.metric, [[pair.target, *pair.references] for pair in valid_pairs or found.sample])
    place, beside = _place(folder), _workplace(folder)  # `.` and links have no name of their own
    storage.own_folder(beside)
    _empty(beside)
    try:
        with storage.in_one_line(beside):
            _fill(beside, corpus, valid_pairs, found, settings, overlays, say, hold_out is not None, base)
            storage.sync_all(beside)
            _move_in(beside, place)
    except BaseException:
        with contextlib.suppress(OSError):
            storage.remove(beside)
        raise
    return replace(reopen(folder, []), reasons=reasons, yours=yours)


MANY = 50
"""One pair in so many left out for its length is worth a warning."""
ENOUGH_TO_MEASURE = 20_000
"""Pairs from which a tokenizer is learned that only measures lengths."""
PART = ".part"
LEFT_OVER = {PART, storage.LOCK}
"""What may stand in a folder where no run has been made yet."""


def _workplace(folder: Path) -> Path:
    """Where a run is made: inside its folder where there is one, which may be a disk of its own, else beside it."""
    place = _place(folder)
    return place / PART if place.exists() else place.with_name(f".{place.name}{PART}")


def _place(folder: Path) -> Path:
    """Return where a run folder is, links followed: the user may name a link to a folder."""
    try:
        return folder.resolve()
    except (OSError, RuntimeError):  # Python 3.11 and 3.12 raise RuntimeError
        raise RunError(f"{folder}: symbolic links that lead in a circle. Choose another --out") from None


@contextlib.contextmanager
def held(folder: Path, patience: int = 0) -> Iterator[None]:
    """Keep other trainings out of a folder, which need not be there yet; the lock moves there with what is made.

    `patience` is that of `storage.sole_writer`.
    """
    place, beside = _place(folder), _workplace(folder)
    storage.refuse_link(beside)  # before the corpus is read, which takes long
    home = place if place.exists() else beside
    missing = [each for each in (home, *home.parents) if not each.exists()]
    with storage.in_one_line(folder):
        if home is beside:
            storage.own_folder(beside)
    with storage.sole_writer(home, patience):
        try:
            yield
        except BaseException:  # cleared away only by who holds it: what is there may be another's work
            for each in missing:
                with contextlib.suppress(OSError):  # not empty: more came of it than that
                    storage.remove(each) if each == home else each.rmdir()
            raise


def _empty(folder: Path, *keep: str) -> None:
    """Delete everything in a folder except the lock file and the names in `keep`; of a link, only the link."""
    for old in folder.iterdir():
        if old.name not in (storage.LOCK, *keep):
            storage.remove(old)


def _warn(corpus: Corpus, seen: examination.Examination, valid_pairs: list[Pair], against: list[str], say: Say) -> None:
    """Say what seems wrong with the corpus. Nothing is left out for it: that is the user's to decide."""
    held = examination.Examination()
    for pair in valid_pairs:
        held.add(pair.source, pair.target)
    lines = examination.short(seen.diagnose(held if valid_pairs else None, corpus.train.languages))
    if lines and (share := seen.share) > 1:
        say(f"doctor    looked at one in {share} of the pairs; where one repeats another that was not, is not seen")
    for line in lines:
        say(f"doctor    {line}")
    if lines:
        words = [*corpus.words, *(["--against", against[0]] if against else [])]
        say(f"doctor    look closer with: seq2see doctor {shlex.join(words)}")


def _move_in(whole: Path, place: Path) -> None:
    """Put a finished folder in its place. One that is there is emptied, not replaced: somebody may stand in it."""
    if whole.parent != place:
        try:
            whole.rename(place)
        except OSError:
            raise RunError(f"{place}: was made by somebody else meanwhile. Choose another --out") from None
        storage.sync(place.parent)
        return
    bundle.write_manifest(place, {"state": "preparing"})  # who finds it half way knows that there is nothing to lose
    _empty(place, PART, "manifest.json")
    for new in sorted(whole.iterdir(), key=lambda path: path.name == "manifest.json"):  # last: it makes a run of it
        new.rename(place / new.name)
    whole.rmdir()
    storage.sync(place)


def _fill(
    folder: Path,
    corpus: Corpus,
    valid_pairs: list[Pair],
    found: Survey,
    settings: Settings,
    overlays: list[Overlay],
    say: Say,
    asked: bool,
    base: Base | None,
) -> None:
    began = time.perf_counter()
    spoken = [part.languages for part in corpus.train.parts]
    key = held_out.by_either(spoken) if settings.data.tags else held_out.by_source
    wanted = 0 if valid_pairs else settings.data.validation_pairs
    held_out_by = held_out.HASH if base is None else base.held_out_by
    is_held_out = held_out.choose(found.sample, found.pairs, wanted, asked, key, held_out_by)
    if base is None:
        say(f"learning tokens from {len(found.sample):,} pairs")
        learned = [pair for pair in found.sample if not is_held_out(pair)] or found.sample
        tokenizers = Tokenizers.learn(learned, settings.data)
    else:
        tokenizers = base.bundle.tokenizers
    tokenizers.save(folder)

    total, limit = found.pairs + found.left_out, settings.data.max_length
    cut = tokenizers.source, tokenizers.target
    say(f"tokenising {total:,} pairs")
    given = len(valid_pairs)
    if valid_pairs:
        valid_pairs = store.for_validation("the validation set", valid_pairs, cut, limit, say, refuse=True)
    kept_out: list[Pair] = []
    languages = settings.data.tags.split()
    training = _parted(corpus.train, is_held_out, languages, kept_out)
    old_sources = {pair.source for pair in base.valid_pairs} if base is not None else set()
    met: set[str] = set()
    if old_sources:
        training = _noting_sources(training, old_sources, met)
    train_store, too_long = _write(folder, "train", training, tokenizers, limit, corpus.name)
    kept_out, also_too_long = store.short_enough(kept_out, cut, limit)
    too_long += also_too_long
    if MANY * (lost := too_long.total()) > total:
        most, enough = ", most of the corpus," if 2 * lost > total else "", store.enough(too_long, total)
        left = f"{len(train_store):,} for training" + ("" if valid_pairs else f" and {len(kept_out):,} for validation")
        say(
            f"warning   {lost:,} of {total:,} pairs{most} are left out, which leaves {left}: longer than "
            f"data.max_length = {limit} tokens. --set data.max_length={enough} keeps nearly all"
        )
    if met:
        say(
            f"{len(met):,} of the {len(old_sources):,} old validation sources are among the new training pairs: "
            "less will seem forgotten than is"
        )
    valid_pairs = valid_pairs or kept_out
    if not valid_pairs:
        learned = [tagged(pair, languages) for pair in found.sample[:1000]]
        fit, _ = store.short_enough(learned, cut, limit)
        valid_pairs = (fit or learned)[:100]
        why = "so few cannot be held out" if asked else "too few different sources to hold some out"
        say(f"{why}: validation is on training pairs. Give others with --valid")
    lost = store.unreachable(valid_pairs, cut) if settings.training.metric == "exact" else 0
    if MANY * lost > len(valid_pairs):
        say(
            f"warning   {lost:,} of {len(valid_pairs):,} validation targets cannot be written by the target tokenizer "
            "(letter case, spaces or characters): exact counts them as wrong. Change them, or take --metric loss"
        )
    valid_store, _ = _write(folder, "valid", valid_pairs, tokenizers, limit, "the validation set")
    (folder / "validation.jsonl").write_text("".join(map(_as_json, valid_pairs)), encoding="utf-8")

    of_base: dict[str, object] = {}
    sides = corpus.train.languages
    if base is not None:
        _keep_start(folder, base, tokenizers, limit, say)
        of_base = {"fine_tuning": {"from": base.name, "original": base.original}}
        kept = zip(base.languages, sides, strict=True)
        sides = base.languages if base.tags else Sides(*(old or new for old, new in kept))

    # Room for outputs: twice what the corpus needs on average, as letters to words needs more than words to words.
    ratio = train_store.target_tokens / train_store.source_tokens
    room = max(2.0 if base is None else settings.decoding.max_ratio, round(2 * ratio, 1))
    settings = config.resolve(overlays[0], {"decoding": {"max_ratio": room}}, *overlays[1:])
    config.write_toml(settings, folder / "settings.toml")
    facts = {
        "corpus": corpus.name,
        "languages": sides._asdict(),
        "state": "prepared",
        "pairs": len(train_store),
        "validation_pairs": len(valid_store),
        "held_out_by": held_out_by,
        "dropped_empty": corpus.train.dropped,
        "dropped_too_long": too_long.total(),
        "validation_dropped_too_long": max(0, given - len(valid_store)),
        "source_tokens": train_store.source_tokens,
        "target_tokens": train_store.target_tokens,
        "prepared_in_seconds": round(time.perf_counter() - began, 1),
        **of_base,
    }
    bundle.write_manifest(folder, facts)


def _without_too_long(found: Survey, data: Data, tokenizers: Tokenizers | None) -> Survey:
    """Return the survey of only those pairs that fit into `data.max_length`, where more than a few do not.

    Settings should suit the pairs that are trained on. Only a tokenizer tells how many tokens a text has: where there
    is none yet, one is learned from a part of the sample.
    """
    sample, limit = found.sample, data.max_length
    bytes_of_longer = (max(len(pair.source.encode()), len(pair.target.encode())) for pair in sample)
    if MANY * sum(size > limit for size in bytes_of_longer) <= len(sample):  # a token has at least one byte
        return found
    cut = tokenizers or Tokenizers.learn(sample[:: 1 + len(sample) // ENOUGH_TO_MEASURE], data)
    kept, too_long = store.short_enough(sample, (cut.source, cut.target), limit)
    return found.only(kept) if kept and MANY * too_long.total() > len(sample) else found


def _parted(
    pairs: Iterable[Pair], is_held_out: held_out.Decides, languages: list[str], kept_out: list[Pair]
) -> Iterator[Pair]:
    """The pairs to train on, with their tags; the others are put into `kept_out`."""
    for pair in pairs:
        if is_held_out(pair):
            kept_out.append(tagged(pair, languages) if languages else pair)
        else:
            yield tagged(pair, languages) if languages else pair


def _for_fine_tuning(
    base: Base, corpus: Corpus, found: Survey, tags: set[str], overlays: list[Overlay], say: Say
) -> Overlay:
    """Settings for these new pairs; says what in them a model from another corpus may not be ready for."""
    say(f"starting from {base.folder}, its model and tokenizers")
    if base.tags and tags - set(base.tags):
        raise DataError(
            f"{corpus.name}: has pairs to {', '.join(sorted(tags - set(base.tags)))}, and {base.folder} translates to "
            f"{', '.join(base.tags)}: a new language needs a training without --from"
        )
    for side, has, new in zip(("source", "target"), base.languages, corpus.train.languages, strict=True):
        if has and new and has != new and not base.tags:
            say(f"the {side} of {base.folder} is '{has}', that of {corpus.name} is '{new}'")
    looked_at = found.sample[:: max(1, len(found.sample) // 1000)]
    tokens = 0
    for side, cut in (("source", base.bundle.tokenizers.source), ("target", base.bundle.tokenizers.target)):
        ids = [id for text in cut.encode([getattr(pair, side) for pair in looked_at]) for id in text]
        tokens += len(ids) + len(looked_at)  # each ends with END
        unknown = ids.count(special.UNKNOWN)
        if 2 * unknown > len(ids):
            raise DataError(
                f"{corpus.name}: {unknown:,} of {len(ids):,} {side} tokens looked at are unknown to {base.folder}, and "
                "would stay so: it needs a training without --from"
            )
        if unknown:
            say(f"{unknown:,} of {len(ids):,} {side} tokens looked at are unknown to {base.folder}, and stay so")
    asked = {key: value for overlay in overlays for key, value in overlay.get("training", {}).items()}
    return fine_tuning.suggest(base, round(tokens / len(looked_at) * found.pairs), asked)


def _noting_sources(pairs: Iterable[Pair], known: set[str], met: set[str]) -> Iterator[Pair]:
    """The pairs, those of their sources that are `known` put into `met`."""
    for pair in pairs:
        if pair.source in known:
            met.add(pair.source)
        yield pair


def _keep_start(folder: Path, base: Base, tokenizers: Tokenizers, limit: int, say: Say) -> None:
    """What tells at the end how much was forgotten: the first weights, and the validation pairs of that run."""
    bundle.save_weights(base.bundle.model, folder / "start.safetensors")
    if not base.valid_pairs:
        say(f"{base.folder / 'validation.jsonl'}: no pairs there, so what is forgotten cannot be measured")
        return
    cut = tokenizers.source, tokenizers.target
    pairs = store.for_validation("the old validation set", base.valid_pairs, cut, limit, say)
    _write(folder, "old_valid", pairs, tokenizers, limit, "the old validation set")
    (folder / "old_validation.jsonl").write_text("".join(map(_as_json, pairs)), encoding="utf-8")


def reopen(folder: Path, overlays: list[Overlay]) -> Prepared:
    """What an earlier `prepare` left, with settings changed where the user says so."""
    facts = bundle.read_manifest(folder)  # first: it refuses what must not even be opened
    before = bundle.read_settings(folder)
    settings = config.resolve(asdict(before), *overlays)
    if _fixed(settings) != _fixed(before):
        raise RunError(
            f"{folder}: settings of data and model, the seed and training.batch_tokens are fixed once a run has begun. "
            "Train anew with --force"
        )
    tokenizers = Tokenizers.load(folder)
    vocabularies = len(tokenizers.source), len(tokenizers.target)
    try:
        train, valid = (Store(folder / "corpus" / each, vocabularies) for each in ("train", "valid"))
    except DataError as problem:
        raise RunError(f"{problem}, with --force: the run cannot go on without") from None
    for fact in COUNTED:
        if type(facts.get(fact)) is not int:
            raise RunError(f"{folder / 'manifest.json'}: no number for '{fact}'; it was damaged. Copy the run again")
    if len(train) != facts["pairs"]:
        raise RunError(
            f"{folder / 'corpus' / 'train'}: {len(train):,} pairs, the run began with {facts['pairs']:,}: it was "
            "changed. Copy the run again, or train anew with --force"
        )
    valid_pairs = list(Pairs(folder / "validation.jsonl", references=True))
    rows = facts.get("choices", [])  # of those who began the run
    reasons = {row["name"]: row["why"] for row in rows}
    yours = config.keys(*overlays).union(*(row["yours"] for row in rows))
    prepared = Prepared(settings, tokenizers, train, valid, valid_pairs, reasons, yours)
    if not (folder / "old_validation.jsonl").exists():
        return prepared
    old_pairs = list(Pairs(folder / "old_validation.jsonl", references=True))
    return replace(prepared, old_valid=Store(folder / "corpus" / "old_valid", vocabularies), old_valid_pairs=old_pairs)


def find_lines(prepared: Prepared, pairs: list[int], corpus: Callable[[], Corpus]) -> list[str]:
    """Where some training pairs stand in the corpus, if that can still be read, and what they say.

    They are known by their tokens: tags and normalisation have changed their texts.
    """
    cut, where = prepared.tokenizers, {}
    for number in pairs:
        source, _, target, _ = prepared.train.gather(np.array([number]))
        where[tuple(source[:-1].tolist()), tuple(target[:-1].tolist())] = ""
    missing = set(where)
    with contextlib.suppress(SeqError, OSError):
        for block in in_blocks(corpus().train, 1000):
            if not missing:
                break
            texts = [tagged(pair, prepared.settings.data.tags.split()) for pair in block]
            sources = map(tuple, cut.source.encode([pair.source for pair in texts]))
            targets = map(tuple, cut.target.encode([pair.target for pair in texts]))
            for pair, *tokens in zip(block, sources, targets, strict=True):
                if (key := tuple(tokens)) in missing:
                    missing.remove(key)
                    where[key] = f"{pair.where} "
    said = {key: (cut.source.decode([*key[0]])[:40], cut.target.decode([*key[1]])[:40]) for key in where}
    return [f"{where[key]}({source!r} -> {target!r})" for key, (source, target) in said.items()]


def _fixed(settings: Settings) -> tuple[object, ...]:
    """What a resumed run must share with its beginning: a position in the batches means nothing in another plan."""
    return settings.data, settings.model, settings.training.seed, settings.training.batch_tokens


def _as_count(hold_out: float, pairs: int) -> int:
    """Return how many pairs to hold out: `hold_out` itself, or that share of them if it is below 1."""
    if (count := hold_out if hold_out >= 1 else max(1, round(hold_out * pairs))) > pairs / 2:
        raise DataError(f"--valid {hold_out:g}: at most half of the {pairs:,} pairs can be held out")
    return int(count)


def _write(
    folder: Path, which: str, pairs: Iterable[Pair], tokenizers: Tokenizers, limit: int, name: str
) -> tuple[Store, store.TooLong]:
    """Tokenise pairs into a store; with it, those left out for a side of more than `limit` tokens."""
    too_long: store.TooLong = Counter()

    def blocks() -> Iterator[store.Block]:
        for block, left_out in store.tokenised(pairs, Tokenizers.files(folder), limit):
            too_long.update(left_out)
            yield block

    try:
        vocabulary = max(len(tokenizers.source), len(tokenizers.target))
        return store.write_blocks(folder / "corpus" / which, blocks(), vocabulary), too_long
    except DataError:
        if too_long:
            raise DataError(
                f"{name}: all {too_long.total():,} pairs are longer than data.max_length = {limit} tokens. "
                f"Raise it: --set data.max_length={store.enough(too_long, too_long.total())}"
            ) from None
        raise


def _as_json(pair: Pair) -> str:
    further = {"references": pair.references} if pair.references else {}
    return json.dumps({"source": pair.source, "target": pair.target, **further}, ensure_ascii=False) + "\n"
