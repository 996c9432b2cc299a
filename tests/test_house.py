"""The house stands: imports point down, rooms keep to themselves, and the map in the README is true."""

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

HOUSE = Path(seq2see.__file__).parent
README = Path(__file__).parents[1] / "README.md"
MOST_LINES = 500

FLOORS = [
    {"errors", "memory", "special", "storage", "automaton", "patterns", "config", "presets"},
    {"kernels"},
    {"data", "model"},
    {"bundle", "machine", "suggest"},
    {"training", "decoding"},
    {"lens", "evaluation", "prepare", "interop"},
    {"run"},
    {"api", "look", "conversation"},
    {"lab", "serve"},  # the lab trains whole runs, too, so it stands on `api`
    {"cli"},
    {"__main__"},  # the door, in front of the command line
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
GROUND = {
    "storage": {"errors"},
    "automaton": {"errors"},
    "patterns": {"automaton", "errors"},
    "config": {"errors", "patterns", "storage"},
    "presets": {"config", "errors"},
}
"""The only arrows between rooms of one floor: the files of the ground floor lean on each other, in this order."""


class Arrow(NamedTuple):
    """`tail` imports `head`: modules by their dotted names below `seq2see`, the top itself as an empty one."""

    tail: str
    head: str
    line: int


def modules(house: Path) -> dict[str, Path]:
    """Every module by its dotted name; a room's `__init__` bears the name of the room."""
    names = {}
    for path in sorted(house.rglob("*.py")):
        parts = path.relative_to(house).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def arrows(house: Path) -> Iterator[Arrow]:
    """Every import of ours, wherever it stands: at the top, in a function, or for types only."""
    names = modules(house)
    for name, path in names.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                heads = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}, line {node.lineno}: a relative import; write it in full"
                heads = [f"{node.module}.{each.name}" for each in node.names]
            else:
                continue
            for head in heads:
                if head.split(".")[0] == "seq2see":
                    yield Arrow(name, home(head.removeprefix("seq2see").removeprefix("."), names), node.lineno)


def home(name: str, names: dict[str, Path]) -> str:
    """The module that `name` is, or that it lies in; what the top lends lives where it comes from."""
    name = seq2see._HOMES.get(name, name)
    return name if name in names else name.rpartition(".")[0]


def complaints(house: Path) -> list[str]:
    """What is wrong with the arrows of a house, in words."""
    found = []
    inside: dict[str, set[str]] = {}
    for tail, head, line in arrows(house):
        room, other = tail.split(".")[0], head.split(".")[0]
        where = f"{tail}, line {line}, imports {head}"
        if "" in (room, other):
            if room == "" != other:
                found.append(f"{where}: the top loads everything late")
        elif room not in FLOOR or other not in FLOOR:
            found.append(f"{where}: a room that is on no floor")
        elif room == other:
            inside.setdefault(tail, set()).add(head)
        elif FLOOR[room] < FLOOR[other]:
            found.append(f"{where}: upwards")
        elif FLOOR[room] == FLOOR[other] and other not in GROUND.get(room, ()):
            found.append(f"{where}: sideways")
    try:
        graphlib.TopologicalSorter(inside).prepare()
    except graphlib.CycleError as problem:
        found.append(f"in a circle: {' -> '.join(problem.args[1])}")
    return found


def test_every_room_is_on_a_floor():
    rooms = {name.split(".")[0] for name in modules(HOUSE)} - {""}
    assert rooms <= FLOOR.keys()


def test_imports_point_down():
    assert complaints(HOUSE) == []


PLANTED = {
    "up": (
        {"data/pair.py": "from seq2see.model.build import build\nfrom seq2see import bundle"},
        ["sideways", "upwards"],
    ),
    "in a function": ({"model/layers.py": "def late():\n    import seq2see.api"}, ["upwards"]),
    "through the top": ({"data/pair.py": "from seq2see import train"}, ["upwards"]),
    "for types": ({"data/pair.py": "if TYPE_CHECKING:\n    from seq2see.cli import main"}, ["upwards"]),
    "sideways": ({"training/loop.py": "from seq2see.decoding import search"}, ["sideways"]),
    "on the ground": ({"errors.py": "from seq2see.config import Settings"}, ["sideways"]),
    "in a circle": (
        {"data/pair.py": "from seq2see.data import store", "data/store.py": "from seq2see.data.pair import Pair"},
        ["in a circle"],
    ),
    "nowhere": ({"helpers.py": "from seq2see import errors"}, ["on no floor"]),
    "not late": ({"__init__.py": "from seq2see.api import train"}, ["late"]),
    "well": (
        {
            "presets.py": "from seq2see.config import Model",
            "data/pair.py": "import seq2see\nfrom seq2see import __version__, special",
            "data/store.py": "from seq2see.data.pair import Pair",
            "api.py": "from seq2see import bundle\nfrom seq2see.data import store",
            "__main__.py": "from seq2see.cli import main",
        },
        [],
    ),
}


SHELL = """
    __init__.py errors.py special.py config.py bundle.py api.py data/__init__.py data/store.py
    model/__init__.py model/build.py decoding/search.py cli/__init__.py
"""


@pytest.mark.parametrize(("files", "expected"), PLANTED.values(), ids=PLANTED.keys())
def test_a_wrong_arrow_is_found(files, expected, tmp_path):
    """The watchman is awake."""
    for name, text in {**dict.fromkeys(SHELL.split(), ""), **files}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = complaints(tmp_path)
    assert len(found) == len(expected)
    for complaint, word in zip(found, expected, strict=True):
        assert word in complaint


def test_the_model_knows_only_torch_triton_numpy_and_itself():
    foreign = set()
    for name, path in modules(HOUSE).items():
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


def test_every_module_says_what_it_is():
    silent = [name for name, path in modules(HOUSE).items() if not (ast.get_docstring(tree(path)) or "").strip()]
    assert not silent


def test_the_init_of_a_room_is_a_paragraph():
    for name, path in modules(HOUSE).items():
        if path.name != "__init__.py" or not name:
            continue
        _, *rest = tree(path).body
        if name == "cli":  # the installed command looks for its function here
            rest = [
                node for node in rest if not (isinstance(node, ast.ImportFrom) and node.module == "seq2see.cli.program")
            ]
            rest = [node for node in rest if ast.unparse(node) != "__all__ = ['main']"]
        assert not rest, f"{path} has more than its docstring"


def test_no_file_is_longer_than_a_sitting():
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules(HOUSE).items()}
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
    for name, path in modules(HOUSE).items():
        if name.split(".")[0] == "cli" and name not in ("cli.messages", "cli.progress"):
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo", "typer.secho"):
                    found.append(f"{name}, line {node.lineno}")
    assert not found


def test_the_map_in_the_readme_is_true():
    """Every file is on the map, by its name at least."""
    text = README.read_text(encoding="utf-8")
    files = [path for path in modules(HOUSE).values() if path.name != "__init__.py"]
    missing = [
        str(path.relative_to(HOUSE)) for path in files if not re.search(rf"(?<!\w){re.escape(path.name)}(?!\w)", text)
    ]
    assert not missing, f"not in README.md: {', '.join(missing)}"
