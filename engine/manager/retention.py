"""Removing old segments of many logs, of which none keeps the others waiting."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from engine.errors import Overloaded, StorageError
from engine.log.log import Log

_LOG = logging.getLogger(__name__)


def remove_old_segments(logs: Iterable[Log]) -> int:
    """Remove what size, age or the log start give up from every log; return the segments removed.

    A log that fails, for whatever reason, is reported, and the others go on.
    """
    removed_count = 0
    for log in logs:
        try:
            removed = log.maintenance.run_retention()
        except (Overloaded, StorageError) as error:
            _LOG.error("retention of %s failed: %s", log.topic_partition, error)
            continue
        except Exception:  # noqa: BLE001 - whatever it is, the other logs go on
            _LOG.exception("retention of %s failed", log.topic_partition)
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
