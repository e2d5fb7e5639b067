"""A broker serves what tidelog wrote, and tidelog what the broker wrote then: the claim, by trial.

Between the two are the commands of `docs/kafka-directories.md`, run as they stand there. Maven
fetches the broker, so this is a long test.
"""

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from bench.peers.packages import jars_of
from engine.fs.names import CLEAN_SHUTDOWN_FILE
from tests.support.broker import RealBroker
from tests.support.flights import (
    FLIGHTS,
    HOUR_MS,
    LATEST,
    PARTITIONS,
    SEGMENT_BYTES,
    fill,
    served,
)
from tests.support.process import serving_process

PAGE = Path(__file__).parents[3] / "docs" / "kafka-directories.md"
BROKERS_DATA = "/var/lib/kafka/data"


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
@pytest.mark.parametrize("ending", ["stopped", "killed", "lost"])
def test_each_serves_what_the_other_wrote(tmp_path: Path, ending: str) -> None:
    """The same on both sides, after a stop, a kill, and a disk that was restored from the archive.

    Records, offsets and times; of the restored logs also each byte.
    """
    data, now_ms = tmp_path / "data", int(time.time() * 1000)
    is_clean, bucket = ending == "stopped", f"file://{tmp_path}/bucket"
    broker = RealBroker(jars_of("kafka"), tmp_path)
    with broker:
        broker.create_topic(FLIGHTS, PARTITIONS, segment_bytes=str(SEGMENT_BYTES))
        broker.create_topic(LATEST, 1, cleanup_policy="compact")
    with (
        serving_process(data, archive=bucket) as process,
        httpx.Client(base_url=process.url) as client,
    ):
        fill(client, now_ms)
        times = [now_ms - HOUR_MS + number for number in (0, 5, 150, 1_999, 3_500, 3_999)]
        expected_at = {moment: offsets_at(client, moment) for moment in times}
        uncommitted = served(client, FLIGHTS, PARTITIONS)
        committed = served(client, FLIGHTS, PARTITIONS, "read_committed")
        latest = served(client, LATEST, 1)
        while client.get("/readyz").json()["archive"]["lag_ms"]:
            pass  # another process archives
        process.stop(signal.SIGTERM if is_clean else signal.SIGKILL)
        process.exit_code()
    if ending == "lost":
        before = files_of(data, "*.log")
        shutil.move(data, tmp_path / "lost")
        restoring = [sys.executable, "-m", "app.cli", "restore", bucket, "--data-dir", str(data)]
        subprocess.run(restoring, check=True)
        assert files_of(data, "*.log") == before
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
