"""Files of a run: written completely or not at all, by one process at a time, and checked before they are used.

Every file is written under a temporary name in the same folder, synced and renamed, so that a reader finds either the
old file or the new one, even after a power failure. Reading never executes code: tensors are safetensors, everything
else is text.

A path that the user names may be a symbolic link. Links under names that we derive from it (`.part`, `.lock`,
`engines`) are never followed: otherwise anyone who can create names in a folder could have any file of the user deleted
or overwritten.
"""

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from seq2see.errors import PassingError, RunError, shown

LOCK = ".lock"
MOST_TEXT = 256 * 2**20
"""Maximum size in bytes of a JSON or other text file that is read whole; reading a larger one fails. The vocabularies
of a run take a few megabytes.
"""
PERMANENT = (errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EISDIR)
"""`errno` values of disk errors that would occur again if the command were repeated; other disk errors are reported as
temporary (`PassingError`).
"""


# Writing


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


RESUME = "resume with --resume (lab: repeat the command): what was saved before is intact"
REPEAT = "repeat the command"
ANOTHER = "repeat the command, or choose another --out: nothing was saved"


@contextlib.contextmanager
def replacing(path: Path, then: str = RESUME) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end it is synced and renamed to `path`.

    After an error, the temporary file is deleted, and `path` is as it was. A symbolic link at `path` is replaced by the
    file; its target is not changed.

    Args:
        then: what the user should do once a problem with the disk is solved, as the end of the error message.
    """
    beside = path.with_name(f".{path.name}.part")
    try:
        with in_one_line(path, then):
            create(beside).close()
            yield beside
            sync(beside)
            beside.replace(path)
            sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def output(path: Path) -> Iterator[Path]:
    """Yield a path to write an output file of the user to; at the end it replaces `path`, as in `replacing`.

    A device or a pipe that the user names (`/dev/stdout`) cannot be replaced, and is written to directly.
    """
    if _is_device(path):
        with in_one_line(path, REPEAT):
            yield path
    else:
        with replacing(path, REPEAT) as beside:
            yield beside


def _is_device(path: Path) -> bool:
    """Return whether a path is neither a file nor a folder (a device, a pipe), or is a name in `/dev` or `/proc`, such
    as an open file of a process (`/dev/fd/3`).
    """
    parent = os.path.realpath(path.parent)
    if parent == "/dev" or parent.startswith("/proc/"):
        return True
    try:
        kind = path.stat().st_mode
    except OSError:  # nothing is there, or a link to nothing
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


@contextlib.contextmanager
def in_one_line(path: Path, then: str = RESUME) -> Iterator[None]:
    """Convert disk errors while `path` is written into a `RunError` of one line that says what the user can do; into a
    `PassingError` if the problem may be temporary.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as problem:
        said = re.search(r"\(os error (\d+)\)", str(problem))  # safetensors has the number in its message only
        number = getattr(problem, "errno", None) or (int(said[1]) if said else 0)
        forbidden = "not writable (permission denied). Change its permissions, or copy the run elsewhere"
        reason = {
            errno.ENOSPC: "the disk is full. Make room",
            errno.EDQUOT: "the quota is used up. Make room",
            errno.EFBIG: "the file is larger than may be written here (ulimit -f). Raise the limit",
            errno.EROFS: "on a read-only file system. Make it writable, or copy the run elsewhere",
            errno.EACCES: forbidden,
            errno.EPERM: forbidden,
        }.get(number, f"cannot be written ({getattr(problem, 'strerror', None) or problem}). Solve that")
        error = RunError if number in PERMANENT else PassingError
        raise error(f"{path}: {reason}, then {then}") from problem


def sync(path: Path) -> None:
    """Wait until a file, or the directory entries of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(folder: Path) -> None:
    """Wait until a folder and all files and folders in it are on the disk; links and pipes in it are skipped."""
    for path in [*folder.rglob("*"), folder]:
        if stat.S_ISREG(kind := path.lstat().st_mode) or stat.S_ISDIR(kind):
            sync(path)


# Names that we derive, which are never followed where they are symbolic links


def create(path: Path) -> BinaryIO:
    """Create an empty file for reading and writing; an existing file, link or pipe of this name is removed first, not
    written to.
    """
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "r+b")


def extend(path: Path) -> BinaryIO:
    """Open a file for reading and appending; create it if it does not exist. A symbolic link, or anything else that is
    not a file, raises an error.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as problem:
        if path.is_symlink():
            _refuse(path, "a symbolic link")
        raise problem
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        _refuse(path, "not a file")
    return os.fdopen(handle, "a+b")


def own_folder(path: Path, within: Path | None = None) -> Path:
    """Create a folder if it does not exist; raise an error if it is a symbolic link or not a folder.

    Args:
        within: a folder that the user chose, which may be a link; all names of `path` below it are checked. By default
            this is the parent of `path`.
    """
    each = path.parent if within is None else within
    if not each.exists():
        each.mkdir(parents=True, exist_ok=True)
    for name in path.relative_to(each).parts:
        each /= name
        with contextlib.suppress(FileExistsError):
            each.mkdir()
        refuse_link(each)
        if not each.is_dir():
            _refuse(each, "not a folder")
    return path


