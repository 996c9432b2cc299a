"""Translate documents: split them into sentences, search, align if needed, and join; and an engine with a cache."""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from seq2see import storage
from seq2see.config import Decoding, Settings
from seq2see.decoding.hypothesis import Engine, Hypothesis, Task
from seq2see.decoding.translator import Result
from seq2see.documents import document, placeholders
from seq2see.documents.document import Joined, Options, Translated
from seq2see.documents.segments import Limit
from seq2see.errors import SeqError
from seq2see.text.pair import Pair, Sides
from seq2see.tokens.store import Tokenizers

MOST_PAIRS = 2000
"""Maximum number of validation pairs, from the first, that the function `options` uses."""
MOST_CACHED = 100_000
"""Default maximum number of sentences in the file of a `CachedEngine`, which then has some tens of megabytes."""
SHORTEST_LIMIT = 64
"""Sentences of a document are cut into parts if they have more tokens than the longest validation source, or than this
number if it is greater. If the model can read fewer tokens, its own limit takes precedence.
"""
LANGUAGE_KINDS = ("unigram", "bpe", "jamo", "imported")
"""Kinds of tokenizers that suggest a human language if the run does not name its languages; `pattern`, `symbols` and
`marks` exclude one, and `characters` may be used for anything.
"""
LETTERS = 0.75
"""A run that does not name its languages counts as one between human languages only if, on each side of the validation
set, at least this share of the characters other than spaces are letters.
"""


def translate(
    text: str,
    format: str,
    options: Options,
    search: Callable[[list[str]], list[Result]],
    align: Callable[[list[str], list[Result]], list[list[Any]]] | None,
) -> Joined:
    """Return the translation of a document.

    Args:
        search: function that returns the translations of sentences.
        align: function that returns the alignments (`lens.alignment.Alignment`) of all translations of each sentence,
            called with the sentences that need one, such as those with markup; None if the model cannot align.
    """
    if not isinstance(text, str):
        raise TypeError(f"translate_text expects one text, a str, not {type(text).__name__}")
    plan = document.plan(text, format, options)  # type: ignore[arg-type]
    results = search(plan.sentences)
    found = [Translated(result.text) for result in results]
    numbers = [number for number, is_aligned in enumerate(plan.aligned) if is_aligned and align]
    if align and numbers:
        links = align([plan.sentences[number] for number in numbers], [results[number] for number in numbers])
        for number, (best, *_) in zip(numbers, links, strict=True):
            found[number] = Translated(found[number].text, best.links)
    return plan.join(found)


def options(
    settings: Settings, tokenizers: Tokenizers, languages: Sides, validation: Callable[[], Sequence[Pair]]
) -> Options:
    """Return the options for splitting documents into sentences, for a run with these settings.

    Args:
        languages: codes of the languages of the run, if known.
        validation: function that returns the validation set of the run. Its longest source is the length above which
            sentences are cut (see `SHORTEST_LIMIT`), and words that its targets copy from the sources are used in place
            of placeholders (`Options.stand_ins`).
    """
    pairs: Sequence[Pair] = ()
    with contextlib.suppress(SeqError):  # a damaged file is no reason not to translate
        pairs = validation()[:MOST_PAIRS]
    source = tokenizers.source
    is_language = translates_language(settings, languages, pairs)
    most = min(settings.decoding.max_source, settings.data.max_length, settings.model.longest) - 2

    def count(texts: Sequence[str]) -> list[int]:
        if source.kind == "pattern":  # which may take long
            return [len(text) for text in texts]
        return [len(ids) for ids in source.encode(list(texts))]

    if pairs:
        most = min(most, max(SHORTEST_LIMIT, *count([pair.source for pair in pairs])))
    words = placeholders.copied_words((pair.source, pair.target) for pair in pairs) if is_language else ()
    return Options(languages.source, Limit(count, max(1, most)), is_language, stand_ins=words)


