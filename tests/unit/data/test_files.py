"""Text files: what stands in them, and what is wrong with them."""

import gzip
from pathlib import Path

import pytest

from seq2see.data.files import read_lines
from seq2see.errors import DataError


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
