"""Files of a run: whole or not there, one writer, and looked at before they are believed.

Everything is written beside its place, synced and renamed, so that a reader, or whoever comes after a power cut, finds
the old file or the new one. Nothing that is read can run: numbers are safetensors, all else is text.
"""

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zlib import crc32

from seq2see.errors import PassingError, RunError

if TYPE_CHECKING:
    from torch import Tensor

LOCK = ".lock"
MOST_TEXT = 256 * 2**20
"""Bytes of the largest text file that is read in one go; the vocabularies of a run are a few millions."""
MENDED_BY_HAND = (errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EISDIR)
"""Errors of a disk that do not pass by themselves."""
Shapes = Mapping[str, tuple[int, ...]]


# Writing


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one move."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]") -> None:
    """Replace a safetensors file in one move; it carries a checksum of its numbers."""
    from safetensors.torch import save_file

    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as beside:
        save_file(whole, beside, metadata={"crc32": _checksum(whole)})
        beside.chmod(0o644)  # safetensors makes files that only their maker can read


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; what is there in the end is synced and takes its place."""
    beside = path.with_name(f".{path.name}.part")
    try:
        with in_one_line(path):
            yield beside
            sync(beside)
            beside.replace(path)
            sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def in_one_line(path: Path) -> Iterator[None]:
    """Errors of the disk while `path` is written, as what the user can do about them."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as problem:
        number = getattr(problem, "errno", None) or _number_in(str(problem))
        reason = {
            errno.ENOSPC: "the disk is full. Make room",
            errno.EDQUOT: "the quota is used up. Make room",
            errno.EFBIG: "the file is larger than may be written here (ulimit -f). Raise the limit",
            errno.EROFS: "read-only. Make it writable, or copy the run elsewhere",
            errno.EACCES: "may not be written. Change its permissions, or copy the run elsewhere",
            errno.EPERM: "may not be written. Change its permissions, or copy the run elsewhere",
        }.get(number or 0, f"cannot be written ({getattr(problem, 'strerror', None) or problem}). Mend that")
        error = RunError if number in MENDED_BY_HAND else PassingError
        go_on = "then go on with --resume (lab: without it): what was saved before is still whole"
        raise error(f"{path}: {reason}, {go_on}") from problem


def _number_in(text: str) -> int | None:
    """`I/O error: No space left on device (os error 28)` -> 28: safetensors says it in words only."""
    _, _, rest = text.partition("(os error ")
    number = rest.partition(")")[0]
    return int(number) if number.isdecimal() else None


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(folder: Path) -> None:
    """The same of a folder and all that is in it."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


@contextlib.contextmanager
def sole_writer(folder: Path, patience: int = 0) -> Iterator[None]:
    """Hold a folder for one training; the system lets go of it when the process ends, however it ends.

    Args:
        patience: seconds to wait for another to let go of it.
    """
    import fcntl

    with in_one_line(folder / LOCK):
        handle: IO[str] = (folder / LOCK).open("a+", encoding="utf-8")
    with handle:
        for left in range(patience, -1, -1):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as problem:
                if problem.errno not in (errno.EWOULDBLOCK, errno.EACCES):  # a file system that knows no locks
                    raise RunError(
                        f"{folder / LOCK}: cannot be locked ({problem.strerror}). Choose another --out"
                    ) from None
            if left:
                time.sleep(1.0)
                continue
            handle.seek(0)
            who = handle.read(200).strip() or "unknown"
            raise RunError(
                f"{folder}: another training is at work there (process {who}). Wait for it, or choose another --out"
            )
        with contextlib.suppress(OSError):  # only to name ourselves: a full disk is no reason
            handle.truncate(0)
            handle.write(f"{os.getpid()} on {os.uname().nodename}\n")
            handle.flush()
        yield


# Reading


def read_json(path: Path) -> Any:
    """What a JSON file holds; ValueError for whatever is not JSON, or far too large to be ours."""
    if path.stat().st_size > MOST_TEXT:
        raise ValueError(f"{path.stat().st_size:,} bytes are too many")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_tensors(
    path: Path,
    framework: str = "pt",
    accept: Callable[[Shapes], None] = lambda shapes: None,
    only_float32: bool = False,
) -> dict[str, Any]:
    """Read a safetensors file as tensors of torch ("pt") or numpy ("np").

    Args:
        accept: sees names and shapes, and raises if they will not do, before memory is taken for any.
        only_float32: refuse numbers of any other kind.
    """
    with _opened(path, framework) as file:
        names = list(file.keys())
        for name in names if only_float32 else ():
            if (kind := file.get_slice(name).get_dtype()) != "F32":
                raise RunError(f"{path}: {name[:80]} is {kind}, expected F32. Copy the run again")
        accept({name: tuple(file.get_slice(name).get_shape()) for name in names})
        tensors = {name: file.get_tensor(name) for name in names}
        stamp = (file.metadata() or {}).get("crc32")
        if stamp not in (None, _checksum(tensors)):
            raise ValueError("its checksum is wrong")
    return tensors


def read_shapes(path: Path) -> Shapes:
    """Return the shape of each tensor in a safetensors file by name, without reading numbers."""
    with _opened(path, "np") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in list(file.keys())}


@contextlib.contextmanager
def _opened(path: Path, framework: str) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        _refuse_pickle(path)
        with safe_open(path, framework=framework) as file:
            yield file
    except (OSError, SafetensorError, ValueError, TypeError, MemoryError) as problem:
        why = " ".join(str(getattr(problem, "strerror", None) or problem).split())[:200]
        raise RunError(f"{path}: cannot be read ({why}); the file is cut short, damaged or not safetensors") from None


def _refuse_pickle(path: Path) -> None:
    """A pickle is a program. The loader would not run it either, but would not say what it is."""
    if not path.is_file():
        raise OSError(errno.ENOENT, "not a file" if path.exists() else "no such file")
    with path.open("rb") as file:
        begin = file.read(9)
    of_pickle = begin[:1] == b"\x80" and begin[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    if (of_pickle or begin[:4] == b"PK\x03\x04") and begin[8:] != b"{":  # where a header of safetensors begins
        raise RunError(f"{path}: a pickle, as torch.save writes: reading it could run a program. Refused")


def _checksum(tensors: Mapping[str, Any]) -> str:
    """Of names and numbers; tensors of torch and arrays of numpy that are equal have the same."""
    total = 0
    for name, each in sorted(tensors.items()):
        array = each.numpy() if hasattr(each, "numpy") else each
        total = crc32(array.reshape(-1).view("u1"), crc32(name.encode(), total))
    return f"{total:08x}"


def refuse_tricks(folder: Path) -> None:
    """Refuse a run folder that leads out of itself by a link, or that has what is no file: a pipe would wait for ever.

    What is written or thrown away in a run folder then is in the run folder.
    """
    home = os.path.realpath(folder)
    for place, folders, files in os.walk(home):
        for path in (Path(place, name) for name in (*folders, *files)):
            try:
                kind = path.lstat().st_mode
            except FileNotFoundError:  # a training is at work there
                continue
            if stat.S_ISLNK(kind) and os.path.commonpath([home, os.path.realpath(path)]) != home:
                raise RunError(f"{path}: a link that leads out of the run folder. Copy the run with: cp -rL")
            if not (stat.S_ISLNK(kind) or stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
                raise RunError(f"{path}: neither a file nor a folder, so no part of a run. Remove it")
