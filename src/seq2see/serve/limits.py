"""Limits of sizes and times, API keys, hosts and origins, request rates, and the error class of refusals."""

import hmac
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any

from seq2see.display.wording import translated
from seq2see.errors import SettingError

SHARED_HEADERS = [
    (b"access-control-allow-methods", b"GET, POST, DELETE"),
    (b"access-control-allow-headers", b"authorization, content-type, x-api-key"),
    (b"access-control-expose-headers", b"retry-after"),
    (b"vary", b"origin"),
]
"""CORS headers, besides Access-Control-Allow-Origin, that let a page of an allowed site read the response."""


@dataclass(frozen=True)
class Limits:
    """Limits of a request, the queue and a batch.

    Work is counted in tokens, as `jobs.cost` estimates it: a typical sentence costs about as many as it has source
    tokens, and more with a wide beam.
    """

    deadline: float = 30.0
    """Maximum seconds from the arrival of a request until it is answered or refused."""
    queue_requests: int = 256
    """Maximum number of requests in the queue of one engine; a further one is refused, or displaces one of a client
    with more than twice as many as its own client would have.
    """
    queue_tokens: int = 65_536
    """Estimated work in the queue of one engine, in tokens, from which further requests are refused."""
    batch_tokens: int = 2048
    """Maximum estimated work, in tokens, of one batch that an engine processes; a text with more is a batch alone."""
    characters: int = 10_000
    """Maximum number of characters in all texts of one request together; a request with more is refused."""
    texts: int = 100
    """Maximum number of texts in one request; a request with more is refused."""
    beam: int = 10
    """Maximum beam width that a request may ask for, unless that of the run is wider; a still wider one is refused."""
    output_tokens: int = 2048
    """Maximum number of output tokens for one text, whatever the settings of the run allow; the search ends there."""
    body_bytes: int = 256 * 1024
    """Maximum size in bytes of the body of a request; a larger one is refused."""
    body_seconds: float = 10.0
    """Maximum seconds for the client to send the body of a request, after which it is refused."""
    load_seconds: float = 300.0
    """Maximum seconds for an engine process to load its models, after which it counts as failed."""
    cached: int = 0
    """Maximum number of sentences of documents whose translations are cached, 0 for no cache; above it, the least
    recently used are dropped.
    """

    @property
    def longest(self) -> float:
        """Return the maximum seconds of a request: the longer of `deadline` and `body_seconds`, plus 1 to refuse it."""
        return max(self.deadline, self.body_seconds) + 1


