"""Placeholders: parts of a text, such as `%s` or a URL, that must occur in the translation as often as in the text,
unchanged.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from seq2see.documents.segments import Span

_PLACEHOLDER = re.compile(
    r"""
      \{\{[^{}\n]{1,80}\}\}                                     # {{name}}
    | \$\{[^{}\n]{1,80}\}                                       # ${name}
    | \{[\w.:!\[\]%,<>+\#-]{0,60}\}                             # {} {0} {name} {price:.2f}
    | %\([A-Za-z_]\w{0,60}\)[-+\#0]{0,3}\d{0,4}(?:\.\d{1,4})?[diouxXeEfFgGcrsa]     # %(name)d
    | %%
    | (?<![0-9])%(?:\d{1,3}\$)?[-+\#0]{0,3}(?:\d{1,4}|\*)?(?:\.(?:\d{1,4}|\*))?
      (?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcsSpn@](?![A-Za-z])                    # %s %-5.2f %1$s %lu
    | (?<![0-9])%L?[0-9]{1,2}(?![\w%])                          # %1 of Qt
    | \b(?:https?|ftps?|file)://[^\s<>"“”«»{}|\\^`]{1,2000}     # addresses of pages
    | \bwww\.[^\s<>"“”«»{}|\\^`/]{1,255}[^\s<>"“”«»{}|\\^`]{0,2000}
    | (?:\bmailto:)?(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}     # e-mail addresses
    """,
    re.VERBOSE,
)
LONGEST_STAND_IN, MOST_STAND_INS = 20, 8
FEWEST_COPIES, MOST_CERTAIN = 4, 0.9
"""A word may stand in for placeholders if targets copy it in at least `FEWEST_COPIES` pairs, and in at least the share
`MOST_CERTAIN` of the pairs whose source contains it.
"""
_ADDRESS = ("http", "ftp", "file", "www.")
_AFTER = ".,;:!?…'’*_"
_PAIRS = {")": "(", "]": "["}


def find(text: str) -> Iterator[Span]:
    """Yield the spans of placeholders of format strings and templates, of URLs, and of e-mail addresses."""
    for found in _PLACEHOLDER.finditer(text):
        start, end = found.span()
        if found[0].startswith(_ADDRESS):
            end = start + _address_length(found[0])
        yield start, end


def _address_length(address: str) -> int:
    """Return the length of a URL without trailing punctuation that belongs to the sentence."""
    opened = {close: address.count(close) - address.count(open) for close, open in _PAIRS.items()}
    end = len(address)
    while end:
        last = address[end - 1]
        if last in _PAIRS and opened[last] > 0:
            opened[last] -= 1
        elif last not in _AFTER:
            break
        end -= 1
    return end or len(address)


def stand_ins(known: Sequence[str], text: str, count: int) -> list[str]:
    """Return, for each of `count` placeholders, one of the `known` words that are not in the text.

    They repeat if there are too few; if there is none, each is "".
    """
    free = [word for word in known if word not in text]
    return (free * count)[:count] if free else [""] * count


def copied_words(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return words that translations of a corpus copy, which may stand in for placeholders; the best first.

    They are placeholders, and names: words that begin with a capital letter. A model that has learned to copy `%s`, or
    `KDE`, writes it where the sentence needs it. A corpus without such words has no stand-ins.
    """
    seen: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    for source, target in pairs:
        words, said = Counter(source.split()), Counter(target.split())
        for word, count in words.items():
            if len(word) <= LONGEST_STAND_IN and _may_stand_in(word):
                seen[word] += 1
                # a suffix may follow without a space, as in Korean
                kept[word] += said[word] == count or (not word.isalnum() and target.count(word) == count)
    good = [word for word in seen if kept[word] >= MOST_CERTAIN * seen[word] and kept[word] >= FEWEST_COPIES]
    good.sort(key=lambda word: (not _is_placeholder(word), -kept[word], word))
    return tuple(good[:MOST_STAND_INS])


def _may_stand_in(word: str) -> bool:
    return _is_placeholder(word) or (len(word) > 1 and word.isalnum() and word[0].isupper() and not word.isdigit())


def _is_placeholder(word: str) -> bool:
    return next(find(word), None) == (0, len(word)) and not word.startswith(_ADDRESS) and "@" not in word
