"""The interface of every tokenizer, and which part of a text training has shown."""

import functools
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from seq2see.config import TokenizerKind
from seq2see.text.tags import NO_TAGS, TagWords

Normalization = Literal["identity", "nfkc", "nfkc_lower"]
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which is no character and cannot be written as UTF-8."""


MOST_MARKS: Final = 512
"""Combining marks after one another that are put in order together; no language has more than a few."""


def normal_form(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Call `unicodedata.normalize` in linear time: it sorts marks in time that is quadratic in their number."""
    if len(text) <= MOST_MARKS or text.isascii():
        return unicodedata.normalize(form, text)
    pieces: list[str] = []
    begin = marks = 0
    for place, combines in enumerate(map(unicodedata.combining, text)):
        marks = marks + 1 if combines else 0
        if marks > MOST_MARKS:
            pieces.append(text[begin:place])
            begin, marks = place, 0
    return "".join(unicodedata.normalize(form, piece) for piece in [*pieces, text[begin:]])


class TokenizerSetup(NamedTuple):
    """Properties that tokenizers of every kind have."""

    kind: TokenizerKind
    normalization: Normalization
    tags: tuple[str, ...]
    """Tokens that only the start of a text can hold, such as `<2de>`; see `text.tags`."""
    words: TagWords = NO_TAGS
    """Tags that are words of the texts themselves."""


class Tokenizer(ABC):
    """The interface of every kind of tokenizer; make one with `train` or `load`."""

    kind: TokenizerKind
    normalization: Normalization
    tags: tuple[str, ...]
    whole_words = False
    """Whether each token is a word between spaces."""
    cuts_characters_alone = False
    """Whether each character is cut by itself, so that its tokens do not depend on its neighbours."""
    syllables_per_letter = 1
    """How many Korean characters a Korean token counts for in `scripts`: letters are fewer than their syllables."""
    version = 1
    """Format of its file."""
    counts_characters = False
    """Whether error rates of outputs count characters; else they count words between spaces."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the size of the vocabulary, special tokens included: ids are below this."""

    @abstractmethod
    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text, without begin and end. A tag in front is one token."""

    @abstractmethod
    def can_write(self, text: str) -> bool:
        """Return whether a model can output this text: not where normalisation, unknown tokens or spaces change it."""

    @abstractmethod
    def _parts(self, text: str) -> Iterable[str]:
        """Return the characters of a text, spaces and a tag apart; or the symbols between spaces."""

    def familiar(self, text: str) -> float:
        """Return the share of a text, spaces and tags apart, that training has shown: 0 to 1, and 1 for an empty text.

        A character is familiar if it has a token; a symbol between spaces is so as a whole. A letter must besides be
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
        """Return what has no token in a text, each once, in order: characters, or symbols between spaces."""
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
        if self.syllables_per_letter > 1 and "HANGUL" in counts:
            counts["HANGUL"] *= self.syllables_per_letter
        return [script for script, count in counts.most_common() if 10 * count * len(counts) >= counts.total()]

    @abstractmethod
    def _have_tokens(self, texts: list[str]) -> list[bool]:
        """Return for each text whether it has tokens of its own: no bytes, nothing unknown."""

    @abstractmethod
    def spellings(self) -> list[str]:
        """Return every token's own spelling by id, for programs that want words instead of ids."""

    @abstractmethod
    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text, in which no tag is recognised: `encode` has split the tags off."""

    @abstractmethod
    def _tag_id(self, tag: str) -> int:
        """Return the id of one of the tags."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`: padding, begin and end are silent, an unknown token is a mark."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return a label for each id, to show to people: a space is shown as `▁`, a byte as `xE3`."""

    @classmethod
    @abstractmethod
    def learn(cls, setup: TokenizerSetup, texts: Iterable[str], vocabulary: int, pattern: str) -> "Tokenizer":
        """Learn a vocabulary of at most `vocabulary` tokens from normalised texts; only one kind has a `pattern`."""

    @classmethod
    @abstractmethod
    def restore(cls, setup: TokenizerSetup, state: Mapping[str, Any]) -> "Tokenizer":
        """Make the tokenizer whose `_state` was saved; any error means that the file is damaged."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Return what `save` keeps besides kind, normalisation and tags."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write one UTF-8 JSON file, which `load` reads."""


_MARKED = re.compile("<.+>")
"""Specials, tags and bytes in a vocabulary."""


def _script(letter: str) -> str:
    """Return `LATIN`, `HANGUL` or `CJK`: the first word of the name of a letter."""
    return unicodedata.name(letter, "").partition(" ")[0]
