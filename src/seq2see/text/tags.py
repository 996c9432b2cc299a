"""Tags: `<2de>` in front of a source asks for a target language (`train --tag`); others, such as `<RX_1>` or `V;PST`,
are words with which the texts of a corpus begin or end.
"""

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from seq2see.config import TagPlace
from seq2see.errors import DataError, SettingError, nearest
from seq2see.text.pair import Pair


def language_tag(language: str) -> str:
    """Return the tag by which a source asks for a target language: `de` -> `<2de>`, "to German"."""
    return f"<2{language}>"


def with_tag(tag: str, text: str) -> str:
    """Return a text with a tag and a space in front of it."""
    return f"{tag} {text}"


def tag_of(text: str, tags: Iterable[str]) -> str:
    """Return the tag that a text begins with; an empty text if it has none."""
    return next((tag for tag in tags if text.startswith(tag)), "")


def without_tag(text: str, tags: Iterable[str]) -> str:
    """Return a text without the tag in front of it, if it has one."""
    tag = tag_of(text, tags)
    return text.removeprefix(tag).lstrip() if tag else text


def noting_languages(pairs: Iterable[Pair], languages: set[str]) -> Iterator[Pair]:
    """Yield the pairs, and add their target languages to `languages`; raise an error if one is not known."""
    for pair in pairs:
        if pair.language is None:
            raise DataError(
                f"{pair.where}: --tag needs to know the language of the target. Call parallel files x.en,x.de, "
                "or give --target-language"
            )
        if pair.language not in languages:
            if not re.fullmatch(r"[\w@.-]+", pair.language):
                raise SettingError(f"--target-language '{pair.language}': --tag needs a code such as de or pt-BR")
            languages.add(pair.language)
        yield pair


def tagged(pair: Pair, languages: Sequence[str]) -> Pair:
    """Return the pair with the tag of its target language in front of its source; unchanged if `languages`, those of
    the run, is empty. A pair in another language raises an error.
    """
    if not languages:
        return pair
    if pair.language is None:
        raise DataError(
            f"{pair.where}: the language of the target is not known; it must be one of {', '.join(languages)}. "
            "Call parallel files x.en,x.de, or give --target-language"
        )
    if pair.language not in languages:
        known = nearest(pair.language, languages)
        raise DataError(
            f"{pair.where}: the target language is '{pair.language}', which is not a target language of the model. "
            f"{known}"
        )
    return pair._replace(source=with_tag(language_tag(pair.language), pair.source))


# Words that are tags in the texts themselves: `<RX_1> CCO`, `<N;DAT;SG> lemma`, `lemma V;PST`.

MOST_TAGS: Final = 4
"""Maximum number of consecutive words, at the beginning or the end of a text, that may be tags."""
MOST_PARTS: Final = 500
"""Maximum number of distinct parts (see `tag_parts`) of all tags at the beginning of texts, and of all at the end. If
the words there have more parts together, they are not a closed set, and so not tags.
"""
MOST_BARE_FORMS: Final = 50
"""Maximum number of distinct words that are taken for tags though they have no special sign and are not in capitals."""
FEWEST_LINES: Final = 20
NEARLY_ALL: Final = 0.95
"""Minimum share of texts that have at least two words, one of which may be a tag, for tags to be looked for."""
FEWEST_WORDS: Final = 2 * NEARLY_ALL
"""Mean number of words per text up to which a side has no tags: fewer than `NEARLY_ALL` of its texts have two words."""
_SEPARATOR = re.compile(r"(?<=\w)(?=[;|,.+:]\w)|(?<=\w)(?=[^\w\s]$)")
_SEPARATES = re.compile(r"\w[;|,.+:]\w")
_SENTENCE_SIGNS: Final = frozenset(".,!?…'\"’”“。、-")


def tag_parts(word: str) -> list[str]:
    """Return the features of a tag, each with the separator before it; a tag without separators is whole.

    >>> tag_parts("<N;DAT;SG>"), tag_parts("<RX_1>")
    (['<N', ';DAT', ';SG', '>'], ['<RX_1>'])
    """
    return _SEPARATOR.split(word) if _SEPARATES.search(word) else [word]


class TagWords(NamedTuple):
    """The parts of tags (`tag_parts`) with which texts begin or end, including the space between a tag and the text."""

    front: frozenset[str] = frozenset()
    """Parts of the tags at the beginning of texts, with separators and the space after a tag: `<N`, `;DAT`, `> `."""
    back: frozenset[str] = frozenset()
    """Parts of the tags at the end of texts, with separators and the space before a tag: ` V`, `;PST`."""

    def split(self, text: str) -> tuple[list[str], str, list[str]]:
        """Split a text into the tags at its beginning, the text itself, and the tags at its end.

        At most `MOST_TAGS` words at each end are split off; a word is a tag if more than half of its parts are known.
        Tags are returned as lists of their parts (`tag_parts`): `<N;SG> lemma` -> `['<N', ';SG', '> '], 'lemma', []`.
        """
        start, end = 0, len(text)
        front: list[str] = []
        back: list[str] = []
        for _ in range(MOST_TAGS if self.front else 0):
            blank = text.find(" ", start)
            if blank <= start or not _mostly(parts := _front(text[start:blank]), self.front):
                break
            front += parts
            start = blank + 1
        for _ in range(MOST_TAGS if self.back else 0):
            blank = text.rfind(" ", start, end)
            if not start < blank < end - 1 or not _mostly(parts := _back(text[blank + 1 : end]), self.back):
                break
            back[:0] = parts
            end = blank
        return front, text[start:end], back


