"""`train`: from pairs to a finished run folder, whatever happens on the way."""

import contextlib
import os
import platform
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

import seq2see
from seq2see import bundle, config, machine, presets, storage, suggest
from seq2see.bundle import Bundle
from seq2see.config import Overlay, Settings
from seq2see.distributed import ranks
from seq2see.errors import OnlyHereError, RunError, SeqError, SettingError
from seq2see.evaluation import assessment, metrics, report, validation
from seq2see.model.build import build
from seq2see.model.interface import Seq2Seq
from seq2see.prepare import LEFT_OVER, Prepared, find_lines, held, prepare, reopen
from seq2see.run import Evaluation, Run, error_unit
from seq2see.stopping import Stop
from seq2see.text import corpora
from seq2see.text.downloads import Fetching
from seq2see.text.pair import Pair, Sides
from seq2see.text.tags import language_tag
from seq2see.training import checkpoint, fine_tuning, journal, loop
from seq2see.training.bad_numbers import NotFinite
from seq2see.training.checkpoint import Progress


@dataclass(frozen=True)
class Began:
    """The first event of a training: what is about to be trained, and on what."""

    folder: Path
    settings: Settings
    pairs: int
    validation_pairs: int
    dropped: dict[str, int]
    parameters: int
    vocabularies: tuple[int, int]
    device: str
    step: int
    """The step it goes on from; 0 for a new run."""
    seconds: float
    """The training time up to that step."""
    languages: Sides
    """Of source and target, where known."""
    choices: list[suggest.Choice]
    """What was chosen, by corpus, user or machine, and why."""


