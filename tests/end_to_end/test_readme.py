"""The commands and the code in README.md, CONTRIBUTING.md and docs/guides work.

Every block of these pages names its language. Blocks of `sh` and `python` are run from top to bottom in a folder with
small files of the names that the pages use; a training runs with the smallest model for two steps. What is not run is
listed in `unrun_commands.toml` with the reason.
"""

import inspect
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from quick import QUICK

import seq2see
from seq2see.text import pronouns

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSIDE = (ROOT / "docs" / "inside.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
LANGUAGES = {"sh", "bash", "python", "text", "tsv", "csv", "json", "toml", "yaml", "nginx", "html"}
"""Languages of blocks; those after `python` are shown and not run."""
UNRUN: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "unrun_commands.toml").read_text("utf-8"))["unrun"]
UNRUN_COMMANDS = [command for entry in UNRUN for command in entry.get("commands", ())]
UNRUN_BLOCKS = [begin for entry in UNRUN for begin in entry.get("blocks", ())]
SHORT = ["--set", "training.max_steps=2", "--set", "training.batch_tokens=200"]
"""Settings for fine-tuning, which cannot change the model."""
SMALL_PRESET = [*SHORT, *(word for key in ("encoder", "decoder") for word in ("--set", f"model.{key}_layers=1"))]
"""Settings that recurrent networks have, too."""
SENTENCES = [("good morning", "guten Morgen"), ("thank you", "danke"), ("a sentence", "ein Satz"), ("yes", "ja")]


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str


BLOCKS = [
    Block(str(page.relative_to(ROOT)), language, text)
    for page in PAGES
    for language, text in re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
]


