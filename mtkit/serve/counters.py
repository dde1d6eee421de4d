"""Counts what a server does, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Counter, Histogram, disable_created_metrics, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mtkit.serve.scheduler import Scheduler

CONTENT_TYPE = exposition.CONTENT_TYPE_PLAIN_0_0_4

# Upper limits, in seconds.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Requests by endpoint and status, how long they took, and what the scheduler counts."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.in_flight = self.characters = self.warnings = 0
        self._scheduler = scheduler
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._requests = Counter(
            "mtkit_requests", "Requests.", ["endpoint", "status"], registry=None
        )
        self._seconds = Histogram(
            "mtkit_request_seconds", "Time.", ["endpoint"], buckets=_BUCKETS, registry=None
        )

    def finish(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(endpoint, status).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def text(self) -> bytes:
        """The page of metrics."""
        return exposition.generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """All metrics, for `prometheus_client`."""
        yield from (*self._requests.collect(), *self._seconds.collect())
        counts: dict[str, float] = {"characters": self.characters, "text_warnings": self.warnings}
        counts |= {f"decoded_{name}": n for name, n in self._scheduler.counts.items()}
        for name, value in counts.items():
            yield CounterMetricFamily(f"mtkit_{name}", name.replace("_", " "), value)
        gauges = {"requests_in_flight": self.in_flight, "queue_tokens": self._scheduler.waiting}
        for name, value in gauges.items():
            yield GaugeMetricFamily(f"mtkit_{name}", name.replace("_", " "), value)
