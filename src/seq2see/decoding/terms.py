"""Enforce the terms of a glossary in translations, with any engine. Nothing here needs torch.

    1. Search as without a glossary. An output that contains all terms of its sentence is taken as it is.
    2. An engine that supports constraints searches again with them (`decoding/constraints.py`).
    3. If terms are still missing, and hypotheses of the first search contain more terms, take the one with the most.
    4. If terms are still missing, keep the output up to the words that translate the term, append the glossary's
       translation, and continue the search.
    5. The last resort: put the term in place of words of the output, where the model finds it most probable.

The words that translate a term are those whose log-probability falls most when the term is left out of the source,
which any engine can compute. Whether a term is missing is decided by the whole words of the text, not by its tokens:
the same text can be written in several sequences of tokens.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

from seq2see import special
from seq2see.config import Decoding, Settings
from seq2see.decoding.hypothesis import Constraint, Engine, Hypothesis, Task
from seq2see.decoding.translator import EnforcedTerm, Result, SearchPlan, TermSource, Translation
from seq2see.text import words
from seq2see.text.words import Span, Term
from seq2see.tokens import phrases, spans
from seq2see.tokens.interface import Tokenizer
from seq2see.tokens.store import Tokenizers

MOST_TERMS: Final = 16
"""Maximum number of distinct terms of a sentence, from the first, that are enforced; others may be missing."""
PLACES: Final = 2
"""Maximum number of positions in an output from which the search continues with a missing term: before the words whose
probability falls most when the term is left out of the source.
"""
MOST_FORMS: Final = 4
"""Maximum number of forms (allowed translations) of a missing term to try at each position (`PLACES`)."""
CERTAIN: Final = 1.0
"""Fall of a word's log-probability, in nats, when a term is left out of the source, above which the word counts as the
translation of the term.
"""
WIDEST: Final = 3
"""Maximum number of consecutive output words that are replaced by a missing term if no word is known to translate it.
"""


def translate(
    engine: Engine,
    tokenizers: Tokenizers,
    settings: Settings,
    lines: Sequence[str],
    terms: Sequence[Sequence[Term]],
    *,
    beam: int | None = None,
    n_best: int = 1,
    prefixes: Sequence[str | Sequence[int]] | None = None,
    shifts: Sequence[int] | None = None,
) -> list[Result]:
    """Translate lines so that the best output for each contains the terms of its line; see `translator.translate`.

    Terms that could not be enforced are marked as missing in `Translation.terms`. A line without terms gives the same
    result as without a glossary.

    Args:
        terms: the terms of each line, in their order in the line.
        shifts: the number of characters of the tag at the start of each line, which the positions of terms do not
            include.
    """
    plan = SearchPlan.of(tokenizers, settings, lines, beam=beam, n_best=n_best, prefixes=prefixes)
    found = engine.search(plan.tasks, plan.decoding)
    results = plan.results(found)
    shifts = shifts or [0] * len(lines)
    asked = {
        number: _Sentence(plan.tasks[number], lines[line], shifts[line], terms[line], tokenizers)
        for line, number in enumerate(plan.task_of_line)
        if number is not None and terms[line]
    }
    for number, sentence in asked.items():
        sentence.begin([sentence.candidate(each) for each in found[number]])
    _enforce(engine, plan.decoding, [each for each in asked.values() if each.candidates])
    for line, task in enumerate(plan.task_of_line):
        if task is not None and task in asked:
            results[line] = replace(results[line], translations=asked[task].translations(n_best))
    return results


def _enforce(engine: Engine, decoding: Decoding, sentences: Sequence["_Sentence"]) -> None:
    """Try steps 2 to 5 of the module docstring until the best output of each sentence contains all of its terms."""
    constrained = [each for each in sentences if each.missing and engine.constrains and each.can_be_constrained]
    if constrained:
        _find_rivals(engine, constrained)
        tasks = [replace(each.task, constraints=each.constraints) for each in constrained]
        found = zip(constrained, engine.search(tasks, decoding), strict=True)
        outputs = [(sentence, each.tokens, None) for sentence, hypotheses in found for each in hypotheses]
        for sentence, candidates in _scored(engine, decoding, outputs).items():
            sentence.consider(candidates, "constraint")
    for sentence in sentences:
        if sentence.missing:
            sentence.consider([each._replace(rank=each.score) for each in sentence.candidates], "n-best")
    if open_ := [each for each in sentences if each.missing]:
        _find_rivals(engine, open_)
    for turn in range(max((len(each.missing) for each in sentences), default=0) + 1):
        if open_ := [each for each in sentences if each.missing and turn <= len(each.terms)]:
            _force_prefixes(engine, decoding, open_, turn)
    for sentence in sentences:
        if sentence.missing:
            _replace_words(engine, decoding, sentence)


class _Candidate(NamedTuple):
    """An output, and the span of each distinct term in its text, None for a term that is missing."""

    text: str
    tokens: list[int]
    score: float
    log_probability: float | None
    places: tuple[Span | None, ...]
    rank: float = 0.0
    """Score by which candidates that contain the same number of terms are compared; see `_scored`."""

    @property
    def met(self) -> int:
        """Return the number of distinct terms that the candidate contains."""
        return sum(place is not None for place in self.places)


class _Sentence:
    """One sentence with terms, and the best output for it so far."""

    def __init__(self, task: Task, line: str, shift: int, terms: Sequence[Term], tokenizers: Tokenizers) -> None:
        self.task, self.tokenizer = task, tokenizers.target
        self.every_term = terms
        self.terms = list({term.forms: term for term in reversed(terms)}.values())[::-1]
        """The terms of the sentence, without those that have the same translations as an earlier one."""
        self.candidates: list[_Candidate] = []
        self.how: list[TermSource] = ["search"] * len(self.terms)
        self.rivals: frozenset[int] = frozenset()
        """Tokens that begin a translation of a missing term other than the glossary's; see `_find_rivals`."""
        self.losses_of: _Candidate | None = None
        self.losses: list[list[float]] = []
        """For each missing term, the losses of the tokens of the output `losses_of`; see the function `_losses`."""
        self._doubles = _doubles(line)
        self._read = [(start - shift, end - shift) for start, end in spans.read(tokenizers.source, line)]

    def source_without(self, number: int) -> list[int]:
        """Return the source tokens except those of any occurrence of a term; if only the end token is left, an unknown
        token and the end token.
        """
        text, source = self.terms[number].text, self.task.source
        same = [(term.start, term.end) for term in self.every_term if term.text == text]
        touched = {
            place
            for place, (start, end) in enumerate(self._read[: len(source) - 1])
            if any(start < other and end > one for one, other in same)
        }
        rest = [token for place, token in enumerate(source) if place not in touched]
        return rest if len(rest) > 1 else [special.UNKNOWN, *rest]

    def begin(self, candidates: list[_Candidate]) -> None:
        """Start with the outputs of the first search, given best first."""
        self.candidates = candidates
        if candidates:
            self.best = candidates[0]
            self._doubles = max(self._doubles, _doubles(self.best.text))

    def candidate(self, found: Hypothesis, text: str | None = None) -> _Candidate:
        """Return a hypothesis as a candidate; if `text` is given, it is used instead of the text of the tokens."""
        text = self.tokenizer.decode(found.tokens) if text is None else text
        return _Candidate(text, found.tokens, found.score, found.log_probability, _places(text, self.terms))

    @property
    def missing(self) -> list[int]:
        """Return the indices of the terms, of the first `MOST_TERMS`, that the best output does not contain."""
        return [number for number, place in enumerate(self.best.places[:MOST_TERMS]) if place is None]

    def is_better(self, text: str) -> bool:
        """Return whether an output contains more terms than the best one so far, and no more repeated words
        (`_doubles`) than the source line or than the first output, whichever has more.
        """
        met = sum(place is not None for place in _places(text, self.terms))
        return met > self.best.met and _doubles(text) <= self._doubles

    def consider(self, candidates: Sequence[_Candidate], how: TermSource) -> None:
        """Make one of the candidates that are better (`is_better`) the best output, if there is any.

        It is the one with the most terms; of several, one without a token of `rivals`; of these, the one with the
        highest `rank`.

        Args:
            how: the method that found the candidates, noted for each term that the best output gains.
        """
        sound = [each for each in candidates if self.is_better(each.text)]
        chosen = max(sound, key=lambda each: (each.met, self.rivals.isdisjoint(each.tokens), each.rank), default=None)
        if chosen is None:
            return
        for number in range(len(self.terms)):
            if self.best.places[number] is None and chosen.places[number] is not None:
                self.how[number] = how
        self.best = chosen

    @property
    def can_be_constrained(self) -> bool:
        """Return whether constrained search is possible: no prefix is forced, and there are `constraints`."""
        return not self.task.prefix and bool(self.constraints)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Return a constraint for each of the first `MOST_TERMS` terms that has a form without unknown tokens."""
        found = [_constraint(self.tokenizer, term) for term in self.terms[:MOST_TERMS]]
        return tuple(each._replace(never=self.rivals) for each in found if each is not None)

    def translations(self, n_best: int) -> tuple[Translation, ...]:
        """Return up to `n_best` translations with their terms: the best output, then hypotheses of the first search."""
        if not self.candidates:
            return ()
        others = [each for each in self.candidates if each.text != self.best.text]
        return tuple(self._translation(each) for each in [self.best, *others][:n_best])

    def _translation(self, chosen: _Candidate) -> Translation:
        spans_of = {number: list(_occurrences(chosen.text, term)) for number, term in enumerate(self.terms)}
        seen = [0] * len(self.terms)
        shown = []
        for term in self.every_term:
            number = next(place for place, each in enumerate(self.terms) if each.forms == term.forms)
            place, how = chosen.places[number], self.how[number] if chosen is self.best else "n-best"
            if place is not None:  # the second time that a term occurs, its translation does so, too
                every = sorted({place, *spans_of[number]})
                place = every[min(seen[number], len(every) - 1)]
                seen[number] += 1
            form = chosen.text[slice(*place)] if place else term.forms[0]
            shown.append(EnforcedTerm((term.start, term.end), term.text, place, form, how if place else "missing"))
        hypothesis = Hypothesis(chosen.tokens, chosen.score, chosen.log_probability)
        return replace(Translation.of(hypothesis, chosen.text), terms=tuple(shown))


# Terms in a text


def _occurrences(text: str, term: Term) -> Iterator[Span]:
    """Yield the spans of a text that are forms of a term; at the first word of the text, a form may be capitalised,
    unless the term must be copied unchanged.
    """
    for form in term.forms:
        yield from words.occurrences(text, form)
    first = next((place for place, each in enumerate(text) if words.is_word_character(each)), 0)
    if not term.is_kept:
        for form in term.forms:
            capital = form[:1].upper() + form[1:]
            if capital != form and text.startswith(capital, first) and words.ends_word(text, first + len(capital)):
                yield first, first + len(capital)


def _places(text: str, terms: Sequence[Term]) -> tuple[Span | None, ...]:
    """Return the span of each term in a text, None if it is missing; spans do not overlap, and long terms go first.

    A term takes a form that is also a form of another term only if the text has none of its other forms.
    """
    places: list[Span | None] = [None] * len(terms)
    taken: list[Span] = []
    shared = {form for form, count in Counter(form for term in terms for form in term.forms).items() if count > 1}
    for number in _longest_first(terms, range(len(terms))):
        for start, end in sorted(_occurrences(text, terms[number]), key=lambda span: text[slice(*span)] in shared):
            if all(end <= other[0] or start >= other[1] for other in taken):
                places[number] = start, end
                taken.append((start, end))
                break
    return tuple(places)


def _longest_first(terms: Sequence[Term], numbers: Sequence[int]) -> list[int]:
    return sorted(numbers, key=lambda number: -max(map(len, terms[number].forms)))


_WORD: Final = re.compile(r"\w+")


def _doubles(text: str) -> int:
    """Return how many times a word, or a pair of words, is directly followed by itself, ignoring case."""
    found: list[str] = [each.lower() for each in _WORD.findall(text)]
    once = sum(one == two for one, two in pairwise(found))
    return once + sum(found[here : here + 2] == found[here + 2 : here + 4] for here in range(len(found) - 3))


def _constraint(tokenizer: Tokenizer, term: Term) -> Constraint | None:
    """Return a constraint with all forms of a term that consist of known tokens; None if no form does."""
    written = [form for form in term.forms if special.UNKNOWN not in tokenizer.encode([form])[0]]
    if not written:
        return None
    later = dict.fromkeys(tokens for form in written for tokens in phrases.within(tokenizer, form))
    first = dict.fromkeys(tuple(tokenizer.encode([form])[0]) for form in written)
    whole = words.is_whole_word(written[0])
    return Constraint(tuple(first), tuple(later), phrases.inside_words(tokenizer) if whole else frozenset())


# Forced prefixes


def _losses(engine: Engine, sentences: Sequence[_Sentence]) -> list[list[list[float]]]:
    """Return a loss for each sentence, each of its missing terms, and each token of its best output so far.

    The loss is the fall of the token's log-probability, in nats, when the term is left out of the source.
    """
    new = [each for each in sentences if each.losses_of is not each.best]
    asked = [(sentence, number) for sentence in new for number in sentence.missing]
    sources = [sentence.task.source for sentence in new]
    sources += [sentence.source_without(number) for sentence, number in asked]
    targets = [each.best.tokens for each in (*new, *(sentence for sentence, _ in asked))]
    logs = engine.score(sources, targets) if new else []
    without = iter(logs[len(new) :])
    for sentence, whole in zip(new, logs, strict=False):
        sentence.losses_of = sentence.best
        sentence.losses = [[one - two for one, two in zip(whole, next(without), strict=True)] for _ in sentence.missing]
    return [sentence.losses for sentence in sentences]


def _by_loss(sentence: _Sentence, losses: Sequence[float]) -> list[tuple[float, int, int]]:
    """Return (loss, index of first token, index of first character) of each word of the best output after a forced
    prefix, the greatest loss first.

    The loss of a word is the sum over its tokens of `losses`, which `_losses` gives for one term.
    """
    cuts = phrases.word_starts(sentence.tokenizer, sentence.best.tokens, len(sentence.task.prefix))
    found = [(sum(losses[first:last]), first, start) for (first, start), (last, _) in pairwise(cuts)]
    return sorted(found, key=lambda each: -each[0])


def _find_rivals(engine: Engine, sentences: Sequence[_Sentence]) -> None:
    """Store in `rivals` the tokens that begin a translation of a missing term other than the glossary's.

    For each term these are the first token of the output word with the greatest loss (`_by_loss`), if this loss is
    above `CERTAIN`, and inflections of that token. Tokens of the glossary's forms are excluded.
    """
    for sentence, all_losses in zip(sentences, _losses(engine, sentences), strict=True):
        tokenizer, found = sentence.tokenizer, set[int]()
        for losses in all_losses:
            ranked = _by_loss(sentence, losses)
            if ranked and ranked[0][0] > CERTAIN:
                found |= phrases.inflections(tokenizer, sentence.best.tokens[ranked[0][1]])
        forms = [form for term in sentence.terms for form in term.forms]
        allowed = {token for form in forms for tokens in phrases.within(tokenizer, form) for token in tokens}
        sentence.rivals = frozenset(found - allowed)


@dataclass(frozen=True)
class _Trial:
    """A prefix from which the search is continued: the beginning of the best output, and a form of a missing term."""

    sentence: _Sentence
    place: int
    """Index of the token of the best output before which it was cut."""
    prefix: list[int]
    form_tokens: int
    """Number of tokens of the form, which are the last tokens of `prefix`."""


def _trials(sentence: _Sentence, which: int, losses: Sequence[Sequence[float]]) -> Iterator[_Trial]:
    """Yield prefixes of the best output, cut before the words that lose most probability without a missing term, each
    with a form of the term added.

    Args:
        which: index of the term among those that are missing.
        losses: for each missing term, the losses of the tokens of the best output (`_losses`).
    """
    tokens, tokenizer = sentence.best.tokens, sentence.tokenizer
    term = sentence.terms[sentence.missing[which]]
    cuts = [first for _, first, _ in _by_loss(sentence, losses[which])[:PLACES]] or [len(tokens)]
    for form in term.forms[:MOST_FORMS]:
        first = tokenizer.encode([form])[0]
        if special.UNKNOWN in first:
            continue
        for cut in cuts:
            before = tokens[:cut]
            while before and not tokenizer.decode(before[-1:]).strip():  # a space that the form brings itself
                before = before[:-1]
            for of_form in phrases.within(tokenizer, form) if before else [tuple(first)]:
                if len(before) + len(of_form) < sentence.task.limit:
                    yield _Trial(sentence, cut, [*before, *of_form], len(of_form))


def _force_prefixes(engine: Engine, decoding: Decoding, sentences: Sequence[_Sentence], turn: int) -> None:
    """Cut the best output of each sentence before words that lose much probability without a missing term (`_losses`),
    append its most probable form there, continue the search, and keep the best output with more terms than before.

    If several terms of a sentence are missing, `turn` modulo their number chooses one.
    """
    groups: dict[tuple[_Sentence, int], list[_Trial]] = {}
    for sentence, losses in zip(sentences, _losses(engine, sentences), strict=True):
        for trial in _trials(sentence, turn % len(losses), losses):
            groups.setdefault((sentence, trial.place), []).append(trial)
    several = [trial for group in groups.values() for trial in group if len(group) > 1]
    expected: dict[int, float] = {}
    if several:  # of all forms, the one that is most probable at a place
        sources, prefixes = [each.sentence.task.source for each in several], [each.prefix for each in several]
        for trial, logs in zip(several, engine.score(sources, prefixes), strict=True):
            of_form = logs[len(trial.prefix) - trial.form_tokens : len(trial.prefix)]
            expected[id(trial)] = sum(of_form) / trial.form_tokens
    picked = [max(group, key=lambda trial: expected.get(id(trial), 0.0)) for group in groups.values()]
    tasks = [replace(trial.sentence.task, prefix=trial.prefix) for trial in picked]
    found = zip(picked, engine.search(tasks, decoding) if tasks else [], strict=True)
    outputs = [(trial.sentence, each.tokens, None) for trial, hypotheses in found for each in hypotheses]
    for sentence, candidates in _scored(engine, decoding, outputs).items():
        sentence.consider(candidates, "prefix")


def _scored(
    engine: Engine, decoding: Decoding, outputs: Sequence[tuple["_Sentence", Sequence[int], str | None]]
) -> dict["_Sentence", list[_Candidate]]:
    """Return, by sentence, the outputs that are better than its best one (`is_better`), with a `rank` to compare them.

    Engines score forced tokens differently, so all outputs are scored anew. A term that the model would not have chosen
    is improbable. In a mean over all tokens this counts less, the longer the output is, so that the longest output
    would be the best. So the rank is the sum of the log-probabilities of the other tokens, divided by their length
    penalty, plus the sum over the tokens of terms, divided by the length penalty of the first output.

    Args:
        outputs: sentences, the tokens of an output for each, and its text if it differs from the text of the tokens; no
            token of an output with such a text counts as part of a term.
    """
    outputs = [
        (sentence, tokens, text)
        for sentence, tokens, text in outputs
        if sentence.is_better(sentence.tokenizer.decode(tokens) if text is None else text)
    ]
    found: dict[_Sentence, list[_Candidate]] = {sentence: [] for sentence, _, _ in outputs}
    if not outputs:
        return found
    scored = engine.score([sentence.task.source for sentence, _, _ in outputs], [tokens for _, tokens, _ in outputs])
    for (sentence, tokens, text), logs in zip(outputs, scored, strict=True):
        hypothesis = Hypothesis(list(tokens), sum(logs) / _penalty(decoding, len(logs)), sum(logs))
        each = sentence.candidate(hypothesis, text)
        shown = [span for span in each.places if span is not None] if text is None else []
        written = spans.written(sentence.tokenizer, each.tokens) if shown else []
        of_terms = {
            token
            for token, (start, end) in enumerate(written)
            if any(start < last and end > first for first, last in shown)
        }
        rest = [log for token, log in enumerate(logs) if token not in of_terms]
        fixed = (sum(logs) - sum(rest)) / _penalty(decoding, 1 + len(sentence.candidates[0].tokens))
        found[sentence].append(each._replace(rank=sum(rest) / _penalty(decoding, len(rest)) + fixed))
    return found


def _penalty(decoding: Decoding, length: int) -> float:
    return float(((5 + length) / 6 if decoding.length_formula == "paper" else length) ** decoding.length_penalty)


# Words replaced


def _replace_words(engine: Engine, decoding: Decoding, sentence: _Sentence) -> None:
    """Put each missing term into the text of the best output: in place of the word that translates it, if that is known
    (`CERTAIN`) and helps, else wherever the model finds it most probable (`_replaced`).
    """
    # Long terms first, as in `_places`: before "york", the term "new" would make the text contain "new york" instead.
    for number in _longest_first(sentence.terms, sentence.missing):
        if number not in sentence.missing:  # an earlier term has completed it
            continue
        form, met = sentence.terms[number].forms[0], sentence.best.met
        losses = _losses(engine, [sentence])[0][sentence.missing.index(number)]
        likely = [start for loss, _, start in _by_loss(sentence, losses)[:1] if loss > CERTAIN]
        for starts in (likely, None):
            texts = list(dict.fromkeys(_replaced(sentence, form, starts)))
            if texts and sentence.best.met == met:
                targets = [tokens[: sentence.task.limit] for tokens in sentence.tokenizer.encode(texts)]
                outputs = [(sentence, tokens, text) for tokens, text in zip(targets, texts, strict=True)]
                sentence.consider(_scored(engine, decoding, outputs).get(sentence, []), "replacement")


def _replaced(sentence: _Sentence, form: str, chosen: Sequence[int] | None) -> Iterator[str]:
    """Yield the text of the best output with a form in place of each `chosen` word.

    If `chosen` is None, the form replaces any one to `WIDEST` words, or is inserted between words. Terms that the text
    contains, and a forced prefix, are kept.

    Args:
        chosen: indices of the first characters of words.
    """
    text, tokenizer = sentence.best.text, sentence.tokenizer
    least = len(tokenizer.decode(sentence.task.prefix))
    kept = [place for place in sentence.best.places if place is not None]
    blank = " " if words.needs_blanks(form[0]) else ""
    tokens = tokenizer.encode([text])[0]
    starts = [start for _, start in phrases.word_starts(tokenizer, tokens, 0)]
    if tokenizer.decode(tokens) != text:  # it has a form that has no tokens
        starts = [start for start, _ in spans.words(text)]
    starts = sorted({start for start in starts if least <= start < len(text)})[: phrases.MOST_CUTS]
    for place, start in enumerate(starts):
        if chosen is None and not any(one < start < other for one, other in kept):
            yield f"{text[:start]}{form}{blank}{text[start:]}"
        for after in [*starts, len(text)][place + 1 : place + 1 + (WIDEST if chosen is None else 1)]:
            end = start + len(text[start:after].rstrip())
            while end > start + 1 and not words.is_word_character(text[end - 1]):  # punctuation stays
                end -= 1
            if (chosen is None or start in chosen) and not any(start < other and end > one for one, other in kept):
                yield f"{text[:start]}{form}{text[end:]}"
    if chosen is None:
        yield f"{text}{blank if text else ''}{form}"
