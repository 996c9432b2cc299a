"""Measure claims: every trial with every seed, each kept on disk as soon as it is there, so that none is made twice.

Trials without a clock share the cores, one thread each: their numbers are the same on any number of cores. Those that
measure time come last and have the machine to themselves.
"""

import json
import math
import os
import platform
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from seq2see import __version__, storage
from seq2see.data import processes
from seq2see.errors import RunError
from seq2see.lab import catalogue
from seq2see.lab.claim import Claim, Conditions, Outcome, Plan, Row, Trial, conclude

Watch = Callable[[str, int, int], None]
"""Told of the claim at work, and how many trials of how many are there."""


@dataclass(frozen=True)
class Measured:
    """One trial as it is kept: a line of JSON."""

    conditions: Conditions
    seed: int
    numbers: dict[str, float]
    seconds: float
    where: str
    """Machine and versions: what was measured elsewhere is measured anew."""


def run(
    claims: Sequence[Claim],
    out: Path,
    plan: Plan,
    seeds: int,
    *,
    force: bool = False,
    watch: Watch = lambda claim, done, total: None,
) -> Generator[Outcome]:
    """The outcome of each claim as soon as all its trials are there, which is not always the order of the claims.

    Args:
        out: the folder of the lab; trials that lie there are not made again.
        seeds: each trial is made with seeds 1 to this.
        force: measure anew.
    """
    keeper = _Keeper(out, force)
    wanted = {claim.name: _trials(claim, out, plan, seeds) for claim in claims}
    missing = {}
    for claim in claims:
        if not claim.rows_of or claim.rows_of not in wanted:
            missing[claim.name] = [trial for trial in wanted[claim.name] if keeper.find(trial) is None]
    total, told = sum(len(wanted[name]) for name in missing), set[str]()
    watch("", total - sum(map(len, missing.values())), total)

    def ready() -> Iterator[Outcome]:
        for claim in claims:
            found = [keeper.find(trial) for trial in wanted[claim.name]]
            if claim.name not in told and None not in found:
                told.add(claim.name)
                yield conclude(claim, [Row(each.conditions, each.seed, each.numbers) for each in found if each])

    yield from ready()
    shared = [trial for claim in claims if not claim.alone for trial in missing.get(claim.name, ())]
    alone = [trial for claim in claims if claim.alone for trial in missing.get(claim.name, ())]
    done = total - len(shared) - len(alone)
    for trials, results in (
        (shared, processes.in_order(with_one_thread, (), shared, few=1)),
        (alone, map(measure, alone)),
    ):
        for trial, (numbers, seconds) in zip(trials, results, strict=True):
            keeper.keep(trial, numbers, seconds)
            done += 1
            watch(trial.claim, done, total)
            yield from ready()


def _trials(claim: Claim, out: Path, plan: Plan, seeds: int) -> list[Trial]:
    name = claim.rows_of or claim.name
    return [
        Trial(name, conditions, seed, out / "runs") for conditions in claim.trials(plan) for seed in range(1, seeds + 1)
    ]


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

    def __init__(self, out: Path, force: bool) -> None:
        self._folder = out / "results"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._kept: dict[str, dict[str, Measured]] = {}
        self._force = force
        self._where = where()

    def find(self, trial: Trial) -> Measured | None:
        if trial.claim not in self._kept:
            self._kept[trial.claim] = {} if self._force else self._read(trial.claim)
        return self._kept[trial.claim].get(_key(trial.conditions, trial.seed))

    def keep(self, trial: Trial, numbers: dict[str, float], seconds: float) -> None:
        kept = Measured(trial.conditions, trial.seed, numbers, round(seconds, 3), self._where)
        self._kept[trial.claim][_key(trial.conditions, trial.seed)] = kept
        plain = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        line = json.dumps({**vars(kept), "numbers": plain}, ensure_ascii=False)
        path = self._path(trial.claim)
        with storage.in_one_line(path), path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())

    def _path(self, claim: str) -> Path:
        return self._folder / f"{claim}.jsonl"

    def _read(self, claim: str) -> dict[str, Measured]:
        """Those of this machine; a last line that was cut short is as if it had never been begun."""
        path, kept = self._path(claim), {}
        if not path.exists():
            return {}
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            if not line.endswith("\n"):
                storage.write_text(path, "".join(lines[:-1]))
                break
            try:
                row = Measured(**json.loads(line))
                numbers = {name: math.nan if value is None else float(value) for name, value in row.numbers.items()}
                key = _key(row.conditions, row.seed)
            except (ValueError, TypeError, AttributeError):
                raise RunError(
                    f"{path}, line {number}: damaged. Delete the line, or measure anew with --force"
                ) from None
            if row.where == self._where:
                kept[key] = Measured(row.conditions, row.seed, numbers, row.seconds, row.where)
        return kept


def _key(conditions: Conditions, seed: int) -> str:
    return json.dumps([dict(conditions), seed], sort_keys=True)


def where() -> str:
    """Machine and versions, in words."""
    return ", ".join(facts().values())


def facts() -> dict[str, str]:
    """What a number depends on, besides the trial."""
    from seq2see import machine
    from seq2see.bundle import pick_device

    device = pick_device()
    return {
        "processor": f"{_processor()}, cores: {processes.cores()}",
        **({"card": machine.name(device)} if device.type == "cuda" else {}),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": f"seq2see {__version__}, torch {version('torch')}, Python {platform.python_version()}",
    }


def _processor() -> str:
    """Its name where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"
