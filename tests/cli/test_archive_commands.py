"""`tidelog restore` and `tidelog archive`: a service with an archive, and the way back."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from demo.children import ChildFailed, Server, serve_arguments
from engine.fs import names
from tests.cli.conftest import Run, objects

KILLS = 4
RECORDS = "/v1/topics/clicks/partitions/0/records"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that archives every 20 ms; `run` talks to it."""
    folder = tmp_path_factory.mktemp("archived")
    arguments = serve_arguments(folder / "data")
    arguments += ["--archive", f"file://{folder}/bucket"]
    os.environ["TIDELOG_ARCHIVE_INTERVAL_MS"] = "20"
    try:
        with Server(arguments, folder / "output.txt") as server:
            fill(server)
            yield server
    finally:
        del os.environ["TIDELOG_ARCHIVE_INTERVAL_MS"]


def fill(server: Server) -> None:
    """Ten records and a group's offset; wait until they are archived."""
    ready(server)
    with httpx.Client(base_url=server.url) as client:
        client.put("/v1/topics/clicks", json={"config": {"retention.ms": "-1"}})
        for number in range(10):
            client.post(RECORDS, json={"records": [{"key": "k", "value": number}]})
        client.put("/v1/groups/g/offsets/clicks/0", json={"offset": 4}).raise_for_status()
        while not is_archived(client):
            pass  # another process archives


def ready(server: Server) -> None:
    """Wait until the logs are open."""
    while httpx.get(f"{server.url}/readyz").status_code != 200:
        pass  # another process opens them


def url_of(service: Server) -> str:
    return f"file://{service.log.parent}/bucket"


def test_the_status_of_an_archive(run: Run, service: Server) -> None:
    """For people a table, for programs an object for each partition."""
    told = objects(run("archive", "status", "--json", url_of(service)).stdout)
    (clicks,) = (one for one in told if one["topic"] == "clicks")
    assert (clicks["archived_offset"], clicks["log_start_offset"]) == (10, 0)
    shown = run("archive", "status", url_of(service)).output
    assert "clicks-0" in shown
    assert "49 partition(s) without records are not listed" in shown


def test_a_directory_is_restored_and_served(run: Run, service: Server, tmp_path: Path) -> None:
    """Offsets, records and group offsets as they were; the epoch rises, since some may be lost."""
    before = run("verify", str(service.log.with_name("data")))
    assert before.exit_code in {0, 1}  # the service is at work
    shown = run("restore", url_of(service), "--data-dir", str(tmp_path / "new"))
    assert shown.exit_code == 0, shown.output
    assert "clicks-0" in shown.stdout
    assert f"tidelog serve --data-dir {tmp_path / 'new'}" in shown.stdout
    assert run("verify", str(tmp_path / "new")).exit_code == 0
    with (
        Server(serve_arguments(tmp_path / "new"), tmp_path / "output.txt") as restored,
        httpx.Client(base_url=restored.url) as client,
        httpx.Client(base_url=service.url) as original,
    ):
        ready(restored)
        found, wanted = (one.get(f"{RECORDS}?offset=0") for one in (client, original))
        assert found.json()["records"] == wanted.json()["records"]
        cursors = [one.get("/v1/groups/g/offsets").json() for one in (client, original)]
        assert cursors[0] == cursors[1]
        ids = [one.get("/v1/topics/clicks").json()["topic_id"] for one in (client, original)]
        assert ids[0] == ids[1]
        assert found.headers["log-id"] != wanted.headers["log-id"]