def translates_language(settings: Settings, languages: Sides, pairs: Sequence[Pair]) -> bool:
    """Return whether a run translates between human languages: judged by its tokenizers, by whether it names its
    languages, and otherwise by the letters in validation pairs (`LETTERS`).

    Only then `%s` is a placeholder and a full stop ends a sentence; in molecules, programs and phonemes they mean
    something else.
    """
    kinds = settings.data.source_tokenizer, settings.data.target_tokenizer
    if not {*kinds}.isdisjoint(("pattern", "symbols", "marks")):
        return False
    if all(languages):
        return True
    if not all(kind in LANGUAGE_KINDS for kind in kinds):
        return False
    for texts in ([pair.source for pair in pairs], [pair.target for pair in pairs]):
        text = "".join("".join(texts).split())
        if text and sum(map(str.isalpha, text)) < LETTERS * len(text):
            return False
    return True


class CachedEngine:
    """An engine that keeps hypotheses in an SQLite file, so that the same sentence need not be searched again.

    A key is a digest of the path, size and time of the model's file, the engine's name, the settings of the search, and
    the tokens, length limit and prefix of the sentence. Sentences with constraints are not cached. If there are more
    than `most` entries, the oldest are deleted. A cache that cannot be read or written is not used.
    """

    def __init__(self, engine: Engine, model: Path, path: Path, most: int = MOST_CACHED) -> None:
        self.name = engine.name
        self._engine, self._most = engine, most
        facts = model.stat()
        self._model = f"{model.resolve()} {facts.st_size} {facts.st_mtime_ns} {engine.name}"
        self._file: sqlite3.Connection | None = None
        with contextlib.suppress(OSError, SeqError, sqlite3.Error):
            storage.own_folder(path.parent, storage.cache_folder())
            storage.refuse_link(path)
            self._file = sqlite3.connect(path, timeout=5, isolation_level=None)
            self._file.execute("CREATE TABLE IF NOT EXISTS found (key BLOB PRIMARY KEY, hypotheses TEXT NOT NULL)")

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self._file.close()  # type: ignore[union-attr]

    @property
    def constrains(self) -> bool:
        return self._engine.constrains

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Return hypotheses for each task: those in the cache, else those of a search, which are then cached."""
        keys = [None if task.constraints else self._key(task, settings) for task in tasks]
        kept = [self._read(key) for key in keys]
        new = [number for number, hypotheses in enumerate(kept) if hypotheses is None]
        found = dict(zip(new, self._engine.search([tasks[number] for number in new], settings), strict=True))
        self._write([(keys[number], found[number]) for number in new])
        return [found[number] if hypotheses is None else hypotheses for number, hypotheses in enumerate(kept)]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probability of each token of given targets (see `Engine.score`); nothing is cached."""
        return self._engine.score(sources, targets)

    def _key(self, task: Task, settings: Decoding) -> bytes:
        asked = [self._model, asdict(replace(settings, batch_tokens=1)), task.source, task.limit, task.prefix]
        return sha256(json.dumps(asked).encode()).digest()

    def _read(self, key: bytes | None) -> list[Hypothesis] | None:
        try:
            if self._file is None or key is None:
                return None
            row = self._file.execute("SELECT hypotheses FROM found WHERE key = ?", (key,)).fetchone()
            return [Hypothesis(**each) for each in json.loads(row[0])] if row else None
        except (sqlite3.Error, ValueError, TypeError):
            return None

    def _write(self, entries: Sequence[tuple[bytes | None, list[Hypothesis]]]) -> None:
        rows = [(key, json.dumps([asdict(each) for each in found])) for key, found in entries if key is not None]
        if self._file is None or not rows:
            return
        with contextlib.suppress(sqlite3.Error), self._file:  # commits at the end; rolls back after an error
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany("INSERT OR REPLACE INTO found VALUES (?, ?)", rows)
            oldest = "DELETE FROM found WHERE rowid <= (SELECT max(rowid) FROM found) - ?"
            self._file.execute(oldest, (self._most,))
