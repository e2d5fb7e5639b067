"""Topics with log-append time: the log's clock sets the timestamp."""

from typing import Any

import pytest

from engine.errors import PreconditionFailed, WouldBlock
from engine.log.analyse import Incoming, analyse
from engine.records.control import ControlType, build_end_marker
from engine.records.header import Codec, TimestampType
from engine.types import AppendOrigin, TimestampOffset
from tests.support.builders import World, values_of
from tests.support.kafka import kafka
from tests.support.logs import read_headers, read_records, with_config
from tests.support.segments import batch_at
from tests.support.time import START_MS


@kafka("LogValidatorTest.checkLogAppendTimeWithoutRecompression")
def test_append_time_is_stamped() -> None:
    """All get the log's clock, compressed too."""
    world = World()
    log = world.open_log(with_config(message_timestamp_type="LogAppendTime"))
    for codec in (Codec.NONE, Codec.GZIP):
        answer = log.append(values_of([b"a", b"b"], timestamp=5, codec=codec))
        assert answer.timestamp == world.clock.now_ms()
        world.clock.advance(1_000)
    log.durability.commit()
    assert [record.timestamp for record in read_records(log)] == [START_MS] * 2 + [
        START_MS + 1_000
    ] * 2
    assert {header.timestamp_type for header in read_headers(log)} == {
        TimestampType.LOG_APPEND_TIME
    }


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_what_did_not_go_in_may_come_again_with_append_time(codec: Codec) -> None:
    """An append that must wait, or expected another end, has its bytes as sent, without a stamp."""
    settings = {"message_timestamp_type": "LogAppendTime", "compression_type": "lz4"}
    log = World().open_log(with_config(**settings))
    batch = values_of([b"a", b"b"], codec=codec)
    sent = bytes(batch)
    with pytest.raises(WouldBlock):
        log.append(batch, nonblocking=True)
    with pytest.raises(PreconditionFailed):
        log.append(batch, expected_end_offset=1)
    assert batch == sent
    assert log.append(batch).records_count == 2


def test_a_marker_has_the_append_time_too() -> None:
    """The leader writes it; a follower's batch keeps its time."""
    world = World()
    log = world.open_log(with_config(message_timestamp_type="LogAppendTime"))
    marker = build_end_marker(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=5
    )
    assert log.append(marker, origin=AppendOrigin.COORDINATOR).timestamp == world.clock.now_ms()
    assert log.append(batch_at(1), origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    assert [header.timestamp_type for header in read_headers(log)] == [
        TimestampType.LOG_APPEND_TIME,
        TimestampType.CREATE_TIME,
    ]


def test_append_times_do_not_go_back_where_an_append_overtakes_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one took its time, and was then analysed for longer: the batch was large."""
    world = World()
    log = world.open_log(with_config(message_timestamp_type="LogAppendTime"))
    pending = [b"overtakes"]

    def analysed_slowly(*arguments: Any, **options: Any) -> Incoming:
        incoming = analyse(*arguments, **options)
        while pending:
            world.clock.advance(1_000)
            log.append(values_of([pending.pop()], timestamp=5))
        return incoming

    monkeypatch.setattr("engine.log.log.analyse", analysed_slowly)
    assert log.append(values_of([b"large"] * 2, timestamp=5)).timestamp == START_MS + 1_000
    log.durability.commit()
    records = read_records(log)
    assert [record.value for record in records] == [b"overtakes", b"large", b"large"]
    assert [record.timestamp for record in records] == [START_MS + 1_000] * 3
    assert log.reader.segments[0].maximum == TimestampOffset(START_MS + 1_000, 0)
