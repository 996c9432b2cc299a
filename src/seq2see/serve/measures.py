"""Counters and gauges for Prometheus. No label comes from a request."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServiceMetrics:
    """All metrics of a service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"seq2see_{name}", about, labels, registry=self.registry)

        def histogram(name: str, about: str, label: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"seq2see_{name}", about, [label], buckets=buckets, registry=self.registry)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"seq2see_{name}", about, ["engine"], registry=self.registry)

        self.requests = counter("requests", "Requests answered.", "method", "endpoint", "status")
        self.seconds = histogram(
            "request_seconds", "From a request to the end of its answer.", "endpoint", buckets=SECONDS
        )
        self.batches = histogram("batch_requests", "Requests that shared a batch.", "engine", buckets=SIZES)
        self.batch_seconds = histogram("batch_seconds", "For a batch.", "engine", buckets=SECONDS)
        self.tokens = counter("tokens", "Source tokens times beam, estimated, that engines were given.", "engine")
        self.restarts = counter("engine_restarts", "Engine processes that ended and were replaced.", "engine")
        self.abandoned = counter(
            "abandoned", "Requests whose client hung up, or whose deadline passed, before the answer.", "engine"
        )
        self.log_lines_dropped = counter(
            "log_lines_dropped", "Lines of the log that could not be written to standard error."
        )
        self.ready = gauge("ready", "Whether an engine is loaded.")
        self.queue_requests = gauge("queue_requests", "Requests that wait.")
        self.queue_tokens = gauge("queue_tokens", "Their estimated work.")
