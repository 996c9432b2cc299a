"""Artificial training pairs for small corpora whose targets copy most of their sources, such as inflected forms.

From few pairs a model does not learn to copy letters that it has hardly seen. Artificial pairs teach it (Anastasopoulos
and Neubig, "Pushing the limits of low-resource morphological inflection", 2019, who call this data hallucination): in a
stretch that source and target have in common, letters are replaced by random ones, by the same on both sides.

    walk V;PST -> walked        stretch `walk`        bumk V;PST -> bumked

Tags stay as they are, and a letter beside a change stays, too, since the change may depend on it.
"""

import math
import random
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final

from seq2see.config import Data, Settings
from seq2see.session.survey import Decides, Text
from seq2see.text.corpora import Corpus
from seq2see.text.pair import Pair
from seq2see.text.tags import NO_TAGS, TagWords, tag_words, tagged
from seq2see.tokens import store
from seq2see.tokens.store import Store, Tokenizers

SHORTEST: Final = 3
"""Minimum number of letters of a stretch that is taken for copied; shorter ones are often in common by chance."""
FEW, ENOUGH, MOST = 100, 1000, 20.0
"""With `FEW` pairs or fewer, `MOST` artificial pairs are made for each; with `ENOUGH` or more, none. Between them, the
number falls with the logarithm of the number of pairs. With 1,000 pairs a model copies well, and random letters break
rules of the language, such as vowel harmony (docs/log.md).
"""
LONGER: Final = 1.6
"""With `MOST` artificial pairs for each pair, a training has `1 + LONGER` times as many steps as without; with fewer,
the number rises in proportion.
"""
COPIED: Final = (0.7, 0.85)
"""Share of the letters of sources that targets copy (`copied`) up to which no artificial pairs are made, and from which
as many as the number of pairs suggests. It is 0.87 to 0.93 for inflected forms, and at most 0.68 for old spelling
and for phonemes written without spaces.
"""
LONGEST, MEASURED = 50, 1000
"""Maximum mean number of characters of a text, and maximum number of pairs from which the share is computed."""
LONGEST_COMPARED: Final = 200
"""Maximum number of letters of a text that is compared with another: time grows faster than with the square."""
_JOINERS: Final = "\u200c\u200d"


def letters_of(text: str) -> list[str]:
    """Return the letters and other signs of a text, each with the combining marks that follow it.

    >>> letters_of("abc")
    ['a', 'b', 'c']
    """
    found: list[str] = []
    for sign in text:
        if found and (sign in _JOINERS or unicodedata.category(sign)[0] == "M" or found[-1][-1] == "\u200d"):
            found[-1] += sign
        else:
            found.append(sign)
    return found


