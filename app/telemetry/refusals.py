"""Counts problem documents, and remembers why requests to ingest URLs were refused."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from typing import Final, NamedTuple, get_args
from urllib.parse import unquote

from app.errors import InvalidSignature, SignatureFault
from app.http.problems import kind_of
from app.telemetry.metrics import Telemetry

_INGEST: Final = re.compile(r"/v1/topics/([^/]+)/ingest(?:/.*)?")

MAX_REFUSALS_OF_TOPIC: Final = 20
"""The last ones are kept."""

MAX_TOPICS: Final = 1_000
"""Topics whose refusals are kept: those that refused last."""

MAX_DETAIL: Final = 500
"""Characters of what a refusal said."""


class Refusal(NamedTuple):
    """A request to an ingest URL of a topic that was refused."""

    timestamp: int
    """Milliseconds since the epoch."""
    reason: str
    """One of `REASONS`."""
    status: int
    code: str
    detail: str
    """What the sender was told, cut off after `MAX_DETAIL` characters."""


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


class Refusals:
    """Counts problems, and keeps the last refusals of each topic.

    Belongs to the event loop; bounded whoever sends.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        is_topic: Callable[[str], bool],
        now_ms: Callable[[], int],
    ) -> None:
        self._telemetry = telemetry
        self._is_topic = is_topic
        self._now_ms = now_ms
        self._kept: OrderedDict[str, deque[Refusal]] = OrderedDict()

    def of(self, topic: str) -> Sequence[Refusal]:
        """Return those of a topic, the newest first."""
        return tuple(reversed(self._kept.get(topic, ())))

    def latest(self, at_most: int, is_seen: Callable[[str], bool]) -> list[tuple[str, Refusal]]:
        """Return the last ones of all topics that are seen, the newest first."""
        found = (
            (topic, refusal)
            for topic, kept in self._kept.items()
            if is_seen(topic)
            for refusal in kept
        )
        return nlargest(at_most, found, key=lambda one: one[1].timestamp)

    def forget(self, topic: str) -> None:
        """Forget those of a deleted topic."""
        self._kept.pop(topic, None)

    def count(self, error: Exception, path: str) -> None:
        """Count a problem document; one that a sender got is kept if its topic exists."""
        kind = kind_of(error)
        self._telemetry.explained(kind.code)
        match = _INGEST.fullmatch(path)
        if match is None:
            return
        reason = _REASONS.get(kind.code, _OTHER)
        if isinstance(error, InvalidSignature):
            reason = f"signature_{error.reason}"
        self._telemetry.ingest_refused(reason)
        topic = unquote(match[1])
        if not self._is_topic(topic):
            return
        refusal = Refusal(self._now_ms(), reason, kind.status, kind.code, str(error)[:MAX_DETAIL])
        self._kept.setdefault(topic, deque(maxlen=MAX_REFUSALS_OF_TOPIC)).append(refusal)
        self._kept.move_to_end(topic)
        if len(self._kept) > MAX_TOPICS:
            self._kept.popitem(last=False)
