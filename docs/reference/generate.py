"""Write the pages that are made from the code (commands, settings, Python API, HTTP API) and from project files.

    python docs/reference/generate.py [FOLDER]

`make docs` runs this before it builds the site. PyTorch is not imported here; Sphinx imports it for the Python API.
"""

import inspect
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import seq2see
from seq2see import config

NOTE = "% This page is written by docs/reference/generate.py. Do not edit it."


DOCS = Path(__file__).parents[1]
PROJECT = {"CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing", "SECURITY.md": "security"}
"""Files beside the docs folder that are pages of the site, too; each becomes docs/project/NAME.md."""


def pages() -> dict[str, str]:
    """Return the text of every generated page by its path in the docs folder."""
    found = {
        "reference/commands.md": commands(),
        "reference/settings.md": settings(),
        "reference/python.md": python(),
        "reference/http.md": http(),
    }
    for file, name in PROJECT.items():
        path = DOCS.parent / file
        if path.exists():
            page = f"project/{name}.md"
            found[page] = f"{NOTE}\n\n{relink(path.read_text(encoding='utf-8'), path, DOCS / page)}"
    return found


def write(folder: Path = DOCS) -> None:
    """Write every page whose text has changed."""
    for name, text in pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


CELL = re.compile(r"^```\{code-cell\} ipython3\n(?::tags: [^\n]*\n\n)?(.*?)\n```$", re.MULTILINE | re.DOTALL)
"""A cell of code in a chapter of the course; the group is its source."""


def write_notebook(text: str, path: Path) -> None:
    """Write a chapter of the course as a Jupyter notebook: text between cells of code, without outputs."""
    text = re.sub(r"\A---\n.*?^---\n", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\((\d\d-[\w-]+)\.md\)", r"](\1.ipynb)", text)
    parts = CELL.split(text)
    cells: list[dict[str, Any]] = []
    for number, source in enumerate(each.strip("\n") for each in parts):
        kind: dict[str, Any] = {"cell_type": "markdown"}
        if number % 2:
            kind = {"cell_type": "code", "execution_count": None, "outputs": []}
        if source:
            cells.append(kind | {"id": f"cell-{number}", "metadata": {}, "source": source})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def relink(text: str, source: Path, page: Path) -> str:
    """Return Markdown of the file `source` with its relative links as they must be in `page`.

    Links to files of `PROJECT` lead to their pages, and links to README.md to the front page.
    """
    special = {DOCS.parent / file: DOCS / f"project/{name}.md" for file, name in PROJECT.items()}

    def moved(match: re.Match[str]) -> str:
        target, mark, anchor = match[1].partition("#")
        path = Path(os.path.normpath(source.parent / target))
        if not target or ":" in target or not path.exists():
            return match[0]
        if path == DOCS.parent / "README.md":
            path, mark, anchor = DOCS / "index.md", "", ""
        return f"]({os.path.relpath(special.get(path, path), page.parent)}{mark}{anchor})"

    return re.sub(r"\]\(([^()\s]+)\)", moved, text)


# Commands


def commands() -> str:
    """Return the page of all commands, from the Typer program."""
    import typer

    from seq2see.cli import program

    root = typer.main.get_command(program.program())
    lines = [
        NOTE,
        "",
        "# Command line",
        "",
        _sentence(root.help),
        "",
        EXIT_CODES,
        "",
        "## Options without a command",
        "",
    ]
    lines += [
        "[Installing](../guides/install.md) explains completion and versions.",
        "",
        "```{program} seq2see",
        "```",
        "",
    ]
    for each in root.params:
        lines += [f"````{{option}} {_signature(each)}", "", _about(each), "````", ""]
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        verbs = {f"{name} {second}": each for second, each in getattr(command, "commands", {}).items()}
        if verbs:
            lines += [f"## seq2see {name}", "", _sentence(command.help), ""]
        for verb, each in (verbs or {name: command}).items():
            lines += _command(verb, each, "###" if verbs else "##", program.EXAMPLES[verb])
    return "\n".join(lines)


EXIT_CODES = """\
Text is read from standard input and written to standard output; progress and errors go to standard error. Every command
has `--help`, which works without loading PyTorch.

| exit code | meaning |
|---|---|
| 0 | success |
| 2 | a mistake in the command, the settings or a file, reported in one line (`--debug` shows the traceback) |
| 75 | a problem that may pass, such as a full disk: the same command can be repeated |
| 129, 130, 143 | stopped by SIGHUP, Ctrl-C (SIGINT) or SIGTERM |"""


