"""The topics of a data directory enter a bootstrap checkpoint that a real broker's tool wrote."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.errors import (
    DirectoryLocked,
    EngineError,
    InvalidDataDirectory,
    InvalidRequestValue,
    LogOffline,
    PolicyViolation,
)
from engine.fs import names
from engine.fs.directories import DirectoryLock
from engine.manager.manager import LogManager
from engine.records.batch import BatchView
from engine.tools.cluster_bootstrap import (
    UNASSIGNED,
    Exported,
    Replicas,
    export_topics,
    partition_record,
    producer_ids_record,
    topic_config_record,
    topic_record,
)
from engine.types import AppendOrigin
from tests.support.builders import DATA, SMALL_INDEXES, World, new_batch
from tests.support.golden import golden_archive

CHECKPOINT = DATA / "bootstrap.checkpoint"
DIRECTORY_ID = "kwVphDodsU-b2TJZy0ElCw"
REPLICAS = (1, 2, 3)


def formatted(node_id: int = 1) -> World:
    """A data directory after `kafka-storage format`, not opened yet."""
    world = World(config=EngineConfig(default_topic_config=SMALL_INDEXES))
    put(world, CHECKPOINT, (golden_archive("clean") / CHECKPOINT.name).read_bytes())
    properties = f"#\n#Mon\nnode.id={node_id}\ndirectory.id={DIRECTORY_ID}\nversion=1\n"
    put(world, DATA / names.META_PROPERTIES, properties.encode())
    return world


def put(world: World, path: Path, content: bytes) -> None:
    with world.fs.open(path, create=True) as file:
        file.truncate(0)
        file.append(content)


def exported(world: World, replicas: tuple[int, ...] = REPLICAS) -> Exported:
    return export_topics(world.fs, [DATA], CHECKPOINT, replicas, world.config)


def batches(content: bytes) -> Iterator[BatchView]:
    """The batches of a file, each with its right checksum."""
    position = 0
    while position < len(content):
        batch = BatchView(content, position)
        batch.ensure_intact()
        yield batch
        position += batch.header.size_bytes


def filled(world: World, fill: Callable[[LogManager], None] = lambda _: None) -> LogManager:
    """Fill the directory as a service does, and stop."""
    manager = world.open_manager({"events": 2})
    manager.create_topic("other", 1, {"cleanup.policy": "compact"})
    fill(manager)
    manager.close()
    world.restart(power_cut=False)
    return manager


def test_everything_that_a_cluster_must_know_is_added() -> None:
    """Ids, configurations, leader epochs and producer ids; what was in the file stays first."""
    world = formatted()
    before = [*batches(world.fs.read_bytes(CHECKPOINT))]

    def fill(manager: LogManager) -> None:
        log = manager.logs_of("events")[1]
        log.append(new_batch(producer_id=41, producer_epoch=0, base_sequence=0))
        log.durability.commit()
        manager.truncate(log, 0)  # begins leader epoch 1
        manager.logs_of("events")[0].append(
            new_batch(producer_id=41, producer_epoch=0, base_sequence=0)
        )

    manager = filled(world, fill)
    done = exported(world)
    assert done.topics == 2
    assert done.partitions == 3
    assert done.next_producer_id > 41

    after = [*batches(world.fs.read_bytes(CHECKPOINT))]
    assert [one.buffer for one in after[: len(before) - 1]] == [one.buffer for one in before[:-1]]
    position = 0
    for batch in after:
        assert batch.header.base_offset == position
        position = batch.header.next_offset
    assert after[-1].header.is_control

    ids = {topic.name: topic.topic_id for topic in manager.topics().values()}
    own = {1: DIRECTORY_ID}
    expected = []
    for topic, epochs in (("events", (0, 1)), ("other", (0,))):
        expected.append(topic_record(topic, ids[topic]))
        if topic == "other":
            expected.append(topic_config_record(topic, "cleanup.policy", "compact"))
        expected.append(topic_config_record(topic, "segment.index.bytes", "16384"))
        for number, epoch in enumerate(epochs):
            nodes = ((1, 2, 3), (2, 3, 1))[number]
            replicas = Replicas(nodes, [own.get(node, UNASSIGNED) for node in nodes])
            expected.append(
                partition_record(ids[topic], number, replicas, leader=1, leader_epoch=epoch)
            )
    expected.append(producer_ids_record(done.next_producer_id))
    (added,) = after[len(before) - 1 : -1]
    assert [record.value for record in added.records()] == expected


def test_many_topics_take_several_batches() -> None:
    """A controller reads no batch of more than 10,000 records, so each has at most 1,000."""
    world = formatted()
    world.open_manager({f"topic-{number}": 10 for number in range(90)}).close()
    assert exported(world).partitions == 900
    counts = [batch.header.records_count for batch in batches(world.fs.read_bytes(CHECKPOINT))]
    assert counts[2:-1] == [1_000, 81]


def test_an_adopted_topic_keeps_its_unlimited_retention() -> None:
    """Kafka's default retention could delete what the broker's directory held."""
    world = formatted()
    filled(world)
    world.fs.remove(DATA / names.TOPICS_FILE)
    exported(world)
    content = world.fs.read_bytes(CHECKPOINT)
    assert topic_config_record("events", "retention.ms", "-1") in content
    assert topic_config_record("other", "cleanup.policy", "delete") in content


def test_a_killed_service_is_recovered_first() -> None:
    """The directory is closed cleanly, whatever the service's end was."""
    world = formatted()
    world.open_manager({"events": 2})
    world.restart(power_cut=False)
    assert exported(world).partitions == 2
    assert world.fs.exists(DATA / names.CLEAN_SHUTDOWN_FILE)


