"""Text to ids and back: subwords (SentencePiece), characters, Korean letters, symbols between spaces, or a pattern.

    tokenizer = train("unigram", texts, vocabulary=8000)
    tokenizer.decode(tokenizer.encode(["안녕  world"])[0]) == "안녕  world"

Subwords give back any text to the letter: an unseen character is spelled in UTF-8 bytes, so nothing is unknown.
Characters, Korean letters and patterns give back what they have seen. Symbols give back the text with each run of
spaces made one.
Normalisation comes first, here and not inside SentencePiece, so that every kind means the same by it.
"""

import base64
import functools
import io
import json
import random
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import sentencepiece

from seq2see import patterns, special, storage
from seq2see.config import TokenizerKind
from seq2see.errors import DataError, RunError, SettingError
from seq2see.tokens import sentencepiece_files
from seq2see.tokens.normalization import SURROGATE, Normalization, normalize

UNKNOWN_MARK: Final = "⁇"
SPACE_MARK: Final = "▁"  # SentencePiece writes a space so, and labels show one so
VERSION: Final = 1
SILENT: Final = {special.PAD, special.BEGIN, special.END}


class Tokenizer(ABC):
    """What the rest of the house knows of a tokenizer; make one with `train` or `load`."""

    def __init__(self, kind: TokenizerKind, normalization: Normalization, tags: Sequence[str] = ()) -> None:
        self.kind = kind
        self.normalization = normalization
        self.tags = tuple(tags)
        """Tokens that only the start of a text can hold, such as `<2de>`; see `tags`."""

    @abstractmethod
    def __len__(self) -> int:
        """Size of the vocabulary, special tokens included: ids are below this."""

    def encode(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, without begin and end. A tag in front is one token, and what follows is cut as ever."""
        if not self.tags:
            return self._encode(texts)
        found = [self._tag_of(text) for text in texts]
        rest = self._encode([text[len(tag) :].lstrip() for tag, text in zip(found, texts, strict=True)])
        return [[self._tag_id(tag), *ids] if tag else ids for tag, ids in zip(found, rest, strict=True)]

    def _tag_of(self, text: str) -> str:
        return next((tag for tag in self.tags if text.startswith(tag)), "")

    def familiar(self, text: str) -> float:
        """The share of a text, blanks and a tag apart, that training has shown: 0 to 1, and 1 where nothing is left.

        A character is familiar if it has a token; a symbol between blanks is so as a whole. A letter must besides be
        of a script that training knew well: a few names in Latin letters teach nobody English.
        """
        return self.familiar_shares([text])[0]

    def familiar_shares(self, texts: Sequence[str]) -> list[float]:
        """`familiar` of each text; together they take little longer than one, however many characters they have."""
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
        """What has no token in a text, each once, in order: characters, or symbols between blanks."""
        parts = list(dict.fromkeys(self._parts(text)))
        return [part for part, has in zip(parts, self._have_tokens(parts), strict=True) if not has]

    def can_write(self, text: str) -> bool:
        """Whether a model can output this text: not where normalisation, unknown tokens or spaces change it."""
        return self.decode(self.encode([text])[0]) == text

    def _parts(self, text: str) -> Iterable[str]:
        """The characters of a text, blanks and a tag apart; or the symbols between blanks."""
        words = normalize(text.removeprefix(self._tag_of(text)), self.normalization).split()
        return words if self.kind == "symbols" else "".join(words)

    def _in_scripts(self, part: str) -> bool:
        """Whether all letters are of scripts that training knew well."""
        return all(_script(letter) in self.scripts for letter in part if letter.isalpha())

    @functools.cached_property
    def scripts(self) -> list[str]:
        """What the vocabulary is written in, most letters first; none with less than a tenth of an even share."""
        words = (spelling for spelling in self.spellings() if not _MARKED.fullmatch(spelling))
        counts = Counter(_script(letter) for word in words for letter in word if letter.isalpha())
        return [script for script, count in counts.most_common() if 10 * count * len(counts) >= counts.total()]

    @abstractmethod
    def _have_tokens(self, texts: list[str]) -> list[bool]:
        """For each text, whether it has tokens of its own: no bytes, nothing unknown. One call for all is cheap."""

    @abstractmethod
    def _encode(self, texts: list[str]) -> list[list[int]]:
        """The same for texts without a tag."""

    @abstractmethod
    def _tag_id(self, tag: str) -> int:
        """The id of one of our tags."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`: padding, begin and end are silent, an unknown token is a mark."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A label for each id, to show to people: a space is seen as `▁`, a byte as `xE3`."""

    @abstractmethod
    def spellings(self) -> list[str]:
        """Every token's own spelling by id, for programs that want words instead of ids."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """What `save` keeps besides kind and normalisation."""

    def save(self, path: Path) -> None:
        """Write one UTF-8 JSON file, which `load` reads."""
        state = {"version": VERSION, "kind": self.kind, "normalization": self.normalization} | self._state()
        if self.tags:
            state["tags"] = self.tags
        path.write_text(json.dumps(state, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


class Subwords(Tokenizer):
    """SentencePiece, unigram or BPE; a word at the start of a text is cut like one after a space."""

    def __init__(
        self, kind: TokenizerKind, normalization: Normalization, model: bytes, tags: Sequence[str] = ()
    ) -> None:
        super().__init__(kind, normalization, tags)
        self._model = model
        sentencepiece_files.refuse_tables(model)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        if not model or [self._processor.id_to_piece(id) for id in range(special.COUNT)] != list(special.SPELLINGS):
            raise ValueError("not a SentencePiece model of ours: the special tokens have other ids")
        if any(self._tag_id(tag) == special.UNKNOWN for tag in self.tags):
            raise ValueError("not a SentencePiece model of ours: a tag is missing")
        self.spellings(), self._processor.decode([special.UNKNOWN])  # a ValueError where one is not UTF-8

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def _encode(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self._processor.encode([_escape(normalize(text, self.normalization)) for text in texts])
        return ids

    def _have_tokens(self, texts: list[str]) -> list[bool]:
        return [self._byte_ids.isdisjoint(ids) for ids in self._encode(texts)]

    @functools.cached_property
    def _byte_ids(self) -> frozenset[int]:
        """The tokens that spell single bytes."""
        return frozenset(id for id in range(len(self)) if self._processor.is_byte(id))

    def _tag_id(self, tag: str) -> int:
        return int(self._processor.piece_to_id(tag))

    def decode(self, ids: Sequence[int]) -> str:
        return _unescape(self._processor.decode([int(id) for id in ids if id not in SILENT]))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._label(int(id)) for id in ids]

    def _label(self, id: int) -> str:
        piece: str = self._processor.id_to_piece(id)
        if not self._processor.is_byte(id):
            return _visible(_unescape(piece))
        value = int(piece[1:-1], 16)  # "<0xE3>"
        return chr(value) if 0x20 < value < 0x7F else f"x{value:02X}"

    def spellings(self) -> list[str]:
        return [self._processor.id_to_piece(id) for id in range(len(self))]

    def sentencepiece_model(self) -> bytes:
        """The file that SentencePiece itself reads."""
        return self._model

    def _state(self) -> dict[str, Any]:
        return {"model": base64.b64encode(self._model).decode("ascii")}


class Listed(Tokenizer):
    """All that is not subwords: the vocabulary is a list, and what is not on it is unknown.

    Only what a pattern has cut, and is not on the list, is spelled in characters.
    """

    def __init__(
        self,
        kind: TokenizerKind,
        normalization: Normalization,
        symbols: Sequence[str],
        tags: Sequence[str] = (),
        pattern: str = "",
    ) -> None:
        super().__init__(kind, normalization, tags)
        self._pattern = pattern
        self._cut = _cutter(kind, pattern)
        symbols = [*tags, *symbols]
        self._spellings = [*special.SPELLINGS, *symbols]
        self._ids = {symbol: id for id, symbol in enumerate(symbols, start=special.COUNT)}

    def __len__(self) -> int:
        return len(self._spellings)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        find = self._ids.get
        cut: Iterable[Iterable[str]] = (self._cut(normalize(text, self.normalization)) for text in texts)
        if self.kind == "pattern":
            cut = ((each for piece in pieces for each in self._spell(piece)) for pieces in cut)
        return [[find(symbol, special.UNKNOWN) for symbol in pieces] for pieces in cut]

    def _spell(self, piece: str) -> Sequence[str]:
        return (piece,) if piece in self._ids else piece

    def _have_tokens(self, texts: list[str]) -> list[bool]:
        return [special.UNKNOWN not in ids for ids in self._encode(texts)]

    def _tag_id(self, tag: str) -> int:
        return self._ids[tag]

    def decode(self, ids: Sequence[int]) -> str:
        heard = [UNKNOWN_MARK if id == special.UNKNOWN else self._spellings[id] for id in ids if id not in SILENT]
        text = (" " if self.kind == "symbols" else "").join(heard)
        return _compose(text) if self.kind == "jamo" else text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        shown = [self._spellings[id] for id in ids]
        return [_visible(each[1:] if self.kind == "jamo" and _LOOSE.fullmatch(each) else each) for each in shown]

    def spellings(self) -> list[str]:
        return list(self._spellings)

    def _state(self) -> dict[str, Any]:
        pattern = {"pattern": self._pattern} if self.kind == "pattern" else {}
        return pattern | {"symbols": self._spellings[special.COUNT + len(self.tags) :]}


def train(
    kind: TokenizerKind,
    texts: Iterable[str],
    vocabulary: int,
    normalization: Normalization = "identity",
    tags: Sequence[str] = (),
    pattern: str = "",
) -> Tokenizer:
    """Learn a vocabulary of at most `vocabulary` tokens, specials included; fewer where the texts give no more.

    Subwords need the 4 specials, the 256 bytes and an alphabet (see `_alphabet`): a smaller `vocabulary` than that is
    raised to it. The same texts give the same tokenizer on every machine. `tags` are tokens of their own.
    `pattern`, an expression or the name of one, is for the kind of that name.
    """
    normal = (normalize(text, normalization) for text in texts)
    if kind in ("unigram", "bpe"):
        return Subwords(kind, normalization, _train_subwords(kind, _sample(normal), vocabulary, tags), tags)
    if pattern:
        pattern = patterns.expression(pattern)  # not its name: a run keeps what it was trained with
    cut = _cutter(kind, pattern)
    counts, letters = Counter[str](), Counter[str]()
    for text in normal:
        counts.update(cut(text))
        if kind == "pattern":
            letters.update(text)
    if not counts:
        raise DataError("no text to learn a vocabulary from: every line is empty")
    for each in [*tags, *letters]:
        counts.pop(each, None)
    # What a pattern cuts and the list has no room for is spelled in letters: all of these come before longer tokens.
    room = vocabulary - special.COUNT - len(tags)
    symbols = _most_frequent(letters, room)
    return Listed(kind, normalization, symbols + _most_frequent(counts, room - len(symbols)), tags, pattern)


def load(path: Path) -> Tokenizer:
    """Read what `save` wrote; nothing in the file is executed."""
    try:
        state = storage.read_json(path)
        if state["version"] != VERSION:
            raise RunError(
                f"{path}: format {str(state['version'])[:40]!r}, expected {VERSION}. Was it written by a newer seq2see?"
            )
        kind, normalization = state["kind"], state["normalization"]
        tags = _texts(state.get("tags", []), "tags")
        if kind not in get_args(TokenizerKind) or normalization not in get_args(Normalization):
            raise ValueError(f"unknown kind {str(kind)[:40]} or normalization {str(normalization)[:40]}")
        if kind in ("unigram", "bpe"):
            return Subwords(kind, normalization, base64.b64decode(state["model"], validate=True), tags)
        (pattern,) = _texts([state["pattern"]], "pattern") if kind == "pattern" else ("",)
        symbols = _texts(state["symbols"], "symbols")
        if len({*tags, *symbols}) < len(tags) + len(symbols):
            raise ValueError("a token stands there twice")
        return Listed(kind, normalization, symbols, tags, pattern)
    except FileNotFoundError:
        raise RunError(f"{path}: no such tokenizer file. Is the run folder complete?") from None
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError, SettingError) as problem:
        # in UTF-8, JSON, base64, the SentencePiece model or the pattern
        why = f"no {problem}" if isinstance(problem, KeyError) else str(getattr(problem, "strerror", None) or problem)
        why = " ".join(why.split())[:200]
        raise RunError(
            f"{path}: not a tokenizer file of seq2see, or damaged ({why}). Copy it again, or train anew"
        ) from problem


LONGEST_TOKEN: Final = 100_000
"""Characters of a token: of what may stand between two blanks, far more than a word."""


def _texts(found: Any, where: str) -> list[str]:
    """Check that a part of a tokenizer file is a list of texts that can be written as UTF-8."""
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{where}: expected texts")
    if any(len(each) > LONGEST_TOKEN or SURROGATE.search(each) for each in found):
        raise ValueError(f"{where}: a text is very long, or holds half of a surrogate pair")
    return found


_MARKED = re.compile("<.+>")
"""Specials, tags and bytes in a vocabulary."""


def _script(letter: str) -> str:
    """`LATIN`, `HANGUL`, `CJK`: as the names of letters begin."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _cutter(kind: TokenizerKind, pattern: str) -> Callable[[str], Sequence[str]]:
    """How a kind that is not subwords cuts a text."""
    match kind:
        case "characters":
            return lambda text: text
        case "jamo":
            return _decompose
        case "pattern":
            return patterns.compiled(pattern, "pattern").cut
        case _:
            return str.split


def _visible(piece: str) -> str:
    """Spaces as a mark, and what a font cannot draw as its escape (a tab as backslash t)."""
    shown = piece.replace(" ", SPACE_MARK)
    return shown if shown.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def _most_frequent(counts: Counter[str], most: int) -> list[str]:
    """The `most` most frequent, ties in the order of their code points and not of the texts."""
    return sorted(counts, key=lambda symbol: (-counts[symbol], symbol))[: max(most, 0)]


# SentencePiece writes a space as "▁", so that a "▁" in the text would come back as a space. We spell it with an escape,
# U+FDD0, one of the code points that Unicode keeps free for inner use like this, and the escape itself with the escape.
_ESCAPE = "\ufdd0"
_ESCAPED = ((_ESCAPE, _ESCAPE + "0"), (SPACE_MARK, _ESCAPE + "1"))


def _escape(text: str) -> str:
    if not text.isascii():
        for plain, escaped in _ESCAPED:
            text = text.replace(plain, escaped)
    return text


def _unescape(text: str) -> str:
    for plain, escaped in reversed(_ESCAPED):
        text = text.replace(escaped, plain)
    return text


# A Korean syllable is two or three letters in a block, and its number counts them through: 19 to begin with, 21 vowels,
# and nothing or one of 27 at the end. Letters that stand loose in a text, and the escape itself, come with the escape
# before them, so that what goes into a block was one; the letters that people type alone (U+3131 and on) are others.
_LEADS, _VOWELS, _TAILS = "\u1100-\u1112", "\u1161-\u1175", "\u11a8-\u11c2"
_LOOSE = re.compile(f"{_ESCAPE}([{_LEADS}{_VOWELS}{_TAILS}{_ESCAPE}])")
_BLOCK = re.compile(f"{_LOOSE.pattern}|([{_LEADS}])([{_VOWELS}])([{_TAILS}]?)")


def _decompose(text: str) -> list[str]:
    """The characters of a text, Korean syllables in their letters: 한 -> ᄒ ᅡ ᆫ."""
    letters: list[str] = []
    for character in text:
        place = ord(character) - 0xAC00
        if 0 <= place < 19 * 21 * 28:
            lead, rest = divmod(place, 21 * 28)
            vowel, tail = divmod(rest, 28)
            letters += (chr(0x1100 + lead), chr(0x1161 + vowel))
            if tail:
                letters.append(chr(0x11A7 + tail))
        else:
            letters.append(_ESCAPE + character if _LOOSE.match(_ESCAPE + character) else character)
    return letters


def _compose(text: str) -> str:
    """Back from joined letters."""
    return _BLOCK.sub(lambda found: found[1] or _block(found[2], found[3], found[4]), text)


def _block(lead: str, vowel: str, tail: str) -> str:
    number = (ord(lead) - 0x1100) * 21 + ord(vowel) - 0x1161
    return chr(0xAC00 + number * 28 + (ord(tail) - 0x11A7 if tail else 0))


SAMPLE_TEXTS: Final = 500_000
SAMPLE_CHARACTERS: Final = 4_000


def _sample(texts: Iterable[str]) -> list[str]:
    """At most SAMPLE_TEXTS texts, each as likely as any other (reservoir sampling), cut to SAMPLE_CHARACTERS."""
    chosen: list[str] = []
    dice = random.Random(1)
    for seen, text in enumerate(texts):
        if seen < SAMPLE_TEXTS:
            chosen.append(text[:SAMPLE_CHARACTERS])
        elif (place := dice.randrange(seen + 1)) < SAMPLE_TEXTS:
            chosen[place] = text[:SAMPLE_CHARACTERS]
    return chosen


def _train_subwords(kind: TokenizerKind, texts: list[str], vocabulary: int, tags: Sequence[str]) -> bytes:
    """A SentencePiece model, as bytes."""
    texts = [_escape(text) for text in texts if text]
    if not texts:
        raise DataError("no text to learn a vocabulary from: every line is empty")
    alphabet = _alphabet(texts, vocabulary)
    # SentencePiece never learns a piece across a tab, and no tab either: what is outside the alphabet is left to bytes.
    outside = re.compile(f"[^{re.escape(''.join(alphabet))} ]")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(outside.sub("\t", text) for text in texts),
        model_writer=written,
        model_type=kind,
        vocab_size=max(vocabulary, special.COUNT + len(tags) + 256 + len(alphabet) + 1),
        control_symbols=list(tags),  # which no text can spell
        hard_vocab_limit=False,
        character_coverage=1.0,
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        max_sentence_length=4 * SAMPLE_CHARACTERS,
        shuffle_input_sentence=False,
        num_threads=8,  # a constant: partial sums, and with them the pieces, depend on it
        pad_id=special.PAD,
        unk_id=special.UNKNOWN,
        bos_id=special.BEGIN,
        eos_id=special.END,
        pad_piece=special.SPELLINGS[special.PAD],
        unk_piece=special.SPELLINGS[special.UNKNOWN],
        bos_piece=special.SPELLINGS[special.BEGIN],
        eos_piece=special.SPELLINGS[special.END],
        unk_surface=UNKNOWN_MARK,
        minloglevel=2,
    )
    return written.getvalue()


def _alphabet(texts: list[str], vocabulary: int) -> list[str]:
    """The characters that get a token of their own, the space apart, most frequent first; bytes spell the others.

    All of a small alphabet; of a large one, such as Korean, enough for 99.95 % of the text; and never more than half of
    what specials and bytes leave of the vocabulary, or 128 where that is more (a Latin alphabet always fits).
    """
    counts = Counter[str]()
    for text in texts:
        counts.update(text)
    total = counts.total()
    for never in " \t\n\r\0\u2585":  # the space has its mark; the others mean something to SentencePiece's trainer
        counts.pop(never, None)
    alphabet = _most_frequent(counts, len(counts))
    if len(alphabet) > 1000:
        uncovered = total * 0.0005
        while counts[alphabet[-1]] <= uncovered:
            uncovered -= counts[alphabet.pop()]
    return alphabet[: max(128, (vocabulary - special.COUNT - 256) // 2)]
