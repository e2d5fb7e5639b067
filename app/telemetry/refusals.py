"""Counts problem documents, and why requests to ingest URLs are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, get_args

from app.errors import InvalidSignature, SignatureFault
from app.http.problems import kind_of
from app.telemetry.metrics import Telemetry

_INGEST: Final = re.compile(r"/v1/topics/[^/]+/ingest(?:/.*)?")

_REASONS: Final[Mapping[str, str]] = {
    "append_outcome_unknown": "storage",
    "corrupt_batch": "digest",
    "credentials_unavailable": "unavailable",
    "cross_site_request": "cross_site",
    "draining": "unavailable",
    "forbidden": "forbidden",
    "idempotency_key_reused": "idempotency_key",
    "invalid_record": "invalid_record",
    "malformed_request": "malformed",
    "misdirected_request": "misdirected",
    "overloaded": "unavailable",
    "quota_exceeded": "quota",
    "recovering": "unavailable",
    "request_timeout": "timeout",
    "storage_full": "storage",
    "storage_offline": "storage",
    "too_large": "too_large",
    "topic_not_found": "topic_not_found",
    "unauthenticated": "credentials",
    "unsupported_media_type": "media_type",
}
"""By the code of the problem. Of signatures the reason is more exact than the code."""

_OTHER: Final = "other"

REASONS: Final = frozenset(
    {*_REASONS.values(), *(f"signature_{one}" for one in get_args(SignatureFault)), _OTHER}
)
"""Every value of the label `reason`."""


def count_problem(telemetry: Telemetry, error: Exception, path: str) -> None:
    """Count a problem document; belongs to the event loop."""
    code = kind_of(error).code
    telemetry.explained(code)
    if _INGEST.fullmatch(path):
        reason = _REASONS.get(code, _OTHER)
        if isinstance(error, InvalidSignature):
            reason = f"signature_{error.reason}"
        telemetry.ingest_refused(reason)
