"""A broker serves what tidelog wrote, and tidelog what the broker wrote then: the claim, by trial.

Between the two are the commands of `docs/kafka-directories.md`, run as they stand there. Maven
fetches the broker, so this is a long test.
"""

import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from bench.peers.packages import jars_of
from engine.fs.names import CLEAN_SHUTDOWN_FILE
from engine.records.builder import NewRecord, build_batch
from engine.records.header import Codec
from tests.support.broker import BrokerRecord, RealBroker
from tests.support.kafka_batches import decoded
from tests.support.process import serving_process

PAGE = Path(__file__).parents[3] / "docs" / "kafka-directories.md"
BROKERS_DATA = "/var/lib/kafka/data"
FLIGHTS, LATEST, PARTITIONS = "flights", "latest", 4
SEGMENT_BYTES = 1 << 20
HOUR_MS = 3_600_000
RAW = {"content-type": "application/vnd.kafka.recordbatch.v2"}


def records_of(now_ms: int, first: int, count: int) -> list[NewRecord]:
    """Records of a kilobyte that tell themselves apart, an hour old and a millisecond apart."""
    return [
        (
            now_ms - HOUR_MS + number,
            b"key-%d" % (number % 50),
            b"%d:%b" % (number, random.Random(number).randbytes(500).hex().encode()),
            [("n", b"%d" % number)],
        )
        for number in range(first, first + count)
    ]


def fill(client: httpx.Client, now_ms: int) -> None:
    """Write of every kind: all codecs, several segments, transactions, records that superseded."""
    config = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "4096"}
    topics = {FLIGHTS: (PARTITIONS, {}), LATEST: (1, {"cleanup.policy": "compact"})}
    for topic, (partitions, more) in topics.items():
        body = {"partitions": partitions, "config": config | more}
        client.put(f"/v1/topics/{topic}", json=body).raise_for_status()
    for number in range(40):
        batch = build_batch(records_of(now_ms, number * 100, 100), codec=Codec(number % 5))
        for path in (f"{FLIGHTS}/partitions/{number % 2}", f"{LATEST}/partitions/0"):
            url = f"/v1/topics/{path}/batches"
            client.post(url, content=bytes(batch), headers=RAW).raise_for_status()
    for producer_id, action in ((7, "commit"), (8, "abort"), (9, "commit")):
        batch = build_batch(
            records_of(now_ms, producer_id, 3),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        url = f"/v1/topics/{FLIGHTS}/partitions/2"
        client.post(f"{url}/batches", content=bytes(batch), headers=RAW).raise_for_status()
        ending = {"producer_id": producer_id, "producer_epoch": 0, "action": action}
        client.post(f"{url}/transactions", json=ending).raise_for_status()
    one = {"records": [{"key": "ü", "value": {"a": 1}}, {"key": "b", "value": [None]}]}
    client.post(f"/v1/topics/{FLIGHTS}/partitions/3/records", json=one).raise_for_status()
    client.post(f"/v1/topics/{LATEST}/partitions/0/roll").raise_for_status()
    client.post(f"/v1/topics/{LATEST}/partitions/0/compact").raise_for_status()


def served(
    client: httpx.Client, topic: str, partitions: int, isolation: str = "read_uncommitted"
) -> list[BrokerRecord]:
    """Return every record that tidelog serves, as the broker's consumer would print it."""
    rows = []
    for partition in range(partitions):
        url, offset = f"/v1/topics/{topic}/partitions/{partition}/batches", "0"
        while True:
            asked = {"offset": offset, "isolation": isolation, "on_out_of_range": "earliest"}
            answer = client.get(url, params=asked).raise_for_status()
            for number, timestamp, _, key, value, headers in decoded(answer.content):
                if number >= int(offset):
                    named = ",".join(f"{name}:{text.decode()}" for name, text in headers)
                    words = (named, key.decode(), value.decode())
                    rows.append(BrokerRecord(partition, number, timestamp, *words))
            if answer.headers["log-next-offset"] == offset:
                break
            offset = answer.headers["log-next-offset"]
    return rows


def offsets_at(client: httpx.Client, time_ms: int) -> dict[int, int]:
    """Return the offset at a time of each partition that has one."""
    found = {}
    for partition in range(PARTITIONS):
        url = f"/v1/topics/{FLIGHTS}/partitions/{partition}/offsets"
        answer = client.get(url, params={"timestamp": time_ms}).raise_for_status().json()
        if answer["offset"] is not None:
            found[partition] = answer["offset"]
    return found


def move_to_the_broker(folder: Path, broker: RealBroker, topic: str, partitions: int) -> None:
    """Run the commands of the page between a stopped tidelog in `data` and a stopped broker."""
    page = PAGE.read_text().partition("## Partitions of tidelog, served by Kafka")[2]
    commands = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0]
    commands = re.sub(r"^kafka-topics.*$", "", commands, flags=re.MULTILINE)
    commands = commands.replace(BROKERS_DATA, str(broker.data)).replace("flights", topic)
    commands = commands.replace("0 1 2 3", " ".join(map(str, range(partitions))))
    subprocess.run(["sh", "-eu", "-c", commands], cwd=folder, check=True)


