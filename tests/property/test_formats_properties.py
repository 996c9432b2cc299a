"""Whatever pairs are written are read back; whatever bytes are read give pairs or one clear line."""

import contextlib
import csv
import io
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from seq2see.errors import DataError
from seq2see.text.corpora import Pairs
from seq2see.text.pair import Sides
from seq2see.text.rows import FORMATS, ReadingOptions

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
in_one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=EXAMPLES
)

# One line, nothing around it that a reader takes off, and none of the characters that XML cannot hold.
characters = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\x85\ufffe\uffff")
lines = st.text(characters | st.sampled_from('\t"\\,%n'), min_size=1).map(str.strip).filter(bool)
corpora = st.lists(st.tuples(lines, lines), max_size=5)

Pairing = list[tuple[str, str]]


def as_csv(pairs: Pairing) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["n", "one", "two"])
    writer.writerows((number, *pair) for number, pair in enumerate(pairs))
    return text.getvalue().encode()


def as_jsonl(pairs: Pairing) -> bytes:
    return "".join(json.dumps({"one": source, "deep": {"two": target}}) + "\n" for source, target in pairs).encode()


def as_po(pairs: Pairing) -> bytes:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        return f'"{escaped}"'

    return "".join(f"msgid {quoted(source)}\nmsgstr {quoted(target)}\n\n" for source, target in pairs).encode()


def as_mo(pairs: Pairing, order: str = "<") -> bytes:
    start, tables, body = 28 + 16 * len(pairs), b"", b""
    for side in (0, 1):
        for pair in pairs:
            text = pair[side].encode()
            tables += struct.pack(f"{order}2I", len(text), start + len(body))
            body += text + b"\0"
    header = struct.pack(f"{order}7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 0)
    return header + tables + body


def as_tmx(pairs: Pairing) -> bytes:
    def text(code: str, text: str) -> str:
        return f'<tuv xml:lang="{code}"><seg>{escape(text)}</seg></tuv>'

    units = "".join(f"<tu>{text('en', source)}{text('de', target)}</tu>" for source, target in pairs)
    return f"<tmx><header/><body>{units}</body></tmx>".encode()


WRITERS: dict[str, tuple[Callable[[Pairing], bytes], Sides]] = {
    "csv": (as_csv, Sides("one", "two")),
    "jsonl": (as_jsonl, Sides("one", "deep.two")),
    "po": (as_po, Sides()),
    "mo": (as_mo, Sides()),
    "tmx": (as_tmx, Sides()),
}


@pytest.mark.parametrize("format", WRITERS)
@given(pairs=corpora)
@in_one_folder
def test_what_is_written_is_read(tmp_path: Path, format: str, pairs: Pairing) -> None:
    write, columns = WRITERS[format]
    path = tmp_path / f"pairs.{format}"
    path.write_bytes(write(pairs))
    assert [(pair.source, pair.target) for pair in Pairs(path, ReadingOptions(columns=columns))] == pairs


@given(pairs=corpora)
@in_one_folder
def test_both_byte_orders(tmp_path: Path, pairs: Pairing) -> None:
    for order in "<>":
        (tmp_path / "pairs.mo").write_bytes(as_mo(pairs, order))
        assert [(pair.source, pair.target) for pair in Pairs(tmp_path / "pairs.mo")] == pairs


def read(path: Path, format: str) -> None:
    """Pairs that can be used, or one line about what is wrong."""
    with contextlib.suppress(DataError):
        for pair in Pairs(path, ReadingOptions(format, Sides("1", "2") if format in ("csv", "tsv") else Sides())):
            assert pair.source.encode()
            assert pair.target.encode()
            assert pair.where.startswith(str(path))


@pytest.mark.parametrize("format", FORMATS[:-1])
@given(data=st.binary(max_size=200))
@example(data=b"")
@example(data=b"\x00")
@in_one_folder
def test_any_bytes(tmp_path: Path, format: str, data: bytes) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(data)
    read(path, format)


@pytest.mark.parametrize("format", WRITERS)
@given(pairs=corpora, place=st.floats(0, 1), replaced=st.integers(0, 8), by=st.binary(max_size=8))
@in_one_folder
def test_a_file_that_was_damaged_somewhere(
    tmp_path: Path, format: str, pairs: Pairing, place: float, replaced: int, by: bytes
) -> None:
    whole = WRITERS[format][0](pairs)
    start = round(place * len(whole))
    path = tmp_path / "damaged"
    path.write_bytes(whole[:start] + by + whole[start + replaced :])
    read(path, format)


PO_WORDS = [
    b"msgid ",
    b"msgstr ",
    b"msgstr[1] ",
    b"msgid_plural ",
    b"msgctxt ",
    b"domain ",
    b'"',
    b"\\",
    b"\n",
    b"#, fuzzy\n",
]
PO_WORDS += [b"#~ ", b"a", b"\\303", b"\\x", b"charset=", b"UTF-16", b"EUC-KR", b"idna", b"\xc3", b"[", b" "]
TMX_WORDS = [
    b"<tmx>",
    b"<tu>",
    b"</tu>",
    b'<tuv xml:lang="en">',
    b"<tuv lang='de'>",
    b"</tuv>",
    b"<seg>",
    b"</seg>",
    b"<ph>",
]
TMX_WORDS += [
    b"</ph>",
    b"</tmx>",
    b"text",
    b"&lt;",
    b"<!DOCTYPE tmx [",
    b"]>",
    b"<!ENTITY a 'b'>",
    b"&a;",
    b"<bpt/>",
    b"<hi>",
]


@pytest.mark.parametrize(("format", "words"), [("po", PO_WORDS), ("tmx", TMX_WORDS)])
@given(data=st.data())
@in_one_folder
def test_any_order_of_words(tmp_path: Path, format: str, words: list[bytes], data: st.DataObject) -> None:
    path = tmp_path / "words"
    path.write_bytes(b"".join(data.draw(st.lists(st.sampled_from(words), max_size=25))))
    read(path, format)


@pytest.mark.slow
def test_all_of_these_with_many_more_cases() -> None:
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", __file__], env={**os.environ, "FUZZ_EXAMPLES": "2000"}, check=True
    )
