"""Measure claims: every combination of conditions with every seed. A stored trial is measured again only if machine,
versions or sources changed.

Most trials share the cores, one thread each: their numbers are the same on any number of cores. The trials of claims
that measure time or use the whole GPU come last and run one at a time.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from seq2see import machine, storage
from seq2see.errors import RunError, SettingError
from seq2see.lab import catalogue, circumstances
from seq2see.lab.claim import Claim, Conditions, Measured, Measurement, Outcome, Plan, Trial, conclude
from seq2see.text import corpora

Watch = Callable[[str, int, int], None]
"""Callback for progress: the claim of the last trial ("" at the beginning), the number of finished trials, and the
number of all trials.
"""
MARK = "lab.json"
"""Name of the file by which a folder is recognised as one with results of the lab."""


def measure_claims(
    names: Sequence[str] = (),
    out: str | Path = "runs/lab",
    *,
    quick: bool = False,
    seeds: int | None = None,
    first_seed: int = 1,
    pairs: str = "",
    force: bool = False,
    command: str = "",
    watch: Watch = lambda claim, done, total: None,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> Measured:
    """Do what `seq2see lab` does, and return the outcomes of the named claims and the facts at the beginning of the
    reports.

    Args:
        names: the claims; all if empty. The reports also show all other claims whose trials, with the same seeds and
            `quick`, are already stored.
        out: the folder of the lab; trials stored there are not measured again.
        quick: make smaller trials, with fewer seeds by default.
        seeds: the number of seeds, from `first_seed` on; by default, that of `Plan.seeds_of` for each claim.
        pairs: a corpus for the claim `comparison`.
        force: measure trials that are stored in `out` again.
        command: the command line, shown in the reports.
        watch: called at the beginning and after each trial; see `Watch`.
        tell: called with each outcome as soon as it is complete, which is not always the order of the claims.
    """
    names = [names] if isinstance(names, str) else names
    claims, folder, plan = catalogue.pick(names), Path(out), Plan(quick, pairs, seeds, first_seed)
    if seeds is not None and seeds < 1:
        raise SettingError(f"seeds = {seeds}: expected at least 1")
    _check_folder(folder)
    if pairs:
        if names and "comparison" not in names:
            raise SettingError("--pairs is for the claim comparison only: name that claim, or leave --pairs out")
        next(iter(corpora.open_corpus(pairs).train), None)  # report a mistake before anything is measured
    facts = {"command": command} if command else {}
    facts |= {"seeds": _seeds(claims, plan), **circumstances.facts()}
    with storage.in_one_line(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with storage.sole_writer(folder):
        storage.write_text(folder / MARK, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")
        outcomes = []
        with closing(run(claims, folder, plan, force=force, watch=watch)) as running:
            for outcome in running:
                outcomes.append(outcome)
                tell(outcome)
        from seq2see.lab import report

        asked_for, order = [claim.name for claim in claims], list(catalogue.CLAIMS)
        others = [claim for claim in catalogue.pick([]) if claim.name not in asked_for]
        outcomes += kept(others, folder, plan)  # some of them may share trials that were only made now
        outcomes.sort(key=lambda outcome: order.index(outcome.claim.name))
        report.write(folder, outcomes, facts)
    return Measured([outcome for outcome in outcomes if outcome.claim.name in asked_for], facts)


def _check_folder(folder: Path) -> None:
    """Raise an error unless a path does not exist, is an empty folder, or is a folder of the lab that contains no links
    to places outside of it, and nothing but files and folders.
    """
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / MARK).is_file():
            raise RunError(f"{folder}: not a folder with results of `seq2see lab`. Choose another --out")
        storage.refuse_tricks(folder)
    elif folder.exists():
        raise RunError(f"{folder}: a file, expected a folder. Choose another --out")


def run(
    claims: Sequence[Claim],
    out: Path,
    plan: Plan,
    *,
    force: bool = False,
    watch: Watch = lambda claim, done, total: None,
) -> Generator[Outcome]:
    """Yield the outcome of each claim once all its trials are measured, which is not always the order of the claims.

    Args:
        out: the folder of the lab; trials stored there are not measured again.
        force: delete the stored results of the claims first, so that all trials are measured again.
    """
    results = _Results(out)
    wanted = {claim.name: results.trials(claim, plan) for claim in claims}
    if force:
        results.forget([trial for trials in wanted.values() for trial in trials])
    own = [claim for claim in claims if claim.rows_of not in wanted]  # the others share the trials of one of these
    missing = {claim.name: [trial for trial in wanted[claim.name] if not results.find(trial)] for claim in own}
    total, told = sum(len(wanted[claim.name]) for claim in own), set[str]()
    done = total - sum(map(len, missing.values()))
    watch("", done, total)

    def ready() -> Iterator[Outcome]:
        for claim in claims:
            if claim.name not in told and (outcome := results.outcome(claim, wanted[claim.name])):
                told.add(claim.name)
                yield outcome

    yield from ready()
    shared = [trial for claim in own if not claim.alone for trial in missing[claim.name]]
    alone = [trial for claim in own if claim.alone for trial in missing[claim.name]]
    for trials, measured in (
        (shared, machine.parallel_map(with_one_thread, (), shared, few=1)),
        (alone, map(measure, alone)),
    ):
        for trial, (numbers, spent) in zip(trials, measured, strict=True):
            results.keep(trial, numbers, spent)
            done += 1
            watch(trial.claim, done, total)
            yield from ready()


def _seeds(claims: Sequence[Claim], plan: Plan) -> str:
    """Return the seeds as text: `1, 2, 3`, or `1, 2, 3 (comparison: 1, 2)` if not all claims have the same seeds."""
    found = {claim.name: ", ".join(map(str, plan.seeds_of(claim))) for claim in claims}
    usual = max(found.values(), key=len)
    others = "; ".join(f"{name}: {numbers}" for name, numbers in found.items() if numbers != usual)
    return f"{usual} ({others})" if others else usual


def kept(claims: Sequence[Claim], out: Path, plan: Plan) -> list[Outcome]:
    """Return the outcomes of the claims whose trials are all stored; nothing is measured."""
    results = _Results(out)
    found = (results.outcome(claim, results.trials(claim, plan)) for claim in claims)
    return [outcome for outcome in found if outcome]


class Spent(NamedTuple):
    """The time that a trial took: `seconds` of wall-clock time, and CPU time."""

    seconds: float
    cpu_seconds: float
    """CPU time in seconds, summed over all threads of the process; it depends little on the load by other programs."""


def measure(trial: Trial) -> tuple[dict[str, float], Spent]:
    """Return the numbers of a trial, and the time that they took."""
    began = Spent(time.perf_counter(), time.process_time())
    numbers = catalogue.find(trial.claim).measure(trial)
    spent = Spent(time.perf_counter() - began.seconds, time.process_time() - began.cpu_seconds)
    return {name: float(value) for name, value in numbers.items()}, spent


def with_one_thread() -> Callable[[Trial], tuple[dict[str, float], Spent]]:
    """Return `measure` as a function that uses one thread, for several processes that run side by side."""
    from seq2see.kernels import threads  # late: it imports torch

    return threads.using(1)(measure)


class _Results:
    """The files `results/<claim>.jsonl`: read once, extended by a line after each trial."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._kept: dict[str, dict[str, Measurement]] = {}
        self._where = circumstances.where()

    def trials(self, claim: Claim, plan: Plan) -> list[Trial]:
        """Return all trials of a claim, each with a folder that is unique for trial, machine, versions and sources."""
        name = claim.rows_of or claim.name
        found = []
        for conditions in claim.trials(plan):
            for seed in plan.seeds_of(claim):
                digest = hashlib.sha256(f"{_key(conditions, seed)} {self._where}".encode()).hexdigest()[:12]
                found.append(Trial(name, conditions, seed, self._out / "runs" / f"{name}-{seed}-{digest}"))
        return found

    def outcome(self, claim: Claim, trials: Iterable[Trial]) -> Outcome | None:
        """Return the outcome of a claim from its trials; None if one of them has not been measured."""
        found = [self.find(trial) for trial in trials]
        measured = [each for each in found if each]
        return conclude(claim, measured) if len(measured) == len(found) else None

    def find(self, trial: Trial) -> Measurement | None:
        if trial.claim not in self._kept:
            self._kept[trial.claim] = self._read(trial.claim)
        return self._kept[trial.claim].get(_key(trial.conditions, trial.seed))

    def keep(self, trial: Trial, numbers: dict[str, float], spent: Spent) -> None:
        self._kept[trial.claim][_key(trial.conditions, trial.seed)] = Measurement(trial.conditions, trial.seed, numbers)
        row = {
            "conditions": trial.conditions,
            "seed": trial.seed,
            "numbers": {name: value if math.isfinite(value) else None for name, value in numbers.items()},
            **{name: round(value, 3) for name, value in spent._asdict().items()},
            "where": self._where,
        }
        path = self._path(trial.claim)
        with storage.in_one_line(path), storage.extend(storage.own_folder(path.parent) / path.name) as file:
            file.write(f"{json.dumps(row, ensure_ascii=False)}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def forget(self, trials: Sequence[Trial]) -> None:
        """Delete the stored lines and the folders of `trials`, and damaged lines.

        All of it is deleted before anything is measured, so that a lab that is interrupted and resumed never takes an
        old number for a new one.
        """
        for claim in {trial.claim for trial in trials}:
            path, forgotten = self._path(claim), {_key(each.conditions, each.seed) for each in trials}
            lines, left = _lines(path), []
            for line in lines:
                row = _parse(line)
                if row and (row.where != self._where or row.key not in forgotten):
                    left.append(line)
            if left != lines:
                storage.write_text(path, "".join(left))
            self._kept.pop(claim, None)
        for trial in trials:
            with storage.in_one_line(trial.folder):
                storage.remove(trial.folder)

    def _path(self, claim: str) -> Path:
        return self._out / "results" / f"{claim}.jsonl"

    def _read(self, claim: str) -> dict[str, Measurement]:
        """Return the stored measurements of the present machine, versions and sources by their keys.

        An incomplete last line is removed from the file; any other damaged line is an error.
        """
        path, found = self._path(claim), {}
        lines = _lines(path)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()
            storage.write_text(path, "".join(lines))
        for number, line in enumerate(lines, start=1):
            row = _parse(line)
            if row is None:
                raise RunError(
                    f"{path}, line {number}: damaged. Delete the line, or measure anew: seq2see lab {claim} --force"
                )
            if row.where == self._where:
                found[row.key] = row.measurement
        return found


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        return list(file)


class _Line(NamedTuple):
    """One line of a result file."""

    key: str
    measurement: Measurement
    where: str
    """Value of `circumstances.where()` when the line was written; if it differs now, the trial is measured again."""


def _parse(line: str) -> _Line | None:
    """Parse a line of a result file; return None if it is damaged or incomplete."""
    try:
        row = json.loads(line)
        numbers = {name: math.nan if value is None else float(value) for name, value in row["numbers"].items()}
        measurement = Measurement(dict(row["conditions"]), row["seed"], numbers)
        found = _Line(_key(measurement.conditions, measurement.seed), measurement, row["where"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return found if line.endswith("\n") else None


def _key(conditions: Conditions, seed: int) -> str:
    return json.dumps([dict(conditions), seed], sort_keys=True)
