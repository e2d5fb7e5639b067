"""The service in its own process, on real disks that are full, read-only, broken or gone.

Acknowledged records are served as soon as a disk can be read; refusals are one sentence. Runs as
root, because it mounts file systems.
"""

import contextlib
import itertools
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import httpx
import pytest

from engine.fs.names import LOCK_FILE
from tests.support.process import Process, all_values, launched, serving_process

pytestmark = [pytest.mark.long, pytest.mark.needs("mount")]

TOPIC = "/v1/topics/t"
RECORDS = f"{TOPIC}/partitions/0/records"
VALUE_BYTES = 3_000
CONFIGURATION = {
    "segment.bytes": "300000",
    "segment.index.bytes": "8000",
    "retention.ms": "-1",
}


class Writer:
    """An idempotent producer that sends numbered values, and records the acknowledged ones."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=60)
        answer = self.client.post("/v1/producers")
        self._id = answer.json()["producer_id"] if answer.status_code == 201 else -1
        self._number = 0
        self.acknowledged: list[str] = []

    def at(self, url: str) -> "Writer":
        """Continue with the same sequence at another address."""
        self.client.close()
        self.client = httpx.Client(base_url=url, timeout=60)
        return self

    def append(self) -> httpx.Response:
        """Send the next value, or the one that was refused before once more."""
        noise = Random(self._number).randbytes(VALUE_BYTES // 2).hex()
        value = f"{self._number} {noise}"
        answer = self.client.post(
            RECORDS,
            json={"records": [{"value": value}]},
            headers={
                "Producer-Id": str(self._id),
                "Producer-Epoch": "0",
                "Producer-Sequence": str(self._number),
            },
        )
        if answer.status_code in (200, 201):
            self.acknowledged.append(value)
            self._number += 1
        return answer

    def append_many(self, count: int) -> None:
        """Append this many values, each acknowledged at once."""
        for _ in range(count):
            assert self.append().status_code == 201

    def append_until_refused(self) -> httpx.Response:
        """Append until a response is not a success; return it."""
        while (answer := self.append()).is_success:
            pass
        return answer

    def ensure_nothing_lost(self) -> None:
        """All acknowledged values are present, once and in order, and nothing else but the next."""
        found = all_values(self.client, RECORDS)
        assert found[: len(self.acknowledged)] == self.acknowledged
        assert len(found) <= len(self.acknowledged) + 1


@pytest.fixture
def make_topic() -> Iterator[Callable[[Process], Writer]]:
    """Creates the topic and its writer."""
    writers: list[Writer] = []

    def make(process: Process) -> Writer:
        body = {"partitions": 1, "config": CONFIGURATION}
        assert httpx.put(process.url + TOPIC, json=body).status_code == 201
        writers.append(Writer(process.url))
        return writers[-1]

    yield make
    for writer in writers:
        writer.client.close()


Topics = Callable[[Process], Writer]


def refusal(directory: Path) -> str:
    """Start a service that fails to start; return its message."""
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0"]
    ended = subprocess.run(
        [*command, "--data-dir", str(directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    return ended.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of four mebibytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk))
    try:
        yield disk
    finally:
        run("umount", "-l", str(disk))


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_full_disk_refuses_appends_and_keeps_all_it_has(
    make_topic: Topics, small_disk: Path
) -> None:
    """507 until there is space, then it continues without a restart.

    A kill while full loses nothing. A start without any space says so, and one with some space has
    everything.
    """
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    data = small_disk / "data"
    with serving_process(data) as process:
        writer = make_topic(process)
        refused = writer.append_until_refused()
        assert (refused.status_code, refused.json()["code"]) == (507, "storage_full")
        for _ in range(20):
            assert writer.append().status_code == 507
        writer.ensure_nothing_lost()
        ballast.unlink()
        before = len(writer.acknowledged)
        assert writer.append_until_refused().status_code == 507
        assert len(writer.acknowledged) > before + 50
        writer.ensure_nothing_lost()
    # That one was killed. To start takes some bytes of checkpoints and snapshots.
    with contextlib.suppress(OSError), (small_disk / "ballast").open("wb") as file:
        while True:
            file.write(bytes(4_096))
            file.flush()
    said = refusal(data)
    assert "no space left under" in said
    assert "Traceback" not in said
    run("mount", "-o", "remount,size=6m", str(small_disk))
    with serving_process(data) as process:
        writer.at(process.url).ensure_nothing_lost()
        assert writer.append().status_code == 201
        writer.ensure_nothing_lost()


def test_a_read_only_disk_is_refused_in_a_sentence(make_topic: Topics, small_disk: Path) -> None:
    """A start on it fails with the reason; once it is writable again everything is present."""
    data = small_disk / "data"
    with serving_process(data) as process:
        writer = make_topic(process)
        writer.append_many(20)
    run("mount", "-o", "remount,ro", str(small_disk))
    said = refusal(data)
    assert "Read-only file system" in said
    assert "Traceback" not in said
    run("mount", "-o", "remount,rw", str(small_disk))
    with serving_process(data) as process:
        writer.at(process.url).ensure_nothing_lost()
        assert writer.append().status_code == 201


@contextmanager
def ext4(folder: Path) -> Iterator[tuple[Path, str]]:
    """A file system that turns read-only at its first error; and its device's name."""
    image, disk = folder / "image", folder / "ext4"
    image.write_bytes(bytes(24 << 20))
    disk.mkdir()
    run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0", str(image))
    device = run("losetup", "--show", "-f", str(image)).strip()
    run("mount", "-o", "errors=remount-ro", device, str(disk))
    try:
        yield disk, Path(device).name
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
        run("losetup", "-d", device)


