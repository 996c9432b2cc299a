"""Corpora by name from a server on this machine: whatever goes wrong, what is in the cache is whole or not there."""

import errno
import gzip
import hashlib
import io
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from seq2see import storage
from seq2see.errors import DataError
from seq2see.text import corpora, downloads
from seq2see.text.downloads import Fetching, File

COUNTS = {"train": 40, "val": 3, "test": 2}
CONTENTS = {
    f"{split}.{side}": "".join(f"{side} {split} {number}\n" for number in range(count)).encode()
    for split, count in COUNTS.items()
    for side in ("en", "de")
}
TABLE = "Q,A,label\n" + "".join(f"q{number},a{number},0\n" for number in range(50))
CONTENTS["table.csv"] = TABLE.encode()
SIZES = {name: len(content) for name, content in CONTENTS.items()}
SETTINGS = (
    "model.encoder_layers=1 model.decoder_layers=1 model.d_model=8 model.heads=2 model.d_ff=12 training.max_steps=2"
)
QUICK = [word for setting in SETTINGS.split() for word in ("--set", setting)]


class Server(ThreadingHTTPServer):
    """Serves CONTENTS, as badly as a test asks for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents = dict(CONTENTS)
        self.asked: list[tuple[str, str | None]] = []
        """Each request: the file, and the range."""
        self.knows_ranges = True
        self.announces_length = True
        self.cut_after: int | None = None
        """Bytes of a body after which the connection breaks."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        name = self.path.strip("/")
        self.server.asked.append((name, wanted))
        if name not in self.server.contents:
            self.send_error(404)
            return
        body = self.server.contents[name]
        if wanted and self.server.knows_ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            body = body[start:]
        else:
            self.send_response(200)
        if self.server.announces_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cut_after])


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Two corpora, `tiny` with three splits and `table` with one, and an empty cache."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a, cache"))
    monkeypatch.setenv("no_proxy", "*")

    def file(name: str) -> File:
        address = f"http://127.0.0.1:{server.server_port}/{name}"
        return File(name, address, SIZES[name], hashlib.sha256(CONTENTS[name]).hexdigest())

    splits: dict[Any, tuple[File, ...]] = {
        split: (file(f"{name}.en"), file(f"{name}.de"))
        for split, name in zip(("train", "valid", "test"), COUNTS, strict=True)
    }
    tiny = downloads.Remote("tiny", sum(COUNTS.values()), "small", "none", splits)
    table = downloads.Remote("table", 50, "a table", "none", {"train": (file("table.csv"),)})
    monkeypatch.setattr(downloads, "REMOTES", {"tiny": tiny, "table": table})
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def cached(corpus: str = "table") -> dict[str, bytes]:
    folder = downloads.folder_of(corpus)
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def refused(ended: Any, *words: str) -> None:
    """One line, after the one about what is downloaded."""
    assert (ended.code, ended.out) == (2, "")
    last = ended.err.splitlines()[-1]
    assert last.startswith("seq2see: ")
    assert all(word in last for word in words), last
    assert len(ended.err.splitlines()) <= 2


def test_get_and_list(server: Server, cli) -> None:
    assert "tiny                 45 pairs  1 kB, not cached" in cli("data", "list").out
    ended = cli("data", "get", "tiny")
    total = sum(size for name, size in SIZES.items() if name != "table.csv")
    assert ended.code == 0
    assert ended.err == f"downloading tiny: 1 kB from http://127.0.0.1:{server.server_port}\n"
    assert ended.out == f"tiny: 45 pairs, 1 kB in {downloads.folder_of('tiny')}\n"
    assert cached("tiny") == {name: content for name, content in CONTENTS.items() if name != "table.csv"}
    assert "1 kB, cached" in cli("data", "list").out
    listed = {entry["name"]: entry for entry in json.loads(cli("data", "list", "--json").out)}
    assert listed["tiny"] == {
        "name": "tiny",
        "pairs": 45,
        "description": "small",
        "licence": "none",
        "size": total,
        "cached": True,
    }
    assert (listed["dates"]["size"], listed["table"]["cached"]) == (0, False)