def refused(world: World, error: type[EngineError], text: str, *replicas: int) -> None:
    """The export raises, and the checkpoint is as it was."""
    before = world.fs.read_bytes(CHECKPOINT) if world.fs.exists(CHECKPOINT) else None
    with pytest.raises(error, match=text):
        exported(world, replicas or REPLICAS)
    after = world.fs.read_bytes(CHECKPOINT) if world.fs.exists(CHECKPOINT) else None
    assert before == after
    with DirectoryLock(world.fs, DATA):
        pass  # it is not held


def test_replicas_are_different_nodes_with_the_own_one_among_them() -> None:
    """Otherwise no replica in sync could lead."""
    world = formatted()
    filled(world)
    refused(world, InvalidRequestValue, "1 among them", 2, 3)
    refused(world, InvalidRequestValue, "1,2,2", 1, 2, 2)


@pytest.mark.parametrize(
    "content", [b"", b"node.id=1\n", b"node.id=one\ndirectory.id=x\n", b"text\n", None]
)
def test_a_directory_that_is_not_formatted_is_refused(content: bytes | None) -> None:
    """The error says which tool comes first."""
    world = formatted()
    filled(world)
    world.fs.remove(DATA / names.META_PROPERTIES)
    if content is not None:
        put(world, DATA / names.META_PROPERTIES, content)
    refused(world, InvalidDataDirectory, "kafka-storage format")


def test_directories_of_two_nodes_are_refused() -> None:
    """A partition record has one leader, which must have all of the directories."""
    world = formatted()
    other = Path("/other")
    world.fs.make_directory(other)
    put(world, other / names.META_PROPERTIES, b"node.id=2\ndirectory.id=x\n")
    with pytest.raises(InvalidDataDirectory, match="different nodes"):
        export_topics(world.fs, [DATA, other], CHECKPOINT, REPLICAS, world.config)


def test_a_second_export_is_refused() -> None:
    """A controller cannot create a topic twice and would not start."""
    world = formatted()
    filled(world)
    exported(world)
    refused(world, InvalidDataDirectory, "has topics already")


@pytest.mark.parametrize("content", [None, b"", b"\0" * 100, b"no batch"])
def test_another_file_is_not_taken_for_a_checkpoint(content: bytes | None) -> None:
    """Missing, empty or of another format."""
    world = formatted()
    filled(world)
    world.fs.remove(CHECKPOINT)
    if content is not None:
        put(world, CHECKPOINT, content)
    refused(world, InvalidDataDirectory, "format the node again")


def test_a_checkpoint_that_was_cut_is_refused() -> None:
    """A snapshot without its footer is not whole."""
    world = formatted()
    filled(world)
    *others, _ = batches(world.fs.read_bytes(CHECKPOINT))
    put(world, CHECKPOINT, b"".join(batch.buffer for batch in others))
    refused(world, InvalidDataDirectory, "no snapshot footer")


def test_a_node_that_has_started_is_refused() -> None:
    """Its metadata log is the truth, and the checkpoint is not read again."""
    world = formatted()
    filled(world)
    folder = DATA / "__cluster_metadata-0"
    world.fs.make_directory(folder)
    put(world, folder / "00000000000000000000.log", b"")
    refused(world, InvalidDataDirectory, "has started")


def test_an_open_transaction_is_refused() -> None:
    """No coordinator of the cluster would ever end it."""
    world = formatted()

    def begin(manager: LogManager) -> None:
        manager.logs_of("events")[0].append(
            new_batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
            origin=AppendOrigin.CLIENT,
        )

    filled(world, begin)
    refused(world, PolicyViolation, "open transaction at offset 0")


def test_segments_below_kafkas_minimum_are_refused() -> None:
    """A broker would refuse the configuration when it loads the topic."""
    world = formatted()

    def shrink(manager: LogManager) -> None:
        manager.update_topic("events", {"segment.bytes": "1000"})

    filled(world, shrink)
    refused(world, PolicyViolation, "segment.bytes=1000")


def test_a_missing_partition_is_refused() -> None:
    """A cluster would create it empty, with offset 0 again."""
    world = formatted()
    filled(world)
    world.fs.remove(DATA / names.TOPICS_FILE)
    world.fs.remove_tree(DATA / "events-0")
    refused(world, PolicyViolation, r"lacks the partitions \[0\]")


def test_a_log_that_cannot_be_opened_is_refused() -> None:
    """What tidelog cannot serve is not handed to a broker."""
    world = formatted()
    filled(world)
    world.disk.fail("open", error=errno.EACCES, path_end=f"events-0/{0:020d}.log")
    refused(world, LogOffline, "repair")


def test_a_directory_in_use_is_refused() -> None:
    """The service must be stopped."""
    world = formatted()
    manager = world.open_manager({"events": 1})
    with pytest.raises(DirectoryLocked):
        exported(world)
    manager.close()
