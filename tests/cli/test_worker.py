"""Workers of `tidelog work` in this process: how they share, lose and give up partitions."""

import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from app.client import work
from app.client.commands import work as work_command
from app.client.commands.work import Commands
from app.client.connection import Connection, Request, json_request, topic_path
from app.client.failures import Failure, Refused, Unreachable
from app.client.terminal import Terminal
from app.client.work import Batch, Plan, Report, Worker
from demo.children import Server
from tests.cli.conftest import Run

PATIENCE_S = 60


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(work, "_POLL_MS", 50)
    monkeypatch.setattr(work_command, "_GRACE_S", 0.2)


@pytest.fixture
def connection(service: Server) -> Iterator[Connection]:
    with Connection(service.url) as connection:
        yield connection


class Running:
    """A worker in a thread of its own, what it has said, and how it ended."""

    def __init__(self, service: Server, plan: Plan, hand: Callable[[Batch], str | None]) -> None:
        self.said: list[str] = []
        self.report: Report | None = None
        self.failure: Exception | None = None
        self.connection = Connection(service.url)
        self.worker = Worker(self.connection, plan, hand, say=self.said.append)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.report = self.worker.run()
        except Failure as failure:
            self.failure = failure

    def end(self) -> None:
        self.worker.stop()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        self.connection.close()


def fill(run: Run, topic: str, records: int, partitions: int = 1) -> None:
    run("create", topic, "-p", str(partitions))
    lines = b"".join(b'{"key":"k%d","value":%d}\n' % (n, n) for n in range(records))
    assert run("append", topic, stdin=lines).exit_code == 0


def test_a_worker_that_joins_is_given_its_share(run: Run, service: Server) -> None:
    """The first one lets go of what it does not work on, and of the rest after its batch."""
    fill(run, "joined", 40, partitions=4)
    first_has_all, go_on, second_has_two = (threading.Event() for _ in range(3))
    seen: dict[str, set[int]] = {"a": set(), "b": set()}

    def hand_a(batch: Batch) -> str | None:
        seen["a"].add(batch.partition)
        first_has_all.set()
        assert go_on.wait(PATIENCE_S)
        return None

    def hand_b(batch: Batch) -> str | None:
        seen["b"].add(batch.partition)
        if len(seen["b"]) == 2:
            second_has_two.set()
        return None

    first = Running(service, Plan("joined", "joined", "a", ttl_ms=1_000), hand_a)
    assert first_has_all.wait(PATIENCE_S)
    second = Running(service, Plan("joined", "joined", "b", ttl_ms=1_000), hand_b)
    go_on.set()
    # What is appended now is the second one's, in its partitions.
    for _ in range(200):
        run("append", "joined", stdin=b"".join(b'{"key":"x%d","value":1}\n' % n for n in range(40)))
        if second_has_two.wait(0.1):
            break
    first.end()
    second.end()
    assert second_has_two.is_set()
    assert any("a holds 4 partitions of joined: 0, 1, 2, 3" in one for one in first.said)
    assert any("a holds 2 partitions" in one for one in first.said)
    assert any("b holds 2 partitions" in one for one in second.said)


def test_what_another_worker_has_is_not_committed(
    run: Run, service: Server, connection: Connection
) -> None:
    """It is told; the other one gets the batch again."""
    fill(run, "taken", 3)
    handed = threading.Event()

    def hand(_: Batch) -> str | None:
        if not handed.is_set():
            connection.send(Request("DELETE", "/v1/groups/taken/leases/old"))
            body = {"worker": "new", "topics": ["taken"], "ttl_ms": 600_000}
            connection.json(json_request("POST", "/v1/groups/taken/leases", body))
            handed.set()
        return None

    running = Running(service, Plan("taken", "taken", "old", ttl_ms=600_000), hand)
    assert handed.wait(PATIENCE_S)
    running.end()
    assert running.report == Report()
    assert any(
        "taken-0: another worker has it, and repeats the offsets 0 to 2" in one
        for one in running.said
    )
    with pytest.raises(Refused):
        connection.send(Request("GET", "/v1/groups/taken/offsets/taken/0"))


