"""Every message of the sources has a Korean text: each text of three words or more occurs in a key of the catalogue."""

import ast
import builtins
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import seq2see
from seq2see.display import wording
from source_texts import template

PACKAGE = Path(seq2see.__file__).parent
FEWEST_WORDS = 3
"""Number of words from which on a text is taken for a message, or for a part of one."""
WORD = re.compile(r"(?<![\w-])[A-Za-z][a-z']+(?!\w)")
OTHER_FILES = {
    "cli/program.py": "examples of commands",
    "conversation.py": "has Korean answers beside the English ones",
    "decoding/running_text.py": "SQL",
    "display/notebook.py": "HTML",
    "display/wording.py": "headings of help pages, with their translations",
    "interop/hub.py": "a model card, in English for everybody",
    "interop/keras.py": "names of weights",
    "serve/bodies.py": "the description of the API",
    "text/pronouns.py": "sentences of a corpus",
}
"""Files whose texts are not messages, and what they are."""
OTHER_CALLS = {name for name in dir(builtins) if name.endswith("Error")} | {
    *("counter", "histogram", "gauge", "Described", "Field", "property", "compile", "filterwarnings", "report", "warn"),
}
"""Calls whose arguments are not messages of the program: metrics, descriptions of the API, patterns, warnings of
Python, and errors for programmers.
"""
OTHER_TEXTS = {
    "{} {task.completed:,}/{task.total:,}",
    "{task.completed} of {task.total} trials",
    "can't allocate memory",  # texts of PyTorch and the system, to recognise
    "not enough memory",
    " does not have a deterministic implementation",
    "# {} to {}\n\nTrained with seq2see.\n",  # a file
    "Apple SD Gothic Neo",  # fonts
    "Noto Sans Devanagari",
    "Noto Sans Arabic",
    "seq2see: {} lines of the log were dropped\n",  # bytes, while standard error is full
}
"""Texts that are not messages, or cannot be translated."""
CODE = re.compile(r"\n|\s*[<$]|import sys|body\{|default-src|\{\} role=|text/")
"""Beginnings of lists of words, HTML, formulas, programs, style sheets and headers."""


def others(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield nodes whose texts are not messages: docstrings, parts of templates, annotations, assertions, calls."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Assert() | ast.FunctionDef(name="__repr__" | "_repr_html_"):
                yield from ast.walk(node)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in OTHER_CALLS:
                yield from ast.walk(node)
            case ast.JoinedStr():
                yield from (part for part in node.values if isinstance(part, ast.Constant))
                yield from (part.format_spec for part in node.values if getattr(part, "format_spec", None))
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(annotation, ast.AST):
                yield from ast.walk(annotation)


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the template of each text of a module that may be a message, or a part of one."""
    tree = ast.parse(source)
    skipped = set(map(id, others(tree)))
    for node in ast.walk(tree):
        text = None if id(node) in skipped else template(node)
        if not text or text in OTHER_TEXTS or CODE.match(text):
            continue
        if " " in text and len(WORD.findall(text)) >= FEWEST_WORDS:
            yield node.lineno, text


@cache
def keys() -> str:
    """Return the keys of the catalogue, one in a line."""
    tables = tomllib.loads((PACKAGE / "display" / "korean.toml").read_text(encoding="utf-8")).values()
    return "\n".join(" ".join(key.split()) for table in tables for key in table)


def is_known(text: str) -> bool:
    """Return whether each statement of a text is a key or a part of one, if its placeholders may stand for anything."""
    statements = (" ".join(part.split()) for part in text.split(wording.DOT))
    return all(re.search(".*".join(map(re.escape, part.split("{}"))), keys()) for part in statements)


@pytest.mark.parametrize("name", sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")))
def test_every_message_has_a_korean_text(name: str) -> None:
    if name not in OTHER_FILES:
        found = messages((PACKAGE / name).read_text(encoding="utf-8"))
        missing = [f"{name}:{line}: {text}" for line, text in found if not is_known(text)]
        assert missing == [], "translate these in src/seq2see/display/korean.toml"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('echo(f"no such run: {run} is gone")', ["no such run: {} is gone"]),
        ('say("a b c" if few else "two words")', []),
        ('def f(): "A docstring is no message."', []),
        ('def f() -> "list of some things": assert f, "this is a bug"', []),
        ('raise ValueError("this is for programmers")', []),
        ('raise DataError("these lines are " f"too long: {n:,.1f} of them")', ["these lines are too long: {} of them"]),
    ],
)
def test_messages_are_found_in_a_source(source: str, found: list[str]) -> None:
    assert [text for _, text in messages(source)] == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}: no such file", True),
        ("{} step{} too few", True),  # the key has the plural
        (" ({} dropped, a side was empty)", True),
        ("nobody has translated this yet", False),
    ],
)
def test_parts_of_keys_are_known(text: str, expected: bool) -> None:
    assert is_known(text) == expected
