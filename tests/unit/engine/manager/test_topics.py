"""Which topics there are: the topics file against the directories, without a disk."""

from dataclasses import replace

import pytest

from engine.checkpoint.kafka_files import is_topic_id
from engine.checkpoint.tidelog_files import TopicEntry
from engine.errors import InconsistentTopicId, InvalidTopicName, PolicyViolation
from engine.manager.topics import (
    Topic,
    ensure_may_be_changed,
    ensure_valid_name,
    new_topic_id,
    reconcile,
)
from engine.types import TopicPartition
from tests.support.kafka import kafka

ID = "S6g8ZPZuQWap3C72_08X5Q"
OTHER_ID = "8fQeB1MbSbmXbwPeFIy0qg"
OURS = TopicEntry(ID, 2, {"retention.ms": "-1"})


def partition(number: int, topic: str = "events") -> TopicPartition:
    return TopicPartition(topic, number)


def test_a_topic_whose_directories_are_all_there_is_taken_as_recorded() -> None:
    """File and directories agree: nothing is to be done."""
    found = {partition(0): ID, partition(1): ID}
    plan = reconcile({"events": OURS}, found)
    assert plan.topics == {"events": Topic("events", ID, 2, {"retention.ms": "-1"})}
    assert (plan.unmarked, plan.leftovers) == ((), ())


def test_partitions_that_a_crash_kept_from_being_made_are_made() -> None:
    """A recorded topic without a directory, or with one without an id, is completed."""
    plan = reconcile({"events": OURS}, {partition(0): None})
    assert plan.unmarked == (partition(0), partition(1))


def test_a_directory_that_the_file_does_not_know_is_adopted() -> None:
    """A broker's topic keeps its id and gets partitions up to its highest number."""
    plan = reconcile({}, {partition(0): ID, partition(3): ID})
    assert plan.topics == {"events": Topic("events", ID, 4, adopted=True)}
    assert plan.unmarked == ()


def test_an_adopted_topic_without_an_id_gets_one() -> None:
    """Directories of a broker that knew no topic ids get it too; those with one keep theirs."""
    plan = reconcile({}, {partition(0): None, partition(3): None})
    assert is_topic_id(plan.topics["events"].topic_id)
    assert plan.unmarked == (partition(0), partition(3))
    mixed = reconcile({}, {partition(0): ID, partition(3): None})
    assert (mixed.topics["events"].topic_id, mixed.unmarked) == (ID, (partition(3),))


def test_missing_partitions_of_an_adopted_topic_are_not_made() -> None:
    """The other partitions were on other brokers and must not be created."""
    adopted = TopicEntry(ID, 3, adopted=True)
    plan = reconcile({"events": adopted}, {partition(1): ID})
    assert plan.topics["events"].partitions == 3
    assert plan.unmarked == ()


def test_partitions_added_to_an_adopted_topic_are_made() -> None:
    """They were recorded, so a start completes them; those missing at the adoption stay missing."""
    adopted = Topic("events", ID, 3, adopted=True).with_partitions(4).with_partitions(6)
    plan = reconcile({"events": adopted.entry}, {partition(2): ID, partition(3): ID})
    assert plan.topics["events"] == adopted
    assert plan.unmarked == (partition(4), partition(5))


def test_partitions_that_a_broker_added_to_an_adopted_topic_are_not_made() -> None:
    """Those without a directory are on other brokers; so may be the earlier ones by then."""
    adopted = Topic("events", ID, 1, adopted=True).with_partitions(3)
    plan = reconcile({"events": adopted.entry}, {partition(0): ID, partition(4): ID})
    assert plan.topics["events"] == Topic("events", ID, 5, adopted=True)
    assert plan.unmarked == ()


@kafka("UnifiedLogTest.testLogFailsWhenInconsistentTopicIdSet")
def test_directories_that_disagree_stop_the_start() -> None:
    """Two topic ids under one name are two topics; it is unknown which one is meant."""
    with pytest.raises(InconsistentTopicId, match="events-0") as raised:
        reconcile({}, {partition(0): ID, partition(1): OTHER_ID})
    assert raised.value.facts()["directories"] == ["events-0", "events-1"]


