"""Padding, unknown, begin and end: their ids, the same in every vocabulary, their spellings; the head that aligns."""

from typing import Final

PAD: Final = 0
UNKNOWN: Final = 1
BEGIN: Final = 2
END: Final = 3

SPELLINGS: Final = ("<pad>", "<unk>", "<s>", "</s>")
COUNT: Final = len(SPELLINGS)


def alignment_head(decoder_layers: int) -> tuple[int, int]:
    """Return decoder layer and head, from 0, of the head that `training.alignment_weight` teaches to align.

    It is a head of the last layer but one, which serves best (Garg et al. 2019).
    """
    return max(0, decoder_layers - 2), 0
