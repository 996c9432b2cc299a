"""Measure claims: every trial with every seed, each kept on disk, so that none is made twice.

Trials without a clock share the cores, one thread each: their numbers are the same on any number of cores. Those that
measure time come last and have the machine to themselves.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from seq2see import machine, storage
from seq2see.errors import RunError, SettingError
from seq2see.lab import catalogue, circumstances
from seq2see.lab.claim import Claim, Conditions, Outcome, Plan, Row, Trial, conclude
from seq2see.text import corpora

Watch = Callable[[str, int, int], None]
"""Told of the claim at work, and how many trials of how many are there."""
MARK = "lab.json"
"""What tells the folder of a lab from any other."""


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
) -> tuple[list[Outcome], dict[str, str]]:
    """What `seq2see lab` does: the outcomes of these claims, and the facts that the pages in `out` begin with.

    Args:
        names: of claims; all where none is named. The pages have all other claims, too, that were measured before
            with the same seeds and of the same size.
        out: a folder of this lab's own; trials that are kept there are not made again.
        seeds: how many, from `first_seed` on; `Plan.usual_seeds` if not given.
        pairs: a corpus for the comparison.
        force: measure anew.
        command: to be shown on the pages.
        tell: called with each outcome as soon as it is there, which is not always the order of the claims.
    """
    names = [names] if isinstance(names, str) else names
    claims, folder, plan = catalogue.pick(names), Path(out), Plan(quick, pairs)
    if seeds is not None and seeds < 1:
        raise SettingError(f"seeds: {seeds}, expected at least 1")
    _check_folder(folder)
    if pairs:
        if names and "comparison" not in names:
            raise SettingError("--pairs is for the comparison: name it among the claims, or leave --pairs out")
        next(iter(corpora.open_corpus(pairs).train), None)  # a slip need not wait until the comparison's turn
    numbers = range(first_seed, first_seed + (seeds or plan.usual_seeds))
    facts = {"command": command} if command else {}
    facts |= {"seeds": ", ".join(map(str, numbers)), **circumstances.facts()}
    with storage.in_one_line(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with storage.sole_writer(folder):
        storage.write_text(folder / MARK, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")
        asked_for = [claim.name for claim in claims]
        others = [claim for claim in catalogue.pick([]) if claim.name not in asked_for]
        outcomes = []
        with closing(run(claims, folder, plan, numbers, force=force, watch=watch)) as running:
            for outcome in running:
                outcomes.append(outcome)
                tell(outcome)
        from seq2see.lab import report

        order = list(catalogue.CLAIMS)
        before = kept(others, folder, plan, numbers)  # some of them may share trials that are only there now
        shown = sorted([*outcomes, *before], key=lambda outcome: order.index(outcome.claim.name))
        report.write(folder, shown, facts)
    return [outcome for outcome in shown if outcome.claim.name in asked_for], facts


def _check_folder(folder: Path) -> None:
    """Refuse to mix our files with others."""
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / MARK).is_file():
            raise RunError(f"{folder}: holds something else than a lab. Choose another --out")
        storage.refuse_tricks(folder)
    elif folder.exists():
        raise RunError(f"{folder}: a file, expected a folder. Choose another --out")


@dataclass(frozen=True)
class Measured:
    """One trial as it is kept: a line of JSON."""

    conditions: Conditions
    seed: int
    numbers: dict[str, float]
    seconds: float
    where: str
    """`circumstances.where()`: what was measured elsewhere is measured anew."""


def run(
    claims: Sequence[Claim],
    out: Path,
    plan: Plan,
    seeds: Sequence[int],
    *,
    force: bool = False,
    watch: Watch = lambda claim, done, total: None,
) -> Generator[Outcome]:
    """The outcome of each claim as soon as all its trials are there, which is not always the order of the claims.

    Args:
        out: the folder of the lab; trials that lie there are not made again.
        seeds: each trial is made with each of them.
        force: forget what is kept of these trials, then measure anew.
    """
    keeper = _Keeper(out)
    wanted = {claim.name: keeper.trials(claim, plan, seeds) for claim in claims}
    if force:
        keeper.forget([trial for trials in wanted.values() for trial in trials])
    missing = {}
    for claim in claims:
        if not claim.rows_of or claim.rows_of not in wanted:
            missing[claim.name] = [trial for trial in wanted[claim.name] if keeper.find(trial) is None]
    total, told = sum(len(wanted[name]) for name in missing), set[str]()
    watch("", total - sum(map(len, missing.values())), total)

    def ready() -> Iterator[Outcome]:
        for claim in claims:
            if claim.name not in told and (outcome := keeper.outcome(claim, wanted[claim.name])):
                told.add(claim.name)
                yield outcome

    yield from ready()
    shared = [trial for claim in claims if not claim.alone for trial in missing.get(claim.name, ())]
    alone = [trial for claim in claims if claim.alone for trial in missing.get(claim.name, ())]
    done = total - len(shared) - len(alone)
    for trials, results in (
        (shared, machine.parallel_map(with_one_thread, (), shared, few=1)),
        (alone, map(measure, alone)),
    ):
        for trial, (numbers, seconds) in zip(trials, results, strict=True):
            keeper.keep(trial, numbers, seconds)
            done += 1
            watch(trial.claim, done, total)
            yield from ready()


def kept(claims: Sequence[Claim], out: Path, plan: Plan, seeds: Sequence[int]) -> list[Outcome]:
    """The outcomes of those claims of which every trial is kept; nothing is measured."""
    keeper = _Keeper(out)
    found = (keeper.outcome(claim, keeper.trials(claim, plan, seeds)) for claim in claims)
    return [outcome for outcome in found if outcome]


def measure(trial: Trial) -> tuple[dict[str, float], float]:
    """The numbers of a trial, and how many seconds they took."""
    began = time.perf_counter()
    numbers = catalogue.find(trial.claim).measure(trial)
    return {name: float(value) for name, value in numbers.items()}, time.perf_counter() - began


def with_one_thread() -> Callable[[Trial], tuple[dict[str, float], float]]:
    """The same, where others measure beside it."""
    import torch

    def work(trial: Trial) -> tuple[dict[str, float], float]:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return measure(trial)
        finally:
            torch.set_num_threads(before)

    return work


class _Keeper:
    """`results/<claim>.jsonl` in the folder of the lab: read once, then a line more for each trial."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._kept: dict[str, dict[str, Measured]] = {}
        self._where = circumstances.where()

    def trials(self, claim: Claim, plan: Plan, seeds: Sequence[int]) -> list[Trial]:
        """All that a claim asks for, each with a folder that no other trial, version or machine has."""
        name = claim.rows_of or claim.name
        found = []
        for conditions in claim.trials(plan):
            for seed in seeds:
                key = hashlib.sha256(f"{_key(conditions, seed)} {self._where}".encode()).hexdigest()[:12]
                found.append(Trial(name, conditions, seed, self._out / "runs" / f"{name}-{seed}-{key}"))
        return found

    def outcome(self, claim: Claim, trials: Iterable[Trial]) -> Outcome | None:
        """None where a trial is missing."""
        rows = []
        for trial in trials:
            found = self.find(trial)
            if found is None:
                return None
            rows.append(Row(found.conditions, found.seed, found.numbers))
        return conclude(claim, rows)

    def find(self, trial: Trial) -> Measured | None:
        if trial.claim not in self._kept:
            self._kept[trial.claim] = self._read(trial.claim)
        return self._kept[trial.claim].get(_key(trial.conditions, trial.seed))

    def keep(self, trial: Trial, numbers: dict[str, float], seconds: float) -> None:
        kept = Measured(trial.conditions, trial.seed, numbers, round(seconds, 3), self._where)
        self._kept[trial.claim][_key(trial.conditions, trial.seed)] = kept
        plain = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        line = json.dumps({**vars(kept), "numbers": plain}, ensure_ascii=False)
        path = self._path(trial.claim)
        with storage.in_one_line(path), storage.extend(storage.own_folder(path.parent) / path.name) as file:
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def forget(self, trials: Sequence[Trial]) -> None:
        """Their lines, what cannot be read beside them, and what they left to go on from.

        At once, so that who is stopped then and goes on never takes an old number for a new one.
        """
        for claim in {trial.claim for trial in trials}:
            path, forgotten = self._path(claim), {_key(each.conditions, each.seed) for each in trials}
            lines = _lines(path)
            rows = [(line, _parse(line)) for line in lines]
            left = [line for line, row in rows if row and (row.where != self._where or _key_of(row) not in forgotten)]
            if left != lines:
                storage.write_text(path, "".join(left))
            self._kept.pop(claim, None)
        for trial in trials:
            with storage.in_one_line(trial.folder):
                storage.remove(trial.folder)

    def _path(self, claim: str) -> Path:
        return self._out / "results" / f"{claim}.jsonl"

    def _read(self, claim: str) -> dict[str, Measured]:
        """Those of this machine; a last line that was cut short is as if it had never been begun."""
        path, kept = self._path(claim), {}
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
                kept[_key_of(row)] = row
        return kept


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        return list(file)


def _parse(line: str) -> Measured | None:
    """None where it is no whole line of ours."""
    try:
        row = Measured(**json.loads(line))
        numbers = {name: math.nan if value is None else float(value) for name, value in row.numbers.items()}
        _key_of(row)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    whole = line.endswith("\n")
    return Measured(row.conditions, row.seed, numbers, row.seconds, row.where) if whole else None


def _key_of(row: Measured) -> str:
    return _key(row.conditions, row.seed)


def _key(conditions: Conditions, seed: int) -> str:
    return json.dumps([dict(conditions), seed], sort_keys=True)
