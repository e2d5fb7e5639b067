"""The loader outlives the service: killed and restarted, and nothing is lost or twice there."""

import os
import signal
import threading
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from app.client.appender import Appender
from app.client.commands.read import read_to_end
from app.client.connection import Connection, Request, topic_path
from app.client.partitioner import partition_of
from app.client.record_lines import RecordLine
from demo.children import Server, serve_arguments

PARTITIONS = 3
RECORDS = 3_000
KILLS = 2


def records() -> list[RecordLine]:
    return [
        RecordLine(b'{"key":"%d","value":%d}' % (n % 50, n), b"%d" % (n % 50))
        for n in range(RECORDS)
    ]


class Killer:
    """Ends the service without warning each time another share of the records is answered."""

    def __init__(self) -> None:
        self._answered = 0
        self._shares = iter([RECORDS * share // (KILLS + 1) for share in range(1, KILLS + 1)])
        self._next = next(self._shares)
        self.is_due = threading.Event()

    def count(self, records: int) -> None:
        self._answered += records
        if self._answered >= self._next:
            self._next = next(self._shares, RECORDS + 1)
            self.is_due.set()


def append(url: str, killer: Killer) -> Appender:
    with (
        Connection(url, pause=threading.Event().wait) as connection,
        Appender(connection, "t", batch_records=20, on_appended=killer.count) as appender,
    ):
        for record in records():
            appender.add(record)
    return appender


def values(url: str, partition: int) -> list[int]:
    with Connection(url) as connection:
        pages = read_to_end(connection, "t", partition, "earliest", max_records=None)
        return [msgspec.json.decode(line)["value"] for page in pages for line in page.lines]


def test_a_load_goes_on_over_kill_9_and_restart(tmp_path: Path) -> None:
    """Killed twice under load, the log holds every record once and in order."""
    killer = Killer()
    server = Server(serve_arguments(tmp_path / "data"), tmp_path / "output.txt")
    port = urlsplit(server.url).port or 0
    body = msgspec.json.encode({"partitions": PARTITIONS})
    headers = {"Content-Type": "application/json"}
    with Connection(server.url) as connection:
        connection.send(Request("PUT", topic_path("t"), headers=headers, content=body))
    reports: list[Appender] = []
    loader = threading.Thread(target=lambda: reports.append(append(server.url, killer)))
    loader.start()
    try:
        for _ in range(KILLS):
            assert killer.is_due.wait(60)
            killer.is_due.clear()
            os.kill(server.pid, signal.SIGKILL)
            server.stop()
            server = Server(serve_arguments(tmp_path / "data", port), tmp_path / "output.txt")
        loader.join(120)
        found = [values(server.url, partition) for partition in range(PARTITIONS)]
    finally:
        server.stop()
    for partition in range(PARTITIONS):
        expected = [
            n for n in range(RECORDS) if partition_of(b"%d" % (n % 50), PARTITIONS) == partition
        ]
        assert found[partition] == expected
    assert reports[0].report.records == RECORDS
