"""Liveness, readiness and limits."""

from __future__ import annotations

from typing import Literal

from schemas.base import Model
from schemas.common import Count, PartitionNumber


class Liveness(Model):
    """The process answers."""

    status: Literal["live"]


class Recovery(Model):
    """How far opening the data directory has come."""

    opened_logs: int
    total_logs: int
    loaded_group_logs: int
    """Logs of the offsets topic whose group offsets have been read, after all are open."""
    total_group_logs: int


class OfflineLog(Model):
    """A log that could not be opened: its reads and appends are refused until a restart."""

    topic: str
    partition: PartitionNumber
    file: str
    """Where the problem is; the partition's directory if no single file is known."""
    problem: str


class Readiness(Model):
    """Whether requests are served; everything but `ready` comes with status 503."""

    status: Literal["ready", "recovering", "draining", "offline"]
    recovery: Recovery | None = None
    detail: str | None = None
    offline_logs_count: Count | None = None
    """How many logs could not be opened; absent if all are open. The others are served."""
    offline_logs: list[OfflineLog] | None = None
    """The first hundred of them; `tidelog repair` tells what can be put right."""


class Limits(Model):
    """Every limit of this service by the name that its 413 and 503 answers use."""

    limits: dict[str, int]