def test_what_is_cached_is_not_asked_for_again(server: Server, cli) -> None:
    cli("data", "get", "table")
    server.asked.clear()
    ended = cli("data", "get", "table")
    assert (ended.code, ended.err, server.asked) == (0, "", [])
    path = downloads.folder_of("table") / "table.csv"
    path.write_bytes(bytes(SIZES["table.csv"]))  # damaged since
    assert cli("data", "get", "table").code == 0
    assert path.read_bytes() == CONTENTS["table.csv"]


def test_train_and_evaluate_by_name(server: Server, cli) -> None:
    ended = cli("train", "tiny", *QUICK)
    assert ended.code == 0, ended.err
    assert ended.err.startswith("downloading tiny: 1 kB from http://127")
    assert "40 training pairs, 3 for validation" in ended.err
    assert " en -> de" in ended.err
    assert len(server.asked) == 6
    assert cli("evaluate", "runs/tiny", "tiny").out.startswith("2 pairs of tiny (test), ")
    assert cli("doctor", "tiny", "--against", "tiny").out.startswith("tiny: 40 rows")
    assert len(server.asked) == 6
    refused(cli("evaluate", "runs/tiny", "table"), "table: no test set, only train. Give a file of pairs")


def test_a_run_in_the_way_is_noticed_before_anything_is_fetched(server: Server, cli) -> None:
    Path("runs/tiny").mkdir(parents=True)
    Path("runs/tiny/mine").write_text("")
    refused(cli("train", "tiny"), "runs/tiny: exists already. Resume it with --resume")
    assert server.asked == []


def test_what_is_cached_is_verified_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads.get("tiny")
    verified: list[str] = []
    digest = downloads._digest

    def counted(path: Path, sizes: set[int]) -> str:
        verified.append(path.name)
        return digest(path, sizes)

    monkeypatch.setattr(downloads, "_digest", counted)
    corpora.open_corpus("tiny")
    assert sorted(verified) == sorted(name for name in CONTENTS if name != "table.csv")


def test_a_split_that_is_not_there_is_not_fetched_for(server: Server) -> None:
    with pytest.raises(DataError, match="table: no test set"):
        corpora.for_scoring("table")
    assert server.asked == []


def test_splits(server: Server) -> None:
    corpus = corpora.open_corpus("tiny")
    assert corpus.valid is not None
    assert corpus.test is not None
    assert [len(list(part)) for part in (corpus.train, corpus.valid, corpus.test)] == list(COUNTS.values())
    assert next(iter(corpus.test)).target == "de test 0"
    assert [pair.source for pair in corpora.for_validation("tiny")] == ["en val 0", "en val 1", "en val 2"]
    assert [pair.source for pair in corpora.for_scoring("tiny")] == ["en test 0", "en test 1"]
    table = corpora.open_corpus("table")
    assert (table.valid, table.test) == (None, None)
    assert next(iter(table.train))[:2] == ("q0", "a0")
    both = corpora.open_corpus(["tiny", "table"])
    assert (both.name, len(list(both.train)), both.valid) == ("tiny-table", 90, None)


@pytest.mark.parametrize("announced", [True, False])
def test_a_cut_connection_is_gone_on_with(server: Server, cli, announced: bool) -> None:
    server.cut_after, server.announces_length = 100, announced
    refused(cli("data", "get", "table"), "connection was cut", f"after 100 bytes of {SIZES['table.csv']} bytes")
    assert cached() == {"table.csv.part": CONTENTS["table.csv"][:100]}
    assert "not cached" in cli("data", "list").out.splitlines()[-1]
    server.cut_after = None
    assert cli("data", "get", "table").code == 0
    assert server.asked[-1] == ("table.csv", "bytes=100-")
    assert cached() == {"table.csv": CONTENTS["table.csv"]}


def test_a_server_without_ranges_begins_anew(server: Server, cli) -> None:
    server.cut_after, server.knows_ranges = 100, False
    cli("data", "get", "table")
    server.cut_after = None
    assert cli("data", "get", "table").code == 0
    assert cached() == {"table.csv": CONTENTS["table.csv"]}


