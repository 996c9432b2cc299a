"""Translate strings: tokenize them, search with an engine, and restore their order. Nothing here needs torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from seq2see import machine, special
from seq2see.config import Decoding, Model, Settings, check_decoding
from seq2see.decoding.hypothesis import Engine, Hypothesis, Task
from seq2see.errors import RunError, SettingError, shown
from seq2see.text.words import Span
from seq2see.tokens.interface import Tokenizer
from seq2see.tokens.store import Tokenizers

TermSource = Literal["search", "constraint", "n-best", "prefix", "replacement", "missing"]
"""How a term got into a translation: by the search without constraints; by a search with constraints; in a lower
hypothesis of the n-best list; by a search continued after the inserted term; by replacing words; or not at all.
"""


class EnforcedTerm(NamedTuple):
    """A term of a glossary in a source line, and where it is in the translation."""

    source: Span
    """Span of the term in the source line, in characters."""
    text: str
    target: Span | None
    """Span of the term in the translation, in characters; None if the translation does not contain the term."""
    form: str
    """The form of the term in the translation; if the term is missing there, its first form in the glossary."""
    how: TermSource

    def json(self) -> dict[str, Any]:
        return self._asdict()


@dataclass(frozen=True)
class Translation:
    """A translation with its score, log-probability divided by length penalty; `tokens` excludes the end token."""

    text: str
    score: float
    tokens: tuple[int, ...] = ()
    probability: float | None = 1.0
    """Probability of this token sequence given the source; None if the engine does not compute it (ctranslate2 with a
    prefix).
    """
    terms: tuple[EnforcedTerm, ...] = ()
    """Glossary terms that occur in the source line, in the order of the line."""

    @staticmethod
    def of(hypothesis: Hypothesis, text: str) -> "Translation":
        """Return the translation that consists of a hypothesis and its decoded text."""
        log = hypothesis.log_probability
        probability = None if log is None else math.exp(min(0.0, log))
        return Translation(text, hypothesis.score, tuple(hypothesis.tokens), probability)


@dataclass(frozen=True)
class Result:
    """The n-best translations of one source line, best first."""

    translations: tuple[Translation, ...]
    source: tuple[int, ...] = ()
    """Token ids of the source line, as the model read it: truncated if `cut`, and with the end token."""
    cut: bool = False
    """Whether the line was truncated, to `decoding.max_source` tokens or the number of the model's positions."""

    @property
    def text(self) -> str:
        """Return the text of the best translation; raise a RunError if there is none, since all scores are NaN."""
        if not self.translations:
            raise RunError("no translation was found: the model computes numbers that are not finite. Train it again")
        return self.translations[0].text


def translate(
    engine: Engine,
    tokenizers: Tokenizers,
    settings: Settings,
    lines: Sequence[str],
    *,
    beam: int | None = None,
    n_best: int = 1,
    prefixes: Sequence[str | Sequence[int]] | None = None,
) -> list[Result]:
    """Translate lines. Empty lines stay empty.

    A line gives the same tokens alone, in any batch and in any order, except for rounding on a GPU.

    Args:
        beam: beam width; by default that of the settings.
        n_best: maximum number of translations of each line; a narrower beam is widened to it.
        prefixes: what each output must begin with, as text or tokens; a text that has no tokens is an error.
    """
    plan = SearchPlan.of(tokenizers, settings, lines, beam=beam, n_best=n_best, prefixes=prefixes)
    return plan.results(engine.search(plan.tasks, plan.decoding))


