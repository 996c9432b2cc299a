"""Terms of a glossary in translations: `python -m bench.glossary RUN TRAIN DEV [--engines torch,ctranslate2]`.

Terms are words and pairs of words of TRAIN that are frequent and nearly always translated alike there; DEV is never
used to find them. The run translates the sources of DEV that have a term with and without the glossary, and the others,
which must not change. With `--rare`, each term gets another translation than the model would choose: the second most
frequent one. A table is printed as Markdown.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import sacrebleu

import seq2see
from seq2see.decoding.translator import Result
from seq2see.documents.glossary import Glossary
from seq2see.run import Run
from seq2see.text import words
from seq2see.text.corpora import Pairs
from seq2see.text.pair import Pair


class Choice(NamedTuple):
    """How terms are chosen."""

    least: int = 25
    """Pairs of the training set that have the term."""
    share: float = 0.8
    """Share of these whose target has the translation."""
    lift: float = 8.0
    """How many times as often the translation comes with the term as without it."""
    most: int = 200
    rare: bool = False
    """Whether to take the second most frequent translation, which need not have that share."""


def phrases(text: str) -> set[str]:
    """Return the words of a text and the pairs of neighbours, in lower case."""
    found = [word.strip(".,:;!?()[]{}\"'“”…").lower() for word in text.split()]
    pairs = (f"{one} {two}" for one, two in pairwise(found) if one and two)
    return {phrase for phrase in (*found, *pairs) if phrase.replace(" ", "").isalpha() and len(phrase) > 3}


def forms(text: str) -> set[str]:
    """Return the words of a text, those in Korean without their particles."""
    return {form for word in text.split() for form in _stems(word.strip(".,:;!?()[]{}\"'“”…"))}


def _stems(word: str) -> Iterator[str]:
    if word.isalpha() and len(word) > 1:
        yield word
        for end in range(2, len(word)):
            if words.is_korean(word) and word[end:] in words.PARTICLES:
                yield word[:end]


def glossary_of(pairs: list[Pair], choice: Choice) -> dict[str, str]:
    """Return frequent terms with the translation that they nearly always have."""
    with_source, with_target, both = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    split = [(phrases(pair.source), forms(pair.target)) for pair in pairs]
    for sources, targets in split:
        with_source.update(sources)
        with_target.update(targets)
    frequent = {phrase for phrase, count in with_source.items() if count >= choice.least}
    for sources, targets in split:
        both.update((source, target) for source in sources & frequent for target in targets)
    ranked: dict[str, list[tuple[float, str]]] = {}
    for (source, target), count in both.items():
        outside = (with_target[target] - count) / max(1, len(pairs) - with_source[source])
        share = count / with_source[source]
        if share > choice.lift * outside and count >= 5:
            ranked.setdefault(source, []).append((share, target))
    found = {}
    for source, targets in ranked.items():
        best, *others = sorted(targets, key=lambda each: (-each[0], -len(each[1])))
        if best[0] < choice.share:
            continue
        different = [each for each in others if each[1] not in best[1] and best[1] not in each[1]]
        if not choice.rare:
            found[source] = best[1]
        elif different:
            found[source] = different[0][1]
    kept = sorted(found, key=lambda source: (-with_source[source], source))[: choice.most]
    return {source: found[source] for source in kept}


def translated(run: Run, engine: str, lines: list[str], glossary: Glossary | None) -> tuple[list[Result], float]:
    """Return the results, and the seconds of CPU time that they took."""
    chosen = run.engine(engine)
    begun = time.process_time()
    return run.search(lines, engine=chosen, glossary=glossary), time.process_time() - begun


def has(result: Result, glossary: Glossary, line: str) -> list[bool]:
    """Return for each term of a line whether the output has it, by a search of its own."""
    return [
        any(
            any(words.occurrences(result.text, form))
            for each in term.forms
            for form in (each, each[:1].upper() + each[1:])
        )
        for term in glossary.terms_in(line)
    ]


def chrf(results: list[Result], pairs: list[Pair]) -> float:
    return float(sacrebleu.corpus_chrf([each.text for each in results], [[pair.target for pair in pairs]]).score)


def measure(run: Run, engine: str, pairs: list[Pair], glossary: Glossary) -> None:
    """Print a row of the table for each of two ways, and what became of the terms."""
    asked = [pair for pair in pairs if glossary.terms_in(pair.source)]
    others = [pair for pair in pairs if not glossary.terms_in(pair.source)]
    translated(run, engine, [pair.source for pair in asked[:20]], None)  # the first search takes longest
    lines = [pair.source for pair in asked]
    plain, seconds = translated(run, engine, lines, None)
    held, longer = translated(run, engine, lines, glossary)
    rest = [pair.source for pair in others]
    before, without = translated(run, engine, rest, None)
    after, beside = translated(run, engine, rest, glossary)
    changed = sum(one != two for one, two in zip(before, after, strict=True))
    hows = Counter(term.how for result in held for term in result.translations[0].terms)
    for name, results, took in (("without", plain, seconds), ("with", held, longer)):
        shares = [each for result, line in zip(results, lines, strict=True) for each in has(result, glossary, line)]
        present = f"{sum(shares):,} of {len(shares):,} ({sum(shares) / len(shares):.1%})"
        speed = len(lines) / took
        print(
            f"| {run.engine(engine).name} | {name} | {present} | {chrf(results, asked):.2f} | {speed:,.0f} |",
            flush=True,
        )
    speeds = f"{len(rest) / without:,.0f} and {len(rest) / beside:,.0f} sentences/s"
    print(f"\n{engine}: {dict(hows.most_common())}; {len(asked):,} sentences with terms", end="; ")
    print(f"of {len(others):,} others {changed} changed, {speeds}\n", flush=True)


def main() -> None:
    """Find terms, translate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("train", type=str)
    parser.add_argument("dev", type=str)
    parser.add_argument("--engines", default="torch,ctranslate2")
    parser.add_argument("--rare", action="store_true", help="the second most frequent translations")
    parser.add_argument("--most", type=int, default=200, help="number of terms")
    given = parser.parse_args()
    terms = glossary_of(list(Pairs(given.train)), Choice(most=given.most, rare=given.rare))
    print(f"{len(terms):,} terms, such as {dict(list(terms.items())[:12])}", file=sys.stderr)
    glossary = Glossary.of(terms)
    print("| engine | glossary | terms present | chrF | sentences per second of CPU time |\n|---|---|---|---|---|")
    for engine in given.engines.split(","):
        measure(seq2see.load(given.run), engine, list(Pairs(given.dev)), glossary)


if __name__ == "__main__":
    main()
