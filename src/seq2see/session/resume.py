"""Resume a run: check that it matches the request, read back its state, build its model, and run its training loop."""

import os
from collections.abc import Generator
from dataclasses import asdict, replace
from pathlib import Path

import torch

from seq2see import bundle, config, machine, storage
from seq2see.bundle import Bundle
from seq2see.config import Overlay, Settings
from seq2see.errors import DataError, RunError
from seq2see.evaluation import validation
from seq2see.kernels import threads
from seq2see.machine import Group, Stop
from seq2see.model.build import build
from seq2see.model.interface import Seq2Seq
from seq2see.run import error_unit
from seq2see.session.request import Prepared, Request
from seq2see.text import corpora
from seq2see.text.corpora import Pairs
from seq2see.tokens.store import Store, Tokenizers
from seq2see.training import checkpoint, loop
from seq2see.training.events import Event, Stepped, ThreadsChanged, Validated

COUNTED = ("pairs", "validation_pairs", "dropped_empty", "dropped_too_long", "source_tokens", "target_tokens")
"""Numbers in the manifest that the rest of a training reports."""
FORMER_NAMES = {"rate": "learning rate"}
"""Rows of the table of choices that older versions of the program named differently in the manifest."""


def can_resume(request: Request) -> bool:
    """Return whether an earlier run in the folder is to be resumed; an error where something is in the way."""
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
    """Read back what a run left, if it matches the request. The corpus may have been deleted by now."""
    folder = request.folder
    trained_on, named = storage.read_manifest(folder).get("corpus"), corpora.name_of(request.pairs)
    if trained_on != named:
        raise RunError(f"{folder}: a run on '{trained_on}' cannot be resumed with '{named}'. Choose another --out")
    _check_start(request)
    return reopen(folder, request.overlays)


def begin_again(folder: Path, prepared: Prepared) -> None:
    """Write settings that have changed, and remove results of an earlier end from the facts."""
    if prepared.settings != config.read_settings(folder):
        config.write_toml(prepared.settings, folder / "settings.toml")
    prepared.facts.get("fine_tuning", {}).pop("scores", None)
    for fact in ("diagnosis", "alignment"):
        prepared.facts.pop(fact, None)


def reopen(folder: Path, overlays: list[Overlay]) -> Prepared:
    """Read back what training starts from, with the settings that the user has changed."""
    facts = storage.read_manifest(folder)  # first: it refuses what must not even be opened
    before = config.read_settings(folder)
    settings = config.resolve(asdict(before), *overlays)
    if _fixed(settings) != _fixed(before):
        raise RunError(
            f"{folder}: settings of data and model, the seed and training.batch_tokens are fixed once a run has "
            "started. Train anew with --force"
        )
    tokenizers = Tokenizers.load(folder)
    vocabularies = len(tokenizers.source), len(tokenizers.target)
    try:
        train, valid = (Store(folder / "corpus" / each, vocabularies) for each in ("train", "valid"))
    except DataError as problem:
        raise RunError(str(problem)) from None
    if settings.training.alignment_weight and not train.has_links:
        raise RunError(
            f"{folder}: the corpus was not aligned when the run started, so training.alignment_weight must stay 0. "
            "Train anew with --force"
        )
    for fact in COUNTED:
        if type(facts.get(fact)) is not int:
            raise RunError(f"{folder / 'manifest.json'}: no number for '{fact}'; it was damaged. Copy the run again")
    if len(train) != facts["pairs"]:
        raise RunError(
            f"{folder / 'corpus' / 'train'}: {len(train):,} pairs, the run started with {facts['pairs']:,}: it was "
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
    return replace(prepared, old_valid=Store(folder / "corpus" / "old_valid", vocabularies), old_valid_pairs=old_pairs)


def _fixed(settings: Settings) -> tuple[object, ...]:
    """Return the settings that a resumed run must share with its beginning: they decide what is in which batch."""
    return settings.data, settings.model, settings.training.seed, settings.training.batch_tokens


def _check_start(request: Request) -> None:
    """Refuse to resume a run that was fine-tuned from another run than `--from` says; `--from` may be left out."""
    began = storage.read_manifest(request.folder).get("fine_tuning", {}).get("from")
    if request.from_run is not None and began != Path(os.path.realpath(request.from_run)).name:
        how = f"from '{began}'" if began else "without --from"
        raise RunError(
            f"{request.folder}: was started {how}, and cannot be resumed from {request.from_run}. Choose another --out"
        )


def is_finished(folder: Path, prepared: Prepared) -> bool:
    """Return whether a run has ended by a limit that still holds."""
    newest = checkpoint.newest(folder / "checkpoints")
    if prepared.facts.get("state") != "finished" or newest is None:
        return False
    return loop.limit_reached(checkpoint.read_progress(newest), prepared.settings.training) is not None


def new_model(folder: Path, prepared: Prepared, device: torch.device) -> Seq2Seq:
    """Return a model with new weights, or with those that a fine-tuning starts from."""
    settings, tokenizers = prepared.settings, prepared.tokenizers
    torch.manual_seed(settings.training.seed)
    model = build(settings.model, len(tokenizers.source), len(tokenizers.target)).to(device)
    if "fine_tuning" in prepared.facts:
        bundle.read_weights(model, folder / "start.safetensors")
    return model


def run_loop(
    folder: Path, prepared: Prepared, model: Seq2Seq, micro_tokens: int, stop: Stop, group: Group
) -> Generator[Event]:
    """Train, on all ranks alike; yield the events of the loop.

    In one process on a CPU, the number of threads of a Transformer follows what other programs leave. That of an RNN
    does not, because its gradients depend on it: PyTorch splits their sums.
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

    chosen = threads.sharing("training") if may_change else threads.fixed()
    with stop.listening(), machine.deterministic(settings.training.deterministic), chosen as ours:
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
            if isinstance(event, Validated):
                ours.begin("training")
            elif isinstance(event, Stepped) and ours.after(1):
                yield ThreadsChanged(event.step, ours.count, ours.reason)
