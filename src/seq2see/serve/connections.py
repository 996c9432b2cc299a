"""Fair shares for clients: limits of connections, the choice of those to close above the limits, and turns in reading
requests.

A client is an IPv4 address or an IPv6 network of 64 bits. Behind a reverse proxy, all connections are the proxy's.
"""

import asyncio
import heapq
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Protocol

TURN_SECONDS = 0.001
"""Maximum seconds for which requests of one client are parsed in its turn; and seconds after which clients get no
further turns in the same iteration of the event loop.
"""
MOST_BEGUN = 8
"""Number of requests passed to the app after which clients get no further turns in the same iteration of the event
loop. If each client got only one turn in an iteration, the first of its simultaneous requests would be sent to the
engine alone, and the others would wait until the engine is free again.
"""

PIPELINED_SECONDS = 0.02
"""Minimum seconds between two pipelined requests of one client (sent before earlier ones are answered). Browsers and
proxies do not pipeline; a client that does must not keep the event loop busy.
"""
TRIM_SECONDS = 0.1
"""Seconds from the arrival of a connection above a limit until idle connections are closed to keep the limit."""


class Connection(Protocol):
    """Interface of connections, as far as the class `Connections` uses them."""

    network: str
    """Network of the client's IP address, by which all connections of a client are counted together."""
    surplus: bool
    """Whether the connection is one too many (see `Connections.enter`): its requests are refused with 503, except for
    /health.
    """
    loop: asyncio.AbstractEventLoop

    def read_request(self) -> bool:
        """Parse at most one request from the received bytes, and return whether it was passed to the app."""
        ...

    @property
    def can_read(self) -> bool:
        """Return whether bytes have arrived that can be parsed now."""
        ...

    def drop(self, at_once: bool) -> None:
        """Close the connection: at once, or when data being sent has been sent."""
        ...


Several = OrderedDict[Connection, None]
"""Connections in the order in which they were added: a dictionary that is used as an ordered set."""


@dataclass
class _Client:
    """The connections of one client."""

    all: Several = field(default_factory=OrderedDict)
    fresh: Several = field(default_factory=OrderedDict)
    """Idle connections on which no request has been answered yet; the one that has been idle longest is first."""
    kept: Several = field(default_factory=OrderedDict)
    """Idle connections on which a request has been answered; the one that has been idle longest is first."""
    next_pipelined: float = 0.0
    """Earliest time, by the clock of the event loop, at which the client's next pipelined request is read."""

    @property
    def busy(self) -> int:
        """Return the number of connections on which a request is being answered."""
        return len(self.all) - len(self.fresh) - len(self.kept)

    @property
    def least_needed(self) -> Connection | None:
        """Return the idle connection to close first: the first of `fresh`, else the first of `kept`, else None."""
        return next(iter(self.fresh), None) or next(iter(self.kept), None)


