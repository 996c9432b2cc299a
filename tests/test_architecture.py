"""Imports point to lower layers only, files are short, and docs/architecture.md lists every one of them."""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import seq2see

PACKAGE = Path(seq2see.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
MOST_LINES = 500

LAYERS = [
    {"errors", "special", "storage", "machine", "patterns", "config"},
    {"text", "kernels", "distributed"},
    {"doctor", "tokens", "model"},
    {"bundle"},
    {"training", "decoding"},
    {"lens", "evaluation", "interop"},
    {"run"},
    {"session", "look", "conversation"},
    {"api"},
    {"lab", "serve"},  # the lab trains whole runs, so it is above `session`
    {"cli"},
    {"__main__"},
]
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
BASE_IMPORTS = {
    "storage": {"errors"},
    "patterns": {"errors", "machine"},
    "config": {"errors", "patterns", "storage"},
    "machine": {"errors"},
}
"""The only imports within one layer: modules of the lowest layer may import each other in this order."""


class Import(NamedTuple):
    """One import: both modules by their dotted names below `seq2see`, which itself has the empty name."""

    importer: str
    imported: str
    line: int


def modules(package: Path) -> dict[str, Path]:
    """Return every module by its dotted name; the `__init__` of a package has the name of the package."""
    names = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(package: Path) -> Iterator[Import]:
    """Yield every import of our own modules, also those inside functions and for types only."""
    names = modules(package)
    for name, path in names.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                targets = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}, line {node.lineno}: a relative import; write it in full"
                targets = [f"{node.module}.{each.name}" for each in node.names]
            else:
                continue
            for target in targets:
                if target.split(".")[0] == "seq2see":
                    yield Import(name, home(target.removeprefix("seq2see").removeprefix("."), names), node.lineno)


def home(name: str, names: dict[str, Path]) -> str:
    """Return the module that `name` is or lies in; a public name of `seq2see` lies in the module that defines it."""
    name = seq2see._HOMES.get(name, name)
    return name if name in names else name.rpartition(".")[0]


def violations(package: Path) -> list[str]:
    """Return a line for each import that breaks the rules, and for a cycle inside a package."""
    found = []
    inside: dict[str, set[str]] = {}
    for importer, imported, line in imports(package):
        ours, other = importer.split(".")[0], imported.split(".")[0]
        where = f"{importer}, line {line}, imports {imported}"
        if "" in (ours, other):
            if ours == "" != other:
                found.append(f"{where}: the top-level package loads its public names lazily")
        elif ours not in LAYER or other not in LAYER:
            found.append(f"{where}: a package that is in no layer")
        elif ours == other:
            inside.setdefault(importer, set()).add(imported)
        elif LAYER[ours] < LAYER[other]:
            found.append(f"{where}: from a lower layer to a higher one")
        elif LAYER[ours] == LAYER[other] and other not in BASE_IMPORTS.get(ours, ()):
            found.append(f"{where}: between packages of one layer")
    try:
        graphlib.TopologicalSorter(inside).prepare()
    except graphlib.CycleError as problem:
        found.append(f"a cycle: {' -> '.join(problem.args[1])}")
    return found


def test_every_package_is_in_a_layer():
    packages = {name.split(".")[0] for name in modules(PACKAGE)} - {""}
    assert packages == LAYER.keys()


def test_imports_point_to_lower_layers():
    assert violations(PACKAGE) == []


PLANTED = {
    "up": (
        {"text/pair.py": "from seq2see.model.build import build\nfrom seq2see import bundle"},
        ["higher", "higher"],
    ),
    "in a function": ({"model/layers.py": "def late():\n    import seq2see.api"}, ["higher"]),
    "through a public name": ({"text/pair.py": "from seq2see import train"}, ["higher"]),
    "for types": ({"text/pair.py": "if TYPE_CHECKING:\n    from seq2see.cli import main"}, ["higher"]),
    "sideways": ({"training/loop.py": "from seq2see.decoding import search"}, ["one layer"]),
    "in the lowest layer": ({"errors.py": "from seq2see.config import Settings"}, ["one layer"]),
    "a cycle": (
        {"text/pair.py": "from seq2see.text import files", "text/files.py": "from seq2see.text.pair import Pair"},
        ["a cycle"],
    ),
    "nowhere": ({"helpers.py": "from seq2see import errors"}, ["no layer"]),
    "not lazy": ({"__init__.py": "from seq2see.api import train"}, ["lazily"]),
    "allowed": (
        {
            "config.py": "from seq2see.errors import SettingError",
            "text/pair.py": "import seq2see\nfrom seq2see import __version__, special",
            "tokens/store.py": "from seq2see.text.pair import Pair",
            "api.py": "from seq2see import bundle\nfrom seq2see.tokens import store",
            "__main__.py": "from seq2see.cli import main",
        },
        [],
    ),
}


