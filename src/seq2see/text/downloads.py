"""Corpora published on the web: downloaded once into the user's cache, and verified.

A file is written as `.part` and renamed once its SHA-256 is right. A download that was interrupted is resumed, where
the server allows it.
"""

import contextlib
import hashlib
import http.client
import os
import stat
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from seq2see import __version__, storage
from seq2see.errors import DataError, nearest
from seq2see.text import dates, pronouns, rows
from seq2see.text.dates import Split

CHUNK: Final = 1 << 16
PATIENCE: Final = 30
"""Seconds without any data from the server after which a download fails."""


class File(NamedTuple):
    """A file of a published corpus: its name in the cache, its address, and the size and checksum it must have."""

    name: str
    address: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Remote:
    """A corpus published on the web, which is downloaded when it is first used."""

    name: str
    pairs: int
    description: str
    licence: str
    splits: Mapping[Split, tuple[File, ...]]
    """Files of each split (training, validation, test): one file, or two parallel ones with source and target."""

    @property
    def files(self) -> list[File]:
        return list(chain.from_iterable(self.splits.values()))


def _remotes() -> Iterator[Remote]:
    for entry in tomllib.loads(resources.files(__package__).joinpath("corpora.toml").read_text("utf-8"))["corpora"]:
        address = entry.pop("address")
        splits = {
            split: tuple(File(name, f"{address}/{name}", size, sha256) for name, size, sha256 in files)
            for split, files in entry.pop("splits").items()
        }
        yield Remote(**entry, splits=splits)


REMOTES: Final = {remote.name: remote for remote in _remotes()}


@dataclass(frozen=True)
class Fetching:
    """Progress of a download: `done` of `total` bytes of the missing files of a corpus, from the address `place`. The
    first event comes before the first byte.
    """

    corpus: str
    place: str
    done: int
    total: int


Watch = Callable[[Fetching], None]


def unwatched(event: Fetching) -> None:
    """Ignore the progress of a download."""


class Entry(NamedTuple):
    """A corpus as `seq2see data list` shows it."""

    name: str
    pairs: int
    description: str
    licence: str
    size: int
    """Number of bytes to download for the corpus; 0 if it is built in."""
    cached: bool


def names() -> list[str]:
    """Return the names of all corpora that can be used by name: the built-in ones and those that are downloaded."""
    return ["dates", *pronouns.LANGUAGES, *REMOTES]


def catalogue() -> list[Entry]:
    """Return an entry for each corpus that can be used by name."""
    about_dates = f"dates written out in {len(dates.LANGUAGES)} languages, to ISO 8601"
    return [
        Entry("dates", sum(dates.SIZES.values()), about_dates, "Unicode-3.0", 0, True),
        *(
            Entry(name, sum(pronouns.SIZES.values()), pronouns.ABOUT[name], "Apache-2.0", 0, True)
            for name in pronouns.LANGUAGES
        ),
        *(
            Entry(
                each.name,
                each.pairs,
                each.description,
                each.licence,
                sum(file.size for file in each.files),
                not missing(each.name, each.files),
            )
            for each in REMOTES.values()
        ),
    ]


def get(name: str, places: Sequence[str | Path] = (), watch: Watch = unwatched) -> Path | None:
    """Put a corpus into the cache, from `places` (files or folders) if given, else by download, and return its folder;
    None if it is built in.
    """
    found = REMOTES.get(name)
    if found is None:
        if name in names():
            return None
        raise DataError(f"{name}: no such corpus. {nearest(name, names())}")
    if places:
        take(name, found.files, map(Path, places))
    else:
        download(name, found.files, watch)
    return folder_of(name)


def folder_of(corpus: str) -> Path:
    """Return the folder for the files of a corpus, which need not exist."""
    return storage.cache_folder() / "seq2see" / "corpora" / corpus


def missing(corpus: str, wanted: Iterable[File]) -> list[File]:
    """Return the files that are not in the cache, or are damaged there."""
    folder = folder_of(corpus)
    return [file for file in wanted if not _is_whole(folder / file.name, file)]


def download(corpus: str, wanted: Sequence[File], watch: Watch = unwatched) -> None:
    """Download the files that are not in the cache yet, or are damaged there."""
    if not missing(corpus, wanted):
        return
    with _alone(corpus) as folder:
        to_fetch = missing(corpus, wanted)  # another process may have fetched it while this one waited
        total, before = sum(file.size for file in to_fetch), 0
        for file in to_fetch:

            def told(done: int, file: File = file, before: int = before) -> None:
                watch(Fetching(corpus, file.address.rpartition("/")[0], before + done, total))

            try:
                _fetch(file, folder / file.name, told)
            except _UnreachedError as problem:
                raise DataError(
                    f"{problem}. To use files that you have copied here: seq2see data get {corpus} --from FOLDER"
                ) from None
            before += file.size


def take(corpus: str, wanted: Sequence[File], places: Iterable[Path]) -> None:
    """Copy missing files into the cache, from files (plain or .gz) or folders; they are recognised by checksum."""
    candidates = list(_files_in(places))
    with _alone(corpus) as folder:
        lacking = {file.sha256: file for file in missing(corpus, wanted)}
        faults = []
        for path in candidates:
            try:
                file = lacking.pop(_digest(path, {file.size for file in lacking.values()}), None)
            except DataError as problem:
                faults.append(f"; {problem}")
                continue
            if file is not None:
                part = _part(folder / file.name)
                with rows.opened(path) as stream:
                    _write(part, 0, _chunks(stream), file.size)
                _move_in(part, folder / file.name, file, str(path))
    if lacking:
        names = ", ".join(file.name for file in lacking.values())
        raise DataError(
            f"{corpus}: none of the files given is one of {names}, which are still missing. A file is recognised by "
            f"its SHA-256, plain or in .gz; a modified copy is not accepted{''.join(faults)}"
        )


