"""The wheel, not the tree: built, installed elsewhere, and run from there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "docs" / "course" / "en").glob("*.md"))


def call(*words: object, cwd: Path, **environment: str) -> str:
    ended = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def installed(once) -> Path:
    """A folder with only what the wheel brings."""
    return once("wheel", build_and_install) / "site"


def build_and_install(folder: Path) -> None:
    """Build the wheel from a copy, so that the tree stays clean, and install it into `folder / "site"`."""
    tree = folder / "tree"
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    call("-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", tree, cwd=folder)
    (wheel,) = (folder / "dist").glob("seq2see-*.whl")
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    call(*words, "--disable-pip-version-check", "--target", folder / "site", wheel, cwd=folder)


def test_the_program_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    import seq2see

    where = call("-c", "import seq2see; print(seq2see.__file__)", cwd=tmp_path, PYTHONPATH=str(installed))
    assert Path(where.strip()).parent == installed / "seq2see"
    version = call("-m", "seq2see", "--version", cwd=tmp_path, PYTHONPATH=str(installed))
    assert version == f"seq2see {seq2see.__version__}\n"
    corpora = call("-m", "seq2see", "data", "list", cwd=tmp_path, PYTHONPATH=str(installed))
    assert corpora.startswith("dates ")


def test_every_module_travels(installed: Path) -> None:
    def modules(folder: Path) -> set[str]:
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix != ".pyc" and path.is_file()}

    assert modules(installed / "seq2see") == modules(ROOT / "src" / "seq2see")


def test_what_travels_beside_the_code(installed: Path) -> None:
    assert (installed / "seq2see" / "py.typed").exists()
    (about,) = installed.glob("seq2see-*.dist-info")
    assert (about / "licenses" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    metadata = (about / "METADATA").read_text()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert "seq2see = seq2see.cli:main" in (about / "entry_points.txt").read_text()


def test_versions_agree(installed: Path) -> None:
    import seq2see

    (about,) = installed.glob("seq2see-*.dist-info")
    assert f"\nVersion: {seq2see.__version__}\n" in (about / "METADATA").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_the_course_runs_from_the_wheel(chapter: Path, installed: Path, tmp_path: Path) -> None:
    """All cells of a chapter, in an empty folder, with nothing of ours but the wheel."""
    pytest.importorskip("IPython", reason="notebooks need IPython, which docs/requirements.lock has")
    text = chapter.read_text(encoding="utf-8")
    cells = re.findall(r"^```\{code-cell\} ipython3\n(?::tags: [^\n]*\n\n)?(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    where = f"import seq2see\nassert seq2see.__file__.startswith({str(installed)!r})\n"
    call("-c", where + "".join(cells), cwd=tmp_path, PYTHONPATH=str(installed))
