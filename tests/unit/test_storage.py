"""Files of a run: whole or not there, checked before they are believed, and nothing in them runs."""

import contextlib
import errno
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from seq2see import storage
from seq2see.errors import RunError
from seq2see.tokens import held_out

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b.step": torch.tensor(3.0), "c": torch.zeros(4, dtype=torch.uint8)}


@pytest.mark.parametrize("framework", ["pt", "np"])
def test_tensors_come_back(tmp_path: Path, framework: str) -> None:
    path = tmp_path / "a.safetensors"
    storage.write_tensors(path, TENSORS)
    found = storage.read_tensors(path, framework)
    assert found.keys() == TENSORS.keys()
    assert all(np.array_equal(np.asarray(found[name]), each.numpy()) for name, each in TENSORS.items())
    assert sum(math.prod(shape) for shape in storage.read_shapes(path).values()) == 11
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["a.safetensors"]


def test_any_wrong_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    storage.write_tensors(path, TENSORS)
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        try:
            found = storage.read_tensors(path)
        except RunError:
            continue
        assert found.keys() == TENSORS.keys(), place  # in the blanks of the header, or in its name for a checksum
        assert all(torch.equal(found[name], each) for name, each in TENSORS.items()), place


def test_files_without_a_checksum_are_read(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "a.safetensors")
    assert storage.read_tensors(tmp_path / "a.safetensors").keys() == TENSORS.keys()


def test_names_and_shapes_are_seen_before_anything_is_read(tmp_path: Path) -> None:
    storage.write_tensors(tmp_path / "a.safetensors", TENSORS)

    def accept(shapes: storage.Shapes) -> None:
        assert shapes == {"a": (2, 3), "b.step": (), "c": (4,)}
        raise RunError("no")

    with pytest.raises(RunError, match=r"^no$"):
        storage.read_tensors(tmp_path / "a.safetensors", accept=accept)


class Bomb:
    """Pickled, it makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_refused_and_does_not_run(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps({"weights": Bomb(tmp_path / "ran")}, protocol))
    with pytest.raises(RunError, match=r"a pickle, as torch\.save writes: reading it could run a program\. Refused"):
        storage.read_tensors(path)
    torch.save({"weights": torch.zeros(2), "bomb": Bomb(tmp_path / "ran")}, path)
    with pytest.raises(RunError, match="Refused"):
        storage.read_tensors(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff" * 8, b"\xff" * 8 + b"{", (2**40).to_bytes(8, "little") + b"{}"]
)
def test_what_is_not_safetensors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(RunError, match="cannot be read"):
        storage.read_tensors(path)


def test_a_folder_or_nothing_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot be read \(not a file\)"):
        storage.read_tensors(tmp_path)
    with pytest.raises(RunError, match=r"cannot be read \(no such file\)"):
        storage.read_tensors(tmp_path / "none")


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
        (errno.EROFS, "read-only", 2),
        (errno.EACCES, "may not be written", 2),
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
        "then go on with --resume (lab: without it): what was saved before is still whole"
    )
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_what_safetensors_says_of_a_full_disk() -> None:
    assert storage._number_in("Error while serializing: I/O error: No space left on device (os error 28)") == 28
    assert storage._number_in("Error while serializing") is None


def test_one_writer(tmp_path: Path) -> None:
    second = storage.sole_writer(tmp_path)
    refused = pytest.raises(RunError, match=rf"another training is at work there \(process {os.getpid()} on ")
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
    with pytest.raises(RunError, match="another training is at work"), storage.sole_writer(tmp_path, patience=2):
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
        with pytest.raises(RunError, match=f"{name}: a link that leads out of {run}. Copy the folder with: cp -rL"):
            storage.refuse_tricks(run)
        (run / name).unlink()
    os.mkfifo(run / "manifest.json")
    with pytest.raises(RunError, match="neither a file nor a folder"):
        storage.refuse_tricks(run)


def test_links_in_a_circle_are_no_hang(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    storage.refuse_tricks(tmp_path)


@pytest.mark.parametrize("name", [*held_out.HASHES, "md5"])
def test_a_manifest_names_a_hash_that_there_is(tmp_path: Path, name: str) -> None:
    storage.write_manifest(tmp_path, {"held_out_by": name})
    if name in held_out.HASHES:
        assert storage.read_manifest(tmp_path)["held_out_by"] == name
    else:
        with pytest.raises(RunError, match="'held_out_by' is 'md5'; the run folder is damaged"):
            storage.read_manifest(tmp_path)