@pytest.mark.needs("mkfs.ext4", "losetup")
def test_a_disk_that_turns_read_only_takes_no_more_and_loses_nothing(
    make_topic: Topics, tmp_path: Path
) -> None:
    """As the kernel does with a failing disk: appends are refused, reads continue."""
    with ext4(tmp_path) as (disk, device):
        data = disk / "data"
        with serving_process(data) as process:
            writer = make_topic(process)
            writer.append_many(50)
            Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("a test\n")
            refused = writer.append_until_refused()
            assert (refused.status_code, refused.json()["code"]) == (503, "storage_offline")
            writer.ensure_nothing_lost()
            process.stop()
            process.exit_code()
        run("umount", str(disk))
        subprocess.run(["fsck.ext4", "-p", f"/dev/{device}"], check=False, capture_output=True)
        run("mount", f"/dev/{device}", str(disk))
        with serving_process(data) as process:
            writer.at(process.url).ensure_nothing_lost()
            assert writer.append().status_code == 201


def test_a_directory_deleted_underneath_acknowledges_nothing(
    make_topic: Topics, tmp_path: Path
) -> None:
    """Data synced into files without a name would be lost, so appends are refused."""
    data = tmp_path / "data"
    with serving_process(data) as process:
        writer = make_topic(process)
        assert writer.append().status_code == 201
        shutil.rmtree(data)
        for _ in range(3):
            refused = writer.append()
            assert (refused.status_code, refused.json()["code"]) == (503, "storage_offline")
            assert "lock file" in refused.json()["detail"]
        assert writer.client.get("/livez").status_code == 200
        process.stop()
        process.exit_code()
    assert not list(tmp_path.glob("data/*-0"))


def test_a_process_that_wakes_up_after_another_took_its_place_writes_nothing(
    make_topic: Topics, tmp_path: Path
) -> None:
    """Stopped, its lock file removed by hand, another one started: going on, it is refused.

    Neither does it take the lock of the other with it: a third process does not get in.
    """
    with serving_process(tmp_path) as old:
        writer = make_topic(old)
        writer.append_many(5)
        os.kill(old.popen.pid, signal.SIGSTOP)
        (tmp_path / LOCK_FILE).unlink()
        with serving_process(tmp_path) as new:
            writer.at(new.url)
            writer.append_many(5)
            os.kill(old.popen.pid, signal.SIGCONT)
            refused = httpx.post(old.url + RECORDS, json={"records": [{"value": "of old"}]})
            assert (refused.status_code, refused.json()["code"]) == (503, "storage_offline")
            assert "lock file" in refused.json()["detail"]
            old.stop()
            old.exit_code()
            assert writer.append().status_code == 201
            assert "is in use by another process" in refusal(tmp_path)
            writer.ensure_nothing_lost()
    with serving_process(tmp_path) as process:
        writer.at(process.url).ensure_nothing_lost()