def test_nothing_is_written_by_a_look(run: Run, service: Server, tmp_path: Path) -> None:
    """`--dry-run` says what there is, `--verify-only` reads all of it."""
    dry = run("restore", url_of(service), "--dry-run", "--json", "--topic", "clicks")
    (told,) = objects(dry.stdout)
    assert (told["first_offset"], told["end_offset"]) == (0, 10)
    for until in ("4102444800000", "2100-01-01T00:00:00+00:00"):
        later = run("restore", url_of(service), "--dry-run", "--until", until)
        assert "clicks-0" in later.stdout
    verified = run("restore", url_of(service), "--verify-only")
    assert "all of them intact" in verified.stdout
    assert run("archive", "verify", url_of(service)).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_object_is_named(run: Run, service: Server, tmp_path: Path) -> None:
    """By `verify` and by `restore`, which restores what comes before it."""
    bucket = tmp_path / "bucket"
    shutil.copytree(service.log.parent / "bucket", bucket)
    segments = sorted(bucket.glob("logs/*/0/*.log"), key=lambda one: one.stat().st_size)
    damaged = segments[-1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    verified = run("archive", "verify", f"file://{bucket}")
    assert verified.exit_code == 1
    assert damaged.name in verified.stderr
    restored = run("restore", f"file://{bucket}", "--data-dir", str(tmp_path / "new"), "--json")
    assert restored.exit_code == 1
    assert damaged.name in restored.stderr


def test_mistakes_are_told_in_one_sentence(run: Run, service: Server, tmp_path: Path) -> None:
    """A URL, a time, a topic, a directory."""
    url = url_of(service)
    for arguments, said in (
        (("restore", "bucket", "--dry-run"), "neither the URL of an archive nor a copy"),
        (("archive", "status", "bucket"), "not the URL of an archive"),
        (("restore", url, "--dry-run", "--until", "yesterday"), "is not a time"),
        (("restore", url, "--dry-run", "--topic", "none"), "'none' is not in"),
        (("restore", url), "--data-dir"),
        (("restore", url, "--dry-run", "--until", "2020-01-01T00:00", "--topic", "a"), "time"),
        (("restore", str(tmp_path), "--data-dir", str(tmp_path)), "neither the URL"),
        (("restore", url, "--data-dir", "/proc/nowhere"), "the restore stopped"),
        (("restore", f"file://{tmp_path}/empty", "--dry-run"), "has no archive"),
        (("restore", url, "--data-dir", str(service.log.parent)), "is not empty"),
    ):
        shown = run(*arguments)
        assert shown.exit_code in {1, 2}
        assert said in shown.stderr.replace("\n", " "), shown.stderr
        assert "Traceback" not in shown.output


def test_leftovers_are_pruned(run: Run, service: Server) -> None:
    """A service that runs has none; a look deletes nothing."""
    (told,) = objects(run("archive", "prune", "--dry-run", "--json", url_of(service)).stdout)
    assert told == {"objects": 0, "size_bytes": 0, "deleted": False}
    assert "deleted 0 objects" in run("archive", "prune", url_of(service)).stdout


@pytest.mark.long
def test_a_second_directory_is_refused_at_its_start(service: Server, tmp_path: Path) -> None:
    """With a sentence and exit code 1; with --archive-take-over it is the one that archives."""
    shutil.copytree(service.log.parent / "bucket", tmp_path / "bucket")
    url = f"file://{tmp_path}/bucket"
    arguments = [*serve_arguments(tmp_path / "data"), "--archive", url]
    with (
        Server(arguments, tmp_path / "refused.txt") as server,
        pytest.raises(ChildFailed, match="archive of another data directory"),
    ):
        server.wait()
    with Server([*arguments, "--archive-take-over"], tmp_path / "output.txt") as server:
        ready(server)
    with Server(arguments, tmp_path / "again.txt") as server:
        ready(server)


@pytest.mark.long
def test_kills_beside_uploads_cost_nothing_that_was_archived(run: Run, tmp_path: Path) -> None:
    """The process is killed again and again while it uploads; its bucket stays in order.

    After the last one the bucket is caught up with, and everything acknowledged can be restored.
    """
    url = f"file://{tmp_path}/bucket"
    arguments = [*serve_arguments(tmp_path / "data"), "--archive", url]
    acknowledged = 0
    for turn in range(KILLS + 1):
        with Server(arguments, tmp_path / f"output-{turn}.txt") as server:
            ready(server)
            with httpx.Client(base_url=server.url) as client:
                config = {"retention.ms": "-1", "segment.bytes": str(1 << 20)}
                client.put("/v1/topics/clicks", json={"config": config}).raise_for_status()
                for _ in range(8):
                    records = [{"value": "x" * 10_000, "key": "k"}] * 10
                    client.post(RECORDS, json={"records": records}).raise_for_status()
                    acknowledged += 10
                while turn == KILLS and not is_archived(client):
                    pass  # another process archives
            os.kill(server.pid, signal.SIGKILL)
    shown = run("restore", url, "--data-dir", str(tmp_path / "new"), "--topic", "clicks", "--json")
    assert shown.exit_code == 0, shown.output
    (told, _summary) = objects(shown.stdout)
    assert told["end_offset"] == acknowledged
    assert run("verify", str(tmp_path / "new")).exit_code == 0
    original = {one.name: one.read_bytes() for one in (tmp_path / "data/clicks-0").glob("*.log")}
    copy = {one.name: one.read_bytes() for one in (tmp_path / "new/clicks-0").glob("*.log")}
    assert copy == original
    assert run("archive", "prune", url).exit_code == 0
    assert "intact" in run("archive", "verify", url).stdout


def is_archived(client: httpx.Client) -> bool:
    """Whether everything committed is in the bucket."""
    return "tidelog_archive_lag_seconds 0.0\n" in client.get("/metrics").text


def test_a_copy_of_a_directory_at_work_is_restored(
    run: Run, service: Server, tmp_path: Path
) -> None:
    """Torn ends are cut and told; offsets stay, the epoch rises, and it can be served."""
    data = service.log.with_name("data")
    shutil.copytree(data, tmp_path / "copy")
    torn = tmp_path / "copy" / "clicks-0" / f"{0:020d}.log"
    torn.write_bytes(torn.read_bytes()[:-3])
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT):
        # of another moment: not believed
        (tmp_path / "copy" / name).write_text("0\n1\nclicks 0 999999\n")
    shown = run("restore", str(tmp_path / "copy"), "--data-dir", str(tmp_path / "new"), "--json")
    assert shown.exit_code == 0, shown.output
    *partitions, summary = objects(shown.stdout)
    (clicks,) = (one for one in partitions if one["topic"] == "clicks")
    assert (clicks["first_offset"], clicks["end_offset"]) == (0, 9)
    assert summary["problems"] == 0
    assert run("verify", str(tmp_path / "new")).exit_code == 0
    with (
        Server(serve_arguments(tmp_path / "new"), tmp_path / "output.txt") as restored,
        httpx.Client(base_url=restored.url) as client,
    ):
        ready(restored)
        offsets = client.get("/v1/topics/clicks/partitions/0/offsets").json()
        assert (offsets["log_end_offset"], offsets["leader_epoch"]) == (9, 1)
    shown = run("restore", str(tmp_path / "copy"), "--data-dir", str(tmp_path / "third"))
    assert "clicks-0" in shown.stdout
    assert "without records are not listed" in shown.stderr
    again = run("restore", str(tmp_path / "copy"), "--data-dir", str(tmp_path / "new"))
    assert "is not empty" in again.stderr
    nothing = run("restore", str(tmp_path), "--data-dir", str(tmp_path / "other"))
    assert "neither the URL of an archive nor a copy" in nothing.stderr


