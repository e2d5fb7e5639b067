"""`tidelog work` against a real service: each record at least once, in order, whoever dies."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from app.client import work
from app.client.commands import work as work_command
from app.client.connection import Connection, Request, topic_path
from app.client.failures import Refused
from demo.children import Server
from engine.records.builder import build_batch
from tests.cli.conftest import Run, objects
from tests.support.service import RAW
from tests.support.time import START_MS

AS_JSON = {"content-type": "application/json"}
READ_ALL = 'cat > /dev/null; echo "$TIDELOG_PARTITION $TIDELOG_FIRST_OFFSET $TIDELOG_LAST_OFFSET"'


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that has failed is tried again soon, and what is to end is soon killed."""
    monkeypatch.setattr(work, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(work_command, "_GRACE_S", 0.2)


@pytest.fixture
def connection(service: Server) -> Iterator[Connection]:
    with Connection(service.url) as connection:
        yield connection


def fill(run: Run, topic: str, records: int, partitions: int = 1) -> None:
    run("create", topic, "-p", str(partitions))
    lines = b"".join(b'{"key":"k%d","value":%d}\n' % (n, n) for n in range(records))
    assert run("append", topic, stdin=lines).exit_code == 0


def work_on(run: Run, topic: str, *command: str, group: str = "g", options: str = "") -> Result:
    return run("work", topic, "-g", group, "--once", *options.split(), "--", *command)


def shell(script: str, out: Path) -> tuple[str, ...]:
    """A command that appends what it prints to a file, each batch at once."""
    return ("sh", "-c", f"({script}) > {out}.$$; cat {out}.$$ >> {out}; rm {out}.$$")


def committed(connection: Connection, topic: str, group: str = "g") -> dict[int, int]:
    path = f"/v1/groups/{group}/offsets"
    try:
        offsets = connection.json(Request("GET", path))["offsets"]
    except Refused:
        return {}
    return {one["partition"]: one["offset"] for one in offsets if one["topic"] == topic}


def ends(connection: Connection, topic: str) -> dict[int, int]:
    found = connection.json(Request("GET", topic_path(topic, operation="offsets")))
    return {one["partition"]: one["high_watermark"] for one in found["partitions"]}


def test_every_record_is_handed_on_once_and_committed(
    run: Run, connection: Connection, tmp_path: Path
) -> None:
    """In the order of its partition, as one JSON object a line."""
    fill(run, "all", 500, partitions=3)
    out = tmp_path / "out"
    result = work_on(run, "all", *shell("cat", out), options="--batch 40 --parallel 2")
    assert result.exit_code == 0, result.stderr
    assert "500 records done" in result.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(line["value"] for line in lines) == list(range(500))
    by_key = {line["key"]: line["value"] for line in lines}
    assert by_key["k7"] == 7
    assert committed(connection, "all") == ends(connection, "all")
    again = work_on(run, "all", "sh", "-c", "exit 1", options="--attempts 1")
    assert (again.exit_code, "0 records done" in again.stderr) == (0, True)


def test_the_command_knows_which_records_it_has(run: Run, tmp_path: Path) -> None:
    """From its environment: topic, group, partition, offsets and attempt."""
    fill(run, "env", 25)
    out = tmp_path / "out"
    script = 'cat > /dev/null; env | grep ^TIDELOG_ | grep -v SERVER | sort | tr "\\n" " "; echo'
    work_on(run, "env", *shell(script, out), group="a/b", options="--batch 10")
    lines = out.read_text().splitlines()
    assert [line.split() for line in lines] == [
        [
            "TIDELOG_ATTEMPT=1",
            f"TIDELOG_FIRST_OFFSET={first}",
            "TIDELOG_GROUP=a/b",
            f"TIDELOG_LAST_OFFSET={last}",
            "TIDELOG_PARTITION=0",
            "TIDELOG_TOPIC=env",
        ]
        for first, last in ((0, 9), (10, 19), (20, 24))
    ]


def test_a_batch_that_fails_is_tried_again_before_the_next(run: Run, tmp_path: Path) -> None:
    """And the attempt is told; the offset stays until one succeeds."""
    fill(run, "again", 20)
    out = tmp_path / "out"
    script = 'cat > /dev/null; echo "$TIDELOG_FIRST_OFFSET $TIDELOG_ATTEMPT"'
    fails = f"{script}; test $TIDELOG_ATTEMPT -ge 3 -o $TIDELOG_FIRST_OFFSET -gt 0"
    command = ("sh", "-c", f"({fails}) >> {out}")
    result = work_on(run, "again", *command, options="--batch 10")
    assert result.exit_code == 0
    assert out.read_text().splitlines() == ["0 1", "0 2", "0 3", "10 1"]
    assert "again-0, offsets 0 to 9: exit code 1; attempt 1, again in" in result.stderr


def test_only_the_poison_goes_to_the_dead_letter_topic(run: Run, connection: Connection) -> None:
    """Byte for byte, with its headers, where it was and why; the records around it are done."""
    run("create", "poison")
    run("create", "dead")
    records: list[dict[str, Any]] = [{"value": n} for n in range(10)]
    records[4] = {
        "key": "AP8=",
        "key_encoding": "base64",
        "value": '{"a": 1.50}',
        "value_encoding": "utf8",
        "headers": [{"key": "h", "value": "//4=", "encoding": "base64"}],
    }
    body = json.dumps({"records": records}).encode()
    path = topic_path("poison", 0, "records")
    connection.send(Request("POST", path, headers=AS_JSON, content=body))
    command = ("sh", "-c", "! grep -q 1.50")
    options = "--attempts 2 --dead-letter dead"
    result = work_on(run, "poison", *command, options=options)
    assert result.exit_code == 0, result.stderr
    assert committed(connection, "poison") == {0: 10}
    assert "10 records done in 10 batches; 1 in the dead-letter topic" in result.stderr
    read = Request("GET", topic_path("dead", 0, "records"), {"encoding": "base64"})
    (dead,) = connection.json(read)["records"]
    assert dead["key"] == "AP8="
    utf8 = Request("GET", topic_path("dead", 0, "records"), {"encoding": "utf8"})
    (dead,) = connection.json(utf8)["records"]
    assert dead["value"] == '{"a": 1.50}'
    headers = {one["key"]: one["value"] for one in dead["headers"]}
    assert headers["h"] == "//4="
    assert headers["dead-letter-topic"] == "poison"
    assert headers["dead-letter-partition"] == "0"
    assert headers["dead-letter-offset"] == "4"
    assert headers["dead-letter-group"] == "g"
    assert headers["dead-letter-attempts"] == "2"
    assert headers["dead-letter-reason"] == "exit code 1"


def test_a_dead_letter_is_stored_once(run: Run, connection: Connection) -> None:
    """A worker that died between the two topics does not leave it there twice."""
    fill(run, "twice", 1)
    run("create", "dead-once")
    for _ in range(2):
        options = "--attempts 1 --dead-letter dead-once"
        assert work_on(run, "twice", "false", options=options).exit_code == 0
        connection.send(Request("DELETE", "/v1/groups/g/offsets/twice/0"))
    assert ends(connection, "dead-once") == {0: 1}


def test_without_another_place_a_poison_ends_the_worker(run: Run, connection: Connection) -> None:
    """What is before it is committed; it and what follows is not."""
    fill(run, "stuck", 10)
    result = work_on(run, "stuck", "sh", "-c", '! grep -q "value\\":4,"', options="--attempts 2")
    assert result.exit_code == 1
    assert "stuck-0, offset 4: exit code 1, 2 times; it is not committed" in result.stderr
    assert committed(connection, "stuck") == {0: 4}
    assert connection.json(Request("GET", "/v1/groups/g/leases"))["workers"] == []


@pytest.mark.parametrize(
    ("topic", "options", "command", "code", "said"),
    [
        ("absent", "", "true", 1, "'absent' does not exist"),
        ("here", "--dead-letter absent", "true", 1, "'absent' does not exist"),
        ("here", "", "no-such-program", 127, "no-such-program cannot be run: No such file"),
        ("here", "--attempts 0", "true", 2, "--attempts"),
        ("here", "--ttl 0.5", "true", 2, "--ttl"),
    ],
)
def test_what_cannot_work_ends_at_once_and_changes_nothing(
    run: Run, connection: Connection, topic: str, options: str, command: str, code: int, said: str
) -> None:
    """The sentence names what is missing; nothing is committed."""
    fill(run, "here", 3)
    result = work_on(run, topic, command, group="none", options=options)
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr
    assert committed(connection, "here", "none") == {}


def test_a_command_that_hangs_is_ended_with_all_that_it_started(run: Run, tmp_path: Path) -> None:
    """After its time it has failed; its children do not live on."""
    fill(run, "hang", 1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    command = ("sh", "-c", f"exec 9> {fifo}; trap '' TERM; sleep 1000 & wait")
    try:
        result = work_on(run, "hang", *command, options="--timeout 0.3 --attempts 1")
        assert "it ran longer than 0.3 s" in result.stderr
        os.set_blocking(reader, True)
        assert os.read(reader, 1) == b""  # every process that had it open has ended
    finally:
        os.close(reader)


def test_a_command_need_not_read_its_input(run: Run, connection: Connection) -> None:
    """Whatever the size of the batch: exit code 0 is what counts."""
    run("create", "unread")
    line = b'{"value":"%s"}\n' % (b"x" * 10_000)
    run("append", "unread", stdin=line * 200)
    assert work_on(run, "unread", "true", options="--batch 200").exit_code == 0
    assert committed(connection, "unread") == {0: 200}


def test_deleted_records_are_told_and_passed_over(run: Run, connection: Connection) -> None:
    """Retention was faster: the worker goes on at the log start."""
    fill(run, "short", 20)
    connection.send(
        Request("PUT", "/v1/groups/g/offsets/short/0", headers=AS_JSON, content=b'{"offset":2}')
    )
    delete = Request(
        "POST",
        topic_path("short", 0, "delete-records"),
        headers=AS_JSON,
        content=b'{"before_offset":8}',
    )
    connection.send(delete)
    result = work_on(run, "short", "true")
    assert "short-0: the offsets 2 to 7 were deleted before they were read" in result.stderr
    assert "12 records done" in result.stderr


def test_records_of_aborted_transactions_are_not_handed_on(
    run: Run, connection: Connection, tmp_path: Path
) -> None:
    """Readers of committed records do not see them; the worker ends behind them."""
    run("create", "tx", "-c", "retention.ms=-1")
    batch = build_batch(
        [(START_MS, None, b'"gone"', ())],
        producer_id=0,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    send, log = connection.send, f"{topic_path('tx', 0)}/"
    send(Request("POST", f"{log}batches", headers=RAW, content=bytes(batch)))
    abort = b'{"producer_id":0,"producer_epoch":0,"action":"abort"}'
    send(Request("POST", f"{log}transactions", headers=AS_JSON, content=abort))
    plain = b'{"records":[{"value":"here"}]}'
    out = tmp_path / "out"
    assert "0 records done" in work_on(run, "tx", *shell("cat", out)).stderr
    send(Request("POST", f"{log}records", headers=AS_JSON, content=plain))
    assert "1 record" in work_on(run, "tx", *shell("cat", out)).stderr
    assert [json.loads(line)["value"] for line in out.read_text().splitlines()] == ["here"]


def program(service: Server, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "app.cli", "work", *arguments]
    environment = {**os.environ, "TIDELOG_SERVER": service.url}
    return subprocess.Popen(command, env=environment, **more)


def test_a_signal_lets_a_command_finish_and_the_second_ends_it(
    run: Run, service: Server, connection: Connection, tmp_path: Path
) -> None:
    """Committed and left with 0 after one; given up and left after two, with 143."""
    fill(run, "signals", 20)
    for group, count, code in (("one", 1, 0), ("two", 2, 143)):
        gate = tmp_path / group
        os.mkfifo(gate)
        script = f"cat > /dev/null; echo started; cat {gate}"
        options = ("signals", "-g", group, "--batch", "10", "--", "sh", "-c", script)
        with program(
            service, *options, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"started\n"
            for _ in range(count):
                worker.send_signal(signal.SIGTERM)
                connection.json(Request("GET", f"/v1/groups/{group}/leases"))
            if count == 1:
                gate.write_text("go on")
            assert worker.wait(60) == code
        assert committed(connection, "signals", group) == ({0: 10} if count == 1 else {})
        assert connection.json(Request("GET", f"/v1/groups/{group}/leases"))["workers"] == []


def test_three_workers_share_a_topic_and_one_is_killed(
    run: Run, service: Server, connection: Connection, tmp_path: Path
) -> None:
    """Each record is handed on at least once, in the order of its partition."""
    fill(run, "crew", 600, partitions=6)
    out = tmp_path / "out"
    options = ("crew", "-g", "crew", "--ttl", "1", "--batch", "10", "--", *shell(READ_ALL, out))
    killed = program(service, *options, stderr=subprocess.DEVNULL)
    others = [program(service, *options, stderr=subprocess.DEVNULL) for _ in range(2)]
    wait_until(lambda: sum(committed(connection, "crew", "crew").values()) >= 150)
    killed.kill()
    killed.wait()
    wait_until(lambda: committed(connection, "crew", "crew") == ends(connection, "crew"))
    for other in others:
        other.terminate()
        assert other.wait(60) == 0
    seen: dict[int, list[tuple[int, int]]] = {}
    for line in out.read_text().splitlines():
        partition, first, last = map(int, line.split())
        seen.setdefault(partition, []).append((first, last))
    for partition, end in ends(connection, "crew").items():
        reached = 0
        for first, last in seen[partition]:
            assert first <= reached, f"partition {partition} was not handed on from {reached}"
            reached = max(reached, last + 1)
        assert reached == end


def test_a_worker_that_lost_its_partition_ends_what_runs(
    run: Run, service: Server, connection: Connection, tmp_path: Path
) -> None:
    """And commits nothing of it: another has it now."""
    fill(run, "lost", 10)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"cat > /dev/null; echo started; cat {gate}"
    options = ("lost", "-g", "lost", "--name", "old", "--ttl", "1", "--", "sh", "-c", script)
    with program(service, *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as old:
        assert old.stdout is not None
        assert old.stdout.readline() == b"started\n"
        url = "/v1/groups/lost/leases"
        connection.send(Request("DELETE", f"{url}/old"))
        body = b'{"worker":"new","topics":["lost"],"ttl_ms":600000}'
        lease = connection.json(Request("POST", url, headers=AS_JSON, content=body))
        assert len(lease["partitions"]) == 1
        wait_until(lambda: not children_of(old.pid))
        old.terminate()
        assert old.wait(60) == 0
        connection.send(Request("DELETE", f"{url}/new"))
    assert committed(connection, "lost", "lost") == {}


def children_of(pid: int) -> list[str]:
    """The children of all of a process's threads."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [child for task in tasks for child in task.read_text().split()]


def wait_until(holds: Any, patience_s: float = 60) -> None:
    """Ask until it holds; the pause only spares the processor."""
    pause = threading.Event()
    for _ in range(int(patience_s / 0.02)):
        if holds():
            return
        pause.wait(0.02)
    raise AssertionError("it does not come to hold")


def test_progress_for_programs_is_json(run: Run) -> None:
    """Standard output belongs to the commands; standard error is one object a line."""
    fill(run, "json", 3)
    result = run("work", "json", "-g", "j", "--once", "--json", "--", "true")
    assert result.stdout == ""
    assert [list(one) for one in objects(result.stderr)] == [["notice"], ["notice"]]
