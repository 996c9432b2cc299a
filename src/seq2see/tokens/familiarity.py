"""Which part of a text a tokenizer has seen in training, by which a conversation decides what it can answer."""

import functools
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence

_MARKED = re.compile("<.+>")
"""Specials, tags and bytes in a vocabulary."""


def _script(letter: str) -> str:
    """Return `LATIN`, `HANGUL` or `CJK`: the first word of the name of a letter."""
    return unicodedata.name(letter, "").partition(" ")[0]


class Familiarity(ABC):
    """The share of a text that training has shown, for tokenizers of every kind."""

    def familiar(self, text: str) -> float:
        """Return the share of a text, blanks and tags apart, that training has shown: 0 to 1, and 1 for an empty text.

        A character is familiar if it has a token; a symbol between blanks is so as a whole. A letter must besides be
        of a script that training knew well: a few names in Latin letters teach nobody English.
        """
        return self.familiar_shares([text])[0]

    def familiar_shares(self, texts: Sequence[str]) -> list[float]:
        """Return `familiar` of each text; together they take little longer than one."""
        counts = [Counter(self._parts(text)) for text in texts]
        parts = list(dict.fromkeys(part for count in counts for part in count))
        known = {
            part for part, has in zip(parts, self._have_tokens(parts), strict=True) if has and self._in_scripts(part)
        }
        shares = []
        for count in counts:
            total = sum(len(part) * times for part, times in count.items())
            seen = sum(len(part) * times for part, times in count.items() if part in known)
            shares.append(seen / total if total else 1.0)
        return shares

    def unknown(self, text: str) -> list[str]:
        """Return what has no token in a text, each once, in order: characters, or symbols between blanks."""
        parts = list(dict.fromkeys(self._parts(text)))
        return [part for part, has in zip(parts, self._have_tokens(parts), strict=True) if not has]

    def _in_scripts(self, part: str) -> bool:
        """Return whether all letters are of scripts that training knew well."""
        return all(_script(letter) in self.scripts for letter in part if letter.isalpha())

    @functools.cached_property
    def scripts(self) -> list[str]:
        """Return the scripts of the vocabulary, most letters first; none with less than a tenth of an even share."""
        words = (spelling for spelling in self.spellings() if not _MARKED.fullmatch(spelling))
        counts = Counter(_script(letter) for word in words for letter in word if letter.isalpha())
        return [script for script, count in counts.most_common() if 10 * count * len(counts) >= counts.total()]

    @abstractmethod
    def _parts(self, text: str) -> Iterable[str]:
        """Return the characters of a text, blanks and tags apart; or the symbols between blanks."""

    @abstractmethod
    def _have_tokens(self, texts: list[str]) -> list[bool]:
        """Return for each text whether it has tokens of its own: no bytes, nothing unknown."""

    @abstractmethod
    def spellings(self) -> list[str]:
        """Return every token's own spelling by id, for programs that want words instead of ids."""
