"""Liveness, readiness and limits."""

from __future__ import annotations

from typing import Literal

from schemas.base import ResponseModel
from schemas.common import (
    Absent,
    Backend,
    Count,
    DamagedPlace,
    Int64,
    PartitionNumber,
    TopicShown,
)


class Liveness(ResponseModel):
    """The process is running."""

    status: Literal["live"]
    """Always `live`."""


class Recovery(ResponseModel):
    """Progress of opening the data directories."""

    opened_logs: Count
    """Logs that are open."""
    total_logs: Count
    """Logs to open."""
    loaded_group_logs: Count
    """Logs of the offsets topic whose group offsets have been loaded, once all logs are open."""
    total_group_logs: Count
    """Logs of the offsets topic to load."""


class OfflineLog(ResponseModel):
    """A log that could not be opened, refused until a restart; or a partition without a leader."""

    topic: TopicShown
    partition: PartitionNumber
    file: str
    """File with the problem; the partition's directory if no single file is known."""
    problem: str
    """What is wrong, for people."""


class ArchiveHealth(ResponseModel):
    """How the archive is; it never makes a service unready."""

    phase: Literal["starting", "running", "failing", "fenced"]
    """`starting`: the store was not reached yet; `failing`: the last pass could not archive
    everything; `fenced`: another data directory or process has taken the archive over."""
    lag_ms: Count
    """Greatest age of a committed record that may not be archived yet; 0 if all are."""
    url: str
    """Where the archive is."""
    problem: str | None
    """What went wrong last; null when all is well."""


class Readiness(ResponseModel):
    """Whether requests are served; every status but `ready` comes with 503."""

    status: Literal["ready", "recovering", "draining", "offline"]
    """`recovering`: logs are being opened; `draining`: the service is stopping; `offline`: a disk
    failed, or the Kafka cluster does not answer."""
    recovery: Recovery | Absent = None
    """Progress; only while `status` is `recovering`."""
    detail: str | Absent = None
    """What failed, for callers who may read `/metrics`: a data directory, or the connection to the
    Kafka cluster."""
    offline_directories_count: Count | Absent = None
    """Number of data directories that take no more writes, until a restart, because a disk failed;
    absent if there is none. Their logs refuse appends, and are read as far as the disk can be."""
    offline_logs_count: Count | Absent = None
    """Number of logs that could not be opened; absent if all are open. The others are served."""
    damaged_places_count: Count | Absent = None
    """Number of damaged places in logs that reads or the scrub have found and that are damaged
    still; a restart does not forget them. Absent if none is known."""
    damage: list[DamagedPlace] | Absent = None
    """The first 100 of these places, for callers who may read `/metrics`."""
    archive: ArchiveHealth | Absent = None
    """For callers who may read `/metrics`; absent without an archive."""
    offline_logs: list[OfflineLog] | Absent = None
    """The first 100 of these logs, for callers who may read `/metrics`; `tidelog repair` says what
    can be repaired."""


class Limits(ResponseModel):
    """Every limit of this service, and what stores its logs."""

    backend: Backend
    """`local`: the engine in this process; `kafka`: a Kafka cluster."""
    durability: Literal["fsync", "replicated"]
    """What `acks=all` waits for: a sync of the disk, or the replicas that are in sync."""
    limits: dict[str, Int64]
    """Values by the names in 413 and 503 responses; a name ends in its unit."""
