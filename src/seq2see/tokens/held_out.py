"""The choice of the pairs of a corpus that are kept for validation.

A hash of one text of each pair decides, so that the choice is the same in every pass over the corpus, on every machine
and for every seed, and pairs with the same source stay on the same side.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final
from zlib import crc32

from seq2see.text.pair import Pair, Sides

FEW = 20
"""Below this many pairs none is held out: validation then measures what was learned by heart."""

HASHES: Final[Mapping[str, Callable[[bytes], float]]] = {
    "blake2b": lambda text: int.from_bytes(blake2b(text, digest_size=8).digest(), "big") / 2**64,
    "crc32": lambda text: crc32(text) / 2**32,
}
"""Functions from a text to a number from 0 to 1 that looks random.

CRC32 is linear, so that similar texts get similar numbers: of 000 to 999 it chooses 124 instead of 100, none of which
ends in 3 or 7. It serves runs that are fine-tuned from one that seq2see 0.1.0 trained: only the same choice keeps pairs
that its model has already learned out of the new validation set.
"""
HASH: Final = "blake2b"
"""The one of `HASHES` that new runs use. The manifest records it as `held_out_by`; without that key it is CRC32."""

Decides = Callable[[Pair], bool]
Key = Callable[[Pair], str]


def by_source(pair: Pair) -> str:
    """Return the source, so that no source is both trained and validated on."""
    return pair.source


def by_either(parts: Sequence[Sides]) -> Key:
    """Return the function that chooses the deciding text where files of these languages are concatenated and tagged.

    `m.en,m.de` beside `m.de,m.en` holds every pair twice, once turned round: what is validated on in one direction must
    not be learned in the other. So a text decides that is the same in both, where any language is on both sides.
    """
    if not {part.source for part in parts} & {part.target for part in parts} - {None}:
        return by_source
    # One language in all files, as English in en-de, de-en, en-fr and fr-en: its text holds all translations together.
    if hubs := set[str | None].intersection(*map(set, parts)) - {None}:
        hub = min(map(str, hubs))
        return lambda pair: pair.target if pair.language == hub else pair.source
    return lambda pair: min(pair.source, pair.target)


def choose(
    sample: Sequence[Pair], pairs: int, wanted: int, asked: bool, key: Key = by_source, by: str = HASH
) -> Decides:
    """Return a function that tells whether a pair is kept for validation.

    Args:
        sample: Some of the pairs, or all.
        pairs: The number of pairs in the corpus.
        wanted: About how many pairs to keep; never more than a tenth, or half where the user has asked.
        asked: Whether the user has asked for it, so that some are kept however few pairs there are.
        key: Returns the text of a pair that decides.
        by: The hash of that text, one of `HASHES`.
    """
    fraction = HASHES[by]
    share = min(0.5 if asked else 0.1, wanted / pairs) if asked or pairs >= FEW else 0.0
    if not share:
        return lambda pair: False

    def chosen(pair: Pair) -> bool:
        return fraction(key(pair).encode()) < share

    # A text that stands in many pairs brings them all. Where that is too much, the most frequent ones are learned.
    counts = Counter(key(pair) for pair in sample if chosen(pair))
    room = min(2 * share, share + 0.2) * len(sample)
    total = counts.total()
    frequent = set()
    for text, count in counts.most_common():
        if total <= room or count == 1:
            break
        frequent.add(text)
        total -= count
    return (lambda pair: chosen(pair) and key(pair) not in frequent) if frequent else chosen