def test_a_partition_that_was_lost_meanwhile_is_let_go(
    run: Run, service: Server, connection: Connection
) -> None:
    """With the next renewal; what waits of it is not handed on."""
    fill(run, "stale", 4, partitions=2)
    handed, go_on = threading.Event(), threading.Event()

    def hand(_: Batch) -> str | None:
        handed.set()
        assert go_on.wait(PATIENCE_S)
        return None

    running = Running(service, Plan("stale", "stale", "old", ttl_ms=1_000), hand)
    assert handed.wait(PATIENCE_S)
    connection.send(Request("DELETE", "/v1/groups/stale/leases/old"))
    body = {"worker": "new", "topics": ["stale"], "ttl_ms": 600_000}
    connection.json(json_request("POST", "/v1/groups/stale/leases", body))
    pause = threading.Event()
    while not any("old holds 0 partitions of stale" in one for one in running.said):
        pause.wait(0.01)
    go_on.set()
    running.end()
    assert running.report == Report()
    connection.send(Request("DELETE", "/v1/groups/stale/leases/new"))


def test_what_is_given_up_is_not_committed(run: Run, service: Server) -> None:
    """The batch that runs is no longer wanted, and the lease is released."""
    fill(run, "given", 3)
    started = threading.Event()

    def hand(batch: Batch) -> str | None:
        started.set()
        pause = threading.Event()
        while batch.is_wanted():
            pause.wait(0.005)
        return "given up"

    running = Running(service, Plan("given", "given", "a"), hand)
    assert started.wait(PATIENCE_S)
    running.worker.abandon()
    running.end()
    assert running.report == Report()


def test_a_topic_that_is_deleted_ends_the_worker(
    run: Run, service: Server, connection: Connection
) -> None:
    """With the sentence of the service."""
    fill(run, "over", 1)

    def hand(_: Batch) -> str | None:
        connection.send(Request("DELETE", topic_path("over")))
        return None

    running = Running(service, Plan("over", "over", "a"), hand)
    running.thread.join(PATIENCE_S)
    running.end()
    assert isinstance(running.failure, Refused)
    assert running.failure.code == "topic_not_found"


def test_a_topic_that_is_deleted_while_nothing_comes_ends_the_worker(
    run: Run, service: Server, connection: Connection
) -> None:
    """Whichever request finds out first."""
    fill(run, "quiet", 0)
    running = Running(service, Plan("quiet", "quiet", "a"), lambda _: None)
    pause = threading.Event()
    while not running.said:
        pause.wait(0.01)
    connection.send(Request("DELETE", topic_path("quiet")))
    running.thread.join(PATIENCE_S)
    running.end()
    assert isinstance(running.failure, Refused)


@pytest.mark.parametrize("answer", [b"nonsense", b'{"partitions":[{"partition":"x"}]}'])
def test_a_service_that_is_none_is_told_apart(answer: bytes) -> None:
    """Its answers are not pages; that the lease cannot be released is told, too."""
    lease = {
        "renew_in_ms": 9_000,
        "waiting": 0,
        "partitions": [{"topic": "t", "partition": 0, "offset": 0, "fence": 1}],
        "revoking": [{"topic": "t", "partition": 1, "offset": 0, "fence": 1}],
    }

    def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            return httpx.Response(404)
        if request.url.path == "/v1/fetch":
            return httpx.Response(200, content=answer)
        return httpx.Response(200, json=lease)

    said: list[str] = []
    transport = httpx.MockTransport(respond)
    with Connection("http://127.0.0.1:1", transport=transport) as connection:
        worker = Worker(connection, Plan("t", "g", "w"), lambda _: None, say=said.append)
        with pytest.raises(Unreachable, match="is no page"):
            worker.run()
    assert any("the lease ends by itself" in one for one in said)


def batch(lines: list[bytes], *, is_wanted: bool = True) -> Batch:
    return Batch("t", "g", 0, 0, 1, 2, 1, lines, lambda: is_wanted)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("cat > /dev/null", None),
        ("exit 7", "exit code 7"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("kill -40 $$", "ended by signal 40"),
    ],
)
def test_how_a_command_ended_is_said(script: str, reason: str | None) -> None:
    """By its exit code, or the signal that ended it."""
    assert Commands(["sh", "-c", script], 60)(batch([b"{}"])) == reason


def test_a_command_whose_batch_is_not_wanted_is_ended() -> None:
    """Whatever it does with SIGTERM."""
    run = Commands(["sh", "-c", "trap '' TERM; sleep 1000"], 60)
    assert run(batch([b"{}"], is_wanted=False)) == "another worker has the partition"


