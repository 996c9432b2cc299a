"""One training, from pairs to report, in the order in which it happens.

`new_run` opens the corpus, surveys it, settles the settings, learns tokenizers and writes the corpus as tokens; `learn`
builds the model, trains it and writes the report. Everything else joins here: a run that is resumed (`resume`) comes in
at `learn`, fine-tuning (`fine_tuning`) replaces a few steps, and under torchrun all processes but the first one do
nothing but train (`follow`).

The pairs are read twice, whatever their number: once by the survey, and once to tokenise them.
"""

import contextlib
import math
import os
import platform
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch

import seq2see
from seq2see import config, machine, storage
from seq2see.config import Overlay, Settings, Training
from seq2see.display import notebook
from seq2see.distributed import ranks
from seq2see.errors import OnlyHereError, SeqError, SettingError
from seq2see.machine import ALONE, Group, Stop
from seq2see.model.build import count_parameters
from seq2see.model.interface import Seq2Seq
from seq2see.run import Run
from seq2see.session import choices, fine_tuning, finish, prepare, resume, trials
from seq2see.session.request import (
    Base,
    Began,
    Interrupted,
    Prepared,
    ReadingKeywords,
    Request,
    Said,
    Watch,
    in_notebook,
)
from seq2see.session.resume import new_model, run_loop
from seq2see.session.survey import survey_corpus
from seq2see.text import corpora
from seq2see.text.corpora import Corpus
from seq2see.text.pair import Pair, Sides
from seq2see.tokens.store import Store
from seq2see.training import checkpoint, loop
from seq2see.training.bad_numbers import NotFinite
from seq2see.training.checkpoint import Progress
from seq2see.training.events import INTERRUPTED, Finished, Stepped
from seq2see.training.journal import Journal

FORECAST_AFTER = 10
"""Updates by which the duration of a training on a CPU is estimated."""
DAY = 24 * 60 * 60
ECHO = 2.0
"""Seconds within which a repeated signal counts as the first one: several processes may forward it."""


def train(
    pairs: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    valid: str | Path | float | None = None,
    preset: str | None = None,
    config_file: str | Path | None = None,
    settings: Overlay | None = None,
    resume: bool = False,
    force: bool = False,
    from_run: str | Path | None = None,
    tune: float | None = None,
    watch: Watch | None = None,
    **reading: Unpack[ReadingKeywords],
) -> Run:
    """Train a model on pairs; the corpus suggests all settings that are not given.

    Started by torchrun, many processes train one model together; the first of them alone writes and calls `watch`.

    Args:
        pairs: A file, two parallel files joined by a comma, or the name of a corpus; or a list of these.
        out: The run folder, `runs/<name of the corpus>` if not given.
        valid: Pairs to validate on; a number or a share (500, 0.02, "2%") holds out about that many of `pairs`, and
            some are held out if nothing is given.
        preset: A named set of settings, such as "tutorial-small".
        config_file: Settings in TOML, over the preset.
        settings: Settings as a tree, over the file: `{"training": {"max_steps": 500}}`.
        resume: Resume from the newest checkpoint in `out`; where there is no run yet, begin one.
        force: Throw an earlier run in `out` away.
        from_run: Fine-tune the model of this run: its tokenizers, model and tags are kept, and `fine_tuning` in the
            manifest says what it forgot.
        tune: Minutes to spend on trials of other settings (`trials`); 0 for none. If not given, the corpus decides.
        watch: Called with each event. If not given, a notebook shows a progress bar.
        reading: `format` of the files; `source_column` and `target_column` of CSV and TSV by name or by number from 1,
            or the keys in JSONL; `source_language` and `target_language`, where the files do not say them, or to
            choose among the languages of a TMX file; `tag` puts the language of the target in front of each source, so
            that one model serves many directions.

    Raises:
        Interrupted: After Ctrl-C, SIGTERM or SIGHUP, once everything is saved.
    """
    if resume and force:
        raise SettingError("--resume continues a run, --force deletes it: choose one")
    if tune is not None and not 0 <= tune < math.inf:
        raise SettingError(f"--tune {tune:g}: expected a number of minutes; 0 for no trials")
    overlays: list[Overlay] = [] if preset is None else [config.preset(preset)]
    overlays += [] if config_file is None else [config.read_toml(Path(config_file))]
    overlays += [settings or {}]
    config.check_keys(*overlays)
    folder = Path("runs") / corpora.name_of(pairs) if out is None else Path(out)
    base = None if from_run is None else Path(from_run)
    if watch is None:
        watch = in_notebook() if notebook.is_notebook() else lambda event: None
    request = Request(
        pairs, folder, valid, overlays, reading, reading.get("tag", False), resume, force, base, watch, tune
    )
    if not os.environ.keys() & {"WORLD_SIZE", "TORCHELASTIC_RUN_ID"}:
        return start(request, ALONE)
    with ranks.joined() as group:  # torchrun has started this process and perhaps others
        ranks.check_restarts(resume, force)
        return start(request, group) if group.is_first else follow(group)


