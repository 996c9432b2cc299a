"""Text files: what stands in them, and what is wrong with them."""

import gzip
from pathlib import Path

import pytest

from seq2see.errors import DataError
from seq2see.text.rows import read_lines


def test_lines_of_a_text_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("more.txt.gz").write_bytes(gzip.compress("\ufeff a\u2028b \r\n\nc".encode()))
    assert read_lines(Path("more.txt.gz")) == ["a\u2028b", "", "c"]
    with pytest.raises(DataError, match=r"none\.txt: no such file"):
        read_lines(Path("none.txt"))
    with pytest.raises(DataError, match=r"^\.: a folder\. Expected a text file\.$"):
        read_lines(Path())
    Path("bad.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(DataError, match=r"bad\.txt, line 2: not UTF-8"):
        read_lines(Path("bad.txt"))


def test_lines_that_end_in_carriage_returns_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.txt").write_bytes(b"a\rb\rc\r")
    Path("old.txt.gz").write_bytes(gzip.compress(b"a\r" * 100_000))
    for name in ("old.txt", "old.txt.gz"):
        with pytest.raises(DataError, match=rf"{name}: lines end in carriage returns .* Convert it: tr '\\r' '\\n'$"):
            read_lines(Path(name))
    Path("new.txt").write_bytes(b"a\rb\r\n" + b"x" * 100_000 + b"\rz\n")
    assert read_lines(Path("new.txt")) == ["a\rb", "x" * 100_000 + "\rz"]
    Path("one.txt").write_bytes(b"x" * 100_000 + b"\rz\ny")
    assert read_lines(Path("one.txt")) == ["x" * 100_000 + "\rz", "y"]
