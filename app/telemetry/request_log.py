"""Every answered request ends here: counters, audit lines, access lines, spans.

By default it only counts; observers add the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from app.http.problems import trace_id_of
from app.http.request_checks import trace_of
from app.security.rules import AUDITED, CALLER_KEY, REFUSED, audit
from app.telemetry.metrics import Telemetry

_ACCESS = logging.getLogger("tidelog.access")


class Finished(NamedTuple):
    """A request that was answered; `scope` is ASGI's, its path may name a topic and partition."""

    operation: str
    status: int
    seconds: float
    sent_bytes: int
    scope: Mapping[str, Any]

    @property
    def head(self) -> dict[bytes, bytes]:
        """The headers of the request."""
        return dict(self.scope["headers"])

    @property
    def topic(self) -> str | None:
        return self._piece_after("topics")

    @property
    def partition(self) -> str | None:
        return self._piece_after("partitions")

    def _piece_after(self, name: str) -> str | None:
        pieces = self.scope["path"].split("/")
        return dict(pairwise(pieces)).get(name)


Observer: TypeAlias = Callable[[Finished], None]


class RequestLog:
    """Called for every answered request, on the event loop."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._observers: tuple[Observer, ...] = ()

    def observe(self, observer: Observer) -> None:
        """Call the observer for each request that is answered from now on."""
        self._observers += (observer,)

    def answered(
        self,
        operation: str,
        status: int,
        seconds: float,
        *,
        sent_bytes: int,
        scope: Mapping[str, Any],
    ) -> None:
        """Count the request, and call the observers."""
        self._telemetry.answered(operation, status, seconds)
        if operation in AUDITED or status in REFUSED:
            audit(scope, operation, status)
        if self._observers:
            finished = Finished(operation, status, seconds, sent_bytes, scope)
            for observer in self._observers:
                observer(finished)


def log_access(finished: Finished) -> None:
    """Write one line about a request; what it is about are members of the line."""
    scope, head = finished.scope, finished.head
    caller = scope.get(CALLER_KEY)
    _ACCESS.info(
        "%s %s %d",
        scope["method"],
        scope["path"],
        finished.status,
        extra={
            "operation": finished.operation,
            "topic": finished.topic,
            "partition": finished.partition,
            "duration_ms": round(finished.seconds * 1000, 3),
            "received_bytes": head.get(b"content-length", b"").decode("latin-1") or None,
            "sent_bytes": finished.sent_bytes,
            "principal": None if caller is None else caller.name,
            "client": (scope.get("client") or ("",))[0],
            "trace_id": trace_id_of(trace_of(head)),
        },
    )