def start(request: Request, group: Group) -> Run:
    """Resume the run in the folder, if that was asked for and there is one; else make a new one."""
    if request.from_run is not None:
        fine_tuning.check_places(request.from_run, request.folder)
    if request.folder.exists() and resume.can_resume(request):
        return resume_run(request, group)
    if request.resume:
        request.watch(Said(f"nothing to resume in {request.folder}: starting anew"))
    return new_run(request, group)


def resume_run(request: Request, group: Group) -> Run:
    """Train on from the newest checkpoint, or only complete the end of a run that is finished."""
    device, folder = machine.pick_device(), request.folder
    prepared = resume.reopened(request)
    if resume.is_finished(folder, prepared):
        run = finish.complete(folder, prepared, device, request.watch)
        group.first_does(lambda: [str(folder.absolute()), 0])
        return run
    _check_memory(prepared.settings, device)  # the run may come from a larger machine, or from a stranger
    with storage.sole_writer(folder, group.patience):
        resume.begin_again(folder, prepared)
        prepared = trials.decide(folder, prepared, request.overlays, request.watch, group.alone)
        return learn(request, prepared, device, group)


def new_run(request: Request, group: Group) -> Run:
    """Make a run folder from pairs, and train the model in it."""
    base = None if request.from_run is None else fine_tuning.open_base(request)
    corpus = prepare.open_corpus(request)
    given = prepare.validation_pairs(request, corpus)
    device = machine.pick_device()
    with storage.held(request.folder, group.patience):
        was_made = (request.folder / "manifest.json").exists()  # by another process, while this one waited
        if not (was_made and request.resume and resume.can_resume(request)):
            prepared, examine = make_folder(request, corpus, given, base, device)
            prepared = trials.decide(request.folder, prepared, request.overlays, request.watch, group.alone)
            return learn(request, prepared, device, group, examine)
    return start(request, group)


def make_folder(
    request: Request, corpus: Corpus, given: Iterable[Pair] | None, base: Base | None, device: torch.device
) -> tuple[Prepared, Callable[[], list[str]]]:
    """Make a run folder that is ready to train; with it, return a function that examines the corpus.

    Args:
        given: The pairs to validate on; None to hold some of the training pairs out.
        base: The run that is fine-tuned.
    """
    request.watch(Said(f"reading {corpus.name}"))
    survey = survey_corpus(corpus.train, with_languages=prepare.wants_tags(request, base))
    valid_pairs = prepare.read_validation(corpus, survey, given, request)
    if base is None:
        chosen = prepare.settle(survey, corpus, request.overlays, prepare.to_hold_out(request.valid))
    else:
        chosen = fine_tuning.settle(base, survey, corpus, request)
    _check_memory(chosen.settings, device)
    with storage.made(request.folder) as folder:
        prepared = prepare.write_corpus(folder, corpus, chosen, valid_pairs, request, base)
        if base is not None:
            prepared = fine_tuning.keep(base, folder, prepared, request)
        elif not corpus.settings:
            quiet = replace(request, watch=lambda event: None)

            def write(place: Path, settings: Settings) -> Prepared:
                return prepare.write_corpus(place, corpus, replace(chosen, settings=settings), valid_pairs, quiet, None)

            tried = trials.challengers(chosen.candidates, prepared.settings, prepared.yours, request.tune)
            trials.prepare(folder, prepared, tried, request.tune, write)
        storage.write_manifest(folder, prepared.facts)
    # The folder was moved to its place, so the stores are opened again there.
    sizes = len(prepared.tokenizers.source), len(prepared.tokenizers.target)
    train, valid = (Store(request.folder / "corpus" / name, sizes) for name in ("train", "valid"))
    examine = partial(prepare.examine, corpus, survey, valid_pairs, given)  # called later, so that training starts soon
    return replace(prepared, train=train, valid=valid), examine


