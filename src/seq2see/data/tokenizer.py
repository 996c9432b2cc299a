"""Text to ids and back: subwords (SentencePiece), characters, or symbols between spaces.

    tokenizer = train("unigram", texts, vocabulary=8000)
    tokenizer.decode(tokenizer.encode(["안녕  world"])[0]) == "안녕  world"

Subwords give back any text to the letter: an unseen character is spelled in UTF-8 bytes, so nothing is unknown.
Characters give back what they have seen. Symbols give back the text with each run of spaces made one.
Normalisation comes first, here and not inside SentencePiece, so that every kind means the same by it.
"""

import base64
import io
import json
import random
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

import sentencepiece

from seq2see import special
from seq2see.config import TokenizerKind
from seq2see.errors import DataError, RunError

Normalization = Literal["identity", "nfkc", "nfkc_lower"]

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
        """Tokens that only the start of a text can hold, such as `<2de>`; see `tag`."""

    @abstractmethod
    def __len__(self) -> int:
        """Size of the vocabulary, special tokens included: ids are below this."""

    def encode(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, without begin and end. A tag in front is one token, and what follows is cut as ever."""
        if not self.tags:
            return self._encode(texts)
        found = [next((tag for tag in self.tags if text.startswith(tag)), "") for text in texts]
        rest = self._encode([text[len(tag) :].lstrip() for tag, text in zip(found, texts, strict=True)])
        return [[self._tag_id(tag), *ids] if tag else ids for tag, ids in zip(found, rest, strict=True)]

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
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        if not model or [self._processor.id_to_piece(id) for id in range(special.COUNT)] != list(special.SPELLINGS):
            raise ValueError("not a SentencePiece model of ours: the special tokens have other ids")
        if any(self._tag_id(tag) == special.UNKNOWN for tag in self.tags):
            raise ValueError("not a SentencePiece model of ours: a tag is missing")

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def _encode(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self._processor.encode([_escape(normalize(text, self.normalization)) for text in texts])
        return ids

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
    """Characters or symbols: the vocabulary is a list, and what is not on it is unknown."""

    def __init__(
        self, kind: TokenizerKind, normalization: Normalization, symbols: Sequence[str], tags: Sequence[str] = ()
    ) -> None:
        super().__init__(kind, normalization, tags)
        symbols = [*tags, *symbols]
        self._spellings = [*special.SPELLINGS, *symbols]
        self._ids = {symbol: id for id, symbol in enumerate(symbols, start=special.COUNT)}

    def __len__(self) -> int:
        return len(self._spellings)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        find = self._ids.get
        normal = (normalize(text, self.normalization) for text in texts)
        return [[find(symbol, special.UNKNOWN) for symbol in _cut(text, self.kind)] for text in normal]

    def _tag_id(self, tag: str) -> int:
        return self._ids[tag]

    def decode(self, ids: Sequence[int]) -> str:
        heard = [UNKNOWN_MARK if id == special.UNKNOWN else self._spellings[id] for id in ids if id not in SILENT]
        return ("" if self.kind == "characters" else " ").join(heard)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [_visible(self._spellings[id]) for id in ids]

    def spellings(self) -> list[str]:
        return list(self._spellings)

    def _state(self) -> dict[str, Any]:
        return {"symbols": self._spellings[special.COUNT + len(self.tags) :]}


def tag(language: str) -> str:
    """How a source asks for a language: `de` -> `<2de>`, "to German"."""
    return f"<2{language}>"


def train(
    kind: TokenizerKind,
    texts: Iterable[str],
    vocabulary: int,
    normalization: Normalization = "identity",
    tags: Sequence[str] = (),
) -> Tokenizer:
    """Learn a vocabulary of at most `vocabulary` tokens, specials included; fewer where the texts give no more.

    Subwords need the 4 specials, the 256 bytes and an alphabet (see `_alphabet`): a smaller `vocabulary` than that is
    raised to it. The same texts give the same tokenizer on every machine. `tags` are tokens of their own.
    """
    normal = (normalize(text, normalization) for text in texts)
    if kind in ("unigram", "bpe"):
        return Subwords(kind, normalization, _train_subwords(kind, _sample(normal), vocabulary, tags), tags)
    counts = Counter[str]()
    for text in normal:
        counts.update(_cut(text, kind))
    if not counts:
        raise DataError("no text to learn a vocabulary from: every line is empty")
    for each in tags:
        counts.pop(each, None)
    return Listed(kind, normalization, _most_frequent(counts, vocabulary - special.COUNT - len(tags)), tags)


def load(path: Path) -> Tokenizer:
    """Read what `save` wrote; nothing in the file is executed."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["version"] != VERSION:
            raise RunError(f"{path}: format {state['version']}, expected {VERSION}. Was it written by a newer seq2see?")
        kind, normalization = state["kind"], state["normalization"]
        tags = [str(each) for each in state.get("tags", [])]
        if kind not in get_args(TokenizerKind) or normalization not in get_args(Normalization):
            raise ValueError(f"unknown kind {kind} or normalization {normalization}")
        if kind in ("unigram", "bpe"):
            return Subwords(kind, normalization, base64.b64decode(state["model"], validate=True), tags)
        return Listed(kind, normalization, [str(symbol) for symbol in state["symbols"]], tags)
    except FileNotFoundError:
        raise RunError(f"{path}: no such tokenizer file. Is the run folder complete?") from None
    except (
        KeyError,
        ValueError,
        TypeError,
        RuntimeError,
    ) as problem:  # in UTF-8, JSON, base64 or the SentencePiece model
        raise RunError(
            f"{path}: not a tokenizer file of seq2see, or damaged. Copy it again, or train anew"
        ) from problem


def normalize(text: str, how: Normalization) -> str:
    """Text as the tokenizer sees it; half a surrogate pair, which is no text, becomes U+FFFD whatever the setting."""
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)
        if how != "identity":
            text = unicodedata.normalize("NFKC", text)
    if how == "nfkc_lower":
        text = unicodedata.normalize("NFKC", text.lower())  # again, since lower() may take a letter apart
    return text


_SURROGATE = re.compile("[\ud800-\udfff]")


def _cut(text: str, kind: TokenizerKind) -> Sequence[str]:
    return text if kind == "characters" else text.split()


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
