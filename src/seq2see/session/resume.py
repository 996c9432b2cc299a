"""Read a run folder that was prepared before: to resume its training, or to take part in it under torchrun."""

import contextlib
import difflib
import os
from collections import deque
from dataclasses import asdict, replace
from pathlib import Path

from seq2see import config, machine, storage
from seq2see.config import Overlay, Settings
from seq2see.errors import DataError, OnlyHereError, RunError, SeqError
from seq2see.machine import Group, Stop
from seq2see.run import Run
from seq2see.session import prepare
from seq2see.session.request import Interrupted, Prepared, Request
from seq2see.text import corpora
from seq2see.text.corpora import Pairs
from seq2see.tokens.store import Store, Tokenizers
from seq2see.training import checkpoint, loop
from seq2see.training.bad_numbers import NotFinite
from seq2see.training.events import INTERRUPTED, Finished

COUNTED = ("pairs", "validation_pairs", "dropped_empty", "dropped_too_long", "source_tokens", "target_tokens")
"""Entries of the manifest that must be integers for a training to be resumed, because they are reported again."""
OPTIONAL = ("stored_pairs", "stored_tokens")
"""Entries of the same kind that only runs with artificial pairs have."""
FORMER_NAMES = {"rate": "learning rate"}
"""Names of rows in the table of chosen settings (`choices`) in manifests of older versions, with the names of today."""

MOST_NAMED = 3
"""Maximum number of other runs on the same corpus that `other_runs` returns."""


def can_resume(request: Request) -> bool:
    """Return whether to resume the run in `request.folder`; False if a new one is to be made there.

    Raise an error if the folder has contents but neither `--resume` nor `--force` is given, if it is no run folder, or
    if its `settings.toml` is missing on resume.
    """
    folder = request.folder
    if not folder.is_dir():
        raise RunError(f"{folder}: is a file, expected a run folder")
    if {path.name for path in folder.iterdir()} <= storage.LEFT_OVER:
        return False
    if not request.resume and not request.force:
        raise RunError(f"{folder}: exists already. Resume it with --resume, or delete it with --force")
    state = storage.read_manifest(folder).get("state")  # refuses folders that are not ours, also under --force
    resumes = request.resume and state != "preparing"
    if resumes and not (folder / "settings.toml").exists():
        raise RunError(f"{folder / 'settings.toml'}: is missing. Put it back, or delete the run with --force")
    return resumes


def reopened(request: Request) -> Prepared:
    """Read an earlier run to resume it; the files of its corpus are not needed.

    Raise an error if it was trained on another corpus, or fine-tuned from another run, than the request names.
    """
    folder = request.folder
    trained_on, named = storage.read_manifest(folder).get("corpus"), corpora.name_of(request.pairs)
    if trained_on != named:
        raise RunError(f"{folder}: a run on '{trained_on}' cannot be resumed with '{named}'. Choose another --out")
    _check_start(request)
    return reopen(folder, request.overlays)


def other_runs(request: Request) -> list[Path]:
    """Return the folders beside `request.folder` with runs on the same corpus, one of which may have been meant.

    These are at most `MOST_NAMED`, the most similar names first.
    """
    named, found = corpora.name_of(request.pairs), []
    for manifest in request.folder.parent.glob("*/manifest.json"):
        with contextlib.suppress(RunError, OSError):
            if manifest.parent != request.folder and storage.read_manifest(manifest.parent).get("corpus") == named:
                found.append(manifest.parent)

    def likeness(path: Path) -> tuple[float, str]:
        return -difflib.SequenceMatcher(None, path.name, request.folder.name).ratio(), path.name

    return sorted(found, key=likeness)[:MOST_NAMED]


def begin_again(folder: Path, prepared: Prepared) -> None:
    """Write changed settings to `settings.toml`, and delete results of an earlier end of the training (scores,
    diagnosis, alignment, confidence) from `prepared.facts`.
    """
    if prepared.settings != config.read_settings(folder):
        config.write_toml(prepared.settings, folder / "settings.toml")
    prepared.facts.get("fine_tuning", {}).pop("scores", None)
    for fact in ("diagnosis", "alignment", "confidence"):
        prepared.facts.pop(fact, None)


