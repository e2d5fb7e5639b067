"""The periodic pass that removes old segments; Kafka's `kafka-log-retention`."""

from __future__ import annotations

from collections.abc import Iterable

from engine.log.log import Log
from engine.manager.retention import remove_old_segments


def run_retention_pass(logs: Iterable[Log]) -> int:
    """Remove old segments of all logs except compacted ones, which the cleaner handles."""
    return remove_old_segments(log for log in logs if not log.config.is_compacted)
