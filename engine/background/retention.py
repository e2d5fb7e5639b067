"""The periodic pass that removes old segments; Kafka's `kafka-log-retention`."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from engine.errors import Overloaded, StorageError
from engine.log.log import Log

_LOG = logging.getLogger(__name__)


def run_retention_pass(logs: Iterable[Log]) -> int:
    """Remove what size, age or the log start give up from every log; return the segments removed.

    Compacted logs are the cleaner's business. A log that fails is reported and the others go on.
    """
    removed_count = 0
    for log in logs:
        if log.config.is_compacted:
            continue
        try:
            removed = log.run_retention()
        except (Overloaded, StorageError) as error:
            _LOG.error("retention of %s failed: %s", log.topic_partition, error)
            continue
        for segment in removed:
            _LOG.info(
                "%s: removed segment %d, %d bytes, because of its %s",
                log.topic_partition,
                segment.base_offset,
                segment.size_bytes,
                segment.reason.value,
            )
        removed_count += len(removed)
    return removed_count
