"""seq2see-slim: the same sources without PyTorch translate and serve; everything else says what it needs.

The default tests hide the packages that the slim distribution leaves out. The slow ones install both wheels into
environments of their own.
"""

import os
import runpy
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

import browser
import pytest
from serving import Server

from seq2see.cli.program import NOT_SLIM
from seq2see.cli.version import check_distributions
from seq2see.errors import SettingError

ROOT = Path(__file__).parents[2]
SLIM = runpy.run_path(str(ROOT / "deploy" / "slim.py"))
FULL: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run(*words: object, stdin: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        list(map(str, words)),
        input=stdin,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=600,
        check=False,
    )


def test_the_project_has_the_same_bounds_and_sources(tmp_path: Path) -> None:
    SLIM["write"](tmp_path / "slim")
    slim = tomllib.loads((tmp_path / "slim" / "pyproject.toml").read_text(encoding="utf-8"))
    about, full = slim["project"], FULL["project"]
    assert (about["name"], about["version"]) == ("seq2see-slim", full["version"])
    assert about["scripts"] == full["scripts"]
    assert slim["tool"]["setuptools"] == FULL["tool"]["setuptools"]
    assert "optional-dependencies" not in about
    extras = full["optional-dependencies"]
    assert {*about["dependencies"]} <= {*full["dependencies"], *extras["serve"], *extras["fast"]}
    assert {*extras["serve"], *extras["fast"]} <= {*about["dependencies"]}
    assert (tmp_path / "slim" / "src" / "seq2see" / "py.typed").exists()


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(SystemExit, match="is not empty"):
        SLIM["write"](tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_every_package_that_is_left_out_has_a_name_for_messages() -> None:
    left_out = {SLIM["name_of"](each) for each in FULL["project"]["dependencies"]}
    left_out -= {*FULL["tool"]["seq2see"]["slim"]["dependencies"]}
    assert {name.replace("-", "_") for name in left_out} == NOT_SLIM.keys()


@pytest.fixture
def without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide, from all programs that a test starts, the packages that the slim distribution leaves out."""
    hidden = [*NOT_SLIM, "transformers"]
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({hidden}))\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'hide'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def needs_ctranslate2() -> None:
    pytest.importorskip("ctranslate2", reason="the extra 'fast' is not installed")
    pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")


def test_it_translates_a_run_that_was_never_converted(trained: Path, tmp_path: Path, without: None) -> None:
    needs_ctranslate2()
    shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("engines"))
    words = [sys.executable, "-m", "seq2see", "translate", tmp_path / "run"]
    before = os.environ["PYTHONPATH"].partition(os.pathsep)[2]
    expected = run(*words, "--engine", "ctranslate2", stdin="abc\nbad\n", PYTHONPATH=before).stdout
    assert expected
    shutil.rmtree(tmp_path / "run" / "engines")
    ended = run(*words, stdin="abc\nbad\n")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == expected
    assert run(*words, "--prefix", "A", stdin="abc\n").stdout.startswith("A")


@pytest.mark.parametrize(
    ("words", "need"),
    [
        (["train", "pairs.tsv"], "train needs PyTorch: pip install seq2see"),
        (["evaluate", "RUN", "pairs.tsv"], "evaluate needs sacreBLEU: pip install seq2see"),
        (["translate", "RUN", "--alignments"], "--alignments needs PyTorch: pip install seq2see"),
        (["chat", "RUN", "--sample"], "--sample needs PyTorch: pip install seq2see"),
        (["serve", "RUN", "--engine", "torch"], "--engine torch needs PyTorch: pip install seq2see"),
    ],
)
def test_what_needs_more_says_so_in_one_line(words, need, trained: Path, tmp_path: Path, without: None) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tA\nb\tB\n")
    given = [{"RUN": trained, "pairs.tsv": tmp_path / "pairs.tsv"}.get(word, word) for word in words]
    ended = run(sys.executable, "-m", "seq2see", *given, stdin="abc\n")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"seq2see: {need}")
    assert ended.stderr.count("\n") == 1


def test_it_serves(trained: Path, without: None) -> None:
    needs_ctranslate2()
    with Server(trained) as server:
        answer = server.post("/v1/translate", text="abc")
        assert (answer.status, answer.json()["engine"]) == (200, "ctranslate2 int8")
        assert server.post("/v1/chat", text="abc").status == 200
        assert server.post("/v1/translate", text="abc", prefix="A").status == 200
        for path, options in (
            ("/v1/look", {"parts": ["summary"]}),
            ("/v1/chat", {"stream": True}),
            ("/v1/translate", {"sample": True}),
            ("/v1/translate", {"alignments": True}),
        ):
            refused = server.post(path, text="abc", **options)
            assert refused.status == 501
            assert "need PyTorch" in refused.json()["error"]
        assert server.get("/ready").status == 200
        assert "inside" not in server.engines()


@pytest.mark.browser
@pytest.mark.skipif(bool(browser.obstacle()), reason=browser.obstacle() or "there is a browser")
def test_the_live_page_translates_and_chats_without_the_inside(trained: Path, tmp_path: Path, without: None) -> None:
    needs_ctranslate2()
    with Server(trained, "--quiet") as server, browser.Browser(tmp_path / "profile") as page:
        page.site = server.url
        page.open(server.url + "/")
        page.run("document.getElementById('source').focus()")
        page.type("cab")
        page.wait("document.getElementById('said').textContent.trim() === 'CAB'")
        page.wait("document.body.textContent.includes('This server runs without PyTorch')")
        page.click("#tab-chat")
        page.click("#line")
        page.type("cab")
        page.press("Enter")
        page.wait("document.querySelector('#talk .theirs')?.textContent === 'CAB'")
        assert all("501" in problem for problem in page.problems)


def test_two_distributions_of_different_versions_are_refused(tmp_path: Path) -> None:
    for name in ("seq2see-0.2.0", "seq2see_slim-0.2.0", "seq2see_more-9.0"):
        (tmp_path / f"{name}.dist-info").mkdir()
    check_distributions(tmp_path)
    (tmp_path / "seq2see_slim-0.2.0.dist-info").rename(tmp_path / "seq2see_slim-0.1.0.dist-info")
    with pytest.raises(SettingError, match=r"seq2see 0\.2\.0 and seq2see-slim 0\.1\.0 are both installed"):
        check_distributions(tmp_path)
    check_distributions(tmp_path / "archive.zip")


def empty_environment(folder: Path, project: Path) -> Path:
    """Build the wheel of a project, install it with its dependencies into a new environment, and return its folder of
    programs."""
    built = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", project)
    assert built.returncode == 0, built.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "environment", with_pip=True)
    programs = folder / "environment" / "bin"
    found = f"{wheel}[serve,fast]" if "slim" not in wheel.name else wheel
    words = ["install", "--quiet", "--constraint", ROOT / "requirements.lock"]
    ended = run(programs / "pip", *words, found)
    if ended.returncode and "No matching distribution" in ended.stderr:
        pytest.skip("the package index cannot be reached")
    assert ended.returncode == 0, ended.stderr
    return programs


@pytest.mark.slow
def test_the_slim_wheel_in_an_empty_environment(trained: Path, tmp_path: Path) -> None:
    SLIM["write"](tmp_path / "project")
    programs = empty_environment(tmp_path, tmp_path / "project")
    program, packages = programs / "seq2see", run(programs / "pip", "list").stdout
    assert "torch" not in packages
    assert "seq2see-slim" in packages
    shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("engines"))
    ended = run(program, "translate", tmp_path / "run", stdin="abc\nbad\n", PYTHONPATH="")
    assert (ended.returncode, ended.stdout.count("\n")) == (0, 2), ended.stderr
    details = run(program, "--version", "--verbose", PYTHONPATH="").stdout
    assert "distribution: seq2see-slim\n" in details
    assert "torch not installed" in details
    for verb in (["train", "dates"], ["evaluate", tmp_path / "run", "dates"], ["draw", "waves"], ["lab", "masks"]):
        refused = run(program, *verb, PYTHONPATH="")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "pip install seq2see, in place of seq2see-slim" in refused.stderr
        assert refused.stderr.count("\n") == 1
    with Server(tmp_path / "run", python=programs / "python") as server:
        assert server.post("/v1/translate", text="abc").json()["engine"] == "ctranslate2 int8"


@pytest.mark.slow
def test_the_full_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "src", project / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project / name)
    programs = empty_environment(tmp_path, project)
    (tmp_path / "pairs.tsv").write_text("".join(f"{number}\t{number}\n" for number in range(100, 160)))
    small = ["--set", "training.max_steps=3", "--set", "model.d_model=16", "--set", "model.heads=2"]
    for words in (
        ["train", tmp_path / "pairs.tsv", "--out", tmp_path / "run", *small],
        ["translate", tmp_path / "run"],
        ["translate", tmp_path / "run", "--engine", "torch"],
        ["look", tmp_path / "run", "123", "-o", tmp_path / "look.html"],
        ["evaluate", tmp_path / "run", tmp_path / "pairs.tsv"],
    ):
        ended = run(programs / "seq2see", *words, stdin="123\n", PYTHONPATH="")
        assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "look.html").exists()
    with Server(tmp_path / "run", python=programs / "python") as server:
        assert server.post("/v1/translate", text="123").status == 200
        assert server.post("/v1/look", text="123", parts=["summary"]).status == 200
