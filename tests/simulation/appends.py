"""Appends as only some callers make them: at once, on conditions, as a follower."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from engine.errors import PreconditionFailed, WouldBlock
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin
from tests.support.driven_log import IDEMPOTENT, TRANSACTIONAL, DrivenLog
from tests.support.log_model import LogModel

PRODUCERS = (-1, *IDEMPOTENT, *TRANSACTIONAL)


def append_on_condition(driven: DrivenLog, count: int) -> None:
    """Append at another end than the log's, which is refused, then at its own."""
    end, tag = driven.model.end, driven.log.reader.tag
    for wrong in (
        {"expected_end_offset": end + 1},
        {"expected_tag": tag._replace(log_end_offset=end + 1)},
    ):
        with pytest.raises(PreconditionFailed):
            driven.log.append(driven.build(count), **wrong)
    driven.write(driven.build(count), expected_end_offset=end, expected_tag=tag)


def append_at_once(driven: DrivenLog, count: int) -> None:
    """Append without waiting; where that cannot be, nothing has happened, and it may wait."""
    data = driven.build(count)
    try:
        driven.write(bytearray(data), nonblocking=True)
    except WouldBlock:
        assert driven.log.watermarks.log_end_offset == driven.model.end
        driven.write(data)


def replicate(driven: DrivenLog, random: Random) -> None:
    """Append in one piece what another log holds: transactions that begin and end in it."""
    there = driven.model.copy()
    pieces = [_replicated(driven, there, random) for _ in range(random.randint(2, 6))]
    data = bytearray(b"".join(piece for piece, _ in pieces))
    aborts = [is_abort for _, is_abort in pieces]
    driven.write(data, aborts=aborts, origin=AppendOrigin.REPLICATION)


def _replicated(driven: DrivenLog, there: LogModel, random: Random) -> tuple[bytes, bool | None]:
    """Put a batch at the end of the other log; return it, and of a marker whether it aborts."""
    producer_id = random.choice(PRODUCERS)
    epoch, sequence = there.next_sequence(producer_id)
    stamps: dict[str, Any] = {"base_offset": there.end, "leader_epoch": there.leader_epoch}
    if there.is_in_transaction(producer_id) and random.random() < 0.6:
        is_abort = random.random() < 0.6
        marker = build_end_marker(
            ControlType.ABORT if is_abort else ControlType.COMMIT,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=0,
            timestamp=driven.clock.now_ms(),
            **stamps,
        )
        there.append_marker(bytes(marker), is_abort=is_abort)
        return bytes(marker), is_abort
    if producer_id >= 0 and not there.may_be_refused(producer_id):
        stamps |= {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        stamps["is_transactional"] = producer_id in TRANSACTIONAL
    data = bytes(driven.build(random.randint(1, 3), **stamps))
    there.append(data)
    return data, None
