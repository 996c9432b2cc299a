"""Glossaries that clients of DeepL's API have created, in memory: each belongs to the client that created it.

They are lost when the service ends. The numbers of glossaries and terms are limited for each client and for all clients
together.
"""

import asyncio
import contextlib
import csv
import io
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from uuid import uuid4

from seq2see.documents.glossary import BETWEEN, Glossary, GlossaryEntry
from seq2see.errors import DataError
from seq2see.serve.limits import RefusedError
from seq2see.text.words import Term

MOST_EACH = 100
"""Maximum number of glossaries that one client may store; a further one is refused with status `QUOTA`."""
MOST = 1000
"""Maximum number of stored glossaries of all clients together; a further one is refused with status `QUOTA`."""
MOST_TERMS_EACH = 20_000
"""Maximum number of terms in all stored glossaries of one client together; a glossary that would exceed it is refused
with status `QUOTA`.
"""
MOST_TERMS = 200_000
"""Maximum number of terms in all stored glossaries of all clients together, which take about 100 MB of memory; a
glossary that would exceed it is refused with status `QUOTA`.
"""
QUOTA = 456
"""HTTP status, not standardised, with which DeepL's API reports an exceeded quota."""
EntriesFormat = Literal["tsv", "csv"]


@dataclass(frozen=True)
class StoredGlossary:
    """A glossary with its name, its languages and the time of its creation, as reported to its client."""

    id: str
    name: str
    source: str
    target: str
    terms: Glossary
    created: datetime

    @property
    def entries(self) -> str:
        """Return the entries as lines, each with a term, a tab and its translation."""
        return "\n".join(f"{each.source}\t{BETWEEN.join(each.forms)}" for each in self.terms.entries.values())


class GlossaryStore:
    """The glossaries of all clients."""

    def __init__(self) -> None:
        self._of_clients: dict[str, dict[str, StoredGlossary]] = {}
        self._one_at_a_time = asyncio.Lock()
        """Lock that lets only one thread work on glossaries, since several would slow down the event loop."""
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    async def create(
        self, client: str, name: str, source: str, target: str, entries: str, format: EntriesFormat
    ) -> StoredGlossary:
        """Create a glossary.

        Its terms are indexed in another thread, which takes half a second for ten thousand terms. Only other requests
        that create or use a glossary wait for it.
        """
        async with self._turn_of(client), self._one_at_a_time:
            terms = await asyncio.to_thread(_glossary, entries, format)
            self._check(client, len(terms))
            made = StoredGlossary(str(uuid4()), name, source, target, terms, datetime.now(UTC))
            self._of_clients.setdefault(client, {})[made.id] = made
        return made

    def _check(self, client: str, new: int) -> None:
        """Raise a refusal if one more glossary, with `new` terms, would exceed the limits of this or of all clients."""
        own = self.of(client)
        every = [each for some in self._of_clients.values() for each in some.values()]
        if len(own) >= MOST_EACH or sum(len(each.terms) for each in own) + new > MOST_TERMS_EACH:
            raise RefusedError(
                QUOTA,
                f"at most {MOST_EACH:,} glossaries with {MOST_TERMS_EACH:,} terms in total. Delete one that is "
                "not needed any more",
            )
        if len(every) >= MOST or sum(len(each.terms) for each in every) + new > MOST_TERMS:
            raise RefusedError(QUOTA, "this server cannot store more glossaries")

    async def find_terms(self, client: str, glossary: StoredGlossary, lines: Sequence[str]) -> list[list[Term]]:
        """Return the terms of a glossary in each line.

        This may take 50 ms for 10,000 characters, so it is done in another thread, for one request at a time; clients
        take turns.
        """
        async with self._turn_of(client), self._one_at_a_time:
            return await asyncio.to_thread(lambda: [glossary.terms.terms_in(line) for line in lines])

    @contextlib.asynccontextmanager
    async def _turn_of(self, client: str) -> AsyncIterator[None]:
        """Let only one request of a client at a time wait for `_one_at_a_time`, so that the clients take turns."""
        turn = self._turns.setdefault(client, asyncio.Lock())
        self._waiting[client] += 1
        try:
            async with turn:
                yield
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client], self._turns[client]

    def of(self, client: str) -> list[StoredGlossary]:
        """Return the glossaries of a client, oldest first."""
        return list(self._of_clients.get(client, {}).values())

    def find(self, client: str, id: str) -> StoredGlossary:
        """Return a glossary of a client; raise a refusal (404) if this client has none with this id."""
        try:
            return self._of_clients[client][id]
        except KeyError:
            raise RefusedError(
                404, "there is no glossary with this id; glossaries are deleted when the server restarts"
            ) from None

    def delete(self, client: str, id: str) -> None:
        """Delete a glossary of a client."""
        self.find(client, id)
        del self._of_clients[client][id]
        if not self._of_clients[client]:
            del self._of_clients[client]


def _glossary(entries: str, format: EntriesFormat) -> Glossary:
    try:
        found = Glossary(_entries(entries, format), "entries")
    except (DataError, csv.Error) as problem:
        raise RefusedError(400, str(problem)) from None
    if not found.entries:
        raise RefusedError(400, "entries: no terms in it")
    return found


def _entries(text: str, format: EntriesFormat) -> Iterator[GlossaryEntry]:
    """Yield the entries of a table with two columns, term and translation; CSV may have two more, for the languages."""
    most = 2 if format == "tsv" else 4
    rows = (line.split("\t") for line in text.splitlines()) if format == "tsv" else csv.reader(io.StringIO(text))
    for number, cells in enumerate(rows, 1):
        if not any(cell.strip() for cell in cells):
            continue
        if not 2 <= len(cells) <= most or not cells[1].strip():
            raise RefusedError(400, f"entries, line {number}: expected two columns, a term and its translation")
        if number > 2 * MOST_TERMS_EACH:
            raise RefusedError(QUOTA, f"entries: more than {MOST_TERMS_EACH:,} terms")
        yield GlossaryEntry(cells[0], (cells[1],), f"entries, line {number}")
