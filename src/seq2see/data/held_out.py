"""Which pairs of a corpus are kept for validation: decided by a text of each, so that it is the same in every pass."""

from collections import Counter
from collections.abc import Callable, Sequence
from zlib import crc32

from seq2see.data.pair import Pair, Sides

FEW = 20
"""Below this many pairs none is held out: validation then measures what was learned by heart."""

Decides = Callable[[Pair], bool]
Key = Callable[[Pair], str]


def by_source(pair: Pair) -> str:
    """So that no source stands on both sides."""
    return pair.source


def by_either(parts: Sequence[Sides]) -> Key:
    """The text that decides where files of these languages are put together and tagged.

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


def choose(sample: Sequence[Pair], pairs: int, wanted: int, asked: bool, key: Key = by_source) -> Decides:
    """Whether a pair is kept for validation.

    Args:
        sample: of the pairs.
        pairs: how many there are in all.
        wanted: about how many to keep; never more than a tenth, or half where the user has asked.
        asked: the user wants it so, however few pairs there are.
        key: the text that decides.
    """
    share = min(0.5 if asked else 0.1, wanted / pairs) if asked or pairs >= FEW else 0.0
    if not share:
        return lambda pair: False

    def chosen(pair: Pair) -> bool:
        return crc32(key(pair).encode()) < share * 2**32

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
