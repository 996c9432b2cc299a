"""Turn text into ids and back: by subwords (SentencePiece), characters, Korean letters, symbols between spaces, their
letters and marks, or the matches of a regular expression (`pattern`).

    tokenizer = train("unigram", texts, vocabulary=8000)
    tokenizer.decode(tokenizer.encode(["안녕  world"])[0]) == "안녕  world"

Subwords reproduce any normalised text: a character without a token is spelled in UTF-8 bytes, so nothing is unknown.
The other kinds reproduce what is in their vocabulary, symbols and marks with single spaces between words. `normalize`,
not SentencePiece, normalises text before; only the tokenizer of an imported model has a normalisation of its own.

A new kind is a subclass of `BaseTokenizer` (or of `Listed`, if the vocabulary is a list) with an entry in `KINDS`, and
in `config.TokenizerKind`. If the spellings of its tokens are not text, it overrides `_in_scripts` (for `familiar`).
"""

import base64
import functools
import itertools
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import sentencepiece

from seq2see import patterns, special, storage
from seq2see.config import TokenizerKind
from seq2see.errors import DataError, RunError, SettingError
from seq2see.text.tags import NO_TAGS, TagWords, tag_of, without_tag
from seq2see.tokens import korean_letters, marks, sentencepiece_models
from seq2see.tokens.interface import LONGEST_TOKEN, SURROGATE, Normalization, Tokenizer, TokenizerSetup, normal_form
from seq2see.tokens.sentencepiece_models import SPACE_MARK, UNKNOWN_MARK, escape, label, unescape, visible

VERSIONS: Final = (1, 2)
"""Readable versions of the format of tokenizer files; one that knows only 1 would ignore the tags of `Tagged`."""
SILENT: Final = {special.PAD, special.BEGIN, special.END}
FEW_TEXTS: Final = 16
"""Maximum number of texts for which SentencePiece is called once for each; a list starts threads (0.1 to 2 ms)."""


def normalize(text: str, how: Normalization) -> str:
    """Return a text unchanged, in NFKC, or in NFKC and lower case, as `how` says; lone surrogates become U+FFFD."""
    if not text.isascii():
        text = SURROGATE.sub("\ufffd", text)
        if how != "identity":
            text = normal_form("NFKC", text)
    if how == "nfkc_lower":
        text = normal_form("NFKC", text.lower())  # again, since lower() may take a letter apart
    return text


