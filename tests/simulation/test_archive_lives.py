"""Lives with an archive until the disk dies, and faults planted in it that the lives must find."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import pytest

from engine.archive import documents, partition, plan
from engine.archive.manifest import Manifest, Piece
from engine.archive.plan import Upload
from engine.archive.tier import Tier
from engine.errors import StorageError
from engine.log.results import Committed, CommittedSegment
from engine.manager.checkpoints import Checkpoints, Offsets
from tests.simulation.archive_lives import live
from tests.support.campaign import seed_of_today

PER_TEST = 10
FRESH_PER_DAY = 20


@pytest.mark.parametrize("first", range(0, 30, PER_TEST))
def test_what_is_restored_is_what_was_committed(first: int) -> None:
    """Fixed seeds; `python -m tests.simulation.archive_lives FIRST COUNT` runs any others."""
    assert sum(live(seed).restored for seed in range(first, first + PER_TEST)) > PER_TEST


def test_other_lives_each_day() -> None:
    """The date chooses the seeds, so that each day tries new ones."""
    first = seed_of_today(first=2_000_000, per_day=FRESH_PER_DAY)
    _live_all(range(first, first + FRESH_PER_DAY))


def _live_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        live(seed)


@pytest.mark.long
def test_twenty_thousand_lives() -> None:
    """What the issue asks for; an hour on one core."""
    _live_all(range(1_000_000, 1_020_000))


def _believes_every_piece(
    chain: Sequence[Piece], _segment: CommittedSegment, _log: Committed
) -> Sequence[Piece]:
    return chain


def _forgets_epochs(
    chain: Sequence[Piece], segment: CommittedSegment, log: Committed
) -> Sequence[Piece]:
    return [one for one in chain if one.end_offset <= log.log_end_offset and segment]


def _seals_by_parts(
    segment: CommittedSegment, chain: Sequence[Piece], _damaged: Container[str]
) -> Upload | None:
    position = chain[-1].end_position if chain else 0
    if position >= segment.size_bytes:
        return None
    first_offset = chain[-1].end_offset if chain else segment.base_offset
    return Upload(segment, position, first_offset, chain)


def _forgets_where_logs_start(_checkpoints: Checkpoints, _starts: Offsets) -> None:
    pass


def _shows_all(tier: Tier, manifest: Manifest, *, is_own: bool) -> None:
    sealed = [one for one in manifest.pieces if one.is_sealed and is_own]
    tier._log.maintenance.show_archived(tier._snapshot(sealed))  # noqa: SLF001 - the fault is planted in it


def _believes_a_listing(versions: documents.Documents) -> documents.Document | None:
    versions._found = versions._listed()  # noqa: SLF001 - the fault is planted in it
    last = versions._get(versions.name_of(versions.next_number - 1))  # noqa: SLF001 - as above
    return versions._newest(last)  # noqa: SLF001 - as above


FAULTS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "a truncated piece stays": (plan, "_still_true", _believes_every_piece),
    "another epoch is not seen": (plan, "_still_true", _forgets_epochs),
    "a compacted segment is added to": (plan, "_missing", _seals_by_parts),
    "an old listing is believed": (documents.Documents, "load", _believes_a_listing),
    "a rewritten part counts as the same": (
        partition._Checksums,  # noqa: SLF001 - the fault is planted in it
        "are_equal",
        property(lambda _: True),  # type: ignore[dict-item]  # planted in place of a property
    ),
    "where a tiered log starts is not written first": (
        Checkpoints,
        "_write_log_starts",
        _forgets_where_logs_start,
    ),
    "what was truncated is shown from the archive": (Tier, "show", _shows_all),
    "where an empty segment begins is lost": (
        Manifest,
        "archived_offset",
        property(lambda one: one.pieces[-1].end_offset if one.pieces else one.log_start_offset),  # type: ignore[dict-item]  # planted in place of a property
    ),
}


FOUND_FROM = {
    "a compacted segment is added to": 1_160,
    "a rewritten part counts as the same": 170,
    "an old listing is believed": 1_160,
    "another epoch is not seen": 20,
    "what was truncated is shown from the archive": 1_320,
    "where a tiered log starts is not written first": 45,
    "where an empty segment begins is lost": 105,
}
"""The first life that finds each of the rare ones."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each within some hundred lives: otherwise the lives prove nothing about it."""
    place, name, planted = FAULTS[fault]
    first = FOUND_FROM.get(fault, 0)
    monkeypatch.setattr(place, name, planted)
    with pytest.raises((AssertionError, StorageError)):  # no mistake in the planting
        _live_all(range(first, first + 10))