def commands(block: Block) -> list[str]:
    """Return the commands of a shell block, one for each line, without comments."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in block.text.splitlines())
    return [line for line in lines if line]


SHELL = {
    page: [command for block in BLOCKS if (block.page, block.language) == (page, "sh") for command in commands(block)]
    for page in dict.fromkeys(block.page for block in BLOCKS)
}
PYTHON = [block for block in BLOCKS if block.language == "python"]


@pytest.fixture
def folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with runs and with files of all formats under the names that the pages use."""
    for name in ("pairs", "other"):
        shutil.copytree(trained, tmp_path / "runs" / name)
    manifest = tmp_path / "runs" / "other" / "settings.toml"  # runs of one side need different seeds
    manifest.write_text(manifest.read_text("utf-8").replace("seed = 3", "seed = 4"), encoding="utf-8")
    pairs = [(f"{source} {n}", f"{target} {n}") for n in range(10) for source, target in SENTENCES]
    rows = "".join(f"{source}\t{target}\n" for source, target in pairs)
    for name in ("pairs.tsv", "test.tsv"):
        (tmp_path / name).write_text(rows, encoding="utf-8")
    (tmp_path / "terms.tsv").write_text("good morning\tguten Morgen\nfile\tDatei|Dateien\n", encoding="utf-8")
    (tmp_path / "new.tsv").write_text(
        "".join(f"{a}{b}\t{(b + a).upper()}\n" for a in "abcdef" for b in "abcdef"), encoding="utf-8"
    )
    table = "".join(f'{n},"{source}","{target}"\n' for n, (source, target) in enumerate(pairs))
    (tmp_path / "phrases.csv").write_text(f"id,english text,german text\n{table}", encoding="utf-8")
    (tmp_path / "no-header.csv").write_text(table, encoding="utf-8")
    nested = (json.dumps({"translation": {"en": source, "de": target}}) for source, target in pairs)
    (tmp_path / "nested.jsonl").write_text("\n".join(nested), encoding="utf-8")
    for corpus, languages in (("news", "en de"), ("a", "en de fr")):
        for place, language in enumerate(languages.split()):
            text = "".join(f"{pair[min(place, 1)]}\n" for pair in pairs)
            (tmp_path / f"{corpus}.{language}").write_text(text, encoding="utf-8")
    catalogue = 'msgid ""\nmsgstr "Language: de\\n"\n\n' + "".join(f'msgid "{s}"\nmsgstr "{t}"\n\n' for s, t in pairs)
    (tmp_path / "app.po").write_text(catalogue, encoding="utf-8")
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{s}</seg></tuv><tuv xml:lang="de"><seg>{t}</seg></tuv></tu>' for s, t in pairs
    )
    memory = f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'
    (tmp_path / "memory.tmx").write_text(memory, encoding="utf-8")
    (tmp_path / "more.txt").write_text("a reference\n" * len(pairs), encoding="utf-8")
    (tmp_path / "lines.txt").write_text("abc\nbad\n", encoding="utf-8")
    (tmp_path / "letter.txt").write_text("abc\n\n- bad\n", encoding="utf-8")
    (tmp_path / "page.html").write_text("<p>abc <b>bad</b></p>\n", encoding="utf-8")
    monkeypatch.setattr(pronouns, "SIZES", {"test": 20, "valid": 20, "train": 200})
    (tmp_path / "my.toml").write_text("[model]\ndropout = 0.2\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_seq2see(cli: Callable[..., Any], command: str) -> None:
    """Run one command line: `seq2see ...`, or `echo TEXT | seq2see ...`, with `< FILE` and `> FILE`."""
    before, _, words = command.rpartition(" | ")
    arguments = shlex.split(words)
    assert arguments.pop(0) == "seq2see", f"{command}: list it in unrun_commands.toml, with the reason"
    stdin = b"abc\n"
    if before:
        echo, text = shlex.split(before)
        assert echo == "echo"
        stdin = f"{text}\n".encode()
    for sign in ("<", ">"):
        if sign in arguments:
            at = arguments.index(sign)
            if sign == "<":
                stdin = Path(arguments[at + 1]).read_bytes()
            del arguments[at : at + 2]
    if arguments[0] == "train" and "--resume" not in arguments:
        given = [arguments[at + 1] for at, word in enumerate(arguments) if word == "--out"]
        out = Path(given[0] if given else f"runs/{Path(arguments[1].split(',')[0]).stem}")
        shutil.rmtree(out, ignore_errors=True)
        small = SHORT if "--from" in arguments else SMALL_PRESET if "--preset" in arguments else QUICK
        heads = ["--set", "model.heads=4"] if arguments[1] == "pronouns" else []  # a page draws the fourth
        arguments[1:1] = [*small, *heads]  # before the settings of the page, which decide
    ended = cli(*arguments, stdin=stdin)
    assert ended.code == 0, f"{command}\n{ended.err}"


@pytest.mark.parametrize("page", [page for page in SHELL if SHELL[page]])
def test_commands(page: str, cli, folder: Path, request: pytest.FixtureRequest) -> None:
    """The commands of a page, one after another in one folder."""
    done: set[str] = set()
    for command in SHELL[page]:
        if command in UNRUN_COMMANDS:
            continue
        if command.startswith("curl "):
            if not shutil.which("curl"):
                pytest.skip("curl is not installed")
            url = request.getfixturevalue("server").url
            asked = shlex.split(command.replace("http://127.0.0.1:8000", url))
            answer = subprocess.run([*asked, "--fail"], capture_output=True, text=True, timeout=60, check=True)
            assert "translatedText" in answer.stdout
            continue
        run_seq2see(cli, command)
        done.add(command)
    assert done or all(command in UNRUN_COMMANDS for command in SHELL[page])


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.page)
def test_python(block: Block, trained: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is replaced by loading a run that is there; the rest is as printed."""
    signature = inspect.signature(seq2see.train)

    def train(*pairs: Any, **options: Any) -> Any:
        signature.bind(*pairs, **options)
        return seq2see.load(trained)

    monkeypatch.setattr(seq2see, "train", train, raising=False)
    exec(compile(block.text, block.page, "exec"), {})


def test_every_block_names_its_language() -> None:
    assert [block for block in BLOCKS if block.language not in LANGUAGES] == []


def test_what_is_not_run_is_on_a_page_and_has_a_reason() -> None:
    written = {command for page in SHELL for command in SHELL[page]}
    assert [command for command in UNRUN_COMMANDS if command not in written] == []
    scripts = [block.text for block in BLOCKS if block.language == "bash"]
    assert all(any(text.startswith(begin) for begin in UNRUN_BLOCKS) for text in scripts)
    assert all(any(text.startswith(begin) for text in scripts) for begin in UNRUN_BLOCKS)
    assert all(entry["reason"].strip() for entry in UNRUN)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_dates_shown_are_those_of_the_demo() -> None:
    """The README shows a part of the output of `make demo`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = re.findall(r"^(.+)  ->  \d{4}-\d\d-\d\d$", README, re.MULTILINE)
    assert shown
    assert all(date in makefile for date in shown)
    run = re.findall(r"^\t@?\$\(BIN\)/(seq2see (?:train|evaluate|look) .*)$", makefile, re.MULTILINE)
    assert [command.split()[1] for command in run] == ["train", "evaluate", "look"]


def test_the_inside_by_name(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of docs/inside.md, one after another."""
    run = seq2see.load(trained)
    monkeypatch.setattr(seq2see, "load", lambda folder: run, raising=False)
    code = "\n".join(re.findall(r"```python\n(.*?)```", INSIDE, re.DOTALL))
    exec(compile(code, "docs/inside.md", "exec"), {})


def test_every_field_of_an_answer_is_documented(trained: Path, cli) -> None:
    run = seq2see.load(trained)
    pairs = [("bad", "BAD")]
    worth, statistics = run.head_worth(pairs, [[]]), run.head_statistics(pairs)
    names = {*run.look("bad").json(), *run.importance("bad").json(), *worth.json(), *worth.whole._fields}
    names |= {*statistics.json(), *statistics.heads[0]._fields}
    pruned = run.prune_heads([("bad", "BAD"), ("cab", "CAB")], orders=0, points=1)
    names |= {*pruned.json(), *pruned.curves[0].json(), *pruned.importance[0]._fields}
    keys = json.loads(cli("look", trained, "bad", "--json").out)
    names |= {re.sub(r"(?<=/).*", "", key) for key in keys} | {*keys["summary"]} - {"languages"}
    missing = {name for name in names if not re.search(rf"\b{name}(\b|PLACE|NAME)", INSIDE)}
    assert not missing
