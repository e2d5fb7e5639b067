"""Kafka's own tools on what is written here: its dump, and its table of topic configurations.

Maven fetches them, so these are long tests.
"""

import random
from pathlib import Path

import pytest

from bench.peers.kafka import TOOLS, run_tool
from bench.peers.packages import jars_of
from engine.config import CleanerConfig, EngineConfig
from engine.fs import names
from engine.fs.posix import PosixFileSystem
from engine.log.log import Log
from engine.records.builder import build_batch
from engine.records.control import ControlType, build_end_marker
from engine.records.header import Codec
from engine.runtime import Runtime
from engine.tools.dump import dump_file, render
from engine.topic_keys import effective
from engine.types import AppendOrigin, TopicPartition
from tests.support.legacy import legacy_message, legacy_wrapper
from tests.support.time import START_MS

SMALL = {"segment.bytes": 20_000, "index.interval.bytes": 500, "segment.index.bytes": 4_096}
DUMPED = (names.LOG_SUFFIX, *names.INDEX_SUFFIXES, names.SNAPSHOT_SUFFIX)
NEEDS_KAFKA = pytest.mark.needs("java", "mvn")
TELL_CONFIGURATIONS = """
import org.apache.kafka.storage.internals.log.LogConfig;
public class Tell {
    public static void main(String[] none) {
        LogConfig.configKeys().forEach((name, key) -> {
            if (!key.internalConfig) System.out.println(name + "=" + key.defaultValue);
        });
    }
}
"""


def fill(log: Log) -> None:
    """Append of every codec and kind: with keys, headers, tombstones, producers, transactions."""
    source = random.Random(log.topic_partition.topic)
    sequences = dict.fromkeys((1, 2, 3, 4), 0)
    for step in range(120):
        records = [
            (
                START_MS + 3 * step - source.randint(0, 50),
                b"key-%d" % source.randrange(30),
                source.randbytes(source.randint(0, 400)) if source.random() < 0.8 else None,
                [("name", b"x"), ("none", None)] if source.random() < 0.2 else (),
            )
            for _ in range(source.randint(1, 6))
        ]
        codec = source.choice(list(Codec))
        producer_id = source.choice((-1, *sequences))
        if producer_id < 0:
            log.append(build_batch(records, codec=codec))
            continue
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequences[producer_id],
            is_transactional=producer_id > 2,
        )
        log.append(batch)
        sequences[producer_id] += len(records)
        if producer_id > 2:
            how = source.choice((ControlType.ABORT, ControlType.COMMIT))
            marker = build_end_marker(
                how, producer_id=producer_id, producer_epoch=0, coordinator_epoch=7, timestamp=step
            )
            log.append(marker, origin=AppendOrigin.COORDINATOR)
    log.roll()
    log.durability.flush()


def fill_with_old_formats(log: Log) -> None:
    """Append what a follower gets: plain messages, and wrappers of each codec there was."""
    offset = 0
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        for magic in (0, 1):
            log.append(legacy_message(offset, magic=magic), origin=AppendOrigin.REPLICATION)
            wrapper = legacy_wrapper(offset + 1, [b"a", b"b" * 300], magic=magic, codec=codec)
            log.append(wrapper, origin=AppendOrigin.REPLICATION)
            offset += 3
    log.durability.flush()


@pytest.mark.long
@NEEDS_KAFKA
def test_kafkas_dump_of_our_files_is_ours(tmp_path: Path) -> None:
    """Every file of logs with transactions, compacted, and in the old formats, line for line."""
    config = EngineConfig(cleaner=CleanerConfig(backoff_ms=3_600_000))
    runtime = Runtime(tmp_path, config)
    runtime.open()
    try:
        for topic, more in (("kept", {}), ("compacted", {"cleanup.policy": "compact"})):
            runtime.manager.create_topic(topic, 1, {**SMALL, **more})
            fill(runtime.manager.log(TopicPartition(topic, 0)))
        runtime.cleaner.clean_now(runtime.manager.log(TopicPartition("compacted", 0)))
        runtime.manager.create_topic("old", 1, {**SMALL, "index.interval.bytes": 100})
        fill_with_old_formats(runtime.manager.log(TopicPartition("old", 0)))
    finally:
        runtime.close()
    files = sorted(path for path in tmp_path.glob("*-0/*") if path.suffix in DUMPED)
    assert {path.suffix for path in files} == set(DUMPED)
    listed = ",".join(map(str, files))
    dump = f"{TOOLS}.DumpLogSegments"
    theirs = run_tool(jars_of("kafka"), dump, "--deep-iteration", "--files", listed)
    ours = [
        render(entry)
        for path in files
        for entry in dump_file(PosixFileSystem(), path)
        if entry.kind not in {"gap", "problem"}
    ]
    assert ours == theirs.splitlines()


@pytest.mark.long
@NEEDS_KAFKA
def test_topic_configurations_and_their_defaults_are_those_of_the_broker(tmp_path: Path) -> None:
    """No option of Kafka's is unknown, none is made up, and each has the same default."""
    source = tmp_path / "Tell.java"
    source.write_text(TELL_CONFIGURATIONS)
    lines = run_tool(jars_of("kafka"), str(source)).splitlines()
    theirs = dict(line.split("=") for line in lines)
    ours = {name: value.value for name, value in effective({}).items()}
    lists = {name: value.strip("[]") for name, value in theirs.items()}
    assert ours == lists