def test_the_first_signal_stops_and_the_second_gives_up() -> None:
    """Handlers that were there before are there again."""
    before = signal.getsignal(signal.SIGTERM)

    class Told:
        def __init__(self) -> None:
            self.told: list[str] = []

        def stop(self) -> None:
            self.told.append("stop")

        def abandon(self) -> None:
            self.told.append("abandon")

    worker: Any = Told()
    with work_command._stopped_by_signals(worker) as seen:  # noqa: SLF001  # the handlers alone
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
    assert worker.told == ["stop", "abandon"]
    assert seen == [signal.SIGTERM] * 2
    assert signal.getsignal(signal.SIGTERM) is before


class Typed(io.StringIO):
    """Standard input of a person."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "is_meant"), [("name\n", True), ("nam\n", False), ("", False)])
def test_a_person_is_asked(typed: str, is_meant: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001  # a column
    """Only the name is an answer; a program is told how to say it."""
    monkeypatch.setattr("sys.stdin", Typed(typed))
    if is_meant:
        Terminal().ensure_meant("it is lost", "name", yes=False)
    else:
        with pytest.raises(Failure, match="nothing was changed"):
            Terminal().ensure_meant("it is lost", "name", yes=False)
    with pytest.raises(Failure, match="add --yes"):
        Terminal(as_json=True).ensure_meant("it is lost", "name", yes=False)


def committed(service: Server, group: str, topic: str) -> int:
    answer = httpx.get(f"{service.url}/v1/groups/{group}/offsets/{topic}/0")
    return int(answer.json()["offset"])


def test_only_what_a_filter_wants_is_handed_on(run: Run, service: Server) -> None:
    """The rest is passed over and committed, up to the end, also behind the last that matched."""
    fill(run, "sieved", 50)
    seen: list[bytes] = []

    def hand(batch: Batch) -> str | None:
        seen.extend(batch.lines)
        return None

    wanted = "value >= 10 and value < 13"
    plan = Plan("sieved", "sieve", "w", filter=wanted, batch_records=2, is_once=True)
    running = Running(service, plan, hand)
    running.thread.join(PATIENCE_S)
    running.end()
    assert running.failure is None
    assert [b'"value":%d' % n in line for n, line in zip((10, 11, 12), seen, strict=True)] == [
        True
    ] * 3
    assert committed(service, "sieve", "sieved") == 50


def test_what_is_passed_over_is_committed_while_nothing_matches(
    run: Run, service: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies after hours without a match does not scan them again."""
    monkeypatch.setattr(work, "_PASSED_OVER_S", 0.0)
    fill(run, "barren", 20)
    plan = Plan("barren", "nothing", "w", filter='key = "absent"')
    running = Running(service, plan, lambda _: None)
    path = f"{service.url}/v1/groups/nothing/offsets/barren/0"
    while httpx.get(path).status_code != 200 or committed(service, "nothing", "barren") < 20:
        pass  # the worker reads meanwhile
    running.end()
    assert running.failure is None
    assert running.report == Report()


def test_a_worker_that_leaves_commits_what_it_has_passed_over(run: Run, service: Server) -> None:
    """Nothing matched, and nobody scans it again."""
    fill(run, "left", 20)
    plan = Plan("left", "leaving", "w", filter='key = "absent"', is_once=True)
    running = Running(service, plan, lambda _: None)
    running.thread.join(PATIENCE_S)
    running.end()
    assert running.failure is None
    assert committed(service, "leaving", "left") == 20


def test_dead_letters_are_only_what_the_filter_wants(run: Run, service: Server) -> None:
    """What lies between them in the log was never handed on, and is nobody's failure."""
    fill(run, "mixed", 10)
    run("create", "mixed-failed")
    plan = Plan(
        "mixed",
        "burying",
        "w",
        filter="value >= 4 and value != 5 and value < 8",
        attempts=1,
        dead_letter_topic="mixed-failed",
        is_once=True,
    )
    running = Running(service, plan, lambda _: "no")
    running.thread.join(PATIENCE_S)
    running.end()
    assert running.report is not None
    assert running.report.dead_letters == 3
    page = httpx.get(f"{service.url}/v1/topics/mixed-failed/partitions/0/records").json()
    assert [record["value"] for record in page["records"]] == [4, 6, 7]


def test_a_filter_that_cannot_be_read_ends_the_worker(run: Run, service: Server) -> None:
    """With what the service says of it."""
    fill(run, "plain", 1)
    running = Running(service, Plan("plain", "g", "w", filter="what?"), lambda _: None)
    running.thread.join(PATIENCE_S)
    assert running.failure is not None
    assert "filter" in str(running.failure)
    running.end()
