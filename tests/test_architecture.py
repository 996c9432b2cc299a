"""Imports point to lower layers; files, functions and packages are small; docs/architecture.md lists every file."""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import seq2see

PACKAGE = Path(seq2see.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
TESTS = Path(__file__).parent
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 500, 80
MOST_PARAMETERS, MOST_FILES = 12, 12
LINES_THAT_NEED_TESTS = 150

LAYERS = [
    {"errors", "special", "storage", "machine", "patterns", "config", "display"},
    {"text", "kernels", "distributed"},
    {"doctor", "tokens", "model", "documents"},
    {"bundle"},
    {"training", "decoding"},
    {"lens", "evaluation", "interop"},
    {"pictures"},
    {"look"},
    {"run"},
    {"session", "conversation"},
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
    return parsed(path.read_text(encoding="utf-8"), str(path))


parsed = cache(ast.parse)


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


Function = ast.FunctionDef | ast.AsyncFunctionDef


def definitions(package: Path) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Yield every function, method and class by its dotted name."""

    def inside(node: ast.AST, name: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function | ast.ClassDef):
                yield f"{name}.{child.name}", child
                yield from inside(child, f"{name}.{child.name}")
            else:
                yield from inside(child, name)

    for name, path in modules(package).items():
        yield from inside(tree(path), name)


def functions(package: Path) -> Iterator[tuple[str, Function]]:
    return ((name, node) for name, node in definitions(package) if isinstance(node, Function))


def parameters(function: Function) -> int:
    """Return how many parameters a function has; `self` and `cls` do not count."""
    given = function.args
    named = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in named if name not in ("self", "cls")]) + bool(given.vararg) + bool(given.kwarg)


def is_a_sentence(docstring: str) -> bool:
    """Whether a docstring begins with a capital letter, or with code, and its first sentence ends with a full stop."""
    first = docstring.partition("\n\n")[0]
    return bool(re.match(r"[A-Z`].*?\.[)'\"`]?(\s|$)", first, re.DOTALL))


def test_no_file_has_more_than_500_lines():
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules(PACKAGE).items()}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_no_function_has_more_than_80_lines():
    lengths = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in functions(PACKAGE)}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES_OF_A_FUNCTION} == {}


def test_no_function_has_more_than_12_parameters():
    """Kernels and verbs may have more: a launch of Triton passes numbers, and Typer makes options of parameters."""
    counts = {
        name: parameters(node)
        for name, node in functions(PACKAGE)
        if name.split(".")[0] != "kernels" and not (name.startswith("cli.") and name.count(".") == 2)
    }
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}


def test_no_package_has_more_than_12_files():
    """Collections of like things may have more: claims of the lab, verbs of the command line."""
    folders = {path.parent for path in modules(PACKAGE).values()}
    counts = {
        ".".join(folder.relative_to(PACKAGE).parts): len(list(folder.glob("*.py")))
        for folder in folders
        if folder.relative_to(PACKAGE).as_posix() not in ("lab/claims", "cli")
    }
    assert {name: count for name, count in counts.items() if count > MOST_FILES} == {}


def test_no_two_public_classes_have_one_name():
    homes: dict[str, list[str]] = {}
    for name, path in modules(PACKAGE).items():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_tests_import_public_names():
    found: dict[str, object] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "seq2see":
                names = [*str(node.module).split("."), *(each.name for each in node.names)]
                private = [name for name in names if name.startswith("_") and not name.startswith("__")]
                if private:
                    found[str(path.relative_to(TESTS))] = private
    assert found == {}


def test_every_long_module_is_imported_by_a_test():
    """But for kernels, which only Triton can import: `unit/test_cuda.py` calls them through `kernels.loading`."""
    imported = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                imported |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported |= {str(node.module), *(f"{node.module}.{each.name}" for each in node.names)}
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules(PACKAGE).items()}
    assert {
        name: length
        for name, length in lengths.items()
        if length > LINES_THAT_NEED_TESTS
        and f"seq2see.{name}" not in imported
        and not name.startswith("kernels.")
        and name
    } == {}


def test_docstrings_are_sentences():
    documented = [*((name, tree(path)) for name, path in modules(PACKAGE).items()), *definitions(PACKAGE)]
    texts = {name: ast.get_docstring(node) for name, node in documented}
    assert {name: text for name, text in texts.items() if text and not is_a_sentence(text)} == {}


PLANTED_CODE = {
    "lines": ("def long():\n" + "    pass\n" * 80, "def short():\n" + "    pass\n" * 79),
    "parameters": (f"def f({', '.join('abcdefghijklm')}): ...", f"def f(self, {', '.join('abcdefghijkl')}): ..."),
    "docstrings": ('def f():\n    """no capital letter."""', 'def f():\n    """A sentence.\n\n    and more\n    """'),
}


@pytest.mark.parametrize("rule", PLANTED_CODE)
def test_a_violation_of_a_rule_is_found(rule, tmp_path):
    for number, text in enumerate(PLANTED_CODE[rule]):
        (tmp_path / "one.py").write_text(text, encoding="utf-8")
        ((_, node),) = functions(tmp_path)
        broken = {
            "lines": (node.end_lineno or 0) > MOST_LINES_OF_A_FUNCTION,
            "parameters": parameters(node) > MOST_PARAMETERS,
            "docstrings": not is_a_sentence(ast.get_docstring(node) or "A."),
        }
        assert broken[rule] == (number == 0)


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
        if name.split(".")[0] == "cli" and name != "cli.messages":
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo", "typer.secho"):
                    found.append(f"{name}, line {node.lineno}")
    assert not found


def test_the_page_lists_every_file():
    """Every file is in the table of docs/architecture.md by its path, and no other is."""
    listed = set(re.findall(r"`([\w/]+\.py)`", PAGE.read_text(encoding="utf-8").partition("## All files")[2]))
    files = {str(path.relative_to(PACKAGE)) for path in modules(PACKAGE).values() if path.name != "__init__.py"}
    assert listed == files
