"""Special tokens (padding, unknown, begin, end), with the same ids and spellings in all vocabularies; and the attention
head that is trained to align.
"""

from typing import Final

PAD: Final = 0
UNKNOWN: Final = 1
BEGIN: Final = 2
END: Final = 3

SPELLINGS: Final = ("<pad>", "<unk>", "<s>", "</s>")
COUNT: Final = len(SPELLINGS)


def alignment_head(decoder_layers: int) -> tuple[int, int]:
    """Return (decoder layer, head), counted from 0, of the head that `training.alignment_weight` trains to align.

    It is the first head of the penultimate layer, which works best (Garg et al. 2019), or of a decoder's only layer.
    """
    return max(0, decoder_layers - 2), 0
