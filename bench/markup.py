"""Tags and placeholders through a trained model: are they all there, and does the translation suffer?

    python -m bench.markup RUN SOURCES REFERENCES [--sentences 2000] [--seed 1]

Random inline elements (nested, empty, self-closing, many around several words) and placeholders of all kinds are
put into real sentences, which are translated as one HTML document. The table has, as Markdown:

- well-formed: translated sentences that an XML parser reads, and that have each tag of the source exactly once;
- placeholders that come out exactly once: in plain lines without protection; by the model and the alignment alone; and
  after those that neither told the place of were placed by their share of the length;
- BLEU of the translations without tags and placeholders, beside that of the plain sentences.

The second row has placeholders in the place of words instead of between them.
"""

import argparse
import random
import re
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path

import sacrebleu

import seq2see

NAMES = ("b", "i", "em", "strong", "span", "u", "a", "mark")
PLACEHOLDERS = (
    "%s",
    "%d",
    "%(name)s",
    "%1",
    "{0}",
    "{name}",
    "{{user}}",
    "${x}",
    "https://example.org/a",
    "a@example.org",
)
TAG = re.compile("<[^<>]*>")


class Marked:
    """A sentence with random tags and placeholders."""

    def __init__(self, sentence: str, dice: random.Random, number: int, replaces: bool) -> None:
        words = sentence.split()
        before: list[list[str]] = [[] for _ in range(len(words) + 1)]
        after: list[list[str]] = [[] for _ in range(len(words) + 1)]
        self._elements(0, len(words), dice, before, after, dice.randint(1, 3), f"{number}")
        for empty in range(dice.randint(0, 1)):
            tag = dice.choice(["<img src='{}.png'/>", "<wbr id='{}'/>", "<a id='{}'></a>"]).format(f"{number}-{empty}")
            before[dice.randrange(len(words))].append(tag)
        self.placeholders = dice.sample(PLACEHOLDERS, dice.randint(0, 2))
        places = dice.sample(range(1, len(words)), min(len(words) - 1, len(self.placeholders)))
        self.placeholders = self.placeholders[: len(places)]
        said = []
        for place, word in enumerate(words):
            placed = self.placeholders[places.index(place)] if place in places else ""
            ending = word[len(word.rstrip(".,!?")) :]
            text = escape(word) if not placed else placed + ending if replaces else f"{placed} {escape(word)}"
            said.append("".join(before[place]) + text + "".join(after[place]))
        self.text = " ".join(said)

    def _elements(
        self,
        start: int,
        end: int,
        dice: random.Random,
        before: list[list[str]],
        after: list[list[str]],
        count: int,
        number: str,
    ) -> None:
        """Put elements around words, one after another, some with others inside."""
        at = start
        for place in range(count):
            if end - at < 1:
                return
            first = dice.randrange(at, end)
            last = min(end, first + dice.randint(1, 4))
            name = dice.choice(NAMES)
            before[first].append(f"<{name} id='{number}-{place}'>")
            if last - first > 1 and dice.random() < 0.4:
                self._elements(first, last, dice, before, after, 1, f"{number}-{place}")
            after[last - 1].append(f"</{name}>")
            at = last


def is_well_formed(source: str, said: str) -> bool:
    try:
        ElementTree.fromstring(f"<p>{said}</p>".replace("&nbsp;", " "))
    except ElementTree.ParseError:
        return False
    return Counter(TAG.findall(said)) == Counter(TAG.findall(source))


def stripped(text: str, placeholders: Sequence[str]) -> str:
    """Return a text without tags and placeholders."""
    text = unescape(TAG.sub("", text))
    for placeholder in sorted(placeholders, key=len, reverse=True):
        text = text.replace(placeholder, "")
    return " ".join(re.sub(r"\s+([.,!?])", r"\1", text).split())


def once(marked: Sequence[Marked], lines: Sequence[str]) -> tuple[int, int]:
    """Return how many placeholders occur exactly once in their lines, and how many there are."""
    found = [
        unescape(line).count(each) == 1 for mark, line in zip(marked, lines, strict=True) for each in mark.placeholders
    ]
    return sum(found), len(found)


def measure(run: seq2see.Run, sentences: list[str], references: list[str], seed: int, replaces: bool) -> list[str]:
    """Return one row of the table."""
    dice = random.Random(seed)
    marked = [Marked(sentence, dice, number, replaces) for number, sentence in enumerate(sentences)]
    started = time.perf_counter()
    joined = run.translate_text("".join(f"<p>{each.text}</p>\n" for each in marked), "html")
    seconds = time.perf_counter() - started
    lines = re.findall("<p>(.*?)</p>\n", joined.text, re.DOTALL)
    assert len(lines) == len(marked)
    plain = run.translate(sentences)
    naive = run.translate([unescape(TAG.sub("", each.text)) for each in marked])
    counts = joined.counts
    good = sum(is_well_formed(each.text, line) for each, line in zip(marked, lines, strict=True))
    placed, total = once(marked, lines)
    bare = [stripped(line, each.placeholders) for each, line in zip(marked, lines, strict=True)]

    def bleu(said: list[str]) -> float:
        return float(sacrebleu.corpus_bleu(said, [references]).score)

    own = (counts.copied + counts.aligned) / max(1, counts.placeholders)
    print(f"{seconds:.1f} s, {counts}", file=sys.stderr)
    return [
        "instead of words" if replaces else "between words",
        f"{good / len(marked):.2%}",
        f"{1 - counts.tags_guessed / max(1, counts.tags):.2%} of {counts.tags:,}",
        f"{once(marked, naive)[0] / max(1, total):.1%}",
        f"{own:.2%} of {counts.placeholders:,}",
        f"{placed / max(1, total):.2%}",
        "" if replaces else f"{bleu(bare):.2f}",  # words are missing there, and so they are from no reference
        "" if replaces else f"{bleu(plain):.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("references", type=Path)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    pairs = list(
        zip(*(path.read_text("utf-8").splitlines() for path in (given.sources, given.references)), strict=True)
    )
    pairs = [pair for pair in pairs if len(pair[0].split()) > 3]
    pairs = (pairs * (given.sentences // len(pairs) + 1))[: given.sentences]
    sentences, references = ([" ".join(pair[side].split()) for pair in pairs] for side in (0, 1))
    run = seq2see.load(given.run)
    print("| placeholders | well-formed, all tags | tags by alignment | once, unprotected |", end="")
    print(" once, by model and alignment | once, after repair | BLEU, stripped | BLEU, plain |")
    print("|---|---|---|---|---|---|---|---|")
    for replaces in (False, True):
        print(f"| {' | '.join(measure(run, sentences, references, given.seed, replaces))} |", flush=True)


if __name__ == "__main__":
    main()
