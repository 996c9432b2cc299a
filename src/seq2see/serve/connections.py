"""Fair shares for clients: how many connections each may hold, which are closed when room gets short, whose turn it is.

A client is an IPv4 address or an IPv6 network of 64 bits. Behind a reverse proxy, all connections are the proxy's.
"""

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Protocol

TURN_SECONDS = 0.001
"""Time that the requests of one client may be read for, in one iteration of the event loop."""


class Connection(Protocol):
    """What has to be known of a connection to share fairly."""

    network: str
    """The client that it belongs to."""
    surplus: bool
    """Whether it is one too many: only /health is answered then."""
    loop: asyncio.AbstractEventLoop

    def read_request(self) -> bool:
        """Read up to one request from what has arrived, and tell whether it went to the app."""
        ...

    @property
    def can_read(self) -> bool:
        """Whether something has arrived that could be read now."""
        ...

    def drop(self, at_once: bool) -> None:
        """Close the connection."""
        ...


Several = OrderedDict[Connection, None]
"""A set that keeps its order."""


@dataclass
class _Client:
    """The connections of one client."""

    all: Several = field(default_factory=OrderedDict)
    fresh: Several = field(default_factory=OrderedDict)
    """Idle, and no request has been answered on them: those that have waited for longest come first."""
    kept: Several = field(default_factory=OrderedDict)
    """Idle after an answer, in the same order."""

    def least_needed(self, newcomer: Connection) -> Connection | None:
        """Find the connection to close first: one that was never used, else the one that has been idle for longest."""
        for idle in (self.fresh, self.kept):
            for connection in idle:
                if connection is not newcomer:
                    return connection
        return None


class Connections:
    """All connections of a server, by client.

    Args:
        most: connections that are served; one client may hold half of them. Where all of these are at work, as many
            again are taken, on which only /health is answered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._clients: dict[str, _Client] = {}
        self._count = 0
        self._lines: dict[str, Several] = {}
        """By client, the connections with something to read that wait for the turn of the client."""
        self._is_turn_due = False

    def enter(self, newcomer: Connection) -> None:
        """Take a connection in, and close another one where there is no more room."""
        client = self._clients.setdefault(newcomer.network, _Client())
        client.all[newcomer] = client.fresh[newcomer] = None
        self._count += 1
        if len(client.all) > max(1, self._most // 2):
            newcomer.surplus = not self._drop(client.least_needed(newcomer))
        elif self._count > self._most:
            self._make_room(client, newcomer)
        if self._count > 2 * self._most:
            self._drop(newcomer, at_once=True)

    def _make_room(self, client: _Client, newcomer: Connection) -> None:
        """Close an idle connection of the client that holds most; where none is idle, its newest one."""
        greediest = max(self._clients.values(), key=lambda each: len(each.all))
        idle = max(
            self._clients.values(), key=lambda each: len(each.all) if each.least_needed(newcomer) is not None else 0
        )
        # Somebody's only idle connection is not closed for the sake of a client that keeps hundreds at work.
        if 2 * len(idle.all) > len(greediest.all) and self._drop(idle.least_needed(newcomer)):
            return
        if len(greediest.all) > len(client.all):
            self._drop(next(reversed(greediest.all)), at_once=True)
        else:
            newcomer.surplus = True

    def _drop(self, connection: Connection | None, at_once: bool = False) -> bool:
        if connection is None:
            return False
        self.leave(connection)
        connection.drop(at_once)
        return True

    def leave(self, connection: Connection) -> None:
        """Forget a connection; it may have been forgotten before."""
        client = self._clients.get(connection.network)
        if client is None or connection not in client.all:
            return
        self._count -= 1
        for each in (client.all, client.fresh, client.kept):
            each.pop(connection, None)
        if not client.all:
            del self._clients[connection.network]

    def mark_busy(self, connection: Connection) -> None:
        """Keep a connection open: a whole request has come on it."""
        if client := self._clients.get(connection.network):
            client.fresh.pop(connection, None)
            client.kept.pop(connection, None)

    def mark_idle(self, connection: Connection) -> None:
        """Let a connection be closed when room gets short: its requests have been answered."""
        client = self._clients.get(connection.network)
        if client and connection in client.all:
            client.fresh.pop(connection, None)
            client.kept[connection] = None

    def wait_for_turn(self, connection: Connection) -> None:
        """Have a connection read when it is the turn of its client, after others of that client that wait."""
        self._lines.setdefault(connection.network, OrderedDict())[connection] = None
        self._ask_for_turns(connection.loop)

    def _ask_for_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            loop.call_soon(self._give_turns, loop)

    def _give_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let each client begin one request; of those that are refused at once, as many as fit into its time."""
        self._is_turn_due = False
        for network, line in list(self._lines.items()):
            ends = time.monotonic() + TURN_SECONDS
            went_to_app = False
            while line and not went_to_app and time.monotonic() < ends:
                connection, _ = line.popitem(last=False)
                went_to_app = connection.read_request()
                if connection.can_read:
                    line[connection] = None
            if not line:
                del self._lines[network]
        if self._lines:
            self._ask_for_turns(loop)
