"""Liveness, readiness and limits."""

from __future__ import annotations

from typing import Literal

from schemas.base import Model


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


class Readiness(Model):
    """Whether requests are served; everything but `ready` comes with status 503."""

    status: Literal["ready", "recovering", "draining", "offline"]
    recovery: Recovery | None = None
    detail: str | None = None


class Limits(Model):
    """Every limit of this service by the name that its 413 and 503 answers use."""

    limits: dict[str, int]
