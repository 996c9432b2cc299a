"""Write the project of the distribution seq2see-slim: the same sources with the dependencies of `[tool.seq2see.slim]`.

    python deploy/slim.py FOLDER

The folder can then be built or installed like any other project (`make wheels`, deploy/Containerfile). The bounds of
the dependencies are those of pyproject.toml. Only the standard library is needed.
"""

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README = """\
# seq2see-slim

seq2see without PyTorch: `seq2see translate`, `chat` and `serve` with CTranslate2, for machines that only use trained
models. Install either `seq2see` or `seq2see-slim`, never both: they have the same files. All other commands are in
`seq2see`, and so is what a server needs PyTorch for: look, streaming, sampling and alignments.
"""


def project(full: dict[str, Any]) -> dict[str, Any]:
    """Return the pyproject.toml of the slim distribution, given that of the full one."""
    slim = full["tool"]["seq2see"]["slim"]
    about = full["project"]
    extras = about["optional-dependencies"]
    known = {name_of(each): each for each in (*extras["serve"], *extras["fast"], *about["dependencies"])}
    about = {key: value for key, value in about.items() if key != "optional-dependencies"}
    about |= {"name": "seq2see-slim", "description": slim["description"]}
    about["dependencies"] = [known[name] for name in slim["dependencies"]]
    return {
        "build-system": full["build-system"],
        "project": about,
        "tool": {"setuptools": full["tool"]["setuptools"]},
    }


def name_of(requirement: str) -> str:
    """Return the name of the package in a requirement: `sacrebleu[ko]>=2.4` is about `sacrebleu`."""
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0].lower()


def toml(table: dict[str, Any], name: str = "") -> str:
    """Return a table of texts, lists of texts and tables as TOML, in which these are written as in JSON."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    head = [f"[{name}]"] if lines and name else []
    inner = [toml(value, f"{name}.{key}" if name else key) for key, value in table.items() if isinstance(value, dict)]
    return "\n".join([*head, *lines, *inner, ""])


def write(folder: Path) -> None:
    """Write the project into a folder, which must not exist or be empty."""
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder}: is not empty. Choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    full = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (folder / "pyproject.toml").write_text(toml(project(full)), encoding="utf-8")
    (folder / "README.md").write_text(README, encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", folder / "LICENSE")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python deploy/slim.py FOLDER")
    write(Path(sys.argv[1]))
