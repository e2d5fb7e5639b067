"""Compaction of logs that hold messages of magic 0 and 1."""

import pytest

from engine.records.header import Codec
from engine.types import AppendOrigin
from tests.support.compaction import Compacted
from tests.support.legacy import CODECS, legacy_message, legacy_wrapper
from tests.support.logs import read_headers


def follow(compacted: Compacted, *messages: bytes) -> None:
    for message in messages:
        compacted.log.append(message, origin=AppendOrigin.REPLICATION)


@pytest.mark.parametrize("magic", [0, 1])
def test_superseded_messages_go(magic: int) -> None:
    """By a message of the same format, of another, or of magic 2; the rest is copied."""
    compacted = Compacted()
    follow(
        compacted,
        legacy_message(0, b"a", b"old", magic=magic),
        legacy_message(1, b"b", b"old", magic=magic),
        legacy_message(2, b"c", b"new", magic=magic),
        legacy_message(3, b"a", b"new", magic=1 - magic),
    )
    compacted.put(("b", "new"))
    report = compacted.clean()
    assert compacted.pairs() == [("c", "new"), ("a", "new"), ("b", "new")]
    assert compacted.offsets() == [2, 3, 4]
    assert [header.magic for header in read_headers(compacted.log)] == [magic, 1 - magic, 2]
    assert (report.records_read, report.records_kept) == (5, 3)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_goes_or_stays_as_a_whole(magic: int, codec: Codec) -> None:
    """All its records have the key `key`: nothing of the first is newest, one of the second is."""
    compacted = Compacted()
    stays = legacy_wrapper(2, [b"3", b"4"], magic=magic, codec=codec)
    follow(compacted, legacy_wrapper(0, [b"1", b"2"], magic=magic, codec=codec), stays)
    compacted.put(("other", "x"))
    compacted.clean()
    assert compacted.pairs() == [("key", "3"), ("key", "4"), ("other", "x")]
    assert compacted.offsets() == [2, 3, 4]
    assert compacted.file(0, ".log").startswith(stays)
    compacted.crash(power_cut=False)
    assert compacted.offsets() == [2, 3, 4]


def test_no_empty_batch_takes_the_place_of_a_message() -> None:
    """Where a round ends with one that goes, nothing is left of it."""
    compacted = Compacted()
    follow(compacted, legacy_message(0, b"kept", b"x"), legacy_message(1, None, b"without a key"))
    compacted.clean()
    assert [header.magic for header in read_headers(compacted.log)] == [1]
    assert compacted.log.watermarks.log_end_offset == 2


def test_a_tombstone_of_an_old_format_stays_until_its_key_comes_again() -> None:
    """It cannot store a delete horizon."""
    compacted = Compacted()
    follow(compacted, legacy_message(0, b"a", b"x"), legacy_message(1, b"a", None))
    compacted.clean()
    assert compacted.pairs() == [("a", None)]
    compacted.put(("a", "again"))
    compacted.clean()
    assert compacted.pairs() == [("a", "again")]
