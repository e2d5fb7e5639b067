"""The periodic pass that expires idle producers; Kafka's `PeriodicProducerExpirationCheck`."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from engine.log.log import Log

_LOG = logging.getLogger(__name__)


def expire_producers(logs: Iterable[Log]) -> int:
    """Expire the producers that have been idle for too long, in every log; return how many."""
    expired = {log.topic_partition: log.producers.expire() for log in logs}
    for log, count in expired.items():
        if count:
            _LOG.debug("%s: forgot %d idle producers", log, count)
    return sum(expired.values())
