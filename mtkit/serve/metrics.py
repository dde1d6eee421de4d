"""Counts what a server does, and writes it as Prometheus reads it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping

# Upper limits, in seconds.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Requests by endpoint and status, and how long they took."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.characters = 0
        self.warnings = 0
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._within: dict[str, list[int]] = {}

    def finish(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[endpoint, status] += 1
        self._seconds[endpoint] += seconds  # type: ignore[assignment]
        within = self._within.setdefault(endpoint, [0] * (len(_BUCKETS) + 1))
        within[bisect_left(_BUCKETS, seconds)] += 1

    def text(self, counts: Mapping[str, float], gauges: Mapping[str, float]) -> str:
        """The page of metrics, with other counts and gauges by their names."""
        return "".join(f"{line}\n" for line in self._lines(counts, gauges))

    def _lines(self, counts: Mapping[str, float], gauges: Mapping[str, float]) -> Iterator[str]:
        yield "# TYPE mtkit_requests_total counter"
        for (endpoint, status), count in sorted(self._requests.items()):
            yield f'mtkit_requests_total{{endpoint="{endpoint}",status="{status}"}} {count}'
        yield "# TYPE mtkit_request_seconds histogram"
        for endpoint, within in sorted(self._within.items()):
            label, total = f'endpoint="{endpoint}"', 0
            for limit, count in zip([*_BUCKETS, "+Inf"], within, strict=True):
                total += count
                yield f'mtkit_request_seconds_bucket{{{label},le="{limit}"}} {total}'
            yield f"mtkit_request_seconds_sum{{{label}}} {self._seconds[endpoint]:.6f}"
            yield f"mtkit_request_seconds_count{{{label}}} {total}"
        own = {"characters": self.characters, "text_warnings": self.warnings}
        for name, value in (own | dict(counts)).items():
            yield f"# TYPE mtkit_{name}_total counter"
            yield f"mtkit_{name}_total {value:.12g}"
        for name, value in ({"requests_in_flight": self.in_flight} | dict(gauges)).items():
            yield f"# TYPE mtkit_{name} gauge"
            yield f"mtkit_{name} {value:.12g}"