def learn(
    request: Request,
    prepared: Prepared,
    device: torch.device,
    group: Group,
    examine: Callable[[], list[str]] = list,
) -> Run:
    """Train the model of a run folder that is ready, from its newest checkpoint if it has one, and write the report.

    Args:
        examine: Called after the first update; returns lines about what seems wrong with the corpus.
    """
    folder, watch = request.folder, request.watch
    model = new_model(folder, prepared, device)
    before, is_pause = Progress(), False
    if (folder / "checkpoints").is_dir():
        newest = checkpoint.go_on_from(folder / "checkpoints", lambda line: watch(Said(f"warning: {line}")))
        if newest is not None:
            before, is_pause = checkpoint.read_progress(newest), checkpoint.is_pause(newest)
    micro_tokens = _tokens_at_once(prepared, before, device, watch)
    prepared = _describe(folder, prepared, model, before, device, micro_tokens, group, watch)
    group.first_does(lambda: [str(folder.absolute()), micro_tokens])
    stop = Stop(0.0 if group.alone else ECHO)
    journal, end = None, None
    with contextlib.closing(run_loop(folder, prepared, model, micro_tokens, stop, group)) as happening:
        try:
            for event in happening:
                if journal is None:  # after the first update
                    journal = Journal(folder, before.step, is_pause)
                    for line in examine():
                        watch(Said(f"doctor: {line}"))
                journal.write(event)
                watch(event)
                if isinstance(event, Stepped) and event.step == before.step + FORECAST_AFTER and device.type == "cpu":
                    watch(
                        Said(_forecast(prepared.settings.training, (event.seconds - before.seconds) / FORECAST_AFTER))
                    )
                end = event
        except NotFinite as found:
            raise finish.not_finite(folder, prepared, found, partial(prepare.open_corpus, request)) from None
        finally:
            if journal is not None:
                journal.close()
    assert isinstance(end, Finished)
    if end.reason == INTERRUPTED:
        raise Interrupted(int(group.largest(stop.signal)))
    run = finish.finish(folder, prepared, end, device, watch)
    group.barrier()
    return run


def _forecast(training: Training, seconds: float) -> str:
    """Return how long a training takes at most on this CPU, and what to do if that is more than a day.

    Args:
        seconds: The mean duration of the first updates.
    """
    whole = seconds * training.max_steps
    speed = f"{training.batch_tokens / seconds:,.0f} tokens/s"
    line = f"at most {finish.in_words(whole)} for {training.max_steps:,} steps on this CPU, at {speed}"
    if whole <= DAY:
        return line
    fewer = max(1, int(float(f"{DAY / seconds:.2g}")))
    return f"{line}. To end within a day, use a GPU, or train anew with --force --set training.max_steps={fewer}"


def follow(group: Group) -> Run:
    """Wait until the first process has something to train, and train it together with all others."""
    device = machine.pick_device()
    place, micro_tokens = group.first_does(lambda: None)
    folder = Path(place)
    if not micro_tokens:  # the run is finished already
        return Run(folder)
    try:
        prepared = resume.reopen(folder, [])
        model = new_model(folder, prepared, device)
    except SeqError as problem:
        where = f"process {group.rank}: all machines need to see the run folder under the same name"
        raise OnlyHereError(f"{problem} ({where})") from None
    stop = Stop(0.0 if group.alone else ECHO)
    try:
        [end] = deque(run_loop(folder, prepared, model, micro_tokens, stop, group), maxlen=1)
    except NotFinite:
        group.barrier()  # where the error of the first process, which reports it, is raised
        raise
    if isinstance(end, Finished) and end.reason == INTERRUPTED:
        raise Interrupted(int(group.largest(stop.signal)))
    group.barrier()
    return Run(folder)


def _check_memory(settings: Settings, device: torch.device) -> None:
    sizes = settings.data.source_vocabulary, settings.data.target_vocabulary
    machine.check_memory(count_parameters(settings.model, *sizes), device)


def _tokens_at_once(prepared: Prepared, before: Progress, device: torch.device, watch: Watch) -> int:
    """Return how many tokens a forward pass takes: the user's number, that of the earlier steps, or the machine's."""
    known = before.micro_tokens if before.device in ("", device.type) else 0  # equal bits are for equal devices
    found = prepared.settings.training.micro_batch_tokens or known or machine.micro_tokens(device)
    if before.micro_tokens not in (0, found):
        watch(Said(f"{found:,} tokens per forward pass from now on, {before.micro_tokens:,} before"))
    return found


def _describe(
    folder: Path,
    prepared: Prepared,
    model: Seq2Seq,
    before: Progress,
    device: torch.device,
    micro_tokens: int,
    group: Group,
    watch: Watch,
) -> Prepared:
    """Record in the manifest what is about to be trained, and report it as an event."""
    settings, sizes = prepared.settings, (len(prepared.tokenizers.source), len(prepared.tokenizers.target))
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
    rows = choices.choices(settings, reasons, prepared.yours, facts, sizes, here)
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
