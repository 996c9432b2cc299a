"""Attack: every verb that writes, with each name that it derives planted as a link to something outside.

Whatever the verb does (refuse in one line, or replace the link), nothing outside may change, and nothing may hang.
"""

import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quick import QUICK

from seq2see import machine, storage
from seq2see.errors import RunError

KINDS = ("file", "folder", "pipe", "nothing", "loop")
FEW_KINDS = [kind if kind in ("file", "folder") else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
PATIENCE = 120
"""Seconds after which a verb counts as hanging."""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What must stay as it is: a folder with a file, a folder and a pipe in it. The working folder is another one."""
    folder = tmp_path / "outside"
    (folder / "folder" / "deep").mkdir(parents=True)
    (folder / "file").write_text("precious\n")
    (folder / "folder" / "deep" / "file").write_text("precious\n")
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (work / "pairs.tsv").write_text("".join(f"{number}\t{number} {number}\n" for number in range(30)))

    def hang(*_: object) -> None:
        raise AssertionError("hangs")

    before, handler = snapshot(folder), signal.signal(signal.SIGALRM, hang)
    signal.alarm(PATIENCE)
    yield folder
    signal.alarm(0)
    signal.signal(signal.SIGALRM, handler)
    assert snapshot(folder) == before


def snapshot(folder: Path) -> dict[str, object]:
    """Every name below a folder with what it is, when it changed, and its content."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(facts.st_mode) else b""
        found[str(path.relative_to(folder))] = (facts.st_mode, facts.st_ino, facts.st_mtime_ns, content)
    return found


def plant(name: str, kind: str, outside: Path) -> Path:
    """Put a link to something of a kind in the place of a name; what has the name is removed."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    clear(path)
    path.symlink_to(outside / kind)
    return path


def clear(path: Path) -> None:
    """Remove a file, a link or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def check(ended, *codes: int) -> None:
    """One of the exit codes, and a single line where it is not 0."""
    assert ended.code in (codes or (0, 2)), ended.err
    assert "Traceback" not in ended.err
    if ended.code:
        assert ended.err.splitlines()[-1].startswith("seq2see: ")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["run/.part", "run/.lock", ".run.part", ".run.part/.lock"])
def test_train_refuses_a_link_in_place_of_its_own_names(outside: Path, cli, name: str, kind: str) -> None:
    link = plant(name, kind, outside)
    ended = cli("train", "pairs.tsv", "--out", "run", *QUICK)
    check(ended, 2)
    assert f"{link.absolute()}: a symbolic link" in ended.err
    assert "Remove it" in ended.err
    assert link.is_symlink()


