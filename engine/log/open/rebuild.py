"""Rebuilds producer state and leader epochs from the batches in the log.

Producers are rebuilt from the newest snapshot and the batches after it; mirrors
`UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from engine.errors import InvalidRequest, StoredDataCorrupt
from engine.records.batch import BatchView
from engine.records.control import EndMarker
from engine.records.header import BatchHeader
from engine.segment.recovery import marker_of
from engine.segment.segment import Segment, locate_surely
from engine.segment.segments import Segments
from engine.state.epochs import LeaderEpochCache
from engine.state.producers import ProducerStates
from engine.types import NO_LEADER_EPOCH

_LOG = logging.getLogger(__name__)


def rebuild_producers(
    producers: ProducerStates,
    segments: Segments,
    *,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    reload_after_clean: bool,
) -> None:
    """Bring `producers` to the state below `end_offset`; write snapshots for later starts.

    A cleanly closed log without any snapshot is not scanned, because it was written by a broker
    without snapshots. Raises StoredDataCorrupt if a batch to be read is damaged.
    """
    bases = segments.base_offsets
    snapshot_points = {*bases[-2:], end_offset}
    if not producers.snapshots and reload_after_clean:
        for point in sorted(snapshot_points):
            producers.map_end_offset = point
            producers.take_snapshot(sync=True)
        return
    was_empty = producers.is_empty and producers.map_end_offset >= end_offset
    producers.truncate_and_reload(log_start_offset, end_offset, now_ms)
    if not was_empty:
        observe_up_to(
            producers, segments, log_start_offset, end_offset, snapshot_points=snapshot_points
        )
    producers.map_end_offset = end_offset
    producers.take_snapshot(sync=True)


def observe_up_to(
    producers: ProducerStates,
    segments: Segments,
    log_start_offset: int,
    end_offset: int,
    *,
    snapshot_points: Collection[int] = (),
) -> None:
    """Apply the batches from the loaded snapshot up to `end_offset` to the state.

    Raises StoredDataCorrupt if a batch to be read is damaged. A snapshot is taken at the start of
    each segment that is in `snapshot_points`.
    """
    if producers.map_end_offset < end_offset:
        for segment in segments.overlapping(producers.map_end_offset, end_offset):
            start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.map_end_offset = start
            if segment.base_offset in snapshot_points:
                producers.take_snapshot(sync=True)
            _observe(producers, segment, start, end_offset)
    producers.map_end_offset = end_offset


def rebuild_epochs(epochs: LeaderEpochCache, segments: Segments) -> None:
    """Record where each leader epoch begins, as in the batches; stop at damage."""
    for segment in segments:
        try:
            for _, header in segment.headers():
                latest = epochs.latest
                if header.leader_epoch > (NO_LEADER_EPOCH if latest is None else latest.epoch):
                    epochs.assign(header.leader_epoch, header.base_offset)
        except StoredDataCorrupt as error:
            _LOG.warning("%s: leader epochs are not read from here on: %s", segment, error)


def _observe(producers: ProducerStates, segment: Segment, start: int, end_offset: int) -> None:
    found = locate_surely(segment, start)
    if found is None:
        return
    for position, header in segment.headers(found.position):
        if header.next_offset > end_offset:  # a truncation inside a batch removes it
            break
        if header.has_producer_id or header.is_control:
            producers.observe(header, _marker(segment, position, header))
        else:
            producers.map_end_offset = header.next_offset


def _marker(segment: Segment, position: int, header: BatchHeader) -> EndMarker | None:
    if not header.is_control:
        return None
    view = BatchView(segment.records.read(position, header.size_bytes))
    try:
        view.ensure_intact()
        return marker_of(view)
    except InvalidRequest as error:
        raise segment.records.damaged(str(error), position, header.base_offset) from error