NO_TAGS: Final = TagWords()


def _front(word: str) -> list[str]:
    *parts, last = tag_parts(word)
    return [*parts, f"{last} "]


def _back(word: str) -> list[str]:
    first, *parts = tag_parts(word)
    return [f" {first}", *parts]


def _mostly(parts: Sequence[str], known: frozenset[str]) -> bool:
    return 2 * sum(part in known for part in parts) > len(parts)


def tag_words(texts: Iterable[str], where: TagPlace) -> TagWords:
    """Return the parts of the tags at the beginning of texts, at the end, or both (`where`): on each side the most
    frequent ones, up to `MOST_PARTS`, that occur at least twice.

    The first word (at the end, the last) is taken for a tag; the next ones, up to `MOST_TAGS`, only as long as nearly
    all texts have a tag there.
    """
    lines = [text.split(" ") for text in texts]
    sides: list[frozenset[str]] = []
    for place, cut, wanted in ((0, _front, ("first", "both")), (-1, _back, ("last", "both"))):
        counts = Counter[str]()
        rest = lines if where in wanted else []
        for number in range(MOST_TAGS):
            if number and not _are_tags(rest, place):
                break
            rest = [line for line in rest if len(line) > 1]
            counts.update(part for line in rest for part in cut(line[place]))
            rest = [line[1:] if place == 0 else line[:-1] for line in rest]
        frequent = [part for part, count in counts.most_common(MOST_PARTS) if count > 1]
        sides.append(frozenset(frequent))
    return TagWords(*sides)


def where_tags_are(texts: Iterable[str]) -> TagPlace:
    """Return where nearly all texts have a tag: at the beginning, at the end, both or nowhere."""
    lines = [text.split(" ") for text in texts]
    first, last = _are_tags(lines, 0), _are_tags(lines, -1)
    if first and last and _are_tags([line[1:] for line in lines], -1):
        return "both"
    return "first" if first else "last" if last else "none"


def _are_tags(lines: Sequence[Sequence[str]], place: int) -> bool:
    """Return whether the first (`place` 0) or last (-1) words of nearly all lines are tags; a line is a list of words.

    Tags are a closed set: the tags of a random half of the lines have the same parts as those of the other half. They
    do not occur elsewhere, and have a sign or capitals that other words do not have, or are very few.
    """
    many = [line for line in lines if len(line) > 1]
    if len(many) < FEWEST_LINES or len(many) < NEARLY_ALL * len(lines):
        return False
    words = Counter(line[place] for line in many)
    others = Counter(word for line in many for word in (line[1:] if place == 0 else line[:-1]))
    total, elsewhere = len(many), others.total()
    if sum(count for word, count in words.items() if any(map(str.isalnum, word))) < 0.98 * total:
        return False
    if sum(others[word] for word in words) > 0.01 * elsewhere:
        return False
    # Shuffled, because lines may alternate, as the forms of a word do in a fixed order: walk V;PST, walk V;PRS.
    mixed = random.Random(0).sample(many, len(many))
    known = {part for line in mixed[::2] for part in tag_parts(line[place])}
    tried = [part for line in mixed[1::2] for part in tag_parts(line[place])]
    seen = sum(part in known for part in tried) / len(tried)
    if _shaped(words, total, others, elsewhere):
        return seen >= 0.85 and len(known) <= MOST_PARTS
    few = len(words) <= MOST_BARE_FORMS and total >= 20 * len(words)
    return few and seen >= 0.999 and len(others) > 10 * len(words)


def _shaped(words: Counter[str], total: int, others: Counter[str], elsewhere: int) -> bool:
    """Return whether nearly all tags, but almost no other words, contain a certain sign or are in capitals."""
    signs = {sign for word, _ in words.most_common(5) for sign in word if not sign.isalnum()} - _SENTENCE_SIGNS

    def distinguishes(sign: str) -> bool:
        """Return whether nearly all tags and almost no other words contain `sign` (if empty: are in capitals)."""

        def has(word: str) -> bool:
            return sign in word if sign else word.isupper()

        return (
            sum(count for word, count in words.items() if has(word)) >= 0.95 * total
            and sum(count for word, count in others.items() if has(word)) <= 0.02 * elsewhere
        )

    return any(map(distinguishes, ["", *signs]))
