"""The archive as Prometheus' families: whether it is well, and how far it is behind."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from engine.archive.archiver import ArchivePhase, Archiver


def archive_gauges(archiver: Archiver) -> Iterator[Metric]:
    """Yield every family; no metric of the archive exists without one."""
    phase = archiver.report.phase
    archives = archiver.partitions.values()
    for name, documentation, value in (
        (
            "lag_seconds",
            "Age of the oldest record that may not be archived",
            archiver.lag_ms / 1000,
        ),
        ("lag_bytes", "Committed bytes that are not archived", sum(a.lag_bytes for a in archives)),
        ("failing", "Whether the last pass failed", phase is not ArchivePhase.RUNNING),
        ("fenced", "Whether another writer owns the archive", phase is ArchivePhase.FENCED),
    ):
        yield GaugeMetricFamily(f"tidelog_archive_{name}", documentation, value)