def cache_folder() -> Path:
    """Return the user's cache folder (XDG): XDG_CACHE_HOME if it is an absolute path, else `~/.cache`."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return given if given.is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        raise RunError("the user has no home folder for a cache. Set XDG_CACHE_HOME to an absolute path") from None


def refuse_link(path: Path) -> None:
    """Raise an error if a name that seq2see itself uses is a symbolic link."""
    if path.is_symlink():
        _refuse(path, "a symbolic link")


def _refuse(path: Path, what: str) -> NoReturn:
    raise LinkError(f"{path}: {what}, where seq2see keeps a file or folder of its own. Remove it")


class LinkError(RunError):
    """A symbolic link, or something of another type than expected, has a name that seq2see itself uses."""


def remove(path: Path) -> None:
    """Remove a file, a link (not its target) or a folder with its contents; do nothing if it does not exist."""
    try:
        is_folder = stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if is_folder:
        shutil.rmtree(path)  # does not follow links
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path, shared: bool = False) -> Iterator[bool]:
    """Lock a folder, and wait while another process holds the lock.

    The system releases the lock when the process ends, however it ends. Yields True; or False, without a lock, on
    Windows and on file systems that have no locks.

    Args:
        shared: allow other shared locks, and exclude only exclusive ones.
    """
    try:
        import fcntl
    except ImportError:  # on Windows
        yield False
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except OSError:  # some network file systems have no locks
            yield False
        else:
            yield True
    finally:
        os.close(handle)


@contextlib.contextmanager
def sole_writer(folder: Path, patience: int = 0) -> Iterator[None]:
    """Lock a folder so that one process at a time writes to it; raise an error if another one holds the lock.

    The system releases the lock when the process ends, however it ends.

    Args:
        patience: seconds to wait for another process to release the lock.
    """
    import fcntl

    with in_one_line(folder / LOCK):
        handle = extend(folder / LOCK)
    with handle:
        for left in range(patience, -1, -1):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):  # another process holds it
                if left:
                    time.sleep(1.0)
                    continue
                handle.seek(0)
                who = handle.read(200).decode(errors="replace").strip() or "unknown"
                raise RunError(
                    f"{folder}: another process is writing there (process {who}). Wait for it, or choose another --out"
                ) from None
            except OSError as problem:  # a file system that knows no locks
                raise RunError(
                    f"{folder / LOCK}: cannot be locked ({problem.strerror}). Choose another --out"
                ) from None
        if os.fstat(handle.fileno()).st_nlink == 1:  # else the file has another name somewhere else
            with contextlib.suppress(OSError):  # a full disk: only the name of this process is missing
                handle.truncate(0)
                handle.write(f"{os.getpid()} on {os.uname().nodename}\n".encode())
                handle.flush()
        yield


# Reading


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file; raise a ValueError if it is not JSON or larger than `MOST_TEXT` bytes."""
    if path.stat().st_size > MOST_TEXT:
        raise ValueError(f"{path.stat().st_size:,} bytes are too many")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def refuse_tricks(folder: Path) -> None:
    """Raise an error if a run folder contains a link out of it, or something that is neither a file nor a folder, such
    as a pipe, which might block forever when it is read.
    """
    home = os.path.realpath(folder)
    for place, folders, files in os.walk(home):
        for path in (Path(place, name) for name in (*folders, *files)):
            try:
                kind = path.lstat().st_mode
            except FileNotFoundError:  # a training is at work there
                continue
            if stat.S_ISLNK(kind) and os.path.commonpath([home, os.path.realpath(path)]) != home:
                raise RunError(f"{path}: a link to a place outside of {folder}. Copy the folder with: cp -rL")
            if not (stat.S_ISLNK(kind) or stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
                raise RunError(f"{path}: neither a file nor a folder. Remove it")


# The manifest of a run: facts about it and its training

FORMAT, VERSION = "seq2see run", 1
FACTS: dict[str, Callable[[Any], bool]] = {
    "corpus": lambda fact: isinstance(fact, str),
    "state": lambda fact: isinstance(fact, str),
    "pairs": lambda fact: type(fact) is int and 0 <= fact < 2**63,
    "held_out_by": lambda fact: fact in ("blake2b", "crc32"),
    "parameters": lambda fact: type(fact) is int and 0 <= fact < 2**63,
    "languages": lambda fact: (
        isinstance(fact, dict)
        and all(side in ("source", "target") and isinstance(code, str | None) for side, code in fact.items())
    ),
    "choices": lambda fact: (
        isinstance(fact, list)
        and all(isinstance(row, dict) and {"name", "why", "yours"} <= row.keys() for row in fact)
        and all(isinstance(row[key], str) for row in fact for key in ("name", "why"))
        and all(isinstance(row["yours"], list) and all(isinstance(key, str) for key in row["yours"]) for row in fact)
    ),
    "fine_tuning": lambda fact: isinstance(fact, dict),
}
"""Entries of the manifest that the program relies on, each with a function that returns whether a value is valid."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a run; raise an error if the folder is not a run folder, is damaged, is of a newer format,
    or contains links or pipes that are not safe to read.
    """
    path = folder / "manifest.json"
    if folder.is_file():
        raise RunError(f"{folder}: a file, not a run folder. Give the folder that train wrote")
    if not folder.is_dir():
        raise RunError(f"{folder}: no such run folder. Train one with: seq2see train PAIRS --out {folder}")
    if not path.is_symlink() and not path.exists():  # before all else of it is looked at: it may be any folder
        raise RunError(f"{folder}: not a run folder, or half written (it has no manifest.json)")
    refuse_tricks(folder)
    try:
        manifest = read_json(path)
    except (ValueError, IsADirectoryError, FileNotFoundError):
        raise RunError(f"{path}: not a JSON file; the run folder is damaged. Copy the run again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise RunError(f"{folder}: not a run folder of seq2see (manifest.json does not have the format '{FORMAT}')")
    version = manifest.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise RunError(f"{folder}: run format {shown(version)}, this seq2see reads up to {VERSION}. Upgrade seq2see")
    for fact, is_right in FACTS.items():
        if fact in manifest and not is_right(manifest[fact]):
            raise RunError(
                f"{path}: '{fact}' is {str(manifest[fact])[:40]!r}; the run folder is damaged. Copy the run again"
            )
    return manifest


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Replace the manifest atomically by `facts`, with the format and its version added."""
    write_text(folder / "manifest.json", json.dumps({"format": FORMAT, "version": VERSION, **facts}, indent=1))


# Run folders, which are made beside their place

PART = ".part"
LEFT_OVER = {PART, LOCK}
"""A folder that contains only these names counts as empty when a run is made there: they are left from an earlier
attempt.
"""


@contextlib.contextmanager
def held(folder: Path, patience: int = 0) -> Iterator[None]:
    """Lock a run folder for one training; if it does not exist, lock the folder beside it in which `made` makes the
    run.

    That folder, with its lock, becomes the run folder. After an error, the folders that this function created are
    removed.

    Args:
        patience: seconds to wait for another process to release the lock.
    """
    place, beside = _place(folder), _workplace(folder)
    refuse_link(beside)  # before the corpus is read, which takes long
    home = place if place.exists() else beside
    missing = [each for each in (home, *home.parents) if not each.exists()]
    with in_one_line(folder, ANOTHER):
        if home is beside:
            own_folder(beside)
    with sole_writer(home, patience):
        try:
            yield
        except BaseException:  # only the holder of the lock clears away: what is there may be the work of another
            for each in missing:
                with contextlib.suppress(OSError):  # not empty: more came of it than that
                    remove(each) if each == home else each.rmdir()
            raise


@contextlib.contextmanager
def made(folder: Path) -> Iterator[Path]:
    """Yield an empty folder in which to make a run; at the end, its contents replace those of `folder`.

    If an error is raised before that, the new folder is deleted, and `folder` keeps its contents.
    """
    beside = _workplace(folder)
    own_folder(beside)
    _empty(beside)
    try:
        with in_one_line(beside, ANOTHER):
            yield beside
            sync_all(beside)
            _move_in(beside, _place(folder))
    except BaseException:
        with contextlib.suppress(OSError):
            remove(beside)
        raise


def _workplace(folder: Path) -> Path:
    """Return the folder in which a run is made: inside the run folder if that exists (on the same disk), else beside
    it.
    """
    place = _place(folder)
    return place / PART if place.exists() else place.with_name(f".{place.name}{PART}")


def _place(folder: Path) -> Path:
    """Return the path of a run folder with links resolved: the user may give a link to a folder, or `.`."""
    try:
        return folder.resolve()
    except (OSError, RuntimeError):  # Python 3.11 and 3.12 raise RuntimeError
        raise RunError(f"{folder}: symbolic links that form a loop. Choose another --out") from None


def _empty(folder: Path, *keep: str) -> None:
    """Delete everything in a folder except the lock file and the names in `keep`; links are not followed."""
    for old in folder.iterdir():
        if old.name not in (LOCK, *keep):
            remove(old)


def _move_in(whole: Path, place: Path) -> None:
    """Move a finished folder to its place. An existing folder is emptied, not replaced, since a process may use it as
    its working directory.
    """
    if whole.parent != place:
        try:
            whole.rename(place)
        except OSError:
            raise RunError(f"{place}: was created by another process meanwhile. Choose another --out") from None
        sync(place.parent)
        return
    write_manifest(place, {"state": "preparing"})  # whoever finds it half way knows that there is nothing to lose
    _empty(place, PART, "manifest.json")
    for new in sorted(whole.iterdir(), key=lambda path: path.name == "manifest.json"):  # last: it makes a run of it
        new.rename(place / new.name)
    whole.rmdir()
    sync(place)
