"""Installed size and time to the first translation of seq2see and seq2see-slim, each in an empty environment.

    python -m bench.installed RUN [--rounds 7] [--keep FOLDER]

Both wheels are built from this tree and installed with the versions of requirements.lock. The size is that of all
packages without pip and setuptools. Times are those of the whole command `seq2see translate RUN` for one line: with a
run that was never converted for CTranslate2, and with one that was. They alternate between the two environments, so
that other work on the machine affects both. The table has medians and their ratios, and is printed as Markdown.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = ("seq2see", "seq2see-slim")
NOT_COUNTED = ("pip", "setuptools", "_distutils_hack", "pkg_resources")


def call(*words: object, stdin: str = "", **environment: str) -> str:
    """Run a program and return its output; stop with its error if it fails."""
    ended = subprocess.run(
        list(map(str, words)), input=stdin, capture_output=True, text=True, env=os.environ | environment, check=False
    )
    if ended.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{ended.stderr}")
    return ended.stdout


def install(name: str, folder: Path) -> Path:
    """Build a distribution, install it into a new environment, and return the folder of that environment."""
    project = folder / f"{name}-project"
    if name == "seq2see-slim":
        call(sys.executable, ROOT / "deploy" / "slim.py", project)
    else:
        shutil.copytree(ROOT / "src", project / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        for file in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / file, project / file)
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / name, project)
    (wheel,) = (folder / name).glob("*.whl")
    environment = folder / f"{name}-environment"
    venv.create(environment, with_pip=True)
    wanted = wheel if name == "seq2see-slim" else f"{wheel}[serve,fast]"
    call(environment / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "requirements.lock", wanted)
    return environment


def size(environment: Path) -> tuple[int, float]:
    """Return the number of installed packages, and their size in MB without byte code."""
    (site,) = environment.glob("lib/python*/site-packages")
    files = [
        path
        for path in site.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and not path.relative_to(site).parts[0].startswith(NOT_COUNTED)
    ]
    packages = [each for each in site.glob("*.dist-info") if not each.name.startswith(NOT_COUNTED)]
    return len(packages), sum(path.stat().st_size for path in files) / 1e6


def seconds(environment: Path, run: Path, cache: Path, converted: bool) -> float:
    """Return the time of one translation from the start of the program."""
    if not converted:
        shutil.rmtree(run / "engines", ignore_errors=True)
    begun = time.perf_counter()
    call(environment / "bin" / "seq2see", "translate", run, stdin="a\n", XDG_CACHE_HOME=str(cache), PYTHONPATH="")
    return time.perf_counter() - begun


def measure(run: Path, folder: Path, rounds: int) -> str:
    """Return the table."""
    environments = {name: install(name, folder) for name in NAMES}
    sizes = {name: size(each) for name, each in environments.items()}
    medians = {}
    for converted in (False, True):
        times: dict[str, list[float]] = {name: [] for name in NAMES}
        for number in range(rounds + 1):  # the first round warms the disk cache
            for name, environment in environments.items():
                copied = folder / f"{name}-run"
                if not copied.exists():
                    shutil.copytree(run, copied, ignore=shutil.ignore_patterns("engines", "checkpoints", "corpus"))
                taken = seconds(environment, copied, folder / f"{name}-cache", converted)
                times[name] += [taken] if number else []
        medians[converted] = {name: statistics.median(each) for name, each in times.items()}
    rows = ["| distribution | packages | installed | first translation | later ones |", "|---|---|---|---|---|"]
    for name in NAMES:
        packages, megabytes = sizes[name]
        taken_by = [(each[name], each[name] / each["seq2see-slim"]) for each in (medians[False], medians[True])]
        times_of = " | ".join(f"{taken:.2f} s ({ratio:.2f} x seq2see-slim)" for taken, ratio in taken_by)
        rows.append(f"| {name} | {packages} | {megabytes:,.0f} MB | {times_of} |")
    torch = call(environments["seq2see"] / "bin" / "pip", "show", "torch", PIP_DISABLE_PIP_VERSION_CHECK="1")
    version = next(line for line in torch.splitlines() if line.startswith("Version"))
    return "\n".join([*rows, "", f"PyTorch: {version.partition(': ')[2]}; median of {rounds} rounds."])


def main() -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder to translate with, such as runs/dates")
    parser.add_argument("--rounds", type=int, default=7, help="times that each command is measured")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the environments in this new folder")
    given = parser.parse_args()
    if given.keep:
        given.keep.mkdir(parents=True)
        print(measure(given.run, given.keep, given.rounds))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(measure(given.run, Path(folder), given.rounds))


if __name__ == "__main__":
    main()
