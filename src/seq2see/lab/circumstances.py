"""Everything that a measurement depends on besides the trial: the machine, the versions and the source files."""

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from seq2see import __version__, machine

NO_TRIAL_USES: Final = (
    *("cli", "interop", "look", "serve", "display/korean.toml"),
    *("lab/charts.py", "lab/report.py", "lab/claims/claims.toml"),
)
"""Files and folders that `digest` leaves out, since no trial depends on them: they only show numbers, or judge stored
numbers, as the texts and bounds of claims do.
"""


def where() -> str:
    """Return a text that identifies machine, versions and sources; if it changes, trials are measured again."""
    return ", ".join(facts().values())


def facts() -> dict[str, str]:
    """Return processor, GPU, system, versions and a digest of the sources by name, as the reports show them."""
    device = machine.pick_device()
    libraries = ", ".join(f"{name} {_version(name)}" for name in ("torch", "numpy", "Babel"))
    return {
        "processor": f"{processor()}, cores: {machine.cores()}",
        **({"GPU": machine.name(device)} if device.type == "cuda" else {}),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": f"seq2see {__version__}, {libraries}, Python {platform.python_version()}",
        "sources": digest(Path(__file__).parents[1]),
    }


def _version(name: str) -> str:
    """Return the version of a library; "none" if it is not installed, since not all claims need all libraries."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


@cache
def digest(package: Path) -> str:
    """Return a digest of the Python and TOML files (settings, words of corpora) that can affect a trial.

    If one changes, old measurements do not count.
    """
    found = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.toml")]):
        name = path.relative_to(package).as_posix()
        if not name.startswith(NO_TRIAL_USES):
            found.update(f"{name}\n".encode() + path.read_bytes())
    return f"sha256 {found.hexdigest()[:12]}"


def processor() -> str:
    """Return the name of the CPU; "unknown processor" if the system does not tell it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"