def _command(verb: str, command: Any, heading: str, example: str) -> list[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    words = ["seq2see", verb, *(["[OPTIONS]"] if options else []), *map(_usage, arguments)]
    lines = [f"{heading} seq2see {verb}", "", _markdown(inspect.cleandoc(command.help or "")), ""]
    lines += ["```text", " ".join(words), "```", "", "Example:", "", "```sh", example, "```", ""]
    if verb == "train":
        lines += ["`--set` and `--config` take the settings of [](settings.md).", ""]
    lines += [f"```{{program}} seq2see {verb}", "```", ""]
    for each in (*arguments, *options):
        lines += [f"````{{option}} {_signature(each)}", "", _about(each), "````", ""]
    return lines


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    name += "..." if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def _signature(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    if parameter.is_flag:
        return ", ".join([*parameter.opts, *parameter.secondary_opts])
    value = parameter.type.name
    kind = parameter.metavar or ("N" if value.startswith("int") else "NUMBER" if value.startswith("float") else "TEXT")
    return ", ".join(f"{name} {kind}" for name in parameter.opts)


def _about(parameter: Any) -> str:
    found = [_markdown(parameter.help or "")]
    low, high = getattr(parameter.type, "min", None), getattr(parameter.type, "max", None)
    if low is not None or high is not None:
        found.append(_range(low, high) + ".")
    if parameter.param_type_name == "option" and not parameter.is_flag and parameter.default not in (None, (), []):
        found.append(f"Default: `{parameter.default}`.")
    if parameter.param_type_name == "option" and parameter.multiple and "repeated" not in found[0]:
        found.append("May be repeated.")
    return " ".join(found)


# Settings


def settings() -> str:
    """Return the page of all settings and presets."""
    lines = [NOTE, "", "# Settings", "", SETTINGS, ""]
    ranges = {
        f"{section}.{each.name}": each.metadata for section, kind in config.SECTIONS.items() for each in fields(kind)
    }
    before = ""
    for key, kind, default, about in config.describe():
        section = key.partition(".")[0]
        if section != before:
            lines += [f"## {section}", "", _sentence(config.SECTIONS[section].__doc__ or ""), ""]
        before = section
        lines += [f"````{{confval}} {key}"]
        lines += [":type: " + " \\| ".join(f"`{word}`" for word in kind.split(" | "))]
        shown = default.lower() if kind == "bool" else default or '""'
        lines += [f":default: `{shown}`", "", _sentence(about)]
        low, high = ranges[key]["minimum"], ranges[key]["maximum"]
        if low is not None or high is not None:
            lines += ["", _range(low, high) + "."]
        lines += ["````", ""]
    lines += ["## Presets", "", PRESETS, ""]
    for name, preset in config.PRESETS.items():
        lines += [f"### {name}", "", _sentence(preset["about"]), "", "```toml"]
        for section, values in config.preset(name).items():
            lines += [f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items()), ""]
        lines[-1:] = ["```", ""]
    return "\n".join(lines)


SETTINGS = """\
No setting has to be given: the corpus suggests what is not set ([](../explanation/choosing-settings.md)). In order of
precedence, lowest first: the defaults below, what the corpus suggests, a preset (`--preset`), a TOML file (`--config`),
single settings (`--set section.key=value`). An unknown key is an error that names the nearest one. All settings of a
training, resolved, are written to `settings.toml` in its [run folder](run-folder.md)."""
PRESETS = "A preset is a named set of settings: `seq2see train PAIRS --preset NAME`."


# Python


def python() -> str:
    """Return the page of the Python API: what `seq2see` and `seq2see.api` offer, documented by autodoc."""
    events = sorted({*_all_of("api")} - {*seq2see.__all__}, key=lambda name: (name != "Event", name))
    lines = [NOTE, "", "# Python API", "", PYTHON, ""]
    for title, about, names in (
        ("Training and runs", "", ["train", "load", "Run"]),
        ("Events of a training", EVENTS, [f"api.{name}" for name in events]),
        ("Parts of the model", PARTS, [name for name in seq2see.__all__ if name not in ("train", "load", "Run")]),
    ):
        lines += [f"## {title}", "", *([about, ""] if about else []), "```{eval-rst}"]
        lines += [line for name in names for line in _autodoc(name)]
        lines += ["```", ""]
    return "\n".join(lines)


PYTHON = """\
`import seq2see` is fast: each public name below loads its module when it is first used. The names of the first two
sections can also be imported from `seq2see.api`."""
EVENTS = "`seq2see.train(..., watch=function)` calls the function with each of these while it trains."
PARTS = "The parts of the Transformer can be used on their own."
MODULES = ("MultiHeadAttention", "EncoderLayer", "DecoderLayer", "Transformer")
"""PyTorch modules, of which only `forward` is shown."""


def _all_of(module: str) -> list[str]:
    """Return `__all__` of a module without importing it, because that would import PyTorch."""
    text = Path(config.__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    return re.findall(r'"(\w+)"', text.partition("__all__ = [")[2].partition("]")[0])


def _autodoc(name: str) -> list[str]:
    home, _, short = name.rpartition(".")
    module = f"seq2see.{home}" if home else "seq2see"
    if name == "api.Event":
        return [".. autodata:: seq2see.api.Event", "   :no-value:", ""]
    if not home and not short[0].isupper():
        return [f".. autofunction:: {module}.{short}", ""]
    members = "forward" if short in MODULES else "" if short != "Interrupted" else None
    return [
        f".. autoclass:: {module}.{short}",
        *([f"   :members: {members}".rstrip()] if members is not None else []),
        "",
    ]


# HTTP


def http() -> str:
    """Return the page of the HTTP API, from the OpenAPI document of the service."""
    from seq2see.serve import app

    document = app.build(MagicMock())._app.openapi()  # type: ignore[attr-defined]
    schemas = document["components"]["schemas"]
    lines = [NOTE, "", "# HTTP API", "", HTTP, ""]
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            groups.setdefault(route["tags"][0], []).extend(_route(method.upper(), path, route, schemas))
    for tag, routes in groups.items():
        lines += [f"## {GROUPS.get(tag, tag)}", "", *routes]
    lines += ["## Objects", ""]
    for name, schema in schemas.items():
        lines += [f"### {name}", "", _sentence(schema.get("description", "")), "", *_fields(schema)]
    return "\n".join(lines)


HTTP = """\
`seq2see serve RUN` answers these routes; the running service offers the same description as `/openapi.json`.
[](../serve.md) has examples, limits and operation. A service with `--api-keys` expects a key as
`Authorization: Bearer KEY` or `X-API-Key: KEY` on the routes that are marked with *key*.

Every error is JSON, [`{"error": "..."}`](#errorresponse): 4xx where the request is wrong or there are too many (429),
503 where the service is not ready, 504 where the deadline passed. Under `/v2` it is
[`{"message": "..."}`](#deeplerror), as clients of DeepL expect, and the key may be sent as
`Authorization: DeepL-Auth-Key KEY`."""
GROUPS = {
    "operation": "Operation",
    "v1": "Translation, chat, inspection (v1)",
    "LibreTranslate": "LibreTranslate",
    "DeepL": "DeepL",
}


def _route(method: str, path: str, route: Mapping[str, Any], schemas: Mapping[str, Any]) -> list[str]:
    key = " *Key.*" if route.get("security") else ""
    lines = [f"### {method} {path}", "", _sentence(route.get("description", "")) + key, ""]
    content = route.get("requestBody", {}).get("content", {})
    if content:
        schema = next(iter(content.values()))["schema"]
        kinds = ", ".join(f"`{kind}`" for kind in content)
        lines += [f"Request body ({kinds}):", "", *_fields(_resolved(schema, schemas))]
    found = next((route["responses"][status] for status in ("200", "201") if status in route["responses"]), {})
    answers = [
        f"{_kind(each['schema'])} (`{kind}`)"
        for kind, each in found.get("content", {}).items()
        if kind != "text/event-stream"
    ]
    if "text/event-stream" in found.get("content", {}):
        answers.append("with `stream`, server-sent events `token`, `end` and `error` (`text/event-stream`)")
    return lines + ([f"Answer: {'; '.join(answers)}.", ""] if answers else [])


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _fields(schema: Mapping[str, Any]) -> list[str]:
    rows = ["| field | type | default | description |", "|---|---|---|---|"]
    for name, field in schema.get("properties", {}).items():
        default = "required" if name in schema.get("required", ()) else f"`{_json(field.get('default'))}`"
        about = _sentence(field.get("description", "")).replace("|", "\\|")
        rows.append(f"| `{name}` | {_kind(field)} | {default} | {about} |")
    return [*rows, ""] if len(rows) > 2 else []


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a JSON value in words; objects are links to their description."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_kind, schema["anyOf"])))
    if "enum" in schema:
        return " or ".join(f"`{_json(value)}`" for value in schema["enum"])
    if schema.get("type") == "array":
        inner = schema.get("items") or (schema.get("prefixItems") or [{}])[0]
        return f"list of {_kind(inner)}"
    found = str(schema.get("type", "any"))
    low, high = schema.get("minimum"), schema.get("maximum")
    return found if low is None and high is None else f"{found} ({_range(low, high)[0].lower()}{_range(low, high)[1:]})"


# Words


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return f"At least {low:g}"
    shown = f"{high:,}" if isinstance(high, int) or high.is_integer() else f"{high:g}"
    shown = shown.removesuffix(".0") if high < 1e15 else f"{high:g}"
    return f"At most {shown}" if low is None else f"From {low:g} to {shown}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _toml(value: Any) -> str:
    return _json(value) if isinstance(value, str | bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _sentence(text: str | None) -> str:
    """Return text that begins with a capital letter and ends with a full stop."""
    text = _markdown(" ".join((text or "").split()))
    if not text:
        return ""
    if re.match(r"[a-z]+[ ,:]", text) and not re.match(r"(alpha|length\^alpha|auto|float32):?", text):
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else text + "."


def _markdown(text: str) -> str:
    """Escape what Markdown would read as markup outside of code spans."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[$])", r"\\\1", part) for part in parts)


def restructured(line: str) -> str:
    """Return a line of a docstring as reStructuredText: `code` in double backticks, other marks escaped."""
    if line.lstrip().startswith(">>>"):
        return line
    parts = re.split(r"(``.+?``|`[^`]+`)", line)
    return "".join(
        part
        if part.startswith("``")
        else f"`{part}`"
        if part.startswith("`")
        else re.sub(r"(?<=\S)([*|])|([*|])(?=\S)|(?<=\w)(_)(?!\w)", lambda mark: "\\" + mark[0], part)
        for part in parts
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