class Connections:
    """All connections of a server, by client.

    Args:
        most: maximum number of connections that are served, for one client half of it. Up to twice as many are
            accepted: idle ones are then closed after `TRIM_SECONDS`, and if all are busy, the surplus ones (see
            `enter`) get an answer to /health only.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_each = max(1, most // 2)
        self._clients: dict[str, _Client] = {}
        self._count = 0
        self._lines: dict[str, Several] = {}
        """For each client, its connections that have bytes to read and wait for the client's turn."""
        self._is_turn_due = False
        self._is_trim_due = False

    def enter(self, newcomer: Connection) -> None:
        """Register a new connection, and enforce the limits.

        It is marked as surplus if its client has the maximum number of busy connections. If all clients together have
        the server's maximum of busy ones, the newest connection of the client with the most is closed, or the new one
        is marked as surplus if no client has more than its own would have. Above the limits, idle connections are
        closed after `TRIM_SECONDS`; above twice the limit of the server, an idle one or the new one is closed at once.
        """
        client = self._clients.setdefault(newcomer.network, _Client())
        if client.busy >= self._most_each:
            newcomer.surplus = True
        elif self._count >= self._most and sum(each.busy for each in self._clients.values()) >= self._most:
            greediest = self._greediest()
            newcomer.surplus = len(greediest.all) <= len(client.all) + 1
            if not newcomer.surplus:
                self._drop(next(reversed(greediest.all)), at_once=True)
        client.all[newcomer] = client.fresh[newcomer] = None
        self._clients[newcomer.network] = client
        self._count += 1
        if self._count > 2 * self._most and not self._drop_idle(1):
            self._drop(newcomer, at_once=True)
        elif self._is_too_many(client) and not self._is_trim_due:
            # Not at once: of many that have just come, those with a request are told from the others by then.
            self._is_trim_due = True
            newcomer.loop.call_later(TRIM_SECONDS, self._trim)

    def _is_too_many(self, client: _Client) -> bool:
        return len(client.all) > self._most_each or self._count > self._most

    def _trim(self) -> None:
        """Close idle connections above the limits; for the server's limit, those of the clients with the most."""
        self._is_trim_due = False
        for client in list(self._clients.values()):
            while len(client.all) > self._most_each and self._drop(client.least_needed):
                pass
        self._drop_idle(self._count - self._most)

    def _drop_idle(self, number: int) -> int:
        """Close up to `number` idle connections, and return how many were closed.

        Each belongs to the client that then has the most connections, among those with idle ones. Clients with at most
        half as many connections as the largest client keep theirs.
        """
        # Somebody's only connection is not closed for the sake of a client that keeps hundreds at work.
        least = len(self._greediest().all) / 2
        idle = [(-len(each.all), place) for place, each in enumerate(self._clients.values()) if each.least_needed]
        clients = list(self._clients.values())
        heapq.heapify(idle)
        dropped = 0
        while dropped < number and idle and -idle[0][0] > least:
            client = clients[idle[0][1]]
            dropped += self._drop(client.least_needed)
            if client.least_needed:
                heapq.heapreplace(idle, (-len(client.all), idle[0][1]))
            else:
                heapq.heappop(idle)
        return dropped

    def _greediest(self) -> _Client:
        return max(self._clients.values(), key=lambda each: len(each.all))

    def _drop(self, connection: Connection | None, at_once: bool = False) -> bool:
        if connection is None:
            return False
        self.leave(connection)
        connection.drop(at_once)
        return True

    def leave(self, connection: Connection) -> None:
        """Unregister a connection, if it is registered."""
        client = self._clients.get(connection.network)
        if client is None or connection not in client.all:
            return
        self._count -= 1
        for each in (client.all, client.fresh, client.kept):
            each.pop(connection, None)
        if not client.all:
            del self._clients[connection.network]

    def mark_busy(self, connection: Connection) -> None:
        """Mark a connection as busy, because a complete request has arrived: it will not be closed for lack of
        capacity.
        """
        if client := self._clients.get(connection.network):
            client.fresh.pop(connection, None)
            client.kept.pop(connection, None)

    def mark_idle(self, connection: Connection) -> None:
        """Mark a connection as idle, because all its requests are answered: it may be closed for lack of capacity."""
        client = self._clients.get(connection.network)
        if client and connection in client.all:
            client.fresh.pop(connection, None)
            client.kept[connection] = None

    def wait_to_go_on(self, connection: Connection) -> None:
        """Schedule the reading of the next pipelined request, `PIPELINED_SECONDS` or more after the previous one."""
        client, now = self._clients.get(connection.network), connection.loop.time()
        if client is not None:
            client.next_pipelined = max(client.next_pipelined, now) + PIPELINED_SECONDS
            connection.loop.call_later(client.next_pipelined - now, self.wait_for_turn, connection)

    def wait_for_turn(self, connection: Connection) -> None:
        """Schedule the reading of received bytes of a connection, after other connections of its client."""
        if not connection.can_read:
            return
        self._lines.setdefault(connection.network, OrderedDict())[connection] = None
        self._ask_for_turns(connection.loop)

    def _ask_for_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            loop.call_soon(self._give_turns, loop)

    def _give_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give waiting clients turns until `MOST_BEGUN` requests were passed to the app or `TURN_SECONDS` have passed.

        Each client gets one turn in every round. If clients still wait, rounds continue in the next iteration of the
        event loop.
        """
        self._is_turn_due = False
        ends, begun = time.monotonic() + TURN_SECONDS, 0
        while self._lines:
            begun += sum(self._give_turn(network) for network in list(self._lines))
            if begun >= MOST_BEGUN or time.monotonic() >= ends:
                break
        if self._lines:
            self._ask_for_turns(loop)

    def _give_turn(self, network: str) -> bool:
        """Read requests of a client until the app gets one, nothing is left to read, or `TURN_SECONDS` are over; return
        whether it got one.
        """
        line = self._lines[network]
        ends = time.monotonic() + TURN_SECONDS
        went_to_app = False
        while line and not went_to_app and time.monotonic() < ends:
            connection, _ = line.popitem(last=False)
            went_to_app = connection.read_request()
            if connection.can_read:
                line[connection] = None
        if not line:
            del self._lines[network]
        return went_to_app
