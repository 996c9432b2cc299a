"""`import`: turn a model of another program into a run, which can translate, be inspected, served and fine-tuned."""

from collections.abc import Callable, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import Any

import seq2see
from seq2see import bundle, config, storage
from seq2see.errors import RunError, SettingError
from seq2see.interop import hub, huggingface, marian
from seq2see.interop.huggingface import Foreign
from seq2see.text.pair import Pair
from seq2see.text.rows import write_pairs
from seq2see.text.tags import tagged
from seq2see.tokens.store import Tokenizers

MOST_FILES = 100
"""Maximum number of entries of the imported folder, the first by name, whose checksums the manifest records."""


def import_model(
    source: str | Path,
    run: str | Path,
    *,
    valid: Sequence[Pair] = (),
    force: bool = False,
    revision: str | None = None,
    endpoint: str | None = None,
) -> Foreign:
    """Make a run from the model in the folder `source`; if that is no folder, from the model of that name on the Hub.

    Args:
        source: A folder, or the name of a model on the Hugging Face Hub (OWNER/NAME).
        valid: Pairs of its task: exports are compared on them, and fine-tuning uses them to measure forgetting.
        force: Replace an earlier run.
        revision: For a model on the Hub: a branch, a tag or a commit.
        endpoint: Address of a server that is used instead of the Hub.
    """
    run = Path(run)
    if not Path(source).is_dir() and hub.is_name(str(source)):
        _check_place(Path(source), run, force)
        with hub.downloaded(str(source), revision, endpoint) as (folder, facts):
            return _import(folder, run, valid, facts)
    if revision is not None:
        raise SettingError("--revision: only a model on the Hub has revisions. Leave it out")
    source = Path(source)
    if not source.is_dir():
        raise RunError(f"{source}: no such folder, and not the name of a model on the Hub (OWNER/NAME)")
    if run.resolve() in (source.resolve(), *source.resolve().parents):
        raise RunError(f"{run}: the model is in this folder. Choose another name for the run")
    _check_place(source, run, force)
    return _import(source, run, valid, {"from": source.resolve().name})


def _check_place(source: Path, run: Path, force: bool) -> None:
    """Raise an error if `run` is a file, or a folder with contents that is not a run to be replaced (`force`)."""
    if run.exists() and not run.is_dir():
        raise RunError(f"{run}: is a file, expected the name of a new run folder")
    if run.exists() and not {path.name for path in run.iterdir()} <= storage.LEFT_OVER:
        if not force:
            raise RunError(f"{run}: exists already. Choose another name, or replace it with --force")
        storage.read_manifest(run)  # refuses to replace a folder that is not a run


def _import(source: Path, run: Path, valid: Sequence[Pair], facts: dict[str, Any]) -> Foreign:
    import torch

    storage.refuse_tricks(source)
    kind = "huggingface marian"
    if not (source / "config.json").exists():
        kind = "marian" if any(source.glob("*.npz")) else "seq2see" if (source / "manifest.json").exists() else kind
    found = READERS[kind](source)
    weights = {name: torch.from_numpy(weight.copy(order="C")) for name, weight in found.weights.items()}
    about = {"format": kind, **facts, "files": _checksums(source)} | ({"notes": found.notes} if found.notes else {})
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


def _read_run(source: Path) -> Foreign:
    """Read a run folder of seq2see, which `push` uploads if Marian cannot represent the model."""
    facts, settings, tokenizers = storage.read_manifest(source), config.read_settings(source), Tokenizers.load(source)
    weights = bundle.read_tensors(source / "model.safetensors", "np")
    return Foreign(settings, tokenizers, weights, {"languages": facts.get("languages", {})})


READERS: dict[str, Callable[[Path], Foreign]] = {
    "huggingface marian": huggingface.read,
    "marian": marian.read,
    "seq2see": _read_run,
}


def _checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files among the first `MOST_FILES` entries of a folder, by name."""
    found = {}
    for path in sorted(folder.iterdir())[:MOST_FILES]:
        if path.is_file():
            with path.open("rb") as file:
                found[path.name] = file_digest(file, "sha256").hexdigest()
    return found
