"""The interface of every tokenizer, and how much of a text consists of characters and scripts seen in training."""

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
UNITS = {
    "unigram": "subwords (unigram)",
    "bpe": "subwords (BPE)",
    "characters": "characters",
    "symbols": "symbols, split at spaces",
    "marks": "letters and marks of symbols",
    "pattern": "tokens (regular expression)",
    "jamo": "characters and Korean letters (jamo)",
    "imported": "subwords (imported)",
}
"""Kinds of tokenizers, and the name of their tokens in the table that `train` prints."""
SURROGATE = re.compile("[\ud800-\udfff]")
"""Pattern of a lone surrogate, which is not a character and cannot be written as UTF-8."""
LONGEST_TOKEN: Final = 100_000
"""Maximum number of characters of a token in the file of a tokenizer; a file with a longer one is refused. Words
between spaces are far shorter.
"""


MOST_MARKS: Final = 512
"""Number of consecutive combining marks after which a text is divided before it is normalised; languages use only a
few.
"""
MOST_NAMED, LONGEST_NAMED = 10, 40
"""Maximum number of characters (or words) without a token that a message names, and the maximum length of one."""


def normal_form(form: Literal["NFC", "NFD", "NFKC"], text: str) -> str:
    """Return the Unicode normal form of a text in linear time.

    `unicodedata.normalize` alone sorts consecutive combining marks in time that is quadratic in their number, so a text
    with more than `MOST_MARKS` of them is divided there and normalised in parts, so its result may differ from the
    normal form.
    """
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
    """The properties that are given when a tokenizer of any kind is made."""

    kind: TokenizerKind
    normalization: Normalization
    tags: tuple[str, ...]
    """Language tags such as `<2de>`, which are tokens only at the start of a text; see `text.tags`."""
    words: TagWords = NO_TAGS
    """Tags that the texts of the corpus themselves contain as words, at their beginning or end."""


class Tokenizer(ABC):
    """The interface of every kind of tokenizer; make one with `train` or `load`."""

    kind: TokenizerKind
    normalization: Normalization
    tags: tuple[str, ...]
    whole_words = False
    """Whether each word between spaces has tokens of its own, which do not depend on its neighbours."""
    cuts_characters_alone = False
    """Whether a character always has the same tokens, whatever its neighbours are."""
    syllables_per_letter = 1
    """Factor by which `scripts` multiplies the number of Korean letters. It is above 1 if the tokens are jamo: there
    are far fewer of these than of syllables, so that Korean would seem to be rare in the vocabulary.
    """
    version = 1
    """Version of the format in which `save` writes this kind of tokenizer."""
    counts_characters = False
    """Whether error rates of outputs in this vocabulary count characters; otherwise they count words between spaces."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the size of the vocabulary, including special tokens; all ids are smaller."""

    @abstractmethod
    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text, without BEGIN and END. A language tag at the start is one token."""

    @abstractmethod
    def can_write(self, text: str) -> bool:
        """Return whether decoding the ids of a text gives the same text, so that a model can output it."""

    @abstractmethod
    def _parts(self, text: str) -> Iterable[str]:
        """Return the parts of a text, without tags, that `familiar` counts: its words if `whole_words`, else its
        characters except spaces.
        """

    def familiar(self, text: str) -> float:
        """Return the share of the characters of a text, without spaces and tags, that are familiar, from 0 to 1.

        A character is familiar if it has a token; if `whole_words`, the word around it must have one. Besides, a letter
        must belong to a script that is frequent in the vocabulary: a few names in Latin letters do not teach English.
        The share of an empty text is 1.
        """
        return self.familiar_shares([text])[0]

    def familiar_shares(self, texts: Sequence[str]) -> list[float]:
        """Return `familiar` of each text; a single call for many texts is much faster."""
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
        """Return the characters (if `whole_words`, the words) of a text that have no token, each once, in order."""
        parts = list(dict.fromkeys(self._parts(text)))
        return [part for part, has in zip(parts, self._have_tokens(parts), strict=True) if not has]

    def name_unknown(self, text: str) -> str:
        """Return what `unknown` returns as text for a message: the first of them, and how many more there are; empty if
        everything has a token.
        """
        found = self.unknown(text)
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        seen = [each.isprintable() and unicodedata.category(each[0])[0] != "M" for each in found[:MOST_NAMED]]
        short = (each if len(each) <= LONGEST_NAMED else f"{each[:LONGEST_NAMED]}…" for each in found)
        named = (each if alone else f"U+{ord(each[0]):04X}" for each, alone in zip(short, seen, strict=False))
        return " ".join(named) + more

    def _in_scripts(self, part: str) -> bool:
        """Return whether all letters of `part` belong to the frequent scripts of the vocabulary (`scripts`)."""
        return all(_script(letter) in self.scripts for letter in part if letter.isalpha())

    @functools.cached_property
    def scripts(self) -> list[str]:
        """Return the frequent scripts of the vocabulary, most letters first: those with at least a tenth of the mean
        number of letters of its scripts.
        """
        words = (spelling for spelling in self.spellings() if not _MARKED.fullmatch(spelling))
        counts = Counter(_script(letter) for word in words for letter in word if letter.isalpha())
        if self.syllables_per_letter > 1 and "HANGUL" in counts:
            counts["HANGUL"] *= self.syllables_per_letter
        return [script for script, count in counts.most_common() if 10 * count * len(counts) >= counts.total()]

    @abstractmethod
    def _have_tokens(self, texts: list[str]) -> list[bool]:
        """Return for each text whether it is encoded without unknown tokens and byte tokens."""

    @abstractmethod
    def spellings(self) -> list[str]:
        """Return the spelling of every token, by id, for programs that expect words instead of ids."""

    @abstractmethod
    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text without looking for language tags, which `encode` has removed."""

    @abstractmethod
    def _tag_id(self, tag: str) -> int:
        """Return the id of one of the language tags (`tags`)."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`: padding, BEGIN and END are left out, and an unknown token becomes `⁇`."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return a label for each id, for display: a space is shown as `▁`, a byte outside of ASCII as `xE3`."""

    @classmethod
    @abstractmethod
    def learn(cls, setup: TokenizerSetup, texts: Iterable[str], vocabulary: int, pattern: str) -> "Tokenizer":
        """Return a tokenizer with a vocabulary learned from normalised texts; see `tokenizers.train` for its size.

        `pattern` is for the kind "pattern" only.
        """

    @classmethod
    @abstractmethod
    def restore(cls, setup: TokenizerSetup, state: Mapping[str, Any]) -> "Tokenizer":
        """Return the tokenizer from the contents of its file; any exception means that the file is damaged."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Return the fields that `save` writes besides version, kind, normalisation and language tags."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write one UTF-8 JSON file, which `load` reads."""


_MARKED = re.compile("<.+>")
"""Pattern of special tokens, language tags and byte tokens in a vocabulary: any spelling in angle brackets."""


def _script(letter: str) -> str:
    """Return the script of a letter by the first word of its Unicode name: `LATIN`, `HANGUL`, `CJK`."""
    return unicodedata.name(letter, "").partition(" ")[0]
