"""`import`: a model of another program becomes a run, which translates, is looked into, served and fine-tuned."""

from collections.abc import Sequence
from hashlib import file_digest
from pathlib import Path
from typing import Any

import seq2see
from seq2see import bundle, config, storage
from seq2see.errors import RunError
from seq2see.interop import huggingface
from seq2see.interop.huggingface import Foreign
from seq2see.text.pair import Pair, write_pairs
from seq2see.text.tags import tagged

LARGEST_FILES = 100
"""Files of a folder that are noted in the manifest with their checksums."""


def import_model(
    source: Path, run: Path, *, valid: Sequence[Pair] = (), force: bool = False, facts: dict[str, Any] | None = None
) -> Foreign:
    """Make a run of the model in the folder `source`.

    Args:
        valid: Pairs of its task: exports are compared on them, and a fine-tuning measures on them what it forgot.
        force: Replace an earlier run.
        facts: What is known about the origin of the folder, for the manifest.
    """
    import torch

    if not source.is_dir():
        raise RunError(f"{source}: no such folder")
    if run.resolve() in (source.resolve(), *source.resolve().parents):
        raise RunError(f"{run}: the model is in this folder. Choose another name for the run")
    if run.exists() and not run.is_dir():
        raise RunError(f"{run}: is a file, expected the name of a new run folder")
    if run.exists() and not {path.name for path in run.iterdir()} <= storage.LEFT_OVER:
        if not force:
            raise RunError(f"{run}: exists already. Choose another name, or replace it with --force")
        storage.read_manifest(run)  # refuses to replace a folder that is not a run
    storage.refuse_tricks(source)
    found = huggingface.read(source)
    weights = {name: torch.from_numpy(weight.copy(order="C")) for name, weight in found.weights.items()}
    about = {
        "from": source.resolve().name,
        "format": "huggingface marian",
        **(facts or {}),
        "files": _checksums(source),
    }
    with storage.held(run), storage.made(run) as folder:
        config.write_toml(found.settings, folder / "settings.toml")
        found.tokenizers.save(folder)
        bundle.write_tensors(folder / "model.safetensors", weights)
        if valid:
            write_pairs(folder / "validation.jsonl", [tagged(pair, found.settings.data.tags.split()) for pair in valid])
        storage.write_manifest(
            folder,
            {
                "corpus": about["from"],
                "state": "imported",
                "parameters": sum(weight.numel() for weight in weights.values()),
                "versions": {"seq2see": seq2see.__version__},
                **found.facts,
                "imported": about,
            },
        )
        bundle.load(folder)  # as any run is loaded: all shapes and numbers are checked
    return found


def _checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of a folder."""
    found = {}
    for path in sorted(folder.iterdir())[:LARGEST_FILES]:
        if path.is_file():
            with path.open("rb") as file:
                found[path.name] = file_digest(file, "sha256").hexdigest()
    return found
