"""A thousand lines of mixed length through `seq2see translate`, and through CTranslate2 called by hand."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench import work
from seq2see.decoding import ct2_engine

HERE = Path(__file__).parent
BATCHES = [("examples", 16), ("examples", 32), ("tokens", 256), ("tokens", 512), ("tokens", 1024), ("tokens", 2048)]


def compare(
    run: Path, size: work.Size, peers: Path, rounds: int, count: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return the seconds of whole commands, start-up included; every output must be right."""
    ids = [source[:-1] for source in work.mixed_sources(size, count)]
    lines = "".join(" ".join(f"w{id}" for id in source) + "\n" for source in ids)
    converted = run.parent / f"{run.name}-ct2"
    if not (converted / "model.bin").exists():
        converted.mkdir(exist_ok=True)
        ct2_engine.convert(run, converted, "int8")
    ours = [sys.executable, "-m", "seq2see", "translate", str(run), "--beam", "5"]

    def by_hand(kind: str, number: int) -> list[str]:
        return [str(peers), str(HERE / "by_hand.py"), str(converted), kind, str(number)]

    def seconds(command: list[str]) -> float:
        began = time.perf_counter()
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
        took = time.perf_counter() - began
        wrong = sum(a != b for a, b in zip(done.stdout.splitlines(), lines.splitlines(), strict=True))
        if wrong:
            sys.exit(f"{wrong} of {len(ids):,} lines wrong: {' '.join(command)}")
        return took

    seconds(ours)  # converts, once
    tried = {batch: min(seconds(by_hand(*batch)) for _ in range(2)) for batch in BATCHES}
    best = min(tried, key=lambda batch: tried[batch])
    times: dict[str, list[float]] = {"seq2see translate": [], f"CTranslate2 by hand, {best[1]} {best[0]}": []}
    for _ in range(rounds):
        for name, command in zip(times, (ours, by_hand(*best)), strict=True):
            times[name].append(seconds(command))
    for name, found in times.items():
        say(f"{len(ids):,} lines, {size.d_model} wide, int8, beam 5  {name:<40} {median(found):6.2f} s")
    return {"rows": [{"name": name, "seconds": found} for name, found in times.items()], "lines": len(ids)}
