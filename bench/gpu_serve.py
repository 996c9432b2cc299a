"""Measure a server on a GPU: `python -m bench.gpu_serve [--out FILE]`, then `--page FILE` writes its page in docs.

A run of base size whose weights copy the source (as `bench.serve` makes it) is served by `seq2see serve` with its own
beam. Clients of 1, 16 and 256 ask for one sentence after the other, each on its connection. Candidates, one server
after the other: seq2see as it was (a batch is searched step by step), seq2see with continuous batching in recorded
steps, and CTranslate2's CUDA engine behind the same HTTP server.

CTranslate2 is built for CUDA 12; with CUDA 13 its libcublas.so.12 is a link to libcublas.so.13. Packages that the
machine does not have are taken from the wheels in `build/wheels`.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from typing import Any

from bench import serve

CLIENTS = (1, 16, 256)
LOADS = 4
"""Processes that the clients are shared among: one would be busier than the server."""
WARM_UP, SECONDS = 3.0, 5.0
STEP_BY_STEP = """
import seq2see.decoding.torch_engine as engine
engine.TorchEngine.slot_search = lambda *_: None
"""
CTRANSLATE2 = """
import ctranslate2, seq2see.decoding.ct2_engine as engine
made = ctranslate2.Translator
def on_gpu(folder, **_):
    return made(folder, device="cuda", compute_type="{precision}", inter_threads=1)