def files_of(data: Path, pattern: str) -> dict[str, bytes]:
    """Return the files of all partitions by folder and name."""
    return {
        str(file.relative_to(data)): file.read_bytes()
        for topic in (FLIGHTS, LATEST)
        for file in sorted(data.glob(f"{topic}-*/{pattern}"))
    }


@pytest.mark.long
@pytest.mark.needs("java", "mvn")
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_each_serves_what_the_other_wrote(tmp_path: Path, *, is_clean: bool) -> None:
    """Records, offsets and times are the same on both sides, after stops and after kills."""
    data, now_ms = tmp_path / "data", int(time.time() * 1000)
    broker = RealBroker(jars_of("kafka"), tmp_path)
    with broker:
        broker.create_topic(FLIGHTS, PARTITIONS, segment_bytes=str(SEGMENT_BYTES))
        broker.create_topic(LATEST, 1, cleanup_policy="compact")
    with serving_process(data) as process, httpx.Client(base_url=process.url) as client:
        fill(client, now_ms)
        times = [now_ms - HOUR_MS + number for number in (0, 5, 150, 1_999, 3_500, 3_999)]
        expected_at = {moment: offsets_at(client, moment) for moment in times}
        uncommitted = served(client, FLIGHTS, PARTITIONS)
        committed = served(client, FLIGHTS, PARTITIONS, "read_committed")
        latest = served(client, LATEST, 1)
        process.stop(signal.SIGTERM if is_clean else signal.SIGKILL)
        process.exit_code()
    assert len(uncommitted) > len(committed) > 4_000 > len(latest)
    ours = files_of(data, "*.log")
    assert len(ours) > PARTITIONS + 4

    for topic, partitions in ((FLIGHTS, PARTITIONS), (LATEST, 1)):
        move_to_the_broker(tmp_path, broker, topic, partitions)
    if not is_clean:
        (broker.data / CLEAN_SHUTDOWN_FILE).unlink()
    with broker:
        broker.wait_until_it_answers()
        assert broker.records(FLIGHTS) == uncommitted
        assert broker.records(FLIGHTS, isolation="read_committed") == committed
        assert broker.records(LATEST) == latest
        for moment, offsets in expected_at.items():
            assert broker.offsets(FLIGHTS, moment) == offsets
        broker.produce_lines(FLIGHTS, [(f"after-{n}", f"the broker's {n}") for n in range(200)])
        everything = broker.records(FLIGHTS)
        assert len(everything) == len(uncommitted) + 200
        if not is_clean:
            broker.kill()
    for name, content in files_of(broker.data, "*.log").items():
        assert content.startswith(ours.get(name, b"")), name

    shutil.copytree(broker.data, tmp_path / "copy")
    with (
        serving_process(tmp_path / "copy") as process,
        httpx.Client(base_url=process.url) as client,
    ):
        assert served(client, FLIGHTS, PARTITIONS) == everything
        assert served(client, LATEST, 1) == latest