def reopen(folder: Path, overlays: list[Overlay]) -> Prepared:
    """Read the contents of a run folder, with the settings that the user has changed since.

    Raise an error if the folder is damaged, or if settings were changed that are fixed once a run has started.
    """
    facts = storage.read_manifest(folder)  # first: it refuses what must not even be opened
    before = config.read_settings(folder)
    settings = config.resolve(asdict(before), *overlays)
    fixed, fixed_before = _fixed(settings), _fixed(before)
    if changed := [key for key in fixed if fixed[key] != fixed_before[key]]:
        raise RunError(
            f"{folder}: {', '.join(changed)} cannot be changed once a run has started, nor can other settings of data "
            "and model, the seed and training.batch_tokens. Train anew with --force"
        )
    tokenizers = Tokenizers.load(folder)
    try:
        train, valid = (Store(folder / "corpus" / each, tokenizers.sizes) for each in ("train", "valid"))
    except DataError as problem:
        raise RunError(str(problem)) from None
    if settings.training.alignment_weight and not train.has_links:
        raise RunError(
            f"{folder}: the corpus was not aligned when the run started, so training.alignment_weight must stay 0. "
            "Train anew with --force"
        )
    for fact in (*COUNTED, *(name for name in OPTIONAL if name in facts)):
        if type(facts.get(fact)) is not int:
            raise RunError(
                f"{folder / 'manifest.json'}: '{fact}' is missing or no integer; the file is damaged. "
                "Copy the run again"
            )
    stored = facts.get("stored_pairs", facts["pairs"])  # more than there are in the corpus if some are artificial
    if len(train) != stored:
        raise RunError(
            f"{folder / 'corpus' / 'train'}: {len(train):,} pairs, the run started with {stored:,}: it was "
            "changed. Copy the run again, or train anew with --force"
        )
    valid_pairs = list(Pairs(folder / "validation.jsonl", references=True))
    rows = facts.get("choices", [])  # made when the run began
    reasons = {FORMER_NAMES.get(row["name"], row["name"]): row["why"] for row in rows}
    yours = config.keys(*overlays).union(*(row["yours"] for row in rows))
    prepared = Prepared(settings, tokenizers, train, valid, valid_pairs, facts, reasons, yours)
    if not (folder / "old_validation.jsonl").exists():
        return prepared
    old_pairs = list(Pairs(folder / "old_validation.jsonl", references=True))
    return replace(
        prepared, old_valid=Store(folder / "corpus" / "old_valid", tokenizers.sizes), old_valid_pairs=old_pairs
    )


def _fixed(settings: Settings) -> dict[str, object]:
    """Return the settings that must not change on resume, by name: they determine the model and the batches."""
    tree = asdict(settings)
    keys = [(section, key) for section in ("data", "model") for key in tree[section]]
    keys += [("training", "seed"), ("training", "batch_tokens")]
    return {f"{section}.{key}": tree[section][key] for section, key in keys}


def _check_start(request: Request) -> None:
    """Raise an error if `--from` names another run than the one this run was fine-tuned from."""
    began = storage.read_manifest(request.folder).get("fine_tuning", {}).get("from")
    if request.from_run is not None and began != Path(os.path.realpath(request.from_run)).name:
        how = f"from '{began}'" if began else "without --from"
        raise RunError(
            f"{request.folder}: was started {how}, and cannot be resumed from {request.from_run}. Choose another --out"
        )


def is_finished(folder: Path, prepared: Prepared) -> bool:
    """Return whether a run was finished, and has reached a limit (steps, minutes, patience) of its present settings.

    Without checkpoints, a run that has its model is finished as long as its training settings are not changed. If they
    are, raise an error: training anew would replace the model.
    """
    if prepared.facts.get("state") != "finished":
        return False
    newest = checkpoint.newest(folder / "checkpoints")
    if newest is not None:
        return loop.limit_reached(checkpoint.read_progress(newest), prepared.settings.training) is not None
    if not (folder / "model.safetensors").exists():
        return False
    if prepared.settings.training != config.read_settings(folder).training:
        raise RunError(
            f"{folder}: finished, but it has no intact checkpoint from which to train longer. Use its model as it is, "
            "fine-tune it in another folder with --from, or train anew with --force"
        )
    return True


def follow(group: Group) -> Run:
    """Wait until the first process of torchrun has prepared a training, take part in it until its end, and return the
    run; if the run is finished already, only return it.
    """
    device = machine.pick_device()
    place, micro_tokens = group.run_on_first(lambda: None)
    folder = Path(place)
    if not micro_tokens:  # the run is finished already
        return Run(folder)
    try:
        prepared = reopen(folder, [])
        model = prepare.new_model(folder, prepared, device)
    except SeqError as problem:
        where = f"process {group.rank}: all machines need to see the run folder under the same name"
        raise OnlyHereError(f"{problem} ({where})") from None
    stop = Stop(group.echo)
    try:
        [end] = deque(prepare.run_loop(folder, prepared, model, micro_tokens, stop, group), maxlen=1)
    except NotFinite:
        group.barrier()  # where the error of the first process, which reports it, is raised
        raise
    if isinstance(end, Finished) and end.reason == INTERRUPTED:
        raise Interrupted(int(group.largest(stop.signal)))
    group.barrier()
    return Run(folder)
