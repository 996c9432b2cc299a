"""`seq2see --version --verbose`: print versions and hardware for bug reports."""

import os
from pathlib import Path
from typing import Any

import seq2see
from seq2see import machine
from seq2see.errors import SettingError

PACKAGES = ("torch", "ctranslate2", "sentencepiece", "numpy", "safetensors", "sacrebleu", "typer", "fastapi", "uvicorn")
"""Packages whose versions `seq2see --version --verbose` prints."""
DISTRIBUTIONS = ("seq2see", "seq2see-slim")
"""Distributions built from the same sources. They have the same files, so that only one of them can be installed."""


def facts() -> dict[str, Any]:
    """Return versions and hardware by name; no names of users, files or hosts."""
    import platform

    from seq2see.lab import circumstances

    return {
        "seq2see": seq2see.__version__,
        "distribution": " and ".join(filter(_version, DISTRIBUTIONS)) or None,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "processor": circumstances.processor(),
        "cores": machine.cores(),
        "memory_gib": _gib(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "free_memory_gib": _gib(machine.free_memory()),
        "gpu": _gpus(),
    }


def in_words(found: dict[str, Any]) -> str:
    """Return the result of `facts` as lines of text."""
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in found["packages"].items())
    rows = {
        "distribution": found["distribution"] or "none: run from its sources",
        "Python": found["python"],
        "platform": found["platform"],
        "packages": versions,
        "processor": f"{found['processor']}, cores: {found['cores']}",
        "memory": f"{found['memory_gib']} GiB, {found['free_memory_gib']} GiB free",
        "GPU": found["gpu"],
    }
    return "\n".join([f"seq2see {found['seq2see']}", *(f"{name + ':':<14}{value}" for name, value in rows.items())])


def check_distributions(site: Path | None = None) -> None:
    """Raise an error if two distributions of different versions have overwritten each other's files.

    Args:
        site: the folder in which the package is installed; by default that of this module.
    """
    site = site or Path(seq2see.__file__).parents[1]
    known = {name.replace("-", "_"): name for name in DISTRIBUTIONS}
    found = {}
    try:
        entries = os.listdir(site)  # noqa: PTH208  a tenth of the time, at every start
    except OSError:  # the package is in an archive
        return
    for entry in entries:
        if entry.startswith("seq2see") and entry.endswith(".dist-info"):
            name, _, version = entry.removesuffix(".dist-info").partition("-")
            if name in known:
                found[known[name]] = version
    if len(set(found.values())) > 1:
        both = " and ".join(f"{name} {version}" for name, version in sorted(found.items()))
        raise SettingError(
            f"{both} are both installed, and have overwritten each other's files. Run: pip uninstall --yes "
            f"{' '.join(DISTRIBUTIONS)}; then install one of them"
        )


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> str:
    """Return the names of all GPUs that PyTorch can use, or why they are not known."""
    if not machine.has_torch():
        return "not known: PyTorch is not installed"
    try:
        import torch
    except (ImportError, OSError) as problem:
        return f"not known: PyTorch cannot be imported ({' '.join(str(problem).split())[:200]})"
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return f"{', '.join(names)} (CUDA {torch.version.cuda})" if names else "none that PyTorch can use"


def _gib(size: int) -> float:
    return round(size / 2**30, 1)
