"""Files of a run: whole or not there, checked before they are believed, and nothing in them runs."""

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError

from seq2see import storage
from seq2see.errors import PassingError, RunError
from seq2see.session import survey


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "9" * 10_000, '{"a": "\ud800"}'])
def test_what_is_not_json(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=r".+"):
        storage.read_json(tmp_path / "a.json")


def test_a_text_that_is_far_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MOST_TEXT", 10)
    (tmp_path / "a.json").write_text(" " * 10 + "1")
    with pytest.raises(ValueError, match="11 bytes are too many"):
        storage.read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("number", "words", "code"),
    [
        (errno.ENOSPC, "the disk is full. Make room", 75),
        (errno.EDQUOT, "the quota is used up", 75),
        (errno.EROFS, "on a read-only file system", 2),
        (errno.EACCES, "not writable", 2),
        (errno.EIO, "cannot be written (Input/output error)", 75),
    ],
)
def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str, code: int) -> None:
    """Whichever it is, the old file stays, nothing half written is left, and one line says what to do."""
    path = tmp_path / "a.json"
    storage.write_text(path, "old")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError) as raised:
        storage.write_text(path, "new")
    assert raised.value.exit_code == code
    assert str(raised.value).startswith(f"{path}: {words}")
    assert str(raised.value).endswith(
        "then resume with --resume (lab: repeat the command): what was saved before is intact"
    )
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_what_safetensors_says_of_a_full_disk(tmp_path: Path) -> None:
    said = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(PassingError, match="the disk is full"), storage.in_one_line(tmp_path):
        raise SafetensorError(said)
    with (
        pytest.raises(PassingError, match=r"cannot be written \(Error while serializing\)"),
        storage.in_one_line(tmp_path),
    ):
        raise SafetensorError("Error while serializing")


def test_one_writer(tmp_path: Path) -> None:
    second = storage.sole_writer(tmp_path)
    refused = pytest.raises(RunError, match=rf"another process is writing there \(process {os.getpid()} on ")
    with storage.sole_writer(tmp_path), refused, second:
        pass
    with storage.sole_writer(tmp_path):
        pass


def test_a_writer_may_be_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, waits = contextlib.ExitStack(), 0

    def wait(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            first.close()

    monkeypatch.setattr(storage.time, "sleep", wait)
    first.enter_context(storage.sole_writer(tmp_path))
    with pytest.raises(RunError, match="another process is writing"), storage.sole_writer(tmp_path, patience=2):
        pass
    assert waits == 2
    with storage.sole_writer(tmp_path, patience=2):
        assert waits == 3


def test_a_writer_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal; from seq2see import storage\n"
        f"with storage.sole_writer(pathlib.Path({str(tmp_path)!r})): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert (tmp_path / storage.LOCK).read_text()
    with storage.sole_writer(tmp_path):
        pass


def test_tricks_with_paths(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "checkpoints").mkdir(parents=True)
    outside.mkdir()
    (run / "a").symlink_to("checkpoints")  # inside: no trick
    storage.refuse_tricks(run)
    for name, target in (("link", outside), ("checkpoints/up", Path("../..")), ("gone", tmp_path / "none")):
        (run / name).symlink_to(target)
        with pytest.raises(RunError, match=f"{name}: a link to a place outside of {run}. Copy the folder with: cp -rL"):
            storage.refuse_tricks(run)
        (run / name).unlink()
    os.mkfifo(run / "manifest.json")
    with pytest.raises(RunError, match="neither a file nor a folder"):
        storage.refuse_tricks(run)


def test_links_in_a_circle_are_no_hang(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    storage.refuse_tricks(tmp_path)


@pytest.mark.parametrize("name", [*survey.HASHES, "md5"])
def test_a_manifest_names_a_hash_that_there_is(tmp_path: Path, name: str) -> None:
    storage.write_manifest(tmp_path, {"held_out_by": name})
    if name in survey.HASHES:
        assert storage.read_manifest(tmp_path)["held_out_by"] == name
    else:
        with pytest.raises(RunError, match="'held_out_by' is 'md5'; the run folder is damaged"):
            storage.read_manifest(tmp_path)