class BaseTokenizer(Tokenizer):
    """Base class of all kinds of tokenizers: handles language tags at the start of a text, and saving to a file."""

    def __init__(self, setup: TokenizerSetup) -> None:
        self.kind, self.normalization, self.tags, _ = setup

    def encode(self, texts: list[str]) -> list[list[int]]:
        if not self.tags:
            return self._encode(texts)
        found = [tag_of(text, self.tags) for text in texts]
        rest = self._encode([text[len(tag) :].lstrip() for tag, text in zip(found, texts, strict=True)])
        return [[self._tag_id(tag), *ids] if tag else ids for tag, ids in zip(found, rest, strict=True)]

    def _parts(self, text: str) -> Iterable[str]:
        words = normalize(without_tag(text, self.tags) if self.tags else text, self.normalization).split()
        return words if self.whole_words else "".join(words)

    def can_write(self, text: str) -> bool:
        return self.decode(self.encode([text])[0]) == text

    def save(self, path: Path) -> None:
        state = {"version": self.version, "kind": self.kind, "normalization": self.normalization} | self._state()
        if self.tags:
            state["tags"] = self.tags
        path.write_text(json.dumps(state, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


class Subwords(BaseTokenizer):
    """Tokenizer of subwords by SentencePiece, unigram or BPE; the first word is tokenised as if a space preceded it."""

    def __init__(self, setup: TokenizerSetup, model: bytes) -> None:
        super().__init__(setup)
        self.sentencepiece_model = model
        sentencepiece_models.refuse_tables(model)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        if not model or [self._processor.id_to_piece(id) for id in range(special.COUNT)] != list(special.SPELLINGS):
            raise ValueError("not a SentencePiece model of seq2see: the special tokens have other ids")
        if any(self._tag_id(tag) == special.UNKNOWN for tag in self.tags):
            raise ValueError("not a SentencePiece model of seq2see: it has no token for a language tag")
        self.spellings(), self._processor.decode([special.UNKNOWN])  # a ValueError where one is not UTF-8

    @classmethod
    def learn(cls, setup: TokenizerSetup, texts: Iterable[str], vocabulary: int, pattern: str) -> "Subwords":
        return cls(setup, sentencepiece_models.learn(setup.kind, texts, vocabulary, setup.tags))

    @classmethod
    def restore(cls, setup: TokenizerSetup, state: Mapping[str, Any]) -> "Subwords":
        return cls(setup, base64.b64decode(state["model"], validate=True))

    def _state(self) -> dict[str, Any]:
        return {"model": base64.b64encode(self.sentencepiece_model).decode("ascii")}

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def _encode(self, texts: list[str]) -> list[list[int]]:
        escaped = [escape(normalize(text, self.normalization)) for text in texts]
        if len(escaped) <= FEW_TEXTS:
            return [self._processor.encode(text) for text in escaped]
        ids: list[list[int]] = self._processor.encode(escaped)
        return ids

    def _have_tokens(self, texts: list[str]) -> list[bool]:
        return [self._byte_ids.isdisjoint(ids) for ids in self._encode(texts)]

    @functools.cached_property
    def _byte_ids(self) -> frozenset[int]:
        """Return the ids of the tokens that spell single bytes."""
        return frozenset(id for id in range(len(self)) if self._processor.is_byte(id))

    def _tag_id(self, tag: str) -> int:
        return int(self._processor.piece_to_id(tag))

    def decode(self, ids: Sequence[int]) -> str:
        return unescape(self._processor.decode([int(id) for id in ids if id not in SILENT]))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [label(self._processor, int(id)) for id in ids]

    def spellings(self) -> list[str]:
        return [self._processor.id_to_piece(id) for id in range(len(self))]


class Listed(BaseTokenizer):
    """Base class of tokenizers with a list of symbols; others are unknown or, if `spells`, split into characters."""

    between = ""
    """Text that `decode` puts between two tokens."""
    spells = False
    """Whether symbols that are not in the vocabulary are split into characters. If so, `learn` fills the vocabulary
    with the characters of the texts first, and with longer symbols only after them.
    """

    def __init__(self, setup: TokenizerSetup, symbols: Sequence[str], pattern: str = "") -> None:
        super().__init__(setup)
        self._pattern = pattern
        symbols = [*self.tags, *symbols]
        self._spellings = [*special.SPELLINGS, *symbols]
        self._ids = {symbol: id for id, symbol in enumerate(symbols, start=special.COUNT)}

    @abstractmethod
    def cut(self, text: str) -> Sequence[str]:
        """Split a normalised text into symbols."""

    @classmethod
    def learn(cls, setup: TokenizerSetup, texts: Iterable[str], vocabulary: int, pattern: str) -> "Listed":
        cut = cls(setup, (), pattern).cut
        counts, letters = Counter[str](), Counter[str]()
        for text in texts:
            counts.update(each for each in cut(text) if len(each) <= LONGEST_TOKEN)
            if cls.spells:
                letters.update(text)
        if not counts:
            raise DataError("no text to train a tokenizer on: every line is empty")
        for each in [*setup.tags, *letters]:
            counts.pop(each, None)
        # Symbols for which the list has no room are spelled in letters: all of these come before longer tokens.
        room = vocabulary - special.COUNT - len(setup.tags)
        symbols = _most_frequent(letters, room)
        return cls(setup, symbols + _most_frequent(counts, room - len(symbols)), pattern)

    @classmethod
    def restore(cls, setup: TokenizerSetup, state: Mapping[str, Any]) -> "Listed":
        symbols = _checked(state["symbols"], "symbols")
        if len({*setup.tags, *symbols}) < len(setup.tags) + len(symbols):
            raise ValueError("a token occurs twice")
        (pattern,) = _checked([state["pattern"]], "pattern") if cls.spells else ("",)
        return cls(setup, symbols, pattern)

    def _state(self) -> dict[str, Any]:
        return {"symbols": self._spellings[special.COUNT + len(self.tags) :]}

    def __len__(self) -> int:
        return len(self._spellings)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        find = self._ids.get
        cut: Iterable[Iterable[str]] = (self.cut(normalize(text, self.normalization)) for text in texts)
        if self.spells:
            cut = ([each for one in symbols for each in ([one] if one in self._ids else one)] for symbols in cut)
        return [[find(symbol, special.UNKNOWN) for symbol in symbols] for symbols in cut]

    def _have_tokens(self, texts: list[str]) -> list[bool]:
        return [special.UNKNOWN not in ids for ids in self._encode(texts)]

    def _tag_id(self, tag: str) -> int:
        return self._ids[tag]

    def decode(self, ids: Sequence[int]) -> str:
        return self.between.join(self._shown(ids))

    def _shown(self, ids: Sequence[int]) -> list[str]:
        spellings = self._spellings
        return [UNKNOWN_MARK if id == special.UNKNOWN else spellings[id] for id in ids if id not in SILENT]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [visible(self._spellings[id]) for id in ids]

    def spellings(self) -> list[str]:
        return list(self._spellings)


class Characters(Listed):
    """Tokenizer whose tokens are characters."""

    cuts_characters_alone = counts_characters = True

    def cut(self, text: str) -> Sequence[str]:
        return text


class Symbols(Listed):
    """Tokenizer whose tokens are the words (symbols) between spaces."""

    between = " "
    whole_words = True

    def cut(self, text: str) -> Sequence[str]:
        return text.split()


class Marks(Symbols):
    """Tokenizer of the symbols between spaces whose tokens are their letters and marks (see `tokens.marks`)."""

    composed = False
    """Whether the texts that it was learned from are composed (NFC), so that `ǐ` is split, and outputs are composed."""

    def cut(self, text: str) -> Sequence[str]:
        return marks.cut(text, self._ids, self.composed)

    @classmethod
    def learn(cls, setup: TokenizerSetup, texts: Iterable[str], vocabulary: int, pattern: str) -> Listed:
        counts, composed = marks.learn(texts, setup.tags)
        symbols = _most_frequent(counts, vocabulary - special.COUNT - len(setup.tags))
        return cls.restore(setup, {"symbols": symbols, "composed": composed})

    @classmethod
    def restore(cls, setup: TokenizerSetup, state: Mapping[str, Any]) -> Listed:
        made = super().restore(setup, state)
        assert isinstance(made, cls)
        made.composed = state["composed"] is True
        return made

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"composed": self.composed}

    def decode(self, ids: Sequence[int]) -> str:
        return marks.join(self._shown(ids), self.composed)


class Pattern(Listed):
    """Tokenizer of the matches of a regular expression; other text, and matches without a token, become characters."""

    spells = counts_characters = True

    def __init__(self, setup: TokenizerSetup, symbols: Sequence[str], pattern: str = "") -> None:
        super().__init__(setup, symbols, pattern)
        self._matcher = patterns.compiled(pattern, "pattern")

    @classmethod
    def learn(cls, setup: TokenizerSetup, texts: Iterable[str], vocabulary: int, pattern: str) -> Listed:
        expression = patterns.expression(pattern)  # not its name: a run keeps what it was trained with
        return super().learn(setup, texts, vocabulary, expression)

    def cut(self, text: str) -> Sequence[str]:
        return self._matcher.cut(text)

    def _state(self) -> dict[str, Any]:
        return {"pattern": self._pattern} | super()._state()


class KoreanLetters(Listed):
    """Tokenizer whose tokens are characters, with Korean syllables split into letters (jamo)."""

    cuts_characters_alone = counts_characters = True
    syllables_per_letter = 5

    def cut(self, text: str) -> Sequence[str]:
        return korean_letters.decompose(text)

    def decode(self, ids: Sequence[int]) -> str:
        return korean_letters.compose(super().decode(ids))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        shown = [self._spellings[id] for id in ids]
        return [visible(each[1:] if korean_letters.LOOSE.fullmatch(each) else each) for each in shown]


class Imported(Listed):
    """Tokenizer of an imported Hugging Face model: a SentencePiece model, and the list of tokens by id.

    A language tag is spelled `>>fra<<` in the list, and may also be written `<2fra>` in a text.
    """

    def __init__(self, setup: TokenizerSetup, symbols: Sequence[str], model: bytes) -> None:
        super().__init__(setup._replace(tags=()), symbols)
        self.tags, self.sentencepiece_model = setup.tags, model
        sentencepiece_models.check_tables(model)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        if not model or any(self._tag_id(tag) == special.UNKNOWN for tag in self.tags):
            raise ValueError("no SentencePiece model, or a tag is missing")
        for id in range(self._processor.get_piece_size()):
            self._processor.id_to_piece(id)  # a ValueError where one is not UTF-8

    @classmethod
    def learn(cls, setup: TokenizerSetup, texts: Iterable[str], vocabulary: int, pattern: str) -> Listed:
        raise SettingError("the tokenizer 'imported' comes with a model (seq2see import), and cannot be learned")

    @classmethod
    def restore(cls, setup: TokenizerSetup, state: Mapping[str, Any]) -> "Imported":
        return cls(setup, _checked(state["symbols"], "symbols"), base64.b64decode(state["model"], validate=True))

    def _state(self) -> dict[str, Any]:
        model = base64.b64encode(self.sentencepiece_model).decode("ascii")
        return {"symbols": self._spellings[special.COUNT :], "model": model}

    def cut(self, text: str) -> Sequence[str]:
        found: list[str] = self._processor.encode(text, out_type=str)
        return found

    def surfaces(self, text: str) -> list[tuple[int, int]]:
        """Return the span of characters (start, end) of each token of a text."""
        return sentencepiece_models.surfaces(self._processor.encode(text, out_type="serialized_proto"))

    def _tag_id(self, tag: str) -> int:
        return self._ids.get(tag, self._ids.get(f">>{tag[2:-1]}<<", special.UNKNOWN))

    def decode(self, ids: Sequence[int]) -> str:
        shown = self._shown(ids)
        text: str = self._processor.decode(shown) if shown else ""
        return text.replace(SPACE_MARK, " ").strip()  # tokens of the other side keep their marks


class Tagged(BaseTokenizer):
    """Tokenizer of texts that begin or end with tags, such as `<RX_1> CCO` and `walk V;PST`.

    Each tag, or each part of it (`tag_parts`), is a token. The tokenizer `inner` handles the text between the tags; the
    ids of tags follow its ids.
    """

    version = 2

    def __init__(self, inner: Tokenizer, words: TagWords) -> None:
        super().__init__(TokenizerSetup(inner.kind, inner.normalization, inner.tags))
        self.inner, self.words = inner, words
        self.counts_characters = inner.counts_characters
        self._tag_words = sorted(words.front | words.back)
        self._ids = {tag: id for id, tag in enumerate(self._tag_words, start=len(inner))}

    def __len__(self) -> int:
        return len(self.inner) + len(self._tag_words)

    def sections(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield the parts of a normalised text in order, and whether each is a tag, or part of one, that is a token."""
        front, between, back = self.words.split(text)
        yield from ((part, part in self._ids) for part in front)
        yield between, False
        yield from ((part, part in self._ids) for part in back)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        found = [list(self.sections(normalize(text, self.normalization))) for text in texts]
        cut = iter(self.inner._encode([part for sections in found for part, is_tag in sections if not is_tag]))
        return [
            [id for part, is_tag in sections for id in ([self._ids[part]] if is_tag else next(cut))]
            for sections in found
        ]

    def decode(self, ids: Sequence[int]) -> str:
        size, text = len(self.inner), ""
        for inside, group in itertools.groupby(ids, key=lambda id: id < size):
            run = list(group)
            text += self.inner.decode(run) if inside else "".join(self._tag_words[id - size] for id in run)
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        size = len(self.inner)
        return [self.inner.pieces([id])[0] if id < size else visible(self._tag_words[id - size].strip()) for id in ids]

    def spellings(self) -> list[str]:
        return self.inner.spellings() + self._tag_words

    def _parts(self, text: str) -> Iterable[str]:
        normal = normalize(without_tag(text, self.tags), self.normalization)
        return self.inner._parts(self.words.split(normal)[1])

    def _have_tokens(self, texts: list[str]) -> list[bool]:
        return self.inner._have_tokens(texts)

    @functools.cached_property
    def scripts(self) -> list[str]:
        return self.inner.scripts

    def _tag_id(self, tag: str) -> int:
        return self.inner._tag_id(tag)

    @classmethod
    def learn(cls, setup: TokenizerSetup, texts: Iterable[str], vocabulary: int, pattern: str) -> "Tagged":
        words = setup.words
        rest = (words.split(text)[1] for text in texts)
        return cls(KINDS[setup.kind].learn(setup, rest, vocabulary - len(words.front | words.back), pattern), words)

    @classmethod
    def restore(cls, setup: TokenizerSetup, state: Mapping[str, Any]) -> "Tagged":
        front, back = (_checked(state[where], where) for where in ("front", "back"))
        if len({*front}) < len(front) or len({*back}) < len(back):
            raise ValueError("a tag occurs twice")
        return cls(KINDS[setup.kind].restore(setup, state), TagWords(frozenset(front), frozenset(back)))

    def _state(self) -> dict[str, Any]:
        return self.inner._state() | {"front": sorted(self.words.front), "back": sorted(self.words.back)}


KINDS: Final[Mapping[TokenizerKind, type[Tokenizer]]] = {
    "unigram": Subwords,
    "bpe": Subwords,
    "characters": Characters,
    "symbols": Symbols,
    "marks": Marks,
    "pattern": Pattern,
    "jamo": KoreanLetters,
    "imported": Imported,
}


def train(
    kind: TokenizerKind,
    texts: Iterable[str],
    vocabulary: int,
    normalization: Normalization = "identity",
    tags: Sequence[str] = (),
    pattern: str = "",
    words: TagWords = NO_TAGS,
) -> Tokenizer:
    """Train a tokenizer with at most `vocabulary` tokens, including special ones; fewer if the texts have no more.

    There are more if `vocabulary` is too small for the tokens that are always included: the 4 special ones, those of
    tags and, for subwords, 256 bytes and an alphabet. The same texts give the same tokenizer on every machine.

    Args:
        tags: Language tags, such as `<2de>`, each of which is one token at the start of a text.
        pattern: A regular expression or the name of one, for the kind "pattern" only.
        words: Tags that the texts themselves contain; see `Tagged`.
    """
    normal = (normalize(text, normalization) for text in texts)
    made = Tagged if any(words) else KINDS[kind]
    return made.learn(TokenizerSetup(kind, normalization, tuple(tags), words), normal, vocabulary, pattern)


def load(path: Path) -> Tokenizer:
    """Return the tokenizer that `save` wrote to a file; nothing in the file is executed."""
    try:
        state = storage.read_json(path)
        if (version := state["version"]) not in VERSIONS:
            raise RunError(
                f"{path}: format {str(version)[:40]!r}, expected {VERSIONS[-1]}. Was it written by a newer seq2see?"
            )
        kind, normalization = state["kind"], state["normalization"]
        tags = _checked(state.get("tags", []), "tags")
        for name, value, known in (("kind", kind, KINDS), ("normalization", normalization, get_args(Normalization))):
            if value not in known:
                raise ValueError(f"unknown {name} {str(value)[:40]!r}")
        made = KINDS[kind] if version == 1 else Tagged
        return made.restore(TokenizerSetup(kind, normalization, tuple(tags)), state)
    except FileNotFoundError:
        raise RunError(f"{path}: no such tokenizer file. Is the run folder complete?") from None
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError, SettingError) as problem:
        # in UTF-8, JSON, base64, the SentencePiece model or the pattern
        why = f"no {problem}" if isinstance(problem, KeyError) else str(getattr(problem, "strerror", None) or problem)
        why = " ".join(why.split())[:200]
        raise RunError(
            f"{path}: not a tokenizer file of seq2see, or damaged ({why}). Copy it again, or train anew"
        ) from problem


def _checked(found: Any, where: str) -> list[str]:
    """Return `found`, the field `where` of a tokenizer file, if it is a list of strings that can be tokens."""
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{where}: expected texts")
    if any(len(each) > LONGEST_TOKEN or SURROGATE.search(each) for each in found):
        raise ValueError(f"{where}: a text is very long, or holds half of a surrogate pair")
    return found


def _most_frequent(counts: Counter[str], most: int) -> list[str]:
    """Return up to `most` of the most frequent strings; ties are in code point order, whatever the order of texts."""
    return sorted(counts, key=lambda symbol: (-counts[symbol], symbol))[: max(most, 0)]