class Interrupted(KeyboardInterrupt):
    """A signal asked for a stop, and everything is saved."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


@dataclass(frozen=True)
class Said:
    """A line about what is being done."""

    line: str


REPORTED, SHOWN = 200, 40
"""Validation pairs that are scored for the report, by greedy search: a poor model writes long outputs, which takes
time; and those of them that are shown with their translations."""
Event = Said | Fetching | Began | loop.Event
Watch = Callable[[Event], None]


@ranks.joined()
def train(
    pairs: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    valid: str | Path | float | None = None,
    preset: str | None = None,
    config_file: str | Path | None = None,
    settings: Overlay | None = None,
    format: str | None = None,
    source_column: str | int | None = None,
    target_column: str | int | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    tag: bool = False,
    resume: bool = False,
    force: bool = False,
    from_run: str | Path | None = None,
    watch: Watch = lambda event: None,
) -> Run:
    """Train a model on pairs; the corpus suggests all settings that are not given.

    Started by torchrun, many processes train one model together; the first of them alone writes and calls `watch`.

    Args:
        pairs: a file, two parallel files joined by a comma, or the name of a corpus; or a list of these.
        out: the run folder, `runs/<name of the corpus>` if not given.
        valid: pairs to validate on; a number or a share (500, 0.02, "2%") holds out about that many of `pairs`, and
            some are held out if nothing is given.
        preset: a named set of settings, such as "tutorial-small".
        config_file: settings in TOML, over the preset.
        settings: settings as a tree, over the file: `{"training": {"max_steps": 500}}`.
        source_column: the column of CSV and TSV by name or by number from 1, or the key in JSONL, of the source.
        target_column: the same of the target.
        source_language: its code, where the files do not say it, or to choose among the languages of a TMX file.
        target_language: the same of the target.
        tag: put the language of the target in front of each source, so that one model serves many directions.
        resume: go on from the newest checkpoint in `out`; where there is no run yet, begin one.
        force: throw an earlier run in `out` away.
        from_run: fine-tune the model of this run: its tokenizers, model and tags are kept, and `fine_tuning` in the
            manifest says what it forgot.
        watch: called with each event.

    Raises:
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP, once everything is saved.
    """
    asked = locals()
    if resume and force:
        raise SettingError("--resume goes on with a run, --force throws it away: choose one")
    ranks.check_restarts(resume, force)
    overlays: list[Overlay] = []
    if preset:
        overlays.append(presets.preset(preset))
    if config_file:
        overlays.append(config.read_toml(Path(config_file)))
    if settings:
        overlays.append(settings)
    config.check_keys(*overlays)
    device = bundle.pick_device()
    if not ranks.is_first():
        return _train_along(device)
    columns = Sides(*(None if column is None else str(column) for column in (source_column, target_column)))
    wanted = (format, columns, Sides(source_language, target_language), watch)
    wanted_pairs = partial(corpora.open_corpus, pairs, *wanted)
    hold_out = _to_hold_out(valid)
    folder = Path(out) if out is not None else Path("runs") / corpora.name_of(pairs)
    start = None if from_run is None else Path(os.path.realpath(from_run))
    if start is not None and Path(os.path.realpath(folder)) in (start, *start.parents):
        raise RunError(f"{folder}: is where --from {from_run} lies. Choose another --out for the new run")
    if _goes_on(folder, resume, force):  # the run folder has all it needs: the corpus may be gone
        trained_on, named = bundle.read_manifest(folder).get("corpus"), corpora.name_of(pairs)
        if trained_on != named:
            raise RunError(f"{folder}: a run on '{trained_on}' cannot go on with '{named}'. Choose another --out")
        _check_start(folder, from_run)
        prepared = reopen(folder, overlays)
        if _is_finished(folder, prepared.settings):
            watch(
                Said(f"{folder} is finished: nothing to resume. To go on, raise the limit that it reached with --set")
            )
            _measure_forgetting(folder, prepared, device, watch)
            run = Run(folder)
            if not (folder / "report.html").exists():
                _write_report(run, prepared)
            ranks.first_does(lambda: [str(folder.absolute()), 0])
            return run
        machine.check_memory(prepared.settings, device)  # the file may come from a larger machine, or from anybody
        with storage.sole_writer(folder, ranks.patience_with_locks()):
            return _train(folder, prepared, device, watch, wanted_pairs)
    if resume:
        watch(Said(f"nothing to resume in {folder}: starting anew"))
    base = None if from_run is None else fine_tuning.open_base(Path(from_run))
    corpus = wanted_pairs()
    to_validate = None if valid is None or hold_out is not None else corpora.for_validation(str(valid), *wanted)
    try:
        with held(folder, ranks.patience_with_locks()):
            if resume and _goes_on(folder, resume, force):
                raise _MadeMeanwhile
            prepared = prepare(
                folder,
                corpus,
                to_validate,
                overlays,
                check=lambda chosen: machine.check_memory(chosen, device),
                say=lambda line: watch(Said(line)),
                hold_out=hold_out,
                tag=tag,
                base=base,
                check_targets=metrics.check_metric,
            )
            return _train(folder, prepared, device, watch, wanted_pairs)
    except _MadeMeanwhile:
        return train(**asked)


class _MadeMeanwhile(Exception):  # noqa: N818 (no error)
    """While this waited for the folder, another trained there: that goes on."""


def _to_hold_out(valid: str | Path | float | None) -> float | None:
    """The number, or the share below 1, that `valid` says; None where it names pairs. `./500` is a file."""
    words = re.fullmatch(r"([0-9]+|[0-9]*\.[0-9]+)(%?)", "" if valid is None else str(valid))
    if words is None:
        return None
    number = float(words[1]) / (100 if words[2] else 1)
    whole = not words[2] and words[1].isdecimal()
    if not (number >= 1 if whole else 0 < number < 1):
        raise SettingError(f"--valid {valid}: expected a number of pairs (500), or a share (0.02 or 2%)")
    return number


def _train(
    folder: Path, prepared: Prepared, device: torch.device, watch: Watch, corpus: Callable[[], corpora.Corpus]
) -> Run:
    settings, tokenizers = prepared.settings, prepared.tokenizers
    config.write_toml(settings, folder / "settings.toml")  # limits may have been raised
    model = _new_model(folder, prepared, device)
    facts = bundle.read_manifest(folder)
    facts.get("fine_tuning", {}).pop("scores", None)  # of an end that is no more
    facts.pop("diagnosis", None)
    facts.pop("alignment", None)
    newest = checkpoint.go_on_from(folder / "checkpoints", lambda line: watch(Said(f"warning   {line}")))
    before = Progress() if newest is None else checkpoint.read_progress(newest)
    facts |= {
        "state": "training",
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "device": machine.name(device) if ranks.alone() else f"{ranks.world()} x {machine.name(device)}",
        "versions": {"seq2see": seq2see.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    known = before.micro_tokens if before.device in ("", device.type) else 0  # equal bits are for equal devices
    micro_tokens = settings.training.micro_batch_tokens or known or machine.micro_tokens(device)
    if before.micro_tokens not in (0, micro_tokens):
        watch(Said(f"{micro_tokens:,} tokens a pass from here on, {before.micro_tokens:,} before"))
    precision = "bfloat16" if loop.in_bfloat16(settings.training, device) else "float32"
    choices = suggest.choices(
        settings,
        prepared.reasons | {"machine": "found here; does not change the model"},
        prepared.yours,
        facts,
        (len(tokenizers.source), len(tokenizers.target)),
        f"{facts['device']}, {precision}, {micro_tokens:,} tokens a pass",
    )
    facts["choices"] = [asdict(choice) for choice in choices]
    bundle.write_manifest(folder, facts)
    watch(
        Began(
            folder,
            settings,
            len(prepared.train),
            len(prepared.valid),
            {name: facts[f"dropped_{name}"] for name in ("empty", "too_long")},
            facts["parameters"],
            (len(tokenizers.source), len(tokenizers.target)),
            facts["device"],
            before.step,
            before.seconds,
            Sides(**facts.get("languages", {})),
            choices,
        )
    )
    end: loop.Finished | None = None
    ranks.first_does(lambda: [str(folder.absolute()), micro_tokens])
    stop = Stop(0.0 if ranks.alone() else ECHO)
    log = journal.Journal(folder, before.step, newest is not None and checkpoint.is_pause(newest))
    with contextlib.closing(log), contextlib.closing(_events(folder, prepared, model, micro_tokens, stop)) as events:
        try:
            for event in events:
                log.write(event)
                watch(event)
                if isinstance(event, loop.Finished):
                    end = event
        except NotFinite as found:
            why = assessment.not_finite(found, find_lines(prepared, found.pairs, corpus), settings)
            bundle.write_manifest(folder, facts | {"diagnosis": {"findings": [why]}})
            raise RunError(f"{folder}: {why}") from None
    assert end is not None
    if end.reason == loop.INTERRUPTED:
        raise Interrupted(int(ranks.largest(stop.signal)))
    if not (folder / "model.safetensors").exists():
        why = assessment.no_model(journal.read(folder), settings)
        bundle.write_manifest(folder, facts | {"diagnosis": {"findings": [why]}})
        raise RunError(f"{folder}: no model came of it, {why}")
    facts |= {"state": "finished", "steps": end.step, "ended": end.reason, "trained_in_seconds": round(end.seconds, 1)}
    bundle.write_manifest(folder, facts)
    _measure_forgetting(folder, prepared, device, watch)
    watch(Said(f"scoring {_scored_part(prepared)} by greedy search for report.html"))
    run = Run(folder)
    findings = _write_report(run, prepared)
    if run.settings.model.attention:
        _ = run.alignment_method  # chosen, and kept in the manifest
    for line in findings:
        watch(Said(f"warning   {line}"))
    if not findings and end.step < (warmup := settings.training.warmup_steps):
        watch(Said(f"warning   ended inside warm-up, {end.step:,} of {warmup:,} steps: more would do better"))
    ranks.first_does(lambda: None)
    return run


def _train_along(device: torch.device) -> Run:
    """What all ranks but the first do: wait until there is something to train, and train it with the first."""
    place, micro_tokens = ranks.first_does(lambda: None)
    folder = Path(place)
    if not micro_tokens:  # it is finished already
        return Run(folder)
    try:
        prepared = reopen(folder, [])
        model = _new_model(folder, prepared, device)
    except SeqError as problem:
        where = f"process {ranks.rank()}: all machines need to see the run folder under the same name"
        raise OnlyHereError(f"{problem} ({where})") from None
    stop = Stop(0.0 if ranks.alone() else ECHO)
    try:
        *_, end = _events(folder, prepared, model, micro_tokens, stop)
    except NotFinite:
        ranks.first_does(lambda: None)  # which will say so, and end all
    if isinstance(end, loop.Finished) and end.reason == loop.INTERRUPTED:
        raise Interrupted(int(ranks.largest(stop.signal)))
    ranks.first_does(lambda: None)
    return Run(folder)


ECHO = 2.0
"""Seconds within which a signal that comes again is still the first, among several processes."""


def _new_model(folder: Path, prepared: Prepared, device: torch.device) -> Seq2Seq:
    settings, tokenizers = prepared.settings, prepared.tokenizers
    torch.manual_seed(settings.training.seed)
    model = build(settings.model, len(tokenizers.source), len(tokenizers.target)).to(device)
    if fine_tuning.name_of(folder):
        fine_tuning.load_start(folder, model)
    return model


def _events(folder: Path, prepared: Prepared, model: Seq2Seq, micro_tokens: int, stop: Stop) -> Generator[loop.Event]:
    """Train; on all ranks alike."""
    settings = prepared.settings
    used = Bundle(settings, prepared.tokenizers, model)

    def validate() -> dict[str, float]:
        model.eval()
        with ranks.all_or_none(stop):
            mine = validation.measure(used, prepared.valid, prepared.valid_pairs, ranks.rank(), ranks.world())
        return validation.scores(used, prepared.valid_pairs, error_unit(settings), ranks.from_all(mine))

    with stop.listening(), machine.deterministic(settings.training.deterministic):
        yield from loop.train(
            model,
            prepared.train,
            settings.training,
            window_pairs=settings.data.window_pairs,
            d_model=settings.model.d_model,
            run=folder,
            validate=validate,
            lower_is_better=settings.training.metric in metrics.LOWER_IS_BETTER,
            micro_tokens=micro_tokens,
            should_stop=stop.asked,
        )


def _check_start(folder: Path, from_run: str | Path | None) -> None:
    """Refuse to go on with a run that began otherwise than `from_run` says; it need not be said, or still be there."""
    began = fine_tuning.name_of(folder)
    if from_run is not None and began != Path(os.path.realpath(from_run)).name:
        how = f"from '{began}'" if began else "without --from"
        raise RunError(f"{folder}: was begun {how}, and cannot go on from {from_run}. Choose another --out")


def _measure_forgetting(folder: Path, prepared: Prepared, device: torch.device, watch: Watch) -> None:
    """Of a fine-tuning: score both validation sets with its first and its last weights; in the manifest, and said."""
    facts = bundle.read_manifest(folder)
    about = facts.get("fine_tuning")
    if about is None or "scores" in about:
        return
    sets = {"new": (prepared.valid, prepared.valid_pairs)}
    if prepared.old_valid is not None:
        sets = {"old": (prepared.old_valid, prepared.old_valid_pairs), **sets}
    watch(Said("scoring before and after"))
    used = bundle.load(folder, device)

    def measured() -> dict[str, dict[str, float]]:
        unit = error_unit(used.settings)
        return {which: validation.validate(used, *pairs, unit) for which, pairs in sets.items()}

    after = measured()
    fine_tuning.load_start(folder, used.model)
    before = measured()
    about["scores"] = {which: {"before": before[which], "after": after[which]} for which in sets}
    bundle.write_manifest(folder, facts)
    names = {"old": about["from"], "new": facts["corpus"]}
    higher = {metric: metric not in metrics.LOWER_IS_BETTER for metric in before["new"]}
    for line in fine_tuning.table(names, about["scores"], higher):
        watch(Said(line))


def _diagnose(run: Run, prepared: Prepared, shown: list[Pair], evaluation: Evaluation) -> assessment.Assessment:
    """Compare a finished model with what needs no model."""
    tags = "|".join(re.escape(language_tag(language)) for language in run.tags)
    return assessment.assess(
        evaluation.scores,
        [result.text for result in evaluation.results],
        [re.sub(f"^(?:{tags}) ", "", pair.source) if tags else pair.source for pair in shown],
        [[pair.target, *pair.references] for pair in shown],
        assessment.frequencies(prepared.train, prepared.valid, prepared.tokenizers.target),
        journal.read(run.folder),
        run.settings,
        len(prepared.train),
    )


def _scored_part(prepared: Prepared) -> str:
    """Return in words which validation pairs are scored for the report."""
    pairs = len(prepared.valid_pairs)
    return f"{REPORTED:,} of {pairs:,} validation pairs" if pairs > REPORTED else f"all {pairs:,} validation pairs"


def _write_report(run: Run, prepared: Prepared) -> list[str]:
    """`report.html`: curves, scores and samples of the finished model on its validation pairs.

    What is wrong with the model goes there, into the manifest, and back to the caller.
    """
    from seq2see.lens import curves

    shown = [prepared.valid_pairs[place] for place in report.sample(len(prepared.valid_pairs), REPORTED)]
    evaluation = run.evaluate(shown, beam=1, engine=run.engine("torch"))
    found = _diagnose(run, prepared, shown, evaluation)
    facts = run.manifest
    scored_on = f"{_scored_part(prepared)}, greedy search"
    facts["diagnosis"] = {"scored_on": scored_on} | asdict(found)
    bundle.write_manifest(run.folder, facts)
    report.write(
        run.folder / "report.html",
        title=str(facts["corpus"]),
        facts={
            "pairs": f"{facts['pairs']:,}",
            "parameters": f"{facts['parameters']:,}",
            "steps": f"{facts['steps']:,}",
            "training time": in_words(facts["trained_in_seconds"]),
            "device": facts["device"],
            "ended": facts["ended"],
        },
        settings=asdict(run.settings),
        scores=report.ScoredSet(
            "validation set",
            f"{scored_on}. The validation set has chosen this model, which makes its scores too good: score pairs that "
            f"it has never seen with seq2see evaluate {run.folder.name} PAIRS, and they are added here. "
            + evaluation.note,
            evaluation.rows,
        ),
        samples=[
            (shown[place].source, shown[place].target, evaluation.results[place].text)
            for place in report.sample(len(shown), SHOWN)
        ],
        curves_svg=curves.curves([row for row in journal.read(run.folder) if row.get("what", "model") == "model"]),
        data={
            "training pairs": f"{facts['pairs']:,}",
            "validation pairs": f"{facts['validation_pairs']:,}",
            "dropped: a side was empty": f"{facts['dropped_empty']:,}",
            "dropped: too long": f"{facts['dropped_too_long']:,}",
            "validation pairs dropped: too long": f"{facts.get('validation_dropped_too_long', 0):,}",
            "source tokens": f"{facts['source_tokens']:,} of {len(prepared.tokenizers.source):,} kinds",
            "target tokens": f"{facts['target_tokens']:,} of {len(prepared.tokenizers.target):,} kinds",
            **fine_tuning.as_facts(facts.get("fine_tuning", {})),
        },
        findings=found.findings,
    )
    return found.findings


def in_words(seconds: float) -> str:
    """`754.2` -> `12 min 34 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    shown = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(shown[:2]) or "0 s"


def _goes_on(folder: Path, resume: bool, force: bool) -> bool:
    """Whether an earlier run in `folder` goes on; an error where something is in the way of a new one."""
    if not folder.exists() or (folder.is_dir() and {path.name for path in folder.iterdir()} <= LEFT_OVER):
        return False
    if not folder.is_dir():
        raise RunError(f"{folder}: a file is in the way of the run folder")
    if not resume and not force:
        raise RunError(f"{folder}: exists already. Go on with --resume, or throw it away with --force")
    state = bundle.read_manifest(folder).get("state")  # refuses folders that are not ours, also under --force
    goes_on = resume and state != "preparing"
    if goes_on and not (folder / "settings.toml").exists():
        raise RunError(f"{folder / 'settings.toml'}: is missing. Put it back, or throw the run away with --force")
    return goes_on


def _is_finished(folder: Path, settings: Settings) -> bool:
    """Whether a run has ended by a limit that still holds."""
    newest = checkpoint.newest(folder / "checkpoints")
    if bundle.read_manifest(folder).get("state") != "finished" or newest is None:
        return False
    return loop.limit_reached(checkpoint.read_progress(newest), settings.training) is not None