class RefusedError(Exception):
    """HTTP error response: status, message in one line, seconds until a retry, and whether to close the connection.

    Args:
        details: further fields of the body, by which programs recognise the error (`SeqError.details`).
    """

    def __init__(
        self,
        status: int,
        line: str,
        retry_after: int | None = None,
        hang_up: bool = False,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(line)
        self.status = status
        self.line = line
        self.retry_after = retry_after
        self.hang_up = hang_up
        self.details = dict(details or {})

    def body(self, field: str = "error") -> dict[str, Any]:
        """Return the JSON body: the message in the language of the server, in the field `field`, and the details."""
        return {field: translated(self.line)} | self.details


class Keys:
    """API keys, compared in constant time, so that timing reveals nothing about them."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    @staticmethod
    def read(path: Path) -> "Keys":
        """Read a file with one key per line; empty lines and comments (#) are skipped."""
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()  # some editors begin a file with a BOM
        except UnicodeDecodeError:
            raise SettingError(f"{path}: not UTF-8. Save it as UTF-8, with one key per line") from None
        keys = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
        if not keys:
            raise SettingError(f"{path}: contains no key. Write one key per line, or leave --api-keys out")
        return Keys(keys)

    def check(self, given: str | None) -> None:
        """Raise a refusal if the key is missing or unknown."""
        if not given:
            raise RefusedError(401, "an API key is required: send it as 'Authorization: Bearer KEY'")
        right = False
        for digest in (_digest(given), _digest(_from_header(given))):
            for each in self._digests:  # all of them, whichever it is
                right |= hmac.compare_digest(each, digest)
        if not right:
            raise RefusedError(403, "unknown API key")


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


def _from_header(text: str) -> str:
    """Return the key in a header: most clients send UTF-8, which HTTP libraries decode as Latin-1."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def unmapped(address: str) -> str:
    """Return the IPv4 address of a client whose address is IPv4-mapped IPv6; other addresses are returned unchanged."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or found) if isinstance(found, IPv6Address) else address


@lru_cache(1024)
def network(address: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or the first 64 bits of an IPv6 address."""
    try:
        found = ip_address(unmapped(address))
    except ValueError:  # a proxy may call a client something else
        return address
    return str(found) if found.version == 4 else str(ip_network((int(found), 64), strict=False))


def host_names(allowed: Sequence[str]) -> set[str]:
    """Return the values of --allow-host as a Host header has them, without a port; raise a SettingError if one is no
    host name.
    """
    names = {each.lower().rstrip(".") for each in allowed}
    for each in names - {"*"}:
        if not re.fullmatch(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\]", each):
            raise SettingError(
                f"--allow-host {each}: expected a host name without scheme, port or path, such as translate.example.org"
            )
    return names


class Origins:
    """Decides which web pages may send requests: our own, and those of sites that the operator allows.

    Args:
        allowed: origins as a browser sends them, `https://example.org`; `*` for all.
        hosts: names in the Host header that are accepted; None, or `*` in `allowed`: any. By DNS rebinding, a site can
            make its own name lead to this machine; a browser then takes the service for that site, and only the name in
            the Host header tells them apart.
        addresses: whether any IP address is accepted as well: no site can have one as its name.
    """

    def __init__(
        self, allowed: Sequence[str] = (), hosts: Collection[str] | None = None, addresses: bool = False
    ) -> None:
        self._allowed = {each.lower().rstrip("/") for each in allowed}
        for each in self._allowed - {"*"}:
            if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", each):
                raise SettingError(
                    f"--allow-origin {each}: expected an origin such as https://example.org, or * for all"
                )
        named = {_without_port(each.partition("://")[2]) for each in self._allowed}  # a proxy may hand on its own name
        self._hosts = None if hosts is None or "*" in self._allowed else {*hosts, *named}
        self._addresses = addresses

    def check(self, method: str, headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """Return the CORS headers that let a page of another site read the response; empty if it may not, or need not.

        Raise a refusal if the host is not accepted, or a page that is not allowed sends anything but GET or HEAD.
        """
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if host and not self._is_ours(_without_port(host)):
            raise RefusedError(
                403, "Host: this host name is not allowed; start the service with --allow-host NAME to allow it"
            )
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        if not origin or (host and origin.partition("://")[2] == host):
            return []
        if "*" not in self._allowed and origin not in self._allowed:
            if method not in ("GET", "HEAD"):
                raise RefusedError(
                    403, "Origin: pages of this site may not send requests here; --allow-origin allows them"
                )
            return []
        return [(b"access-control-allow-origin", origin.encode("latin-1")), *SHARED_HEADERS]

    def _is_ours(self, name: str) -> bool:
        return self._hosts is None or name in self._hosts or (self._addresses and _is_address(name))


def _without_port(host: str) -> str:
    return re.sub(r":[0-9]*$", "", host).rstrip(".")


def _is_address(name: str) -> bool:
    """Return whether a name is an IPv4 address, or an IPv6 address in brackets."""
    is_bracketed = name.startswith("[") and name.endswith("]")
    try:
        return (ip_address(name[1:-1] if is_bracketed else name).version == 6) == is_bracketed
    except ValueError:
        return False


class Rates:
    """Limit of requests per minute for each client; after a pause, up to a minute's requests may come at once."""

    MOST_CLIENTS = 10_000
    """Maximum number of clients whose rates are remembered; the client that has sent nothing for the longest time is
    forgotten first.
    """

    def __init__(self, each_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._each_minute = each_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str) -> None:
        now = self._clock()
        left, before = self._left.pop(client, (float(self._each_minute), now))
        left = min(self._each_minute, left + (now - before) * self._each_minute / 60)
        self._left[client] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > self.MOST_CLIENTS:
            self._left.popitem(last=False)
        if left < 1:
            wait = (1 - left) * 60 / self._each_minute
            raise RefusedError(429, f"more than {self._each_minute} requests per minute", int(wait) + 1)