@pytest.mark.needs("unshare")
def test_another_host_name_changes_nothing(make_topic: Topics, tmp_path: Path) -> None:
    """A directory that moved to another machine opens there as it did here."""
    with serving_process(tmp_path) as process:
        writer = make_topic(process)
        assert writer.append().status_code == 201
    program = (
        "import socket, sys; socket.sethostname('elsewhere'); from app.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "serve", "--port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        ["unshare", "--uts", *command], stdout=subprocess.PIPE, text=True
    ) as popen:
        assert popen.stdout is not None
        url = popen.stdout.readline().split()[-1]
        try:
            while httpx.get(f"{url}/readyz").status_code != 200:
                assert popen.poll() is None
            assert writer.at(url).append().status_code == 201
            writer.ensure_nothing_lost()
        finally:
            popen.kill()


def first_answer(crowd: contextlib.ExitStack, url: str) -> bytes:
    """Open a connection that stays; return how it is answered at first, nothing if it is reset."""
    address = httpx.URL(url)
    connection = socket.create_connection((address.host, address.port or 0), timeout=30)
    crowd.enter_context(connection)
    with contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        return connection.recv(12)
    return b""


def test_few_open_files_bound_what_is_made_and_lose_nothing(
    make_topic: Topics, tmp_path: Path
) -> None:
    """What would open more is refused and harms nothing; once there is room it is done."""
    with launched(tmp_path) as process:
        resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (400, 400))
        while httpx.get(f"{process.url}/readyz").status_code != 200:
            assert process.popen.poll() is None
        writer = make_topic(process)
        made = itertools.takewhile(
            lambda answer: answer.status_code == 201,
            (writer.client.put(f"/v1/topics/more-{n}", json={}) for n in itertools.count()),
        )
        assert 5 < sum(1 for _ in made) < 60
        refused = writer.client.put("/v1/topics/beyond", json={})
        assert (refused.status_code, refused.json()["limit"]) == (422, "open_files")
        with contextlib.ExitStack() as crowd:
            begun = [first_answer(crowd, process.url) for _ in range(300)]
            assert begun.count(b"HTTP/1.1 200") > 100
            refused_at = {one for one in begun if one != b"HTTP/1.1 200"}
            assert refused_at <= {b"HTTP/1.1 503", b""}
            assert refused_at, "a connection is a file, too"
            for _ in range(20):
                answer = writer.append()
                assert answer.is_success or answer.json()["limit"] == "open_files", answer.text
        writer.append_many(20)
        writer.ensure_nothing_lost()
    with serving_process(tmp_path) as process:
        writer.at(process.url).ensure_nothing_lost()


def test_little_memory_refuses_what_does_not_fit_and_loses_nothing(
    make_topic: Topics, tmp_path: Path
) -> None:
    """Bodies that decompress to much more are refused or fail alone; the others are served."""
    with serving_process(tmp_path, max_request_bytes=512 << 20, max_in_flight_bytes=1 << 30) as one:
        writer = make_topic(one)
        assert writer.append().status_code == 201
        vm_bytes = int(Path(f"/proc/{one.popen.pid}/statm").read_text().split()[0]) * 4096
        limit = vm_bytes + (192 << 20)
        resource.prlimit(one.popen.pid, resource.RLIMIT_AS, (limit, limit))
        compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
        body = b'{"records":[{"value":"' + b"x" * (400 << 20) + b'"}]}'
        bomb = compressor.compress(body) + compressor.flush()
        for _ in range(3):
            headers = {"content-encoding": "gzip", "content-type": "application/json"}
            answer = writer.client.post(RECORDS, content=bomb, headers=headers)
            assert answer.status_code in (413, 500, 503), answer.text
            goes_on = writer.append()
            assert goes_on.status_code == 201, goes_on.text
        writer.ensure_nothing_lost()
    with serving_process(tmp_path) as two:
        writer.at(two.url).ensure_nothing_lost()