def stretches(source: Sequence[str], target: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return the stretches of at least `SHORTEST` letters that two texts have in common, in the same order in both.

    Each is its place in the source, its place in the target, and its length, counted in letters (`letters_of`). Of
    texts with more than `LONGEST_COMPARED` letters, none are returned.
    """
    if max(len(source), len(target)) > LONGEST_COMPARED:
        return []
    matcher = SequenceMatcher(None, source, target, autojunk=False)
    return [(match.a, match.b, match.size) for match in matcher.get_matching_blocks() if match.size >= SHORTEST]


def copied(sources: Iterable[str], targets: Iterable[str]) -> float:
    """Return the share of the letters of sources that are in stretches in common with their target, from 0 to 1."""
    inside = total = 0
    for source, target in zip(map(letters_of, sources), map(letters_of, targets), strict=True):
        total += sum(map(_is_letter, source))
        for start, _, size in stretches(source, target):
            inside += sum(map(_is_letter, source[start : start + size]))
    return inside / max(1, total)


def suggested(pairs: int, source: Text, target: Text) -> tuple[float, str]:
    """Return how many artificial pairs a corpus needs for each of its pairs, 0 for none, and the reason.

    There are none for sentences, molecules and symbols, for long texts, if less than a share of `COPIED[0]` of the
    letters of the sources is copied, and with `ENOUGH` pairs or more. From there the number grows gradually.
    """
    short = max(source.side.characters, target.side.characters) <= LONGEST * pairs
    if pairs >= ENOUGH or not short or not {source.kinds[0], target.kinds[0]} <= {"characters", "jamo"}:
        return 0.0, ""
    share = copied(source.lines[:MEASURED], target.lines[:MEASURED])
    certain = min(1.0, max(0.0, (share - COPIED[0]) / (COPIED[1] - COPIED[0])))
    few = min(1.0, math.log(ENOUGH / pairs) / math.log(ENOUGH / FEW))
    return round(MOST * certain * few, 1), f"few pairs; targets copy {100 * share:.0f} % of sources"


def longer(ratio: float) -> float:
    """Return the factor by which a training with `ratio` artificial pairs for each pair is longer than without them."""
    return 1 + LONGER * min(1.0, ratio / MOST)


def copies(ratio: float) -> int:
    """Return how many times each real pair is repeated among artificial pairs, of which there are `ratio` for each."""
    return max(1, math.ceil(ratio))


class Hallucination:
    """Makes artificial pairs, with random letters of the stretches that the training pairs have in common.

    Args:
        sample: Training pairs, whose tags and letters are used.
        data: The settings that tell where texts have tags.
        seed: The same seed, sample and pairs give the same artificial pairs.
    """

    def __init__(self, sample: Sequence[Pair], data: Data, seed: int) -> None:
        self._dice = random.Random(seed)
        self._tags = [
            tag_words(texts, where) if where != "none" else NO_TAGS
            for texts, where in (
                ([pair.source for pair in sample], data.source_tags),
                ([pair.target for pair in sample], data.target_tags),
            )
        ]
        counts = {False: Counter[str](), True: Counter[str]()}
        for pair in sample:
            source, target = (_untagged(text, tags)[1] for text, tags in zip(pair[:2], self._tags, strict=True))
            for start, _, size in stretches(source, target):
                for letter in filter(_is_letter, source[start : start + size]):
                    counts[letter.isupper()][letter] += 1
        self._alphabets = {is_upper: ([*found], [*found.values()]) for is_upper, found in counts.items()}

    def make(self, pair: Pair, count: int) -> Iterator[Pair]:
        """Yield `count` artificial pairs, fewer if random letters happen to be the letters of the pair, and none if the
        pair has no stretch in which a letter can be replaced.
        """
        (front, source, back), (target_front, target, target_back) = (
            _untagged(text, tags) for text, tags in zip(pair[:2], self._tags, strict=True)
        )
        places = [
            (start + place, other + place)
            for start, other, size in stretches(source, target)
            for place in _free(start, other, size, len(source), len(target))
            if _is_letter(source[start + place])
        ]
        for _ in range(count):
            new_source, new_target = [*source], [*target]
            for here, there in places:
                new_source[here] = new_target[there] = self._other(source[here])
            if new_source != source:
                texts = (f"{front}{''.join(new_source)}{back}", f"{target_front}{''.join(new_target)}{target_back}")
                yield pair._replace(source=texts[0], target=texts[1], references=())

    def _other(self, letter: str) -> str:
        """Return a random letter, of the same case, by its frequency in the stretches of the sample."""
        letters, counts = self._alphabets[letter.isupper()]
        return self._dice.choices(letters, counts)[0] if letters else letter

    def mixed(self, pairs: Iterable[Pair], ratio: float) -> Iterator[Pair]:
        """Yield each pair, and `ratio` artificial pairs for each on average.

        Each pair is repeated as often, so that at least half of all pairs are real; all are repeated equally often.
        """
        for number, pair in enumerate(pairs):
            wanted = int(ratio * (number + 1)) - int(ratio * number)
            yield from [pair] * copies(ratio)
            if wanted:
                yield from self.make(pair, wanted)


def rewrite(
    folder: Path,
    corpus: Corpus,
    is_held_out: Decides,
    sample: Iterable[Pair],
    settings: Settings,
    tokenizers: Tokenizers,
) -> Store:
    """Write the store `corpus/train` of a run folder again, with artificial pairs beside the training pairs.

    Args:
        is_held_out: Tells whether a pair is held out for validation; no artificial pair is made from it.
        sample: A sample of the corpus.
    """
    data, languages = settings.data, settings.data.tags.split()
    maker = Hallucination([pair for pair in sample if not is_held_out(pair)], data, settings.training.seed)
    pairs = maker.mixed((pair for pair in corpus.train if not is_held_out(pair)), data.hallucination)
    ours = (tagged(pair, languages) for pair in pairs)
    return store.write_tokenised(folder, "train", ours, tokenizers, data.max_length, corpus.name)[0]


def _untagged(text: str, tags: TagWords) -> tuple[str, list[str], str]:
    """Return the tags at the beginning of a text, its letters, and the tags at its end."""
    front, inner, back = tags.split(text)
    return "".join(front), letters_of(inner), "".join(back)


def _is_letter(letter: str) -> bool:
    return letter[0].isalpha()


def _free(start: int, other: int, size: int, source_length: int, target_length: int) -> range:
    """Return the places in a stretch that are not beside a change: all but the first and the last, unless source and
    target both begin or end there.
    """
    first = 0 if start == other == 0 else 1
    last = size if start + size == source_length and other + size == target_length else size - 1
    return range(first, last)
