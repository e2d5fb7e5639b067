"""Metadata records against the bytes that a controller of Kafka 4.3.0 wrote for the same values."""

import pytest

from engine.errors import InvalidRecord
from engine.tools.cluster_bootstrap import (
    CONFIG_RECORD,
    PRODUCER_IDS_RECORD,
    Replicas,
    partition_record,
    producer_ids_record,
    record_type,
    topic_config_record,
    topic_record,
)

TOPIC, TOPIC_ID = "kmove-probe", "FZJDHUVEQUau-bzeHx_oMg"
ID_BYTES = "1592431d45444146aef9bcde1f1fe832"


def test_a_topic_and_its_configuration_are_kafkas_bytes() -> None:
    """Compact strings, the raw id, no tagged fields."""
    assert topic_record(TOPIC, TOPIC_ID).hex() == f"0102000c6b6d6f76652d70726f6265{ID_BYTES}00"
    assert topic_config_record(TOPIC, "segment.bytes", "1048576").hex() == (
        "010400020c6b6d6f76652d70726f62650e7365676d656e742e6279746573083130343835373600"
    )


def test_a_partition_is_kafkas_bytes() -> None:
    """The controller's own record of partition 0, but for the replicas that are not in sync yet."""
    kafkas = (
        "0103020000000015" + ID_BYTES[2:] + "04000000010000000200000003"
        "040000000100000002000000030101000000010000000000000000"
        "04930569843a1db14f9bd93259cb41250bbb8a97e8fd47f1f7245ba049ef5933a0"
        "1daf16f8d4f2fb97979e38ccdbe36d9100"
    )  # fmt: skip
    directories = ("kwVphDodsU-b2TJZy0ElCw", "u4qX6P1H8fckW6BJ71kzoA", "Ha8W-NTy-5eXnjjM2-NtkQ")
    record = partition_record(
        TOPIC_ID, 0, Replicas((1, 2, 3), directories), leader=1, leader_epoch=0
    )
    everyone_in_sync, leader_in_sync = "040000000100000002000000030101", "02000000010101"
    assert record.hex() == kafkas.replace(everyone_in_sync, leader_in_sync)


def test_the_type_of_a_record_is_read_back() -> None:
    """A checkpoint that already has topics is recognised by it."""
    assert record_type(topic_config_record(TOPIC, "a", "b")) == CONFIG_RECORD
    assert record_type(producer_ids_record(1_000)) == PRODUCER_IDS_RECORD
    with pytest.raises(InvalidRecord, match="frame version 2"):
        record_type(b"\x02\x03")
