"""The docs: relative links lead somewhere, and the generated reference has every command, setting and public name."""

import ast
import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import typer

import seq2see
from seq2see import api, config
from seq2see.cli import program
from seq2see.evaluation import validation
from seq2see.session import candidates, suggest, trials

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@functools.cache
def generator() -> ModuleType:
    """Return docs/reference/generate.py as a module."""
    pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
    found = importlib.util.spec_from_file_location("generate", DOCS / "reference" / "generate.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@functools.cache
def generated() -> dict[Path, str]:
    """Return the text of each page that is made from the code, by path."""
    return {DOCS / name: text for name, text in generator().pages().items()}


@functools.cache
def written() -> dict[Path, str]:
    """Return the text of each page that a person has written: those beside the docs folder, and those in it."""
    paths = [path for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")) if path not in generated()]
    return {path: path.read_text(encoding="utf-8") for path in sorted(paths)}


def without_code(text: str) -> str:
    """Return Markdown without blocks and spans of code."""
    text = re.sub(r"^(```+|~~~+).*?^\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "code", text)


def anchors(text: str) -> set[str]:
    """Return the anchor of each heading, as code-hosting sites and MyST make them."""
    found: dict[str, int] = {}
    names = set()
    text = re.sub(r"^(```+|~~~+).*?^\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return names | set(re.findall(r"""(?:id|name)=["']([\w-]+)["']""", text))


def broken_links(page: Path, text: str) -> list[str]:
    """Return the relative links of a page that lead to no file, or to no heading of one."""
    pages = written() | generated()
    problems = []
    text = without_code(text)
    targets = re.findall(r"\]\(([^()\s]+)\)", text) + re.findall(r"""(?:src|href)=["']([^"']+)["']""", text)
    for link in targets:
        target, _, anchor = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        path = Path(os.path.normpath(page.parent / target)) if target else page
        if path not in pages and not path.exists():
            problems.append(f"{link}: no such file")
        elif anchor and path in pages and anchor not in anchors(pages[path]):
            problems.append(f"{link}: no such heading")
    return problems


def test_relative_links_lead_to_a_file_and_heading() -> None:
    problems = {str(page.relative_to(ROOT)): broken_links(page, text) for page, text in written().items()}
    problems |= {
        str(page.relative_to(ROOT)): broken_links(page, text)
        for page, text in generated().items()
        if page.parent.name == "reference"
    }
    assert not {page: found for page, found in problems.items() if found}


@pytest.mark.parametrize("link", ["nowhere.md", "serve.md#no-such-heading", "#nothing"])
def test_a_broken_link_is_found(link: str) -> None:
    assert broken_links(DOCS / "index.md", f"[a page]({link})")


@pytest.mark.parametrize(
    "link", ["serve.md", "serve.md#operating", "https://example.org/x", "attention.png", "../LICENSE"]
)
def test_a_good_link_is_accepted(link: str) -> None:
    assert not broken_links(DOCS / "index.md", f"[a page]({link})")


def test_the_reference_has_every_command_and_option() -> None:
    text = generated()[DOCS / "reference" / "commands.md"]
    sections = dict(re.findall(r"^##+ seq2see (.+?)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    root = typer.main.get_command(program.program())
    for verb, example in program.EXAMPLES.items():
        command = root
        for word in verb.split():
            command = command.commands[word]
        assert example in sections[verb]
        for parameter in command.params:
            names = (
                parameter.opts
                if parameter.param_type_name == "option"
                else [parameter.metavar or parameter.name.upper()]
            )
            for name in names:
                assert re.search(rf"{{option}} .*{re.escape(name)}\b", sections[verb]), f"{verb} {name}"


def test_the_reference_has_every_setting_and_preset() -> None:
    text = generated()[DOCS / "reference" / "settings.md"]
    listed = re.findall(r"^````\{confval\} (\S+)$", text, re.MULTILINE)
    assert listed == [key for key, *_ in config.describe()]
    assert text.count(":default: `") == len(listed)
    assert all(f"### {name}\n" in text for name in config.PRESETS)


RULES = re.compile(r"<!-- rules (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)
"""A table of rules in the page about choosing settings: the name of the rules in `suggest`, and the table."""


def table_of(rules: tuple[suggest.Rule, ...]) -> str:
    """Return rules as a Markdown table."""
    rows = [
        "| amount | layers | width | dropout | R-Drop | weight decay | alignment loss | learning rate "
        "| tokens in a batch | steps |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for rule in rules:
        steps = int(float(f"{rule.trained / rule.batch:.3g}"))
        losses = f"{rule.dropout:g} | {rule.agreement:g} | {rule.weight_decay:g} | {rule.alignment:g}"
        rate = f"{rule.learning_rate:g} | {rule.batch:,} | {steps:,}"
        rows.append(f"| {rule.amount:,.0f} | {rule.layers} | {rule.width} | {losses} | {rate} |")
    return "\n".join([*rows, ""])


def test_the_page_about_settings_has_the_rules_of_the_code() -> None:
    """If this fails, put the table that it prints into the page."""
    text = written()[DOCS / "explanation" / "choosing-settings.md"]
    tables = dict(RULES.findall(text))
    assert tables.keys() == {"SENTENCES", "EXACT"}
    for name, table in tables.items():
        assert table == (expected := table_of(getattr(suggest, name))), f"{name}:\n{expected}"


def test_the_page_about_settings_has_the_limits_of_trials() -> None:
    text = " ".join(written()[DOCS / "explanation" / "choosing-settings.md"].split())
    assert (trials.EARLY, trials.EARLY_OF_MANY, validation.STANDARD_ERRORS) == (0.25, 0.1, 2)
    for words in (
        f"with fewer than {trials.FEW_PAIRS:,} training pairs",
        f"with fewer than {validation.FEWEST_TO_COMPARE} validation pairs",
        "first quarter of all steps (a tenth",
        "two standard errors",
        f"with at least {suggest.ALIGNED_PAIRS:,} pairs,",
    ):
        assert words.lower() in text.lower()
    assert candidates.MOST_AT_ONCE == 5
    assert "on a GPU up to five" in text


def test_the_reference_has_every_public_name() -> None:
    text = generated()[DOCS / "reference" / "python.md"]
    listed = re.findall(r"auto\w+:: seq2see\.(?:api\.)?(\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted({*seq2see.__all__, *api.__all__})


def test_the_reference_has_every_route_and_field() -> None:
    text = generated()[DOCS / "reference" / "http.md"]
    for route in ("POST /v1/translate", "POST /v1/look", "GET /health", "POST /detect"):
        assert f"### {route}\n" in text
    assert "| `n_best` | integer (at least 1) | `1` |" in text


def messages() -> str:
    """Return every text in the sources of the package; the values in formatted ones are left out."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_the_messages_in_the_page_about_errors_exist() -> None:
    """The headings of the page are messages; numbers and other values in them are examples."""
    text = written()[DOCS / "guides" / "troubleshooting.md"]
    headings = re.findall(r"^### (.*)", text, re.MULTILINE)
    known, missing = messages(), []
    for message in (each for heading in headings for each in re.findall(r"`([^`]+)`", heading)):
        for words in re.split(
            r"\d+ columns?|\S*\d\S*|\S+ = |'[^']*'|\(.*\)|: pip install .*|Address already in use", message
        ):
            if words.strip(" :") not in known:
                missing.append(f"{message}: {words.strip()!r}")
    assert not missing


def test_every_page_is_in_the_site() -> None:
    """Each written page is named by a table of contents, or matched by its pattern."""
    tables = "\n".join(
        f"{page.parent.relative_to(DOCS) / line}"
        for page, text in written().items()
        if page.is_relative_to(DOCS)
        for table in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
        for line in table.splitlines()
        if line and not line.startswith(":")
    )
    patterns = [os.path.normpath(line) for line in tables.splitlines()]
    for page in written():
        if page.is_relative_to(DOCS) and page.name != "index.md":
            name = page.relative_to(DOCS).with_suffix("")
            assert any(name.match(pattern) for pattern in patterns), f"{name} is in no toctree"


def test_generated_pages_are_ignored_by_git() -> None:
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a copy that git keeps")
    names = [str(path.relative_to(ROOT)) for path in generated()]
    ended = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True)
    assert ended.stdout.split() == names


def test_links_are_rewritten_for_the_site() -> None:
    relink = generator().relink
    page = DOCS / "guides" / "page.md"
    assert relink("[a](../../README.md#results)", page, page) == "[a](../index.md)"
    assert relink("[a](../../CHANGELOG.md)", page, page) == "[a](../project/changelog.md)"
    assert (
        relink("[a](docs/serve.md#operating)", ROOT / "x.md", DOCS / "project" / "x.md") == "[a](../serve.md#operating)"
    )
    assert relink("[a](https://example.org)", page, page) == "[a](https://example.org)"