def test_progress_counts_all_files_and_what_was_there(server: Server) -> None:
    server.cut_after = 10
    with pytest.raises(DataError, match="cut"):
        downloads.get("tiny")
    server.cut_after = None
    seen: list[Fetching] = []
    downloads.get("tiny", watch=seen.append)
    total = sum(size for name, size in SIZES.items() if name != "table.csv")
    counts = [event.done for event in seen]
    assert {event.total for event in seen} == {total}
    assert (counts[0], counts[-1]) == (10, total)
    assert counts == sorted(counts)


@pytest.mark.parametrize("change", [lambda text: b"x" + text[1:], lambda text: text + b"x", lambda text: text[:-1]])
@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("begun", [0, 50])
def test_another_file_than_known(server: Server, cli, change, announced: bool, begun: int) -> None:
    """Changed, longer or shorter: nothing of it stays, unless it looks like a cut connection."""
    folder = downloads.folder_of("table")
    folder.mkdir(parents=True)
    if begun:
        (folder / "table.csv.part").write_bytes(b"?" * begun)
    server.contents["table.csv"] = change(CONTENTS["table.csv"])
    server.announces_length = announced
    ended = cli("data", "get", "table")
    if not announced and len(server.contents["table.csv"]) < SIZES["table.csv"]:
        refused(ended, "cut")
        assert set(cached()) == {"table.csv.part"}
        return
    refused(ended, "not the expected table.csv", "nothing of it is kept")
    assert cached() == {}


def test_a_part_beyond_the_end_is_no_obstacle(server: Server, cli) -> None:
    folder = downloads.folder_of("table")
    folder.mkdir(parents=True)
    (folder / "table.csv.part").write_bytes(b"?" * 5000)
    assert cli("data", "get", "table").code == 0
    assert cached() == {"table.csv": CONTENTS["table.csv"]}


def test_a_range_that_the_server_does_not_have(server: Server, cli) -> None:
    """The part is longer than what is there now: asked for once more from the start, and found to be another file."""
    folder = downloads.folder_of("table")
    folder.mkdir(parents=True)
    (folder / "table.csv.part").write_bytes(b"?" * 300)
    server.contents["table.csv"] = b"gone"
    refused(cli("data", "get", "table"), "4 bytes, expected")
    assert [wanted for _, wanted in server.asked] == ["bytes=300-", None]
    assert cached() == {}


def test_not_there(server: Server, cli) -> None:
    del server.contents["val.de"]
    refused(cli("train", "tiny"), "/val.de: the server answers 404 (Not Found).", "seq2see data get tiny --from FOLDER")
    assert "val.de" not in cached("tiny")
    assert not Path("runs").exists()


def test_offline(server: Server, cli) -> None:
    server.shutdown()
    server.server_close()
    refused(cli("train", "table"), "cannot be reached (Connection refused)", "seq2see data get table --from FOLDER")
    assert cached() == {}


def test_a_full_disk(server: Server, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in CONTENTS.items():
        Path(name).write_bytes(content)
    real = storage.create

    class Full(io.BufferedRandom):
        """A file of which 100 bytes fit."""

        def write(self, chunk: Any) -> int:
            super().write(chunk[:100])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage, "create", lambda path: Full(real(path).detach()))
    for words in ([], ["--from", "table.csv"]):
        refused(cli("data", "get", "table", *words), "cannot be written (No space left on device)")
        assert cached() == {}


def test_a_cache_that_cannot_be_made(server: Server, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path("file").resolve()))
    refused(cli("data", "get", "table"), "cannot be created (Not a directory)", "XDG_CACHE_HOME")


def test_from_files_by_checksum(server: Server, cli) -> None:
    """Under any name, plain or .gz, one after the other or a folder; without a request."""
    Path("copies").mkdir()
    for number, (name, content) in enumerate(CONTENTS.items()):
        if name == "train.de":
            Path("other.gz").write_bytes(gzip.compress(content))
        else:
            Path("copies", f"{number}").write_bytes(content)
    Path("copies", "broken.gz").write_bytes(b"\x1f\x8b no")
    Path("copies", "folder").mkdir()
    refused(
        cli("data", "get", "tiny", "--from", "copies"), "tiny: none of the files given is one of train.de,", "broken.gz"
    )
    assert set(cached("tiny")) == {"train.en", "val.en", "val.de", "test.en", "test.de"}
    assert cli("data", "get", "tiny", "--from", "copies/0", "other.gz", "copies").code == 0
    assert cached("tiny") == {name: content for name, content in CONTENTS.items() if name != "table.csv"}
    assert cli("data", "get", "tiny", "--from", "copies").code == 0  # nothing is left to take
    assert server.asked == []


