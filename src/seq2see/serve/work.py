"""What a request costs an engine, estimated before it is let in.

Decoding is most of the work: one step for each output token, whose time grows with the width of the beam. The length of
an output is not known beforehand. It is expected to be in the same proportion to its source as in the validation pairs,
but an output that does not end runs on to its limit, so a part of the way to the limit is added.
"""

import math
from collections.abc import Sequence

from seq2see.config import Decoding
from seq2see.decoding import translator
from seq2see.run import Run

STEP = 3
"""What a decoding step costs whatever the width, in hypotheses: the weights are read once for all of them."""
RUN_ON = 0.25
"""Share of the way from the expected length of an output to its limit that is added. An output that runs on to its
limit then costs at most four times as much as was estimated."""
SCALE = 8
"""Costs are divided by this, which makes the cost of an ordinary sentence about the number of its source tokens."""
DETECTED = 200
"""Characters that it costs as much to compare with a vocabulary as one unit of work takes."""
ALIGNED = 2
"""How many times as much it costs to translate and align a text as to translate it."""
LOOKED = 4
"""How many times as much it costs to record and describe the inside of a translation as to find it."""
LOOK_TOKENS = 128
"""Tokens of a source that can be looked into."""
LEFT_OUT = 3
"""Source tokens that it costs as much to leave out in turn, for their importance, as to find the translation once."""


def cost(
    source_tokens: int, beam: int, output_ratio: float, decoding: Decoding, output_tokens: int, least_output: int = 0
) -> int:
    """The work for one text, as a number that is proportional to the expected time; at least 1.

    Args:
        source_tokens: with the end.
        output_ratio: expected output tokens for each source token.
        output_tokens: the most that an output may have, whatever `decoding` allows.
        least_output: tokens that the output is known to have, such as those of a prefix.
    """
    source = min(source_tokens, decoding.max_source)
    most = min(output_tokens, max(least_output, translator.limit(source, decoding.max_ratio, decoding.max_extra)))
    expected = min(float(most), max(least_output, output_ratio * source))
    steps = expected + RUN_ON * (most - expected)
    return math.ceil((source + (beam + STEP) * steps) / SCALE)


def look_times(tokens: int, parts: Sequence[str]) -> float:
    """How many times as much it costs to look inside a translation of a source of so many tokens as to find it."""
    shown = min(tokens, LOOK_TOKENS)  # more are refused by the engine, before anything is searched for
    return (LOOKED + (shown / LEFT_OUT if "importance" in parts else 0)) * shown / tokens


def source_tokens(run: Run, texts: Sequence[str]) -> list[int]:
    """The source tokens of each text with its end, a tag included.

    They are counted by the tokenizer, in about a millisecond for 10,000 characters. A pattern may take longer than
    that, which everybody would wait for: each character is taken for a token there.
    """
    tokenizer = run.tokenizers.source
    tag = 1 if run.tags else 0
    if tokenizer.kind == "pattern":
        return [len(text) + 1 + tag for text in texts]
    return [len(ids) + 1 + tag for ids in tokenizer.encode([text.strip() for text in texts])]
