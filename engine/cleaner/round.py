"""One round of cleaning on one log: map the dirty keys, then rewrite the segments in groups.

Kafka's `Cleaner.doClean`.
"""

from __future__ import annotations

from engine.cleaner.filter import BatchFilter, LastBatch, Round
from engine.cleaner.indexing import build_offset_map
from engine.cleaner.reading import Pace
from engine.cleaner.report import CleaningReport
from engine.cleaner.rewrite import rewrite_group
from engine.cleaner.selection import CleanableRange, grouped, overlapping
from engine.config import CleanerConfig
from engine.log.log import Log
from engine.log.maintenance.compaction import Compaction


def run_round(
    compaction: Compaction, dirty: CleanableRange, config: CleanerConfig, pace: Pace
) -> CleaningReport:
    """Clean the log from its first segment to the end of the map; return the report.

    A group that was swapped in stays, even if a later one fails. Raises as `build_offset_map` and
    `rewrite_group`.
    """
    log, clock = dirty.log, compaction.context.clock
    started_ms = clock.monotonic_ms()
    newest = build_offset_map(compaction, dirty, config, pace)
    end_offset = newest.latest_offset + 1
    batch_filter = BatchFilter(_round_of(compaction, dirty), newest)
    sources = overlapping(compaction.segments, 0, min(end_offset, dirty.first_uncleanable_offset))
    groups = list(grouped(sources, log.config, dirty.first_uncleanable_offset))
    bytes_before = sum(segment.size_bytes for segment in sources)
    bytes_after = 0
    for group in groups:
        batch_filter.last_batches = last_batches(log)
        output = rewrite_group(
            compaction, group, batch_filter, chunk_bytes=config.chunk_bytes, pace=pace
        )
        bytes_after += output.size_bytes
    counts = batch_filter.counts
    return CleaningReport(
        log.topic_partition,
        dirty.first_dirty_offset,
        end_offset,
        len(sources),
        len(groups),
        bytes_before,
        bytes_after,
        counts.records_read,
        counts.records_kept,
        counts.records_without_key,
        len(newest),
        clock.monotonic_ms() - started_ms,
    )


def last_batches(log: Log) -> dict[int, LastBatch]:
    """Return the last batch of each active producer: those batches must stay."""
    return {
        entry.producer_id: LastBatch(
            entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch
        )
        for entry in log.producers.active()
    }


def _round_of(compaction: Compaction, dirty: CleanableRange) -> Round:
    context = compaction.context
    return Round(
        now_ms=context.clock.now_ms(),
        delete_retention_ms=dirty.log.config.delete_retention_ms,
        end_offset=dirty.first_uncleanable_offset,
        limit_bytes=context.config.max_decompressed_batch_bytes,
    )