def test_from_a_changed_file(server: Server, cli) -> None:
    Path("table.csv").write_bytes(CONTENTS["table.csv"].replace(b"q1,", b"q2,"))
    refused(
        cli("data", "get", "table", "--from", "table.csv"),
        "table: none of the files given is one of table.csv,",
        "SHA-256",
    )
    refused(cli("data", "get", "table", "--from", "none.csv"), "none.csv: no such file or folder")
    assert cached() == {}


def test_names(server: Server, cli) -> None:
    refused(cli("data", "get", "tinny"), "tinny: no such corpus. Did you mean 'tiny'?")
    refused(
        cli("data", "get", "xyzzy"), "xyzzy: no such corpus. Choose from: dates, pronouns, pronouns-fi, table, tiny."
    )
    refused(cli("train", "tinny"), "tinny: no such file or corpus. Did you mean 'tiny'?")
    refused(cli("data", "get", "tiny", "table"), "one corpus at a time", "--from")
    assert cli("data", "get", "dates").out.startswith("dates is built in: nothing is downloaded")
    assert server.asked == []


def test_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert downloads.folder_of("x") == tmp_path / ".cache" / "seq2see" / "corpora" / "x"
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert downloads.folder_of("x") == Path("/c/seq2see/corpora/x")


def test_what_is_listed_can_be_verified() -> None:
    """Every file has an address of its own, its size, and a whole SHA-256."""
    files = [file for remote in downloads.REMOTES.values() for file in remote.files]
    assert len({file.sha256 for file in files}) == len({file.address for file in files}) == len(files) == 7
    for file in files:
        assert file.address.startswith("https://")
        assert file.address.endswith(f"/{file.name}")
        assert file.size > 0
        assert len(bytes.fromhex(file.sha256)) == 32


def test_the_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from seq2see.cli.data import Downloads

    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Downloads() as watch:
        for done in (0, 100_000, 200_000):
            watch(Fetching("tiny", "http://there", done, 200_000))
            assert (watch._bar is None) == (done == 200_000)
        watch(Fetching("other", "http://there", 0, 1000))
    assert watch._bar is None
    assert "downloading tiny: 0.2 MB from http://there\n" in capsys.readouterr().err


@pytest.mark.parametrize(("size", "words"), [(999, "999 bytes"), (64_608, "65 kB"), (4_264_809, "4.3 MB")])
def test_sizes_in_words(size: int, words: str) -> None:
    assert downloads.in_bytes(size) == words


@pytest.mark.parametrize("kind", ["file", "folder", "nothing", "hard link"])
@pytest.mark.parametrize("words", [[], ["--from", "table.csv"]])
def test_links_in_the_cache_are_not_followed(server: Server, cli, tmp_path: Path, kind: str, words: list[str]) -> None:
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_bytes(b"?" * 100)
    Path("table.csv").write_bytes(TABLE.encode())
    folder = downloads.folder_of("table")
    folder.mkdir(parents=True)
    part = folder / "table.csv.part"
    part.hardlink_to(outside / "file") if kind == "hard link" else part.symlink_to(outside / kind)
    assert cli("data", "get", "table", *words).code == 0
    assert (folder / "table.csv").read_bytes() == TABLE.encode()
    assert cached() == {"table.csv": TABLE.encode()}
    if kind != "hard link":
        for place in (folder, folder.parent, folder.parent.parent):
            shutil.rmtree(folder.parent.parent)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(outside / kind)
            refused(cli("data", "get", "table", *words), f"{place}: a symbolic link", "Remove it")
            place.unlink()
            folder.mkdir(parents=True)
    assert {path.name for path in outside.rglob("*")} == {"folder", "file"}
    assert (outside / "file").read_bytes() == b"?" * 100
