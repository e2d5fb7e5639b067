"""Removes old segments of many logs; a failing log does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from engine.errors import Overloaded, StorageError
from engine.log.log import Log

_LOG = logging.getLogger(__name__)


def remove_old_segments(logs: Iterable[Log]) -> int:
    """Remove the segments that retention no longer keeps, in every log; return their number.

    A log that fails is reported, and the others continue.
    """
    removed_count = 0
    for log in logs:
        try:
            removed = log.maintenance.run_retention()
        except (Overloaded, StorageError) as error:
            _LOG.error("retention of %s failed: %s", log.topic_partition, error)
            continue
        except Exception:  # noqa: BLE001 - one log must not stop the others
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
