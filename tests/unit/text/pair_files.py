"""Files of pairs in the current folder, and what is said of those that cannot be read."""

import gzip
from pathlib import Path

import pytest

from seq2see.errors import DataError
from seq2see.text.corpora import Pairs
from seq2see.text.pair import Sides
from seq2see.text.rows import ReadingOptions


def write(name: str, content: str | bytes) -> str:
    """A file in the current folder, compressed if its name says so; gives back the name."""
    data = content.encode() if isinstance(content, str) else content
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return name


def sides(pairs: Pairs) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]


def complaint(pairs: str, format: str | None = None, references: bool = False, **given: Sides) -> str:
    """The one line with which reading is refused."""
    with pytest.raises(DataError) as raised:
        list(Pairs(pairs, ReadingOptions(format, **given), references))
    message = str(raised.value)
    assert "\n" not in message
    assert any(name in message for name in pairs.split(","))
    return message