def test_train_removes_the_links_in_what_it_empties_and_not_their_targets(outside: Path, cli) -> None:
    for place in ("run/.part", ".other.part", ".other.part/folder"):
        for kind in KINDS:
            plant(f"{place}/{kind} link", kind, outside)
    check(cli("train", "pairs.tsv", "--out", "run", *QUICK), 0)
    check(cli("train", "pairs.tsv", "--out", "other", *QUICK), 0)
    for run in ("run", "other"):
        assert not [path for path in Path(run).rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("kind", KINDS)
def test_training_again_with_links_in_the_run_folder(outside: Path, trained: Path, cli, kind: str) -> None:
    names = ("tensorboard", "checkpoints", "metrics.jsonl", "report.html", ".manifest.json.part", "engines", ".lock")
    for name in names:
        shutil.copytree(trained, "run")
        plant(f"run/{name}", kind, outside)
        check(cli("train", "upper.tsv", "--out", "run", "--resume"), 2)
        check(cli("train", "pairs.tsv", "--out", "run", "--force", "--set", "nothing=1"), 2)
        check(cli("translate", "run", stdin=b"abc\n"))
        shutil.rmtree("run")


def test_the_run_folder_itself_may_be_a_link(outside: Path, cli, tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    Path("run").symlink_to(tmp_path / "large disk")
    check(cli("train", "pairs.tsv", "--out", "run", *QUICK), 0)
    assert Path("run").is_symlink()
    assert (tmp_path / "large disk" / "model.safetensors").is_file()
    check(cli("translate", "run", stdin=b"1\n"), 0)
    Path("circle").symlink_to("circle")
    ended = cli("train", "pairs.tsv", "--out", "circle", *QUICK)
    check(ended, 2)
    assert "circle" in ended.err


Call = Callable[..., object]
OUTPUTS: dict[str, tuple[list[str], list[str]]] = {
    "doctor": (
        ["doctor", "pairs.tsv", "--write", "clean.tsv", "--force"],
        [".clean.tsv.part", ".clean.dropped.tsv.part", "clean.tsv", "clean.dropped.tsv"],
    ),
    "doctor's picture": (["doctor", "pairs.tsv", "--picture", "lengths.png", "--force"], [".lengths.png.part"]),
    "draw": (["draw", "waves", "-o", "waves.svg", "--force"], [".waves.svg.part", "waves.svg"]),
    "draw a page": (["draw", "waves", "-o", "waves.html", "--force"], [".waves.html.part", "waves.html"]),
    "look": (["look", "RUN", "abc", "-o", "look.html", "--force"], [".look.html.part", "look.html"]),
    "look at a picture": (["look", "RUN", "abc", "-o", "look.png", "--force"], [".look.png.part", "look.png"]),
    "evaluate": (["evaluate", "RUN", "pairs.tsv", "--output", "said.txt", "--force"], [".said.txt.part", "said.txt"]),
    "export": (["export", "RUN", "exported"], [".exported.part"]),
}


@pytest.mark.parametrize("kind", FEW_KINDS)
@pytest.mark.parametrize("verb", OUTPUTS)
def test_outputs_replace_a_link_or_refuse_it(outside: Path, trained: Path, cli, verb: str, kind: str) -> None:
    words, names = OUTPUTS[verb]
    for name in names:
        if kind == "pipe" and not name.startswith("."):  # which the user may name
            continue
        link = plant(name, kind, outside)
        ended = cli(*[str(trained) if word == "RUN" else word for word in words])
        check(ended)
        assert not (ended.code == 0 and link.is_symlink())
        clear(link)
        clear(Path("exported"))


def test_an_output_that_is_a_link_to_nothing_is_there_already(outside: Path, cli) -> None:
    for words in (["draw", "waves", "-o", "new"], ["doctor", "pairs.tsv", "--write", "new"]):
        for suffix in (".png", ".tsv"):
            plant(f"new{suffix}", "nothing", outside)
        ended = cli(*[f"new{'.png' if words[0] == 'draw' else '.tsv'}" if word == "new" else word for word in words])
        check(ended, 2)
        assert "exists already" in ended.err


def test_a_pipe_that_the_user_names_is_written_to(outside: Path, trained: Path, cli) -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    check(cli("evaluate", trained, "pairs.tsv", "--output", "pipe", "--force"), 0)
    assert os.read(reader, 1 << 16).count(b"\n") == 30
    assert stat.S_ISFIFO(os.lstat("pipe").st_mode)
    os.close(reader)


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_lab(outside: Path, cli, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 1)  # measured in this process
    words = ["lab", "scaling", "--quick", "--seeds", "1", "--out", "lab"]
    check(cli(*words), 0)
    names = (".lock", ".lab.json.part", "results", "results/scaling.jsonl", "pictures", "pictures/.scaling.svg.part")
    for name in (*names, "runs", "report.html", ".report.md.part", "verdicts.json"):
        shutil.copytree("lab", "copy")
        plant(f"copy/{name}", kind, outside)
        check(cli(*words[:-1], "copy"))
        check(cli(*words[:-1], "copy", "--force"))
        shutil.rmtree("copy")


@pytest.mark.parametrize("kind", KINDS)
def test_translate_with_links_in_the_cache(outside: Path, trained: Path, cli, tmp_path: Path, kind: str) -> None:
    """The conversion of a model, and the note about it, are written nowhere else."""
    shutil.copytree(trained, "run")
    shutil.rmtree("run/engines", ignore_errors=True)
    said = cli("translate", "run", stdin=b"abc\n").out
    (mine,) = (tmp_path / "cache" / "seq2see" / "engines").iterdir()
    (note,) = mine.glob("*.made")
    for name in ("seq2see", "seq2see/engines", f"seq2see/engines/{mine.name}"):
        for read_only in (False, True):
            shutil.rmtree(tmp_path / "cache")
            plant(str(tmp_path / "cache" / name), kind, outside)
            clear(Path("run/engines"))
            if read_only:
                Path("run/engines").write_text("in the way")
            ended = cli("translate", "run", stdin=b"abc\n")
            check(ended, 0)
            assert ended.out == said
    for name in (note.name, f".{note.name}.part", f"{note.stem}.cached.made"):
        shutil.rmtree(tmp_path / "cache")
        plant(str(mine / name), kind, outside)
        clear(Path("run/engines"))
        assert cli("translate", "run", stdin=b"abc\n").out == said
        Path("run/engines").rename("engines")
        Path("run/engines").write_text("in the way")
        assert cli("translate", "run", stdin=b"abc\n").out == said
        shutil.rmtree("engines")


def test_a_lock_that_is_another_name_of_a_file_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious\n")
    (tmp_path / "run").mkdir()
    os.link(tmp_path / "file", tmp_path / "run" / storage.LOCK)
    with (
        storage.sole_writer(tmp_path / "run"),
        pytest.raises(RunError, match="another process"),
        storage.sole_writer(tmp_path / "run"),
    ):
        pass
    assert (tmp_path / "file").read_text() == "precious\n"
