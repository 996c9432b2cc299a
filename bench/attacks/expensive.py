"""One client that asks for as much as it may, again and again: `python -m bench.attacks.expensive RUN`.

It keeps a few requests in flight, each the most expensive that the limits allow: long texts with the widest beam, many
short texts with the widest beam, and lines of distinct characters to the conversation route.
"""

import asyncio
import itertools
import random
from typing import Any

from bench.attacks import polite

CHARACTERS, TEXTS, BEAM = 10_000, 100, 10
"""The default limits of `seq2see serve`."""
IN_FLIGHT = 6
"""Requests that the client has under way at once."""


def distinct_characters(count: int) -> str:
    """Return a text of this many different characters, most of which no tokenizer has seen."""
    printable = (chr(code) for code in range(0x4E00, 0x20000) if chr(code).isprintable())
    return "".join(itertools.islice(printable, count))


def requests(texts: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Route and body of each kind of expensive request."""
    dice = random.Random(1)

    def text_of(characters: int) -> str:
        words: list[str] = []
        while sum(map(len, words)) + len(words) < characters:
            words.append(dice.choice(texts))
        return " ".join(words)[:characters]

    return [
        ("/v1/translate", {"text": [text_of(880) for _ in range(11)], "beam": BEAM}),
        ("/v1/chat", {"text": distinct_characters(CHARACTERS - 10)}),
        ("/v1/translate", {"text": [text_of(CHARACTERS // TEXTS) for _ in range(TEXTS)], "beam": BEAM}),
        ("/v1/translate", {"text": text_of(CHARACTERS), "beam": BEAM}),
        ("/v1/translate", {"text": [distinct_characters(900)] * 11, "beam": BEAM}),
        ("/v1/translate", {"text": ["a"] * TEXTS, "beam": BEAM, "n_best": BEAM}),
        ("/detect", {"q": distinct_characters(CHARACTERS - 10)}),
    ]


async def attack(target: polite.Target) -> None:
    """Keep so many of them under way, and come again soon after a refusal."""
    rest = itertools.cycle(requests(target.texts))

    async def one() -> None:
        while True:
            path, fields = next(rest)
            if await target.post(path, fields) != 200:
                await asyncio.sleep(0.2)

    await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))


if __name__ == "__main__":
    polite.main("expensive", attack)
