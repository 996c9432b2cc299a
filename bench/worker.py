"""A process that holds one candidate and does what the parent asks, one line of JSON at a time.

python worker.py CANDIDATE SIZE WEIGHTS [tuned] [shuffled]
"""

import importlib
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import work


def main() -> None:
    name, size_name, weights, *rest = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print
    size = work.SIZES[size_name]
    candidate = importlib.import_module(f"candidates.{name}").Candidate(size, Path(weights), "tuned" in rest)

    def train(count: int) -> dict:
        todo = work.batches(size, count)
        if "shuffled" in rest:
            todo = work.shuffled(todo)
        began = time.perf_counter()
        for batch in todo:
            candidate.train(batch)
        return {"seconds": time.perf_counter() - began, "tokens": sum(len(target) for b in todo for _, target in b)}

    def loss() -> dict:
        return {"loss": candidate.loss(work.batches(size, 3)[1])}

    def decode(batch: int, beam: int, length: int) -> dict:
        todo = work.sources(size, 8 if batch == 1 else 2 * batch, length)
        began = time.perf_counter()
        outputs = [
            each
            for first in range(0, len(todo), batch)
            for each in candidate.decode(todo[first : first + batch], beam, length)
        ]
        return {"seconds": time.perf_counter() - began, "tokens": len(todo) * length, "outputs": outputs}

    def translate(count: int, beam: int) -> dict:
        todo = work.mixed_sources(size, count)
        began = time.perf_counter()
        outputs = candidate.translate(todo, beam)
        seconds = time.perf_counter() - began
        right = sum(output == source[:-1] for source, output in zip(todo, outputs, strict=True))
        return {"seconds": seconds, "tokens": sum(len(output) + 1 for output in outputs), "right": right / count}

    def memory() -> dict:
        # Not getrusage: a child begins with the peak of the process that started it.
        peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        return {"gigabytes": int(peak.split()[1]) * 1024 / 1e9}

    deeds = {"train": train, "loss": loss, "decode": decode, "translate": translate, "memory": memory}
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(deeds[request.pop("do")](**request)), file=answers, flush=True)


main()
