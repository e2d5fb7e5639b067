"""Rebuilds the indexes of a segment when a look-up finds them wrong, during appends and reads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from engine.errors import CorruptIndex
from engine.log.state import LogCore
from engine.segment.index_checks import Reindexing, base_offset_of_index

_LOG = logging.getLogger(__name__)

_Found = TypeVar("_Found")


def mending(core: LogCore, look: Callable[[], _Found], *, is_held: bool = False) -> _Found:
    """Return the result of a look-up, rebuilding each index that it finds wrong, once.

    `is_held` says that the caller holds `reshaping`. Raises CorruptIndex for an index that is wrong
    again, and what `rebuild_index` raises.
    """
    rebuild = rebuild_index_held if is_held else rebuild_index
    mended: set[int] = set()
    while True:
        try:
            return look()
        except CorruptIndex as error:
            base_offset = base_offset_of_index(error)
            if base_offset in mended:
                raise
            mended.add(base_offset)
            rebuild(core, error)


def rebuild_index(core: LogCore, error: CorruptIndex) -> None:
    """Rebuild the offset and time index of the segment that `error` names.

    Look-ups in it wait. Raises StoredDataCorrupt if the log file itself is damaged, and `error` for
    a transaction index, which is only rebuilt when the log is opened.
    """
    with core.reshaping:
        rebuild_index_held(core, error)


def rebuild_index_held(core: LogCore, error: CorruptIndex) -> None:
    """As `rebuild_index`, for a caller that holds `reshaping`.

    After Overloaded and StorageFull it can be repeated.
    """
    state = core.state
    segment = state.local.segments.get(base_offset_of_index(error))
    if segment is None or (segment.proofs.is_index_trusted and not segment.indexes.are_unreadable):
        return  # another thread was faster
    _LOG.warning("%s: rebuilding its indexes: %s", segment, error)
    work = Reindexing(segment)
    try:
        work.walk()
    except ValueError as cause:
        raise core.closed() from cause  # meanwhile: `reshaping` keeps the segment
    health = core.context.health
    with core.lock, health.trying:  # an index that lacks entries is valid
        core.ensure_open()
        segment.resting.forbid()
        work.walk()
        work.install(is_active=segment is state.local.active)
    with core.naming:
        core.ensure_open()
        with health.syncing:  # no flush covers what is below the recovery point
            segment.indexes.sync()
        with core.lock:
            state.local.rest_sealed([segment])