def test_a_copy_that_is_damaged_says_so(run: Run, service: Server, tmp_path: Path) -> None:
    """In the midst of a log, and in the small files: what can be used is used."""
    copy = tmp_path / "copy"
    shutil.copytree(service.log.with_name("data"), copy)
    log = copy / "clicks-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    (copy / "clicks-0" / names.LEADER_EPOCH_CHECKPOINT).write_text("damaged")
    (copy / names.PRODUCER_ID_FILE).write_text("damaged")
    for arguments in (["--dry-run"], ["--data-dir", str(tmp_path / "a"), "--topic", "clicks"]):
        refused = run("restore", str(copy), *arguments)
        assert refused.exit_code == 2
        assert "as a whole" in refused.stderr
    shown = run("restore", str(copy), "--data-dir", str(tmp_path / "new"))
    assert shown.exit_code == 1
    assert "not everything in the copy is usable" in shown.stderr
    with Server(serve_arguments(tmp_path / "new"), tmp_path / "output.txt") as restored:
        ready(restored)


def test_a_topic_is_brought_back_into_the_running_service(run: Run, service: Server) -> None:
    """`--as`: beside the original, complete when the command ends."""
    shown = run("restore", "--topic", "clicks", "--as", "clicks-again", "--server", service.url)
    assert shown.exit_code == 0, shown.output
    assert "restored clicks as clicks-again: 1 partitions" in shown.stdout
    with httpx.Client(base_url=service.url) as client:
        copy = client.get("/v1/topics/clicks-again/partitions/0/records").json()["records"]
        assert copy == client.get(RECORDS).json()["records"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--as", "copy"), "--as takes one --topic"),
        (("--topic", "clicks", "--as", "copy", "--dry-run"), "--as takes one --topic"),
        ((), "say what to restore from"),
    ],
)
def test_what_does_not_fit_together_is_told(
    run: Run, arguments: tuple[str, ...], said: str
) -> None:
    """Before anything is asked or written."""
    shown = run("restore", *arguments)
    assert shown.exit_code == 2
    assert said in shown.stderr


def test_a_topic_that_the_archive_does_not_have_is_refused(run: Run, service: Server) -> None:
    """With those that it has."""
    shown = run("restore", "--topic", "klicks", "--as", "copy", "--server", service.url)
    assert shown.exit_code == 1
    assert "klicks" in shown.stderr


def test_a_restore_that_is_not_whole_is_told(run: Run, tmp_path: Path) -> None:
    """Of a damaged archive only what comes before the damage is there."""
    arguments = [*serve_arguments(tmp_path / "data"), "--archive", f"file://{tmp_path}/bucket"]
    with Server(arguments, tmp_path / "output.txt") as server:
        fill(server)
        here = ("--topic", "clicks", "--server", server.url)
        for log in (tmp_path / "bucket").rglob("*.log*"):
            whole = log.read_bytes()
            log.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        shown = run("restore", *here, "--as", "short")
        assert shown.exit_code == 1
        assert "not everything was restored" in shown.stderr
        with httpx.Client(base_url=server.url) as client:
            offsets = client.get("/v1/topics/short/partitions/0/offsets").json()
            assert offsets["log_end_offset"] < 10
