"""The Hugging Face Hub: model cards from the manifest, uploading (`push`), and downloading models for `import`."""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from hashlib import file_digest
from pathlib import Path
from typing import Any

from seq2see import bundle, config, storage
from seq2see.config import Settings, model_in_words
from seq2see.errors import PassingError, RunError, SettingError, visible
from seq2see.interop import huggingface_writer
from seq2see.tokens.store import Tokenizers

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
"""Pattern of the name of a model on the Hub: `Helsinki-NLP/opus-mt-en-de`."""
FILES = ("*.json", "*.toml", "*.npz", "*.yml", "*.spm", "model.safetensors", "pytorch_model.bin", "README.md")
"""Patterns of the names of the files that are downloaded from the Hub for a model; files in subfolders are not."""
MOST_FILES = 100
"""Maximum number of files that are downloaded for a model; if the Hub lists more, `import` refuses it."""


def is_name(text: str) -> bool:
    """Return whether a text has the form of a name on the Hub (`NAME`), and is not the path of a file or folder."""
    return NAME.fullmatch(text) is not None and not Path(text).exists()


def _hub(endpoint: str | None) -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise SettingError("huggingface_hub is not installed: pip install 'seq2see[export]'") from None
    return huggingface_hub.HfApi(endpoint=endpoint)


@contextlib.contextmanager
def _in_one_line(name: str, revision: str | None = None) -> Iterator[None]:
    """Convert any error, such as one of the connection or of huggingface_hub, into our error with one line of text."""
    try:
        yield
    except Exception as problem:
        kinds = {each.__name__ for each in type(problem).__mro__}
        if "GatedRepoError" in kinds:
            raise PassingError(
                f"{name}: its authors ask for consent. Agree to their terms on the page of the model, then log in: "
                "hf auth login"
            ) from None
        if "RevisionNotFoundError" in kinds:
            raise SettingError(f"--revision {revision}: {name} has no such branch, tag or commit") from None
        if "RepositoryNotFoundError" in kinds:
            raise SettingError(
                f"{name}: the Hub has no model of this name, or it is private. Check the spelling, or log in: "
                "hf auth login"
            ) from None
        why = visible(" ".join(str(problem).split())[:200])
        raise PassingError(f"{name}: the Hub could not be used ({type(problem).__name__}: {why})") from None