ctranslate2.Translator = on_gpu
engine.TOKENS_AT_ONCE = 8192
engine.PRECISIONS = ("float32", "int8")
"""
"""Programs that are run at the start of every process of a server (`sitecustomize`)."""
CANDIDATES = {
    "seq2see, step by step": ("torch", "bfloat16", STEP_BY_STEP),
    "seq2see, continuous batching": ("torch", "bfloat16", ""),
    "CTranslate2 (CUDA)": ("ctranslate2", "float32", CTRANSLATE2.replace("{precision}", "bfloat16")),
    "seq2see, continuous batching, float32": ("torch", "float32", ""),
    "CTranslate2 (CUDA), float32": ("ctranslate2", "float32", CTRANSLATE2.replace("{precision}", "float32")),
}
PAGE = Path("docs/benchmarks-gpu-serve.md")


@contextmanager
def server(run: Path, engine: str, precision: str, program: str, packages: Path, log: Path) -> Iterator[float]:
    """A server that is ready; the seconds that this took."""
    with tempfile.TemporaryDirectory() as first, log.open("a") as file:
        Path(first, "sitecustomize.py").write_text(program)
        path = os.pathsep.join(filter(None, [first, "src", str(packages), os.environ.get("PYTHONPATH")]))
        words = [sys.executable, "-m", "seq2see", "serve", str(run), "--port", str(serve.PORT)]
        words += ["--engine", engine, "--precision", precision]
        began = time.monotonic()
        process = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": path}, stderr=file, stdout=file)
        try:
            while True:
                if process.poll() is not None or time.monotonic() > began + 120:
                    raise RuntimeError(f"the server did not start: {log.read_text()[-3000:]}")
                try:
                    if asyncio.run(serve.ask(b"", "GET", "/ready"))[0] == 200:
                        break
                except OSError:
                    pass
                time.sleep(0.2)
            yield time.monotonic() - began
        finally:
            process.terminate()
            process.wait()


async def load(sentences: list[str], clients: int) -> dict[str, list[float]]:
    """The seconds that each answer took, and the statuses of requests that were not answered."""
    waits: list[float] = []
    refused: list[float] = []
    rest, began = cycle(sentences), time.monotonic()

    async def client() -> None:
        connection = serve.Client()
        while (asked := time.monotonic()) < began + WARM_UP + SECONDS:
            status, _ = await connection.ask(json.dumps({"text": next(rest)}).encode())
            now = time.monotonic()
            if asked < began + WARM_UP or now > began + WARM_UP + SECONDS:
                continue
            if status == 200:
                waits.append(now - asked)
            else:
                refused.append(status)
                await asyncio.sleep(0.1)
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return {"waits": waits, "refused": refused}


def measure(run: Path, clients: int) -> dict[str, Any]:
    """Answers a second, and percentiles of the seconds they took."""
    processes = min(LOADS, clients)
    words = [sys.executable, "-m", "bench.gpu_serve", "--load", str(run), str(clients // processes)]
    running = [
        subprocess.Popen([*words, str(number)], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": "src"})
        for number in range(processes)
    ]
    parts = [json.loads(each.communicate()[0]) for each in running]
    waits = [wait for part in parts for wait in part["waits"]]
    cuts = quantiles(waits, n=100) if len(waits) > 1 else [float("nan")] * 99
    return {
        "clients": clients,
        "per_second": len(waits) / SECONDS,
        "p50": cuts[49],
        "p99": cuts[98],
        "refused": sum(len(part["refused"]) for part in parts),
    }


def sentences_of(run: Path) -> list[str]:
    return [json.loads(line)["source"] for line in (run / "validation.jsonl").read_text().splitlines()]


def unpacked(folder: Path) -> Path:
    """Unpack the wheels of packages that are missing here, and link the libraries that CTranslate2 looks for."""
    for wheel in Path("build/wheels").glob("*.whl"):
        name = wheel.name.split("-")[0].lower()
        if subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode:
            zipfile.ZipFile(wheel).extractall(folder)
    libraries = [Path(place) for place in sys.path if place.endswith("site-packages")] + [Path("/usr/local/cuda")]
    found = next((file for place in libraries for file in place.rglob("libcublas.so.13")), None)
    if found is not None:
        for name in ("libcublas", "libcublasLt"):
            (folder / f"{name}.so.12").symlink_to(found.with_name(f"{name}.so.13"))
        paths = [str(folder), str(found.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
    return folder


def page(results: dict[str, Any]) -> str:
    lines = [
        "# Serving on a GPU",
        "",
        "Written by `python -m bench.gpu_serve --page` from its measurements: `seq2see serve` on one GPU, a model of",
        f"base size, sentences of 4 to 40 words, beam {results['beam']}, one sentence in a request. Each client sends",
        "its next request as soon as it has its answer; latency is measured by the client.",
        "",
        f"{results['gpu']}; {results['seconds']:g} s for each number of clients, after {results['warm_up']:g} s to",
        "warm up. The clients are processes of the same machine. A dash: not measured. Systems that were not",
        "measured together with the others keep their rows of an earlier measurement on such a GPU.",
        "",
        "| | clients | requests/s | median latency, ms | 99th percentile, ms |",
        "|---|---|---|---|---|",
    ]
    earlier = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    measured = {f"{row['name']}, {row['precision']}": row for row in results["rows"]}
    for candidate in CANDIDATES:
        name = candidate if candidate.endswith("float32") else f"{candidate}, bfloat16"
        if name not in measured:  # its lines stay as they are
            lines += [line for line in earlier if line.startswith(f"| {name} |")]
            continue
        row = measured[name]
        loads = {each["clients"]: each for each in row["loads"]}
        for clients in CLIENTS:
            cells = "- | - | -"
            if each := loads.get(clients):
                cells = f"{each['per_second']:,.0f} | {1e3 * each['p50']:.1f} | {1e3 * each['p99']:.1f}"
            lines.append(f"| {row['name']}, {row['precision']} | {clients} | {cells} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--page", type=Path, metavar="FILE", help=f"Write {PAGE} from this file of results.")
    parser.add_argument("--only", type=int, nargs="*", help="Numbers of the candidates to measure, from 0.")
    parser.add_argument("--out", type=Path, default=Path(".bench/gpu_serve.json"))
    options = parser.parse_args()
    if options.load:
        run, clients, number = Path(options.load[0]), *map(int, options.load[1:])
        sentences = sentences_of(run)
        print(json.dumps(asyncio.run(load(sentences[100 * number :] + sentences[: 100 * number], clients))))
        return
    if options.page:
        PAGE.write_text(page(json.loads(options.page.read_text())), encoding="utf-8")
        return
    import torch

    from seq2see.run import Run

    run = serve.base_run()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    beam, gpu = Run(run).settings.decoding.beam, f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    results: dict[str, Any] = {"gpu": gpu, "beam": beam, "seconds": SECONDS, "warm_up": WARM_UP, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        packages = unpacked(Path(folder))
        for name, (engine, precision, program) in CANDIDATES.items():
            if options.only is not None and list(CANDIDATES).index(name) not in options.only:
                continue
            shown = "float32" if "float32" in name else "bfloat16"
            row: dict[str, Any] = {"name": name.removesuffix(", float32"), "precision": shown, "loads": []}
            results["rows"].append(row)
            try:
                with server(run, engine, precision, program, packages, options.out.with_suffix(".log")) as ready:
                    row["ready"] = ready
                    for clients in CLIENTS:
                        row["loads"].append(measure(run, clients))
                        print(f"{name}: ready after {ready:.1f} s, {row['loads'][-1]}", flush=True)
                        options.out.write_text(json.dumps(results, indent=1))
            except Exception as problem:  # the others are measured all the same
                print(f"{name}: {problem}", flush=True)


if __name__ == "__main__":
    main()