SHELL = """
    __init__.py errors.py special.py config.py bundle.py api.py text/__init__.py text/files.py tokens/store.py
    model/__init__.py model/build.py decoding/search.py cli/__init__.py
"""


@pytest.mark.parametrize(("files", "expected"), PLANTED.values(), ids=PLANTED.keys())
def test_a_wrong_import_is_found(files, expected, tmp_path):
    for name, text in {**dict.fromkeys(SHELL.split(), ""), **files}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = violations(tmp_path)
    assert len(found) == len(expected)
    for line, word in zip(found, expected, strict=True):
        assert word in line


def test_the_model_knows_only_torch_triton_numpy_and_itself():
    foreign = set()
    for name, path in modules(PACKAGE).items():
        if name.split(".")[0] != "model":
            continue
        for node in ast.walk(tree(path)):
            found = []
            if isinstance(node, ast.Import):
                found = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                found = [str(node.module)]
            for each in found:
                top = each.split(".")[0]
                ours = each.startswith(("seq2see.model", "seq2see.kernels")) or (name, each) == (
                    "model.build",
                    "seq2see.config",
                )
                if not ours and top not in ("torch", "triton", "numpy") and top not in sys.stdlib_module_names:
                    foreign.add(f"{name} imports {each}")
    assert not foreign


def test_every_module_has_a_docstring():
    without = [name for name, path in modules(PACKAGE).items() if not (ast.get_docstring(tree(path)) or "").strip()]
    assert not without


def test_the_init_of_a_package_is_a_paragraph():
    for name, path in modules(PACKAGE).items():
        if path.name != "__init__.py" or not name:
            continue
        _, *rest = tree(path).body
        if name == "cli":  # the installed command looks for its function here
            rest = [
                node for node in rest if not (isinstance(node, ast.ImportFrom) and node.module == "seq2see.cli.program")
            ]
            rest = [node for node in rest if ast.unparse(node) != "__all__ = ['main']"]
        assert not rest, f"{path} has more than its docstring"


def test_no_file_has_more_than_500_lines():
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules(PACKAGE).items()}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


@pytest.mark.parametrize("module", ["seq2see", "seq2see.cli.program"])
def test_torch_is_imported_late(module):
    check = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.parametrize(
    "verb",
    [
        [],
        ["train"],
        ["doctor"],
        ["evaluate"],
        ["data", "list"],
        ["data", "get"],
        ["draw"],
        ["look"],
        ["lab"],
        ["serve"],
    ],
)
def test_help_imports_nothing_heavy(verb):
    words = [sys.executable, "-X", "importtime", "-m", "seq2see", *verb, "--help"]
    ended = subprocess.run(words, check=True, capture_output=True, text=True)
    imported = set(re.findall(r"\| +([\w.]+)$", ended.stderr, re.MULTILINE))
    assert "seq2see.cli.program" in imported
    assert not imported & {"torch", "numpy", "babel", "pydantic", "rich", "matplotlib"}


def test_messages_leave_the_program_in_one_place():
    """There control characters of other people's texts are made visible; rich's consoles get such texts only."""
    found = []
    for name, path in modules(PACKAGE).items():
        if name.split(".")[0] == "cli" and name not in ("cli.messages", "cli.progress"):
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo", "typer.secho"):
                    found.append(f"{name}, line {node.lineno}")
    assert not found


def test_the_page_lists_every_file():
    """Every file is in the table of docs/architecture.md by its path, and no other is."""
    listed = set(re.findall(r"`([\w/]+\.py)`", PAGE.read_text(encoding="utf-8").partition("## All files")[2]))
    files = {str(path.relative_to(PACKAGE)) for path in modules(PACKAGE).values() if path.name != "__init__.py"}
    assert listed == files