def test_the_directories_id_wins_over_the_files() -> None:
    """A broker that served tidelog's directories gave them its own id, which its clients know."""
    plan = reconcile({"events": OURS}, {partition(0): OTHER_ID, partition(1): OTHER_ID})
    assert plan.topics["events"].topic_id == OTHER_ID
    assert plan.topics["events"].overrides == OURS.config
    assert plan.topics["events"].entry.compacted, "what is missing now was not lost"


def test_partitions_that_a_broker_added_are_taken_over() -> None:
    """A known topic with more directories than before has that many partitions now."""
    plan = reconcile({"events": OURS}, {partition(number): ID for number in range(5)})
    assert plan.topics["events"].partitions == 5
    assert plan.unmarked == ()


def test_what_a_deletion_left_is_put_away() -> None:
    """A topic marked as deleted is gone, and its directories are leftovers and not adopted."""
    deleted = replace(OURS, deleted=True)
    plan = reconcile({"events": deleted}, {partition(1): ID, partition(0): None})
    assert plan.topics == {}
    assert plan.leftovers == (partition(0), partition(1))


def test_another_topic_of_a_deleted_ones_name_is_adopted() -> None:
    """A directory with another id than the deleted topic's does not belong to it."""
    deleted = replace(OURS, deleted=True)
    plan = reconcile({"events": deleted}, {partition(0): OTHER_ID})
    assert plan.topics == {"events": Topic("events", OTHER_ID, 1, adopted=True)}
    assert plan.leftovers == ()


def test_an_adopted_topic_keeps_everything_until_it_is_configured() -> None:
    """Kafka's defaults would delete a week-old topic at the first pass; adopted ones keep all."""
    adopted = Topic("events", ID, 1, adopted=True)
    assert adopted.log_config({"retention.ms": "5"}).retention_ms == -1
    configured = replace(adopted, overrides={"retention.ms": "1000"})
    assert configured.log_config({}).retention_ms == 1_000
    assert replace(adopted, adopted=False).log_config({"retention.ms": "5"}).retention_ms == 5


def test_a_topic_becomes_an_entry_and_back() -> None:
    """The entry is read back as it was written."""
    topic = Topic("events", ID, 2, {"retention.ms": "-1"}, adopted=True, added_partitions=1)
    assert Topic.of_entry("events", topic.entry) == topic


def test_topic_ids_are_kafkas_and_differ() -> None:
    """Each new id is well formed, does not begin with a dash, and is new."""
    ids = {new_topic_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(is_topic_id(one) and not one.startswith("-") for one in ids)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "a b", "x" * 250, "ä", "__consumer_offsets"]
)
def test_names_that_no_topic_may_have(name: str) -> None:
    """Names with a path in them, too long, empty, or a broker's own are refused."""
    with pytest.raises(InvalidTopicName):
        ensure_valid_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "__transaction_state",
        "__share_group_state",
        "__cluster_metadata",
        "__remote_log_metadata",
        "__tidelog_documents",
        "__tidelog",
    ],
)
def test_names_of_kafkas_own_topics_are_reserved(name: str) -> None:
    """They are created by the service alone."""
    with pytest.raises(InvalidTopicName, match="is reserved"):
        ensure_valid_name(name)
    ensure_valid_name(name, internal=True)


@pytest.mark.parametrize(
    "name", ["a", "events-1", "a.b_c-D9", "x" * 249, "_one", "__debezium-heartbeat.shop", "__"]
)
def test_names_that_a_topic_may_have(name: str) -> None:
    """What Kafka allows is allowed."""
    ensure_valid_name(name)


def test_a_brokers_own_topic_is_not_changed() -> None:
    """Internal topics are kept as they are."""
    with pytest.raises(PolicyViolation):
        ensure_may_be_changed(Topic("__consumer_offsets", ID, 50, adopted=True))
    ensure_may_be_changed(Topic("events", ID, 1))


def test_a_topic_that_was_compacted_once_may_have_gaps_for_good() -> None:
    """Its missing offsets are not a loss, whatever its policy says later and after a restart."""
    compacted = Topic("events", ID, 1, {"cleanup.policy": "compact"})
    changed = replace(compacted, overrides={}, was_compacted=compacted.entry.compacted)
    assert Topic.of_entry("events", changed.entry).may_have_gaps
    assert not Topic("events", ID, 1).may_have_gaps
