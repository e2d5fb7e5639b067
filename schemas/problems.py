"""The problem document (RFC 9457) with Kafka's error number."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class RecordError(BaseModel):
    """What is wrong with one record or one parameter."""

    model_config = ConfigDict(frozen=True, extra="allow")

    index: int | None = None
    """Which record, from 0; null if it concerns none."""
    field: str | None = None
    code: str
    detail: str


class Problem(BaseModel):
    """Why a request failed, whether to try again, and whether anything may have been written.

    More members tell the facts: offsets of the log, the limit that was passed, what was expected.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    retryable: bool
    side_effects: Literal["none", "unknown"]
    kafka_error_code: int | None = None
    kafka_error: str | None = None
    errors: list[RecordError] | None = None
    trace_id: str
