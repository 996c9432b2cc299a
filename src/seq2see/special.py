"""Padding, unknown, begin and end: their ids, the same in every vocabulary, and their spellings."""

from typing import Final

PAD: Final = 0
UNKNOWN: Final = 1
BEGIN: Final = 2
END: Final = 3

SPELLINGS: Final = ("<pad>", "<unk>", "<s>", "</s>")
COUNT: Final = len(SPELLINGS)
