"""Files that other programs read: workflows, templates, citation, hooks, and the lowest versions of dependencies."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import seq2see

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": WORKFLOWS,
    "vendor.dependabot": [ROOT / ".github" / "dependabot.yml"],
    "vendor.github-issue-forms": sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")),
    "vendor.github-issue-config": [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
    "vendor.compose-spec": [ROOT / "deploy" / "compose.yaml"],
}
ACTION = re.compile(r"[\w-]+/[\w-]+@(v\d+|release/v\d+|[0-9a-f]{40})")


def check(schema: str, files: list[Path]) -> "subprocess.CompletedProcess[str]":
    """Check files against a schema that comes with check-jsonschema; nothing is downloaded."""
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")
    words = [sys.executable, "-m", "check_jsonschema", "--force-filetype", "yaml", "--builtin-schema", schema]
    return subprocess.run([*words, *map(str, files)], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_match_their_schema(schema) -> None:
    assert SCHEMAS[schema]
    ended = check(schema, SCHEMAS[schema])
    assert ended.returncode == 0, ended.stdout


def test_a_workflow_with_a_mistake_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("runs-on:", "run-on:", 1), encoding="utf-8")
    assert check("vendor.github-workflows", [broken]).returncode != 0


def jobs() -> dict[str, dict[str, Any]]:
    found = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in WORKFLOWS}
    return {
        f"{name}/{job}": {"top": each, **value} for name, each in found.items() for job, value in each["jobs"].items()
    }


def steps() -> list[dict[str, Any]]:
    return [step for job in jobs().values() for step in job["steps"]]


def test_actions_are_pinned() -> None:
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used
    assert [each for each in used if not ACTION.fullmatch(each)] == []


def test_jobs_have_few_permissions() -> None:
    for name, job in jobs().items():
        top, own = job["top"]["permissions"], job.get("permissions", {})
        assert top in ({}, {"contents": "read"})
        writes = {scope for scope, right in own.items() if right == "write"}
        assert writes == {"release/publish": {"id-token"}, "release/image": {"packages"}}.get(name, set())
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            assert "${{ github.event" not in step.get("run", "")  # a title or a tag could be a command


def test_commands_of_workflows_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {word for step in steps() for word in re.findall(r"^make ([\w-]+)", step.get("run", ""))}
    assert {"check", "docs", "wheels"} <= asked <= targets


def test_every_supported_python_is_tested() -> None:
    matrix = jobs()["checks/tests"]["strategy"]["matrix"]
    versions = [tuple(map(int, each.split("."))) for each in matrix["python"]]
    first, last = versions[0], versions[-1]
    assert PROJECT["requires-python"] == f">={first[0]}.{first[1]}"
    assert versions == [(3, minor) for minor in range(first[1], last[1] + 1)]
    assert {each["dependencies"] for each in matrix["include"]} == {"lowest", "locked"}


def test_the_lowest_versions_are_the_bounds_of_the_project() -> None:
    """requirements.lowest has a line for every dependency that users can install, with the bound of pyproject.toml.

    Not for those of `export`: their lower bounds were not tried, as CONTRIBUTING.md says.
    """
    needed = [*PROJECT["dependencies"]]
    for name, extra in PROJECT["optional-dependencies"].items():
        needed += extra if name not in ("dev", "export") else []
    expected = []
    for requirement in needed:
        match = re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\w.]+)(?:,\S+)?", requirement)
        assert match, f"{requirement}: has no lower bound"
        expected.append(f"{match[1]}=={match[2]}")
    lines = (ROOT / "requirements.lowest").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == sorted(set(expected))


def test_the_citation_has_the_version_of_the_project() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"] == seq2see.__version__
    assert citation["license"] == PROJECT["license"]


def test_hooks_run_programs_of_the_environment() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    checked = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ncheck: setup\n")[2].partition("\n\n")[0]
    for hook in hooks:
        program = hook["entry"].split()[0]
        assert program.startswith(".venv/bin/")
        assert program.replace(".venv/bin", "$(BIN)") in checked


def test_a_bug_report_asks_for_the_versions() -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text(encoding="utf-8"))
    assert any("seq2see --version --verbose" in str(field) for field in form["body"])