@dataclass(frozen=True)
class SearchPlan:
    """The search tasks for some lines, and how to turn their hypotheses into results."""

    tasks: list[Task]
    """One task for each line that is not empty."""
    decoding: Decoding
    _tokenizers: Tokenizers
    task_of_line: list[int | None]
    """For each line, the index of its task in `tasks`; None for an empty line, which is not translated."""
    _cut: list[bool]
    """For each task, whether its line was truncated."""
    _n_best: int

    @staticmethod
    def of(
        tokenizers: Tokenizers,
        settings: Settings,
        lines: Sequence[str],
        *,
        beam: int | None = None,
        n_best: int = 1,
        prefixes: Sequence[str | Sequence[int]] | None = None,
    ) -> "SearchPlan":
        """Tokenize lines, check the settings of the search, and limit its main memory; see `translate`."""
        decoding = settings.decoding if beam is None else replace(settings.decoding, beam=beam)
        if type(decoding.beam) is not int or not 1 <= decoding.beam <= settings.decoding.beam:
            check_decoding(decoding)  # narrower beams than that of the settings are always fine
        if n_best > decoding.beam:
            decoding = replace(decoding, beam=n_best)
            check_decoding(decoding)
        room = settings.model.longest
        most = min(decoding.max_source, room)
        encoded = tokenizers.source.encode([line.strip() for line in lines])  # as the readers strip training data
        forced = [
            encode_prefix(tokenizers.target, prefix) if isinstance(prefix, str) else list(prefix)
            for prefix in prefixes or [[]] * len(lines)
        ]
        tasks: list[Task] = []
        numbers: list[int | None] = []
        cut = []
        for line, tokens, prefix in zip(lines, encoded, forced, strict=True):
            numbers.append(len(tasks) if line.strip() else None)
            if line.strip():
                source = [*tokens[: most - 1], special.END]
                most_output = limit(len(source), decoding.max_ratio, decoding.max_extra)
                tasks.append(Task(source, min(room, most_output), prefix))
                cut.append(len(tokens) >= most)
        decoding = _within_memory(decoding, settings.model, len(tokenizers.target), tasks)
        return SearchPlan(tasks, decoding, tokenizers, numbers, cut, n_best)

    def results(self, found: Sequence[Sequence[Hypothesis]]) -> list[Result]:
        """Return the translations of all lines from the hypotheses for each task."""
        return [
            Result((Translation("", 0.0),)) if number is None else self._result(number, found[number])
            for number in self.task_of_line
        ]

    def _result(self, number: int, hypotheses: Sequence[Hypothesis]) -> Result:
        translations = tuple(
            Translation.of(each, self._tokenizers.target.decode(each.tokens)) for each in hypotheses[: self._n_best]
        )
        return Result(translations, tuple(self.tasks[number].source), self._cut[number])


def encode_prefix(tokenizer: Tokenizer, prefix: str) -> list[int]:
    """Return the tokens with which outputs must begin; raise an error if a part of the prefix has no token."""
    tokens = tokenizer.encode([prefix])[0]
    if special.UNKNOWN in tokens:
        named = tokenizer.name_unknown(prefix) or shown(prefix)
        raise SettingError(f"the prefix has text without a token in the model: {named}. No translation can begin so")
    return tokens


def _within_memory(decoding: Decoding, model: Model, vocabulary: int, tasks: Sequence[Task]) -> Decoding:
    """Return the settings with a batch size that fits into half of the free main memory, which changes no translation.

    Raise a SettingError if the beam of a single sentence does not fit into the free main memory. Nothing is checked if
    that beam and a batch each need less than 1 GiB; the memory of a GPU is never checked. The need is estimated: keys
    and values of each decoder layer for all tokens of a hypothesis, and logits of the vocabulary in a few copies; the
    engine needs more.
    """
    length = max((task.limit for task in tasks), default=0)

    def bytes_of(limit: int) -> int:
        return 4 * (2 * model.decoder_layers * model.d_model * limit + 4 * vocabulary)

    each = bytes_of(length)
    # A batch is counted in source tokens, so that fewer long texts are searched together than short ones.
    for_token = max((bytes_of(task.limit) // len(task.source) for task in tasks), default=1) or 1
    if max(each * decoding.beam, for_token * decoding.batch_tokens) < 2**30:  # the usual case: no need to measure
        return decoding
    free = machine.free_memory()
    if each * decoding.beam > free:
        raise SettingError(
            f"decoding.beam = {decoding.beam:,} needs {each * decoding.beam / 2**30:,.1f} GiB for outputs of "
            f"{length:,} tokens, {free / 2**30:,.1f} GiB are free. Lower decoding.beam or decoding.max_extra"
        )
    return replace(decoding, batch_tokens=max(1, min(decoding.batch_tokens, free // 2 // for_token)))


def limit(source_length: int, max_ratio: float, max_extra: int) -> int:
    """Return the maximum number of output tokens: `max_ratio` times the source length, plus `max_extra`.

    The source length is rounded up to a multiple of 8, so that sentences of similar length share the result.
    """
    return int(max_ratio * 8 * math.ceil(source_length / 8)) + max_extra


def batches(lengths: Sequence[int], budget: int, fewest: int = 1) -> list[list[int]]:
    """Return batches of indices into `lengths`: sentences of similar length together, the longest first.

    Args:
        budget: maximum sum of the lengths of a batch with more than `fewest` sentences.
        fewest: number of sentences that go into a batch however long they are; the last may have fewer.
    """
    found: list[list[int]] = []
    tokens = budget
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if not found or (tokens + lengths[index] > budget and len(found[-1]) >= fewest):
            found.append([])
            tokens = 0
        found[-1].append(index)
        tokens += lengths[index]
    return found


class Bounded:
    """An engine that calls another one and limits its outputs to `most` tokens, or to `Task.limit` if that is lower."""

    def __init__(self, engine: Engine, most: int) -> None:
        self.name = engine.name
        self._engine = engine
        self._most = most

    @property
    def constrains(self) -> bool:
        return self._engine.constrains

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        return self._engine.search([replace(task, limit=min(task.limit, self._most)) for task in tasks], settings)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        return self._engine.score(sources, targets)
