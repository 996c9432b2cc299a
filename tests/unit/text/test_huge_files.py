"""Small .gz files that hold more than fits in memory: one line names file and place, and memory stays bounded."""

import gzip
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from seq2see.doctor.raw import RawPairs
from seq2see.errors import DataError
from seq2see.session.survey import Survey, survey_corpus
from seq2see.text import rows as text_rows
from seq2see.text.corpora import Pairs
from seq2see.text.pair import Pair

MEMORY = 200 * 2**20
"""Bytes that reading may take: less than a third of what the files hold."""
REPEATS = 80


def bomb(path: Path, start: bytes, middle: bytes, end: bytes = b"") -> Path:
    """Write a .gz file with the same 8 MiB in the middle 80 times, as so many members."""
    block = middle * (2**23 // len(middle))
    path.write_bytes(gzip.compress(start) + gzip.compress(block) * REPEATS + gzip.compress(end))
    assert path.stat().st_size < 2**22
    return path


def mo(count: int, length: int, size: int) -> bytes:
    """A .mo file of so many entries, each of which claims to be that long; and so many bytes of text."""
    tables = struct.pack("<2I", length, 28 + 16 * count) * count * 2
    return struct.pack("<7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0) + tables + bytes(size)


TMX = b'<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>'
PO = b'msgid "a"\nmsgstr "b"\n\nmsgid "c"\n'
BOMBS: dict[str, tuple[str, bytes, bytes, str]] = {
    "tsv": ("x.tsv.gz", b"a\tb\n", b"x", "line 2"),
    "tsv of tabs": ("x.tsv.gz", b"a\tb\n", b"\t", "line 2"),
    "the first line": ("x.tsv.gz", b"", b"x", "line 1"),
    "carriage returns": ("x.tsv.gz", b"a\tb\r", b"x", "line"),
    "csv": ("x.csv.gz", b"a,b\n", b"x", "line 2"),
    "a quote left open": ("x.csv.gz", b'a,b\n"', b"x" * 9999 + b"\n", "line 2"),
    "a row of csv over many lines": ("x.csv.gz", b'a,b\n"', b"x" * 9999 + b'\n","', "line 2"),
    "jsonl": ("x.jsonl.gz", b'["a", "b"]\n', b"[", "line 2"),
    "po": ("x.po.gz", PO, b"#", "line 5"),
    "po, before the header": ("x.po.gz", b"", b"#", "line 1"),
    "an entry of po": (
        "x.po.gz",
        PO + b'msgstr ""\n',
        b'"' + b"x" * 997 + b'"\n',
        "line 4",
    ),
    "mo": ("x.mo.gz", mo(1, 1, 1), b"\0", "larger than"),
    "mo with long texts": ("x.mo.gz", mo(1, 2**25, 2**25 + 1), b"", "entry 1"),
    "mo with many long texts": ("x.mo.gz", mo(100_000, 2**23, 2**24), b"", "larger than the file"),
    "mo with many entries": (
        "x.mo.gz",
        mo(1, 1, 1)[:8] + struct.pack("<I", 2**32 - 1) + bytes(20),
        b"",
        "4,294,967,295",
    ),
    "a text of tmx": ("x.tmx.gz", TMX, b"x", "line 1"),
    "many lines of tmx": ("x.tmx.gz", TMX, b"x" * 9999 + b"\n", "line 1"),
    "a tag of tmx": ("x.tmx.gz", b'<tmx version="', b"x", "line 1"),
    "attributes of tmx": ("x.tmx.gz", b"<tmx ", b"x='' ", "line 1"),
    "a comment of tmx": ("x.tmx.gz", b"<tmx><!--", b"x", "line 1"),
    "before tmx": ("x.tmx.gz", b"<!DOCTYPE tmx [", b"<!ELEMENT a ANY><!-- -->", "line 1"),
    "deep tmx": ("x.tmx.gz", b"<tmx>", b"<a>", "deeper"),
    "entities": ("x.tmx.gz", b'<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa">]><tmx>', b"&a;", "entity"),
}


@pytest.fixture
def _bounded() -> Iterator[None]:
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEMORY


@pytest.fixture(params=BOMBS)
def huge(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    name, start, middle, place = BOMBS[request.param]
    path = tmp_path / name
    if middle:
        return bomb(path, start, middle), place
    path.write_bytes(gzip.compress(start))
    return path, place


@pytest.mark.usefixtures("_bounded")
def test_training_refuses_it_in_one_line(huge: tuple[Path, str]) -> None:
    path, place = huge
    with pytest.raises(DataError) as raised:
        list(Pairs(path))
    assert str(path) in str(raised.value)
    assert place in str(raised.value) or "carriage returns" in str(raised.value)
    assert len(str(raised.value)) < 1000


@pytest.mark.usefixtures("_bounded")
def test_the_doctor_examines_what_came_before(huge: tuple[Path, str]) -> None:
    path, place = huge
    with gzip.open(path) as stream:
        start = stream.read(10)
    if path.name == "x.csv.gz" and b'"' in start:
        pytest.skip("each line of it is examined by itself")
    rows = RawPairs(Pairs(path))
    assert sum(1 for _ in rows) <= 2
    assert any(str(path) in problem and place in problem for problem in rows.problems), rows.problems


@pytest.mark.usefixtures("_bounded")
def test_parallel_files_and_references(tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.en.gz", b"a\n", b"x")
    (tmp_path / "a.de").write_text("a\nb\n")
    for read in (lambda: list(Pairs((path, tmp_path / "a.de"))), lambda: text_rows.read_lines(path)):
        with pytest.raises(DataError, match=r"a\.en\.gz, line 2: longer than 16 MiB"):
            read()
    rows = RawPairs(Pairs((path, tmp_path / "a.de")))
    assert len(list(rows)) == 2
    assert "line 2: longer than 16 MiB" in rows.problems[0]


def test_a_line_of_utf_16_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes("a\tb\n".encode("utf-16") + b"x\0" * (text_rows.LONGEST_LINE + 1))
    rows = RawPairs(Pairs(path))
    assert len(list(rows)) == 1
    assert "line 2: longer than 16 MiB" in rows.problems[1]


def test_the_longest_line_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_rows, "LONGEST_LINE", 100)
    path = tmp_path / "a.tsv"
    path.write_text(f"{'a' * 49}\t{'b' * 49}\n" * 3)
    assert len(list(Pairs(path))) == 3
    path.write_text(f"{'a' * 49}\t{'b' * 49}\n{'a' * 50}\t{'b' * 49}\n")
    with pytest.raises(DataError, match="line 2: longer than"):
        list(Pairs(path))


def test_names_that_a_parser_keeps_are_few(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_text("<tmx>" + "".join(f"<a{number}/>" for number in range(20_000)) + "</tmx>")
    with pytest.raises(DataError, match="more than 10,000 element and attribute names"):
        list(Pairs(path))


def test_standard_input_is_bounded(trained: Path, cli) -> None:
    ended = cli("translate", trained, stdin=b"abc\n" + b"x" * (text_rows.LONGEST_LINE + 2**17) + b"\nabc\n")
    assert ended.code == 2
    assert ended.out == "ABC\n"
    assert ended.err.startswith("seq2see: standard input, line 2: longer than 16 MiB")


def test_many_long_texts_are_not_held_in_memory_together() -> None:
    text = "x" * 2**22
    assert [len(block) for block in text_rows.in_blocks([Pair(text, text, "")] * 9, 1000)] == [1] * 9
    assert [len(block) for block in text_rows.in_blocks([Pair("a", "b", "")] * 9, 4)] == [4, 4, 1]
    found = survey_corpus(Pair(f"{number} {text}", "b", "") for number in range(70))
    assert found.pairs == 70
    assert 30 <= len(found.sample) <= 64


def test_the_sample_is_even_where_it_is_cut() -> None:
    import random

    found, dice = Survey(), random.Random(1)
    for number in range(3000):
        found.count(Pair("x" * 2**19, str(number), ""), dice)
    numbers = [int(pair.target) for pair in found.sample]
    assert 200 <= len(numbers) <= 512
    assert 0.3 < sum(number < 1500 for number in numbers) / len(numbers) < 0.7
