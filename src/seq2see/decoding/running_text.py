"""Running text for a run: how its documents are cut into sentences, which are searched for and aligned."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from seq2see.config import Settings
from seq2see.decoding.translator import Result
from seq2see.documents import document, placeholders
from seq2see.documents.document import Joined, Options, Translated
from seq2see.documents.segments import Limit
from seq2see.errors import SeqError
from seq2see.text.pair import Pair, Sides
from seq2see.tokens.store import Tokenizers

MOST_PAIRS = 2000
"""Validation pairs that show how documents are to be cut into sentences."""
SHORTEST_LIMIT = 64
"""Tokens of a sentence that are never too many, even if all sentences of the validation set are shorter."""
LANGUAGE_KINDS = ("unigram", "bpe", "jamo", "imported")
"""Kinds of tokenizers that human languages have; corpora of symbols, characters or patterns may be anything."""
LETTERS = 0.75
"""Share of letters among the characters of a human language, at least."""


def translate(
    text: str,
    format: str,
    options: Options,
    search: Callable[[list[str]], list[Result]],
    align: Callable[[list[str], list[Result]], list[list[Any]]] | None,
) -> Joined:
    """Translate a document.

    Args:
        search: returns the translations of sentences.
        align: returns their alignments (`lens.alignment.Alignment`); None where the model cannot align.
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
    """Return how documents are cut for a run.

    Args:
        languages: codes of the languages of the run, if known.
        validation: returns its validation set, which shows how long sentences are, and which words are copied.
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
    """Return whether a run translates between human languages, in which `%s` is a placeholder and a full stop ends a
    sentence: not so in molecules, programs or phones."""
    kinds = settings.data.source_tokenizer, settings.data.target_tokenizer
    if "pattern" in kinds or "symbols" in kinds:
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
