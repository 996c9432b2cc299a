"""What an operator can watch: counters and gauges, in the words of Prometheus. No label comes from a request."""

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Measures:
    """All of them, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self._requests = Counter(
            "seq2see_requests", "Requests answered.", ["method", "endpoint", "status"], registry=registry
        )
        self._seconds = Histogram(
            "seq2see_request_seconds", "From a request to the end of its answer.", ["endpoint"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._batches = Histogram(
            "seq2see_batch_requests", "Requests that shared a batch.", ["engine"], buckets=SIZES, registry=registry
        )
        self._batch_seconds = Histogram(
            "seq2see_batch_seconds", "For a batch.", ["engine"], buckets=SECONDS, registry=registry
        )
        self._tokens = Counter(
            "seq2see_tokens", "Source tokens times beam, estimated, that engines were given.", ["engine"],
            registry=registry,
        )  # fmt: skip
        self._restarts = Counter(
            "seq2see_engine_restarts", "Engine processes that ended and were replaced.", ["engine"], registry=registry
        )
        self._hang_ups = Counter(
            "seq2see_abandoned", "Requests whose client hung up, or whose deadline passed, before the answer.",
            ["engine"], registry=registry,
        )  # fmt: skip

        self.log_lines_dropped = Counter(
            "seq2see_log_lines_dropped", "Lines of the log that could not be written to standard error.",
            registry=registry,
        )  # fmt: skip

        self._labelled = cache(
            lambda method, endpoint, status: (
                self._requests.labels(method, endpoint, str(status)),
                self._seconds.labels(endpoint),
            )
        )

    def request(self, method: str, endpoint: str, status: int, seconds: float) -> None:
        count, histogram = self._labelled(method, endpoint, status)
        count.inc()
        histogram.observe(seconds)

    def heard(self, what: str, engine: str, *numbers: float) -> None:
        """What a lane tells of."""
        match what:
            case "batch":
                requests, tokens, seconds = numbers
                self._batches.labels(engine).observe(requests)
                self._batch_seconds.labels(engine).observe(seconds)
                self._tokens.labels(engine).inc(tokens)
            case "restart":
                self._restarts.labels(engine).inc()
            case "hang_up":
                self._hang_ups.labels(engine).inc()

    def gauge(self, name: str, about: str, engine: str, value: Callable[[], float]) -> None:
        """One that is asked for its value when somebody looks."""
        if name not in self._gauges:
            self._gauges[name] = Gauge(name, about, ["engine"], registry=self._registry)
        self._gauges[name].labels(engine).set_function(value)

    def text(self) -> bytes:
        return generate_latest(self._registry)
