"""Metrics of the cluster as this service sees it: latencies by broker, errors, bytes in flight."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, Literal

from prometheus_client import Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

Api = Literal["produce", "fetch"]

BUCKETS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)


class KafkaMetrics:
    """What the brokers have answered. Belongs to the event loop; a scrape only reads."""

    def __init__(self) -> None:
        self.in_flight_bytes: defaultdict[Api, int] = defaultdict(int)
        self._errors: Counter[tuple[Api, str]] = Counter()
        self._seconds = Histogram(
            "tidelog_kafka_request_seconds",
            "Time from a request to a broker to its response",
            ["api", "broker"],
            buckets=BUCKETS_SECONDS,
            registry=None,
        )

    def answered(self, api: Api, node: int, seconds: float) -> None:
        """Count a response of a broker."""
        self._seconds.labels(api, str(node)).observe(seconds)

    def failed(self, api: Api, code: str) -> None:
        """Count an error by Kafka's name; `no_answer` is one too."""
        self._errors[api, code] += 1

    def produce_buckets(self) -> list[tuple[float, float]]:
        """Return how long produce requests have taken: cumulative counts by upper bound."""
        counts: defaultdict[float, float] = defaultdict(float)
        for family in self._seconds.collect():
            for sample in family.samples:
                if sample.name.endswith("_bucket") and sample.labels["api"] == "produce":
                    counts[float(sample.labels["le"])] += sample.value
        return sorted(counts.items())

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield from self._seconds.collect()
        errors = CounterMetricFamily(
            "tidelog_kafka_errors", "Errors that brokers answered, by code", labels=["api", "code"]
        )
        for (api, code), count in sorted(self._errors.copy().items()):
            errors.add_metric([api, code], count)
        yield errors
        in_flight = GaugeMetricFamily(
            "tidelog_kafka_in_flight_bytes", "Bytes held for requests to brokers", labels=["api"]
        )
        for api, size_bytes in sorted(self.in_flight_bytes.copy().items()):
            in_flight.add_metric([api], size_bytes)
        yield in_flight
