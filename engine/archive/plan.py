"""What to upload next: a pure function of a log's committed part and what is archived of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from engine.archive.manifest import LOG, Growth, LogStart, Manifest, Piece, Removed
from engine.log.results import Committed, CommittedSegment
from engine.types import EpochOffset


class Upload(NamedTuple):
    """A range of a segment that is not archived: from `position` to the end of what is committed.

    A sealed segment is uploaded from its first byte on, with its indexes.
    """

    segment: CommittedSegment
    position: int
    first_offset: int
    chain: Sequence[Piece]
    """What is archived of the segment."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the manifest must say before anything is uploaded, and what to upload, in order."""

    manifest: Manifest
    uploads: tuple[Upload, ...]


def plan(
    log: Committed, archived: Manifest, now_ms: int, damaged: Container[str] = frozenset()
) -> Plan:
    """Decide what is still part of the log, and what is missing.

    A piece stays if its segment exists, was not compacted since, and its last offset is in the same
    leader epoch as then: so a truncation that cut it is seen even after other records took its
    offsets. A segment that lies wholly below the log start counts as removed. One whose log object
    is among the `damaged` is uploaded again.
    """
    segments = {segment.base_offset: segment for segment in log.segments}
    kept: list[Piece] = []
    for base_offset, chain in archived.chains().items():
        segment = segments.get(base_offset)
        if segment is not None:
            kept += _still_true(chain, segment, log)
    kept_ids = set(map(id, kept))
    gone = [
        Removed(piece, now_ms, is_replaced=False)
        for piece in archived.pieces
        if id(piece) not in kept_ids
    ]
    start, starts = log.log_start_offset, archived.log_starts
    if not starts or starts[-1].offset != start:
        starts = (*starts, LogStart(now_ms, start))
    manifest = replace(
        archived,
        log_starts=starts,
        epochs=tuple(log.epochs),
        pieces=tuple(kept),
        end_offset=0,
        removed=(*archived.removed, *gone),
    )
    chains = manifest.chains()
    uploads = (
        _missing(segment, chains.get(segment.base_offset, ()), damaged) for segment in log.segments
    )
    return Plan(manifest, tuple(upload for upload in uploads if upload is not None))


def _still_true(
    chain: Sequence[Piece], segment: CommittedSegment, log: Committed
) -> Sequence[Piece]:
    """Return the pieces from the first one on that are still what the segment's file holds."""
    for count, piece in enumerate(chain):
        is_cut = piece.end_offset > log.log_end_offset or piece.end_position > segment.size_bytes
        other = epoch_at(log.epochs, piece.end_offset - 1)
        is_other = piece.end_offset > log.log_start_offset and other != piece.leader_epoch
        is_rewritten = log.is_compacted and piece.is_sealed and piece.version != segment.version
        if is_cut or is_other or is_rewritten:
            return chain[:count]
    return chain


def _missing(
    segment: CommittedSegment, chain: Sequence[Piece], damaged: Container[str]
) -> Upload | None:
    position = chain[-1].end_position if chain else 0
    if segment.is_sealed:
        is_whole = len(chain) == 1 and chain[0].is_sealed and position == segment.size_bytes
        is_whole = is_whole and chain[0].objects[LOG].name not in damaged
        return None if is_whole else Upload(segment, 0, segment.base_offset, chain)
    if position == segment.size_bytes:
        return None
    first_offset = chain[-1].end_offset if chain else segment.base_offset
    return Upload(segment, position, first_offset, chain)


def epoch_at(epochs: Sequence[EpochOffset], offset: int) -> int:
    """Return the leader epoch of an offset; -1 if none is recorded for it."""
    index = bisect_right(epochs, offset, key=attrgetter("start_offset")) - 1
    return epochs[index].epoch if index >= 0 else -1


def with_piece(manifest: Manifest, piece: Piece, *, goes_on: bool, max_growth: int) -> Manifest:
    """Return the manifest with an uploaded piece, which takes the place of those at its positions.

    If it `goes_on`, it begins with their bytes: it remembers when they were archived, and no
    restore needs them. Otherwise compaction came between, and they count as removed.
    """
    replaced = [
        one
        for one in manifest.pieces
        if one.base_offset == piece.base_offset and one.end_position > piece.position
    ]
    if replaced and goes_on:
        piece = replace(piece, growth=_growth_of(replaced, max_growth))
    gone = set(map(id, replaced))
    pieces = [one for one in manifest.pieces if id(one) not in gone]
    pieces.append(piece)
    pieces.sort(key=attrgetter("base_offset", "position"))
    removed = (Removed(one, piece.archived_ms, is_replaced=goes_on) for one in replaced)
    return replace(manifest, pieces=tuple(pieces), removed=(*manifest.removed, *removed))


def _growth_of(replaced: Sequence[Piece], most: int) -> tuple[Growth, ...]:
    """Return when how much of a segment was archived; of too many moments every other one stays."""
    grown: list[Growth] = []
    for one in replaced:
        grown += one.growth
        grown.append(Growth(one.archived_ms, one.end_offset, one.end_position))
    while len(grown) > most:
        del grown[-2::-2]
    return tuple(grown)


def forgotten(
    manifest: Manifest, now_ms: int, *, keep_ms: int, keep_replaced_ms: int
) -> tuple[Manifest, list[str]]:
    """Return the manifest without what its time is over for, and the objects to delete then."""

    def is_over(one: Removed) -> bool:
        return one.removed_ms + (keep_replaced_ms if one.is_replaced else keep_ms) <= now_ms

    kept = tuple(one for one in manifest.removed if not is_over(one))
    starts = manifest.log_starts
    while len(starts) > 1 and starts[1].since_ms + keep_ms <= now_ms:
        starts = starts[1:]
    if len(kept) == len(manifest.removed) and starts is manifest.log_starts:
        return manifest, []
    after = replace(manifest, removed=kept, log_starts=starts)
    return after, sorted(manifest.object_names() - after.object_names())