@contextlib.contextmanager
def downloaded(
    name: str, revision: str | None = None, endpoint: str | None = None
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a temporary folder with the files of a model, and facts for the manifest: name, commit and licence.

    Args:
        revision: A branch, a tag or a commit; by default the newest commit of the main branch.
        endpoint: Address of a server that is used instead of the Hub.
    """
    hub = _hub(endpoint)
    with tempfile.TemporaryDirectory(prefix="seq2see-") as place:
        folder = Path(place) / "model"
        with _in_one_line(name, revision):
            about = hub.model_info(name, revision=revision, files_metadata=True)
        files = _chosen(name, about.siblings or (), shutil.disk_usage(place).free)
        with _in_one_line(name, revision):
            hub.snapshot_download(name, revision=about.sha, local_dir=folder, allow_patterns=list(files))
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        for file, checksum in files.items():
            _check(name, folder / file, checksum)
        licence = getattr(about.card_data, "license", None) if about.card_data else None
        licence = ", ".join(map(str, licence)) if isinstance(licence, list) else licence
        yield folder, {"from": name, "revision": about.sha, "licence": licence if isinstance(licence, str) else None}


def _chosen(name: str, listed: Sequence[Any], room: int) -> dict[str, str | None]:
    """Return the names of the files to download, with the SHA-256 that the Hub lists for large ones; raise an error if
    no model is among them, or they are too many or too large.

    Args:
        listed: The files that the Hub lists for a model.
        room: Number of free bytes on the disk.
    """
    found = {each.rfilename: each for each in listed if any(fnmatch(each.rfilename, kind) for kind in FILES)}
    found = {file: each for file, each in found.items() if re.fullmatch(r"[\w.-]+", file)}  # none in a folder
    if "model.safetensors" in found:
        found.pop("pytorch_model.bin", None)
    if not found.keys() & {"config.json", "manifest.json"} and not any(file.endswith(".npz") for file in found):
        raise RunError(f"{name}: no config.json, .npz or manifest.json, so it is no model of Marian or seq2see")
    if len(found) > MOST_FILES:
        raise RunError(f"{name}: {len(found):,} files to download, at most {MOST_FILES} are allowed. Refused")
    size = sum(each.size or 0 for each in found.values())
    if size > room:
        raise PassingError(
            f"{name}: {size / 2**30:,.1f} GiB, and {tempfile.gettempdir()} has {room / 2**30:,.1f} GiB left. "
            "Make room, or set TMPDIR to a folder on another disk"
        )
    return {file: each.lfs.sha256 if each.lfs else None for file, each in found.items()}


def _check(name: str, path: Path, checksum: str | None) -> None:
    """Raise an error if a file is missing, or differs from `checksum`, its SHA-256 on the Hub, if there is one."""
    if not path.is_file():
        raise PassingError(f"{name}: {path.name} was not downloaded. Try again")
    if checksum is not None:
        with path.open("rb") as file:
            if file_digest(file, "sha256").hexdigest() != checksum:
                raise PassingError(f"{name}: {path.name} does not have the SHA-256 that the Hub lists. Try again")


def push(run: Path, name: str, *, private: bool = False, endpoint: str | None = None) -> str:
    """Upload a run with its model card to the Hub and return its address.

    It is uploaded as a Marian model if that can represent it exactly, else as a run folder; training and validation
    pairs are not uploaded. The access token is the one stored by `hf auth login`, or HF_TOKEN.
    """
    if NAME.fullmatch(name) is None:
        raise SettingError(f"{name}: not the name of a model on the Hub: expected OWNER/NAME")
    storage.read_manifest(run)  # refuses what is no run
    hub = _hub(endpoint)
    settings = config.read_settings(run)
    bundle.weights_file(run)  # an error where training has not validated yet
    with tempfile.TemporaryDirectory(prefix="seq2see-") as place:
        folder = Path(place)
        if huggingface_writer.obstacle(settings) is None:
            huggingface_writer.write(run, folder, "float32")
        else:
            for path in {
                run / "model.safetensors",
                run / "settings.toml",
                run / "manifest.json",
                *Tokenizers.files(run),
            }:
                shutil.copy(path, folder / path.name)
        (folder / "README.md").write_text(model_card(run, name), encoding="utf-8")
        with _in_one_line(name):
            address = hub.create_repo(name, private=private, exist_ok=True)
            hub.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload a model of seq2see")
    return str(address)


def model_card(run: Path, name: str) -> str:
    """Return a model card in Markdown: facts from the manifest, and gaps that the author has to fill in."""
    facts, settings = storage.read_manifest(run), config.read_settings(run)
    is_marian = huggingface_writer.obstacle(settings) is None
    languages = [code for code in facts.get("languages", {}).values() if code] + settings.data.tags.split()
    head = ["---", "license: other  # fill in", f"library_name: {'transformers' if is_marian else 'seq2see'}"]
    head += ["pipeline_tag: translation", "tags: [translation, seq2see]"]
    head += [f"language: [{', '.join(dict.fromkeys(languages))}]"] if languages else []
    parts = [*head, "---", "", f"# {name}", "", _about(facts, settings), "", "## Use", "", *_use(name, is_marian)]
    parts += [
        "",
        "## Data",
        "",
        *_data(facts),
        "",
        "## Scores",
        "",
        *_scores(facts),
        "",
        "## Settings and hardware",
        "",
    ]
    parts.append(f"- model: {model_in_words(settings.model)}, {facts.get('parameters', 0):,} parameters")
    if "steps" in facts:
        parts.append(f"- training: {facts['steps']:,} updates of {settings.training.batch_tokens:,} tokens")
    if "device" in facts:
        parts.append(f"- hardware: {facts['device']}, {facts.get('trained_in_seconds', 0):,.0f} s of training")
    parts.append(f"- versions: {', '.join(f'{each} {number}' for each, number in facts.get('versions', {}).items())}")
    return "\n".join([*parts, "", "## Licence", "", _licence(facts), ""])


def _about(facts: dict[str, Any], settings: Settings) -> str:
    sides = " to ".join(str(code or "?") for code in facts.get("languages", {}).values())
    kinds = {"transformer": "Transformer", "convolutional": "convolutional model"}
    kind = kinds.get(settings.model.architecture, "RNN")
    return f"A sequence-to-sequence {kind} ({sides or 'languages not recorded'}), made with seq2see."


def _use(name: str, is_marian: bool) -> list[str]:
    commands = ["```sh", f"seq2see import {name} runs/model", "seq2see translate runs/model < lines", "```"]
    if not is_marian:
        return commands
    python = ["from transformers import MarianMTModel, MarianTokenizer", ""]
    python += [f'{each} = {kind}.from_pretrained("{name}")' for each, kind in CLASSES.items()]
    return [*commands, "", "```python", *python, "```"]


CLASSES = {"tokenizer": "MarianTokenizer", "model": "MarianMTModel"}


def _data(facts: dict[str, Any]) -> list[str]:
    if imported := facts.get("imported"):
        revision = f", revision {imported['revision']}" if imported.get("revision") else ""
        return [f"Imported from {imported['from']}{revision}. Its authors know the data."]
    found = [f"- corpus: {facts.get('corpus', '?')}"]
    if "pairs" in facts:
        found.append(f"- {facts['pairs']:,} training pairs, {facts.get('validation_pairs', 0):,} for validation")
    if about := facts.get("fine_tuning"):
        found.append(f"- fine-tuned from {about.get('from', '?')}")
    return found


def _scores(facts: dict[str, Any]) -> list[str]:
    diagnosis = facts.get("diagnosis", {})
    model = diagnosis.get("scores", {}).get("model", {})
    if not model:
        return ["None recorded. Measure them with: `seq2see evaluate RUN PAIRS`, which prints their signatures."]
    rows = [f"| {name} | {value:.2f} |" for name, value in model.items()]
    return [f"On {diagnosis.get('scored_on', 'the validation set')}:", "", "| metric | value |", "|---|---|", *rows]


def _licence(facts: dict[str, Any]) -> str:
    original = facts.get("imported", {}).get("licence")
    return f"Fill in. The original model is under: {original}." if original else "Fill in."
