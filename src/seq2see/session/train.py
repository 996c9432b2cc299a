"""One training, from pairs to report, in the order in which it happens.

`new_run` opens the corpus, surveys it, chooses the settings, trains tokenizers and writes the tokenised corpus; `learn`
builds the model, trains it and writes the report. A resumed run (`resume`) starts at `learn`, fine-tuning
(`fine_tuning`) replaces a few steps, short trainings may compare settings first (`trials`), and under torchrun all
processes but the first only train (`resume.follow`).

The pairs are read twice, whatever their number: once by the survey, and once to tokenise them. If artificial pairs are
made of them (`hallucination`), they are few and read once more.
"""

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch

from seq2see import config, machine, storage
from seq2see.bundle import Bundle
from seq2see.config import Overlay
from seq2see.distributed import ranks
from seq2see.errors import SettingError
from seq2see.kernels import apart
from seq2see.lens.history import Recorder
from seq2see.machine import ALONE, Group, Stop
from seq2see.model.build import build
from seq2see.run import Run
from seq2see.session import fine_tuning, finish, prepare, resume, trials
from seq2see.session.request import (
    Base,
    Interrupted,
    Prepared,
    ReadingKeywords,
    Request,
    Said,
    Watch,
    notebook_progress,
)
from seq2see.session.survey import examine, problems, survey_corpus, to_hold_out
from seq2see.text import corpora, rows
from seq2see.text.corpora import Corpus, Parts
from seq2see.text.pair import Pair, Sides
from seq2see.text.rows import ReadingOptions
from seq2see.tokens import aligner
from seq2see.tokens.store import Store, Tokenizers
from seq2see.training import checkpoint, graphs, loop
from seq2see.training.bad_numbers import NotFinite
from seq2see.training.checkpoint import Progress
from seq2see.training.events import INTERRUPTED, Finished
from seq2see.training.journal import Journal


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
    """Train a model on pairs of source and target; settings that are not given are chosen for the corpus.

    Started by torchrun, many processes train one model together; only the first writes files and calls `watch`.

    Args:
        pairs: A file, two parallel files joined by a comma, or the name of a corpus; or a list of these.
        out: The run folder, `runs/<name of the corpus>` if not given.
        valid: Pairs to validate on; a number or a share (500, 0.02, "2%") holds out about that many of `pairs`. If not
            given, the validation set of a named corpus is used, and some of `pairs` are held out if there is none.
        preset: A named set of settings, such as "tutorial-small".
        config_file: Settings in TOML, over the preset.
        settings: Settings as a tree, over the file: `{"training": {"max_steps": 500}}`.
        resume: Resume from the newest checkpoint in `out`; where there is no run yet, begin one.
        force: Delete an earlier run in `out`.
        from_run: Fine-tune the model of this run folder: its tokenizers, architecture and tags are kept; `fine_tuning`
            in the new manifest has the scores before and after.
        tune: Minutes to spend on short trainings that compare other settings (`trials`); 0 for none. If not given, up
            to three trials of other tokenizers, if the corpus suggests several, with no time limit.
        watch: Function that is called with each event. If not given, a notebook shows a progress bar.
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
        watch = notebook_progress() if "IPython" in sys.modules else lambda event: None
    request = Request(
        pairs, folder, valid, overlays, _options(reading), reading.get("tag", False), resume, force, base, watch, tune
    )
    if not os.environ.keys() & {"WORLD_SIZE", "TORCHELASTIC_RUN_ID"}:
        return start(request, ALONE)
    with ranks.joined() as group:  # torchrun has started this process and perhaps others
        ranks.check_restarts(resume, force)
        return start(request, group)


def _options(reading: ReadingKeywords) -> ReadingOptions:
    """Return how files are read."""
    columns = (reading.get("source_column"), reading.get("target_column"))
    languages = Sides(reading.get("source_language"), reading.get("target_language"))
    return ReadingOptions(
        reading.get("format"), Sides(*(None if each is None else str(each) for each in columns)), languages
    )


def start(request: Request, group: Group) -> Run:
    """Resume the run in `request.folder` if that is requested and there is one; otherwise make a new run.

    Processes of torchrun other than the first wait until the first has prepared the run folder, and then take part.
    """
    if not group.is_first:
        return resume.follow(group)
    if request.from_run is not None:
        fine_tuning.check_places(request.from_run, request.folder)
    if request.folder.exists() and resume.can_resume(request):
        return resume_run(request, group)
    if request.resume:
        request.watch(Said(f"nothing to resume in {request.folder}: starting anew"))
        if others := resume.other_runs(request):
            request.watch(Said(f"warning: there are other runs on this corpus: {', '.join(map(str, others))}"))
    return new_run(request, group)


def resume_run(request: Request, group: Group) -> Run:
    """Continue training from the newest checkpoint; if the run is finished, only write what is missing at its end."""
    device, folder = machine.pick_device(), request.folder
    if (folder / trials.FOLDER).is_dir():
        with storage.sole_writer(folder, group.patience):
            trials.move_winner(folder)  # an interruption may have left some of its files where they were
    prepared = resume.reopened(request)
    size, before = _bytes_of(request.pairs), prepared.facts.get("corpus_bytes")
    if size is not None and type(before) is int and before != size:  # older or damaged manifests may have no number
        line = (
            f"warning: the pairs on disk have changed ({before:,} bytes when the run started, {size:,} now); training "
            f"uses those of {folder}. To train on the new ones: --force"
        )
        request.watch(Said(line))
    if resume.is_finished(folder, prepared):
        run = finish.complete(folder, prepared, device, request.watch)
        group.run_on_first(lambda: [str(folder.absolute()), 0])
        return run
    prepare.check_memory(prepared.settings, device)  # the run may come from a larger machine, or from a stranger
    with storage.sole_writer(folder, group.patience):
        if plan := _undecided_trials(folder):
            why = "--tune 0" if request.tune == 0 else "settings that candidates have in common were changed"
            if request.tune == 0 or _compared(prepared.settings) != _compared(config.read_settings(folder)):
                prepared = replace(prepared, reasons=plan["reasons"], yours={*plan["yours"], *prepared.yours})
                trials.remove(folder)
                request.watch(Said(f"no further trials: {why}"))
        resume.begin_again(folder, prepared)
        return learn(request, prepared, device, group)


def _bytes_of(pairs: str | Path | Sequence[str | Path]) -> int | None:
    """Return the size of all files of a corpus; None if one is missing, or if it is a corpus by name."""
    words = [pairs] if isinstance(pairs, str | Path) else pairs
    files = [path for word in words for path in rows.split_names(str(word))]
    try:
        return sum(file.stat().st_size for file in files) if all(map(Path.is_file, files)) else None
    except (OSError, ValueError):  # deleted meanwhile, or a name that no file can have
        return None


def _undecided_trials(folder: Path) -> dict[str, Any] | None:
    """Return the plan of the trials of a run folder, if there are any and no candidate has won yet."""
    path = folder / trials.FOLDER / trials.PLAN
    plan = trials.read_plan(path) if path.is_file() else {"winner": ""}
    return None if "winner" in plan else plan


def _compared(settings: config.Settings) -> tuple[object, ...]:
    """Return the settings that may not change while candidates of trials are compared."""
    training = replace(settings.training, micro_batch_tokens=0, log_every=1, keep=1)
    return settings.data, settings.model, training


def new_run(request: Request, group: Group) -> Run:
    """Make a run folder from pairs, and train the model in it.

    If another process has made the folder meanwhile, its run is treated like any that was there before: `resume`
    resumes it, `force` deletes it; with neither, an error is raised.
    """
    base = None if request.from_run is None else fine_tuning.open_base(request)
    corpus = prepare.open_corpus(request)
    given = prepare.open_validation(request, corpus)
    device = machine.pick_device()
    with storage.held(request.folder, group.patience):
        # Another process may have made the folder while this one read the corpus, or waited.
        if not (request.folder.exists() and resume.can_resume(request)):
            with contextlib.ExitStack() as until_made:
                making = request
                if device.type == "cuda":  # a thread compiles kernels meanwhile, which would slow this process down
                    call = until_made.enter_context(apart.process(Tokenizers.learn, aligner.link))
                    making = replace(request, call=call)
                prepared, examined = make_folder(making, corpus, given, base, device)
            return learn(request, prepared, device, group, examined)
    return start(request, group)


def make_folder(
    request: Request, corpus: Corpus, given: Iterable[Pair] | None, base: Base | None, device: torch.device
) -> tuple[Prepared, Callable[[], list[str]]]:
    """Make a run folder that is ready for training. Return its contents, and a function that examines the corpus.

    Args:
        given: The pairs to validate on; None to hold out some of the training pairs.
        base: In a fine-tuning, the run that it starts from; else None.
    """
    request.watch(Said(f"reading {corpus.name}"))
    survey = survey_corpus(corpus.train, with_languages=prepare.wants_tags(request, base))
    prepare.check_corpus(corpus, survey, request)
    valid_pairs = prepare.read_validation(given)
    for note in given.notes if isinstance(given, Parts) else []:  # such as columns that are taken as references
        request.watch(Said(note))
    if base is None:
        chosen = prepare.choose_settings(survey, corpus, request.overlays, to_hold_out(request.valid))
    else:
        chosen = fine_tuning.choose_settings(base, survey, corpus, request)
    prepare.check_memory(chosen.settings, device)
    later = apart.begin if device.type == "cuda" else partial  # examined meanwhile, or when the result is asked for
    found = later(problems, survey.stretches, survey.every, valid_pairs, corpus.train.languages)
    if device.type == "cuda":
        _begin_compiling(chosen.settings)
    with storage.made(request.folder) as folder:
        prepared = prepare.write_corpus(folder, corpus, chosen, valid_pairs, request, base)
        if (size := _bytes_of(request.pairs)) is not None:
            prepared = replace(prepared, facts=prepared.facts | {"corpus_bytes": size})
        if base is not None:
            prepared = fine_tuning.keep(base, folder, prepared, request)
        elif not corpus.settings and (len(chosen.candidates) > 1 or request.tune):
            write = partial(prepare.write_otherwise, corpus, chosen, valid_pairs, request)
            trials.prepare(folder, prepared, chosen, request.tune, write, request.watch)
        storage.write_manifest(folder, prepared.facts)
    # The folder was moved to its place, so the stores are opened again there.
    train, valid = (Store(request.folder / "corpus" / name, prepared.tokenizers.sizes) for name in ("train", "valid"))
    examined = partial(examine, corpus, survey, given, found)  # called later, so that training starts soon
    return replace(prepared, train=train, valid=valid), examined


def _begin_compiling(settings: config.Settings) -> None:
    """Start a thread that compiles the kernels of a Transformer that will be trained by CUDA graphs."""
    if graphs.are_expected(settings.model, settings.training):
        make = partial(build, settings.model, settings.data.source_vocabulary, settings.data.target_vocabulary)
        bfloat16 = loop.in_bfloat16(settings.training, torch.device("cuda"))
        graphs.begin_compiling(make, settings.training, bfloat16)


def learn(
    request: Request,
    prepared: Prepared,
    device: torch.device,
    group: Group,
    examined: Callable[[], list[str]] = list,
) -> Run:
    """Train the model of a prepared run folder, from its newest checkpoint if it has one, and write the report.

    If the folder has trials (short trainings that compare settings), they are run before.

    Args:
        examined: Function that returns lines about likely problems of the corpus; called at the first event of the
            training loop.
    """
    folder, watch = request.folder, request.watch
    if (folder / trials.FOLDER).is_dir():
        try:
            prepared = trials.decide(folder, prepared, request.overlays, watch, group.alone)
        except NotFinite as found:  # with the suggested settings
            raise finish.not_finite(folder, prepared, found, partial(prepare.open_corpus, request)) from None
    model = prepare.new_model(folder, prepared, device)
    before, is_pause = Progress(), False
    if (folder / "checkpoints").is_dir():
        newest = checkpoint.newest_intact(folder / "checkpoints", lambda line: watch(Said(f"warning: {line}")))
        if newest is not None:
            before, is_pause = checkpoint.read_progress(newest), checkpoint.is_pause(newest)
    micro_tokens = prepare.choose_micro_tokens(prepared, before, device, watch)
    prepared = prepare.record_start(folder, prepared, model, before, micro_tokens, group, watch)
    group.run_on_first(lambda: [str(folder.absolute()), micro_tokens])
    stop, journal, end = Stop(group.echo), None, None
    used = Bundle(prepared.settings, prepared.tokenizers, model)
    with contextlib.closing(prepare.run_loop(folder, prepared, model, micro_tokens, stop, group)) as happening:
        try:
            for event in happening:
                if journal is None:  # after the first update
                    journal = Journal(folder, before.step, is_pause)
                    recorder = Recorder(folder, used, prepared.valid, before.step)
                    for line in examined():
                        watch(Said(f"doctor: {line}"))
                journal.write(event)
                watch(event)
                if problem := recorder.after(event):
                    watch(Said(problem))
                if (seconds := finish.seconds_a_step(event, before, device)) is not None:
                    facts = prepared.facts
                    tokens = facts.get("stored_tokens", facts["source_tokens"] + facts["target_tokens"])
                    watch(Said(finish.forecast(prepared.settings.training, seconds, tokens)))
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