class _UnreachedError(Exception):
    """The server cannot be reached, or answers with an error."""


def _fetch(file: File, place: Path, told: Callable[[int], None]) -> None:
    part = _part(place)
    done = _left(part)
    if done >= file.size:  # left by a crash, right or wrong: not worth a thought
        done = 0
    told(done)
    with _ask(file.address, done) as answer:
        if not answer.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
            done = 0  # the whole file, whatever was asked for
        length = answer.headers.get("Content-Length", "")
        if length.isdecimal() and done + int(length) != file.size:
            part.unlink(missing_ok=True)
            raise DataError(_wrong(file, file.address, f"{done + int(length):,} bytes, expected {file.size:,}"))
        cut = ""

        def received() -> Iterator[bytes]:
            nonlocal cut, done
            try:
                for chunk in _chunks(answer):
                    done += len(chunk)
                    told(min(done, file.size))
                    yield chunk
            except (OSError, http.client.HTTPException) as problem:
                cut = f" ({_in_words(problem)})"

        _write(part, done, received(), file.size)
    if done < file.size:
        raise DataError(
            f"{file.address}: the connection was cut{cut} after {in_bytes(done)} of {in_bytes(file.size)}. "
            "The same command resumes it"
        )
    _move_in(part, place, file, file.address)


def _left(part: Path) -> int:
    """Return the size in bytes of `part`, the file of an interrupted download; 0 if there is no such file, or if it is
    a link or has several hard links.
    """
    try:
        there = part.lstat()
    except OSError:
        return 0
    return there.st_size if stat.S_ISREG(there.st_mode) and there.st_nlink == 1 else 0


def _ask(address: str, start: int) -> http.client.HTTPResponse:
    """Request a file from byte `start` on; a server may send the whole file instead, as its response says."""
    headers = {"User-Agent": f"seq2see/{__version__}"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        answer = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=PATIENCE)
    except urllib.error.HTTPError as problem:
        problem.close()
        if start and problem.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _ask(address, 0)
        raise _UnreachedError(f"{address}: the server answers {problem.code} ({problem.reason})") from None
    except (OSError, http.client.HTTPException) as problem:
        reason = problem.reason if isinstance(problem, urllib.error.URLError) else problem
        raise _UnreachedError(f"{address}: cannot be reached ({_in_words(reason)})") from None
    assert isinstance(answer, http.client.HTTPResponse), address
    return answer


def _write(part: Path, start: int, chunks: Iterable[bytes], most: int) -> None:
    """Write chunks to a file from position `start` on, until they end or the file is larger than `most` bytes."""
    try:
        with part.open("r+b") if start else storage.create(part) as stream:
            stream.seek(start)
            for chunk in chunks:
                stream.write(chunk)
                if stream.tell() > most:  # another file than expected: need not be read to its end
                    break
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as problem:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise DataError(f"{part.parent}: cannot be written ({_in_words(problem)})") from None


def _move_in(part: Path, place: Path, file: File, origin: str) -> None:
    found = _digest(part, {file.size})
    if found != file.sha256:
        part.unlink()
        wrong = f"SHA-256 {found[:12]}…, expected {file.sha256[:12]}…" if found else f"not {file.size:,} bytes"
        raise DataError(_wrong(file, origin, wrong))
    part.replace(place)


def _wrong(file: File, origin: str, how: str) -> str:
    return f"{origin}: not the expected {file.name} ({how}); nothing of it is kept. Damaged or changed there?"


def _part(place: Path) -> Path:
    return place.with_name(f"{place.name}.part")


def _is_whole(path: Path, file: File) -> bool:
    return path.is_file() and path.stat().st_size == file.size and _digest(path, {file.size}) == file.sha256


def _digest(path: Path, sizes: set[int]) -> str:
    """Return the SHA-256 of a file (decompressed if it is .gz); "" if its size is not one of `sizes`."""
    digest, size = hashlib.sha256(), 0
    with rows.opened(path) as stream:
        for chunk in _chunks(stream):
            digest.update(chunk)
            size += len(chunk)
            if size > max(sizes, default=0):
                return ""
    return digest.hexdigest() if size in sizes else ""


def _chunks(stream: BinaryIO | http.client.HTTPResponse) -> Iterator[bytes]:
    return iter(lambda: stream.read(CHUNK), b"")


def _files_in(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_dir():
            yield from (path for path in sorted(place.iterdir()) if path.is_file())
        elif place.exists():
            yield place
        else:
            raise DataError(f"{place}: no such file or folder")


@contextlib.contextmanager
def _alone(corpus: str) -> Iterator[Path]:
    """Yield the folder of a corpus, created if needed, under a lock: a second process waits for the first."""
    folder = folder_of(corpus)
    try:
        storage.own_folder(folder, folder.parents[2])
    except OSError as problem:
        raise DataError(
            f"{folder}: cannot be created ({_in_words(problem)}). XDG_CACHE_HOME chooses another place"
        ) from None
    with storage.locked(folder):
        yield folder


def _in_words(problem: object) -> str:
    """Return the text of a system error without its number: `No space left on device`."""
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__


def in_bytes(size: int) -> str:
    """Return a size for people to read: `4.3 MB`."""
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1e3:.0f} kB" if size < 1e5 else f"{size / 1e6:,.1f} MB"
