"""Power cuts of real file systems on a disk with a volatile cache. As root, with FUSE.

A client does one thing after another; the power is cut the moment something was answered. All that
was answered must be there when the file system is mounted again, and nothing else.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from app.security.keys import read_keys
from tests.crash.test_real_file_systems import MAKE, run
from tests.support import volatile_disk
from tests.support.credentials import FS, create_key
from tests.support.patience import at_most
from tests.support.process import serving_process

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs("mount", "losetup", "fusermount3", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"),
]

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "build" / "fuse"
DISK_BYTES = 320 << 20
STEPS = 60
COMPACTED = "compacted"


@pytest.fixture(scope="module")
def library() -> Path:
    """Where the FUSE binding is, fetched by the machine's own pip."""
    if not LIBRARY.exists():
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--target", str(LIBRARY))
        run(*pip, "mfusepy==3.1.1")
    return LIBRARY


@contextmanager
def mounted(disk: Path, folder: Path) -> Iterator[None]:
    """Mount the file system of a disk's file, until the block ends."""
    device = run("losetup", "-f", "--show", str(disk))
    try:
        run("mount", device, str(folder))
        try:
            yield
        finally:
            run("umount", "-l", str(folder))
    finally:
        run("losetup", "-d", device)


@contextmanager
def disk_of(kind: str, folder: Path, out: Path, library: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Serve a disk with such a file system as `folder / "disk"`; yield its process."""
    folder.mkdir()
    command = [sys.executable, volatile_disk.__file__, str(folder), str(DISK_BYTES), str(out)]
    environment = {**os.environ, "PYTHONPATH": str(library)}
    with subprocess.Popen(command, env=environment) as process:
        try:
            with at_most(10):
                while not (folder / "disk").exists():
                    assert process.poll() is None
            run(f"mkfs.{kind}", *MAKE[kind], str(folder / "disk"))
            yield process
        finally:
            run("fusermount3", "-uz", str(folder))
            process.kill()


@dataclass
class Topic:
    """What a topic must hold."""

    start: int = 0
    values: list[str] = field(default_factory=list)
    """By offset, deleted ones too."""
    cursor: int | None = None
    profile: int = 100_000
    tokens: list[str] = field(default_factory=list)
    directory: str = ""


@dataclass
class Client:
    """Does one thing after another, and knows what was answered."""

    http: httpx.Client
    data: Path
    random: Random
    config: dict[str, str]
    topics: dict[str, Topic] = field(default_factory=dict)
    sent: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The offset of each key of idempotence, and its topic."""
    keys: list[str] = field(default_factory=list)
    number: int = 0

    def step(self) -> None:
        """Do something that a client or an operator does; return when it is answered."""
        self.number += 1
        names = sorted({*self.topics} - {COMPACTED})
        if len(names) < 2:
            self.create()
            return
        name = self.random.choice(names)
        works: list[Callable[[str, Topic], None]] = [
            *[self.append] * 6,
            *[self.roll] * 2,
            self.compact,
            self.delete_records,
            self.truncate,
            self.commit_group,
            self.put_profile,
            self.make_token,
            self.move,
            self.delete,
            self.make_key,
        ]
        self.random.choice(works)(name, self.topics[name])

    def ask(self, method: str, path: str, statuses: tuple[int, ...], **more: Any) -> httpx.Response:
        answer = self.http.request(method, f"/v1{path}", **more)
        assert answer.status_code in statuses, (method, path, answer.text)
        return answer

    def create(self) -> None:
        name = f"t{self.number}"
        self.ask("PUT", f"/topics/{name}", (201,), json={"config": self.config})
        self.topics[name] = Topic()

    def append(self, name: str, topic: Topic) -> None:
        values = [f"{self.number} {n}" for n in range(self.random.randint(1, 5))]
        key = f"key-{self.number}"
        body = {"records": [{"key": "k", "value": value} for value in values]}
        path = f"/topics/{name}/partitions/0/records"
        receipt = self.ask("POST", path, (201,), json=body, headers={"idempotency-key": key}).json()
        assert receipt["base_offset"] == len(topic.values)
        self.sent[key] = (name, len(topic.values))
        topic.values += values

    def roll(self, name: str, topic: Topic) -> None:
        self.ask("POST", f"/topics/{name}/partitions/0/roll", (200,))

    def compact(self, name: str, topic: Topic) -> None:
        """In a topic of its own, of which only the last record is compared."""
        if COMPACTED not in self.topics:
            config = {**self.config, "cleanup.policy": "compact"}
            self.ask("PUT", f"/topics/{COMPACTED}", (201,), json={"config": config})
            self.topics[COMPACTED] = Topic()
        for _ in range(3):
            self.append(COMPACTED, self.topics[COMPACTED])
            self.number += 1
        for work in ("roll", "compact"):
            self.ask("POST", f"/topics/{COMPACTED}/partitions/0/{work}", (200,))

    def delete_records(self, name: str, topic: Topic) -> None:
        target = self.random.randint(topic.start, len(topic.values))
        path = f"/topics/{name}/partitions/0/delete-records"
        self.ask("POST", path, (200,), json={"before_offset": target})
        topic.start = target

    def truncate(self, name: str, topic: Topic) -> None:
        """To the beginning of a batch, or to the end: another offset is refused."""
        begun = [offset for one, offset in self.sent.values() if one == name]
        target = self.random.choice([len(topic.values), *(o for o in begun if o >= topic.start)])
        path = f"/topics/{name}/partitions/0"
        tag = self.ask("GET", f"{path}/offsets", (200,)).headers["etag"]
        body = {"to_offset": target}
        self.ask("POST", f"{path}/truncate", (200,), json=body, headers={"if-match": tag})
        del topic.values[target:]
        self.sent = {
            key: (one, offset)
            for key, (one, offset) in self.sent.items()
            if one != name or offset < target
        }

    def commit_group(self, name: str, topic: Topic) -> None:
        topic.cursor = self.random.randint(topic.start, len(topic.values))
        body = {"offset": topic.cursor}
        self.ask("PUT", f"/groups/readers/offsets/{name}/0", (200, 201), json=body)

    def put_profile(self, name: str, topic: Topic) -> None:
        topic.profile = 1_000 + self.number
        body = {"window_deliveries": topic.profile}
        self.ask("PUT", f"/topics/{name}/ingest-profile", (200, 201), json=body)

    def make_token(self, name: str, topic: Topic) -> None:
        topic.tokens.append(self.ask("POST", f"/topics/{name}/ingest-tokens", (201,)).json()["id"])

    def move(self, name: str, topic: Topic) -> None:
        directories = self.ask("GET", "/directories", (200,)).json()["directories"]
        path = f"/topics/{name}/partitions/0/move"
        here = self.ask("GET", path, (200,)).json()["directory"]
        (there,) = [one["path"] for one in directories if one["path"] != here]
        self.ask("POST", path, (202,), json={"directory": there})
        with at_most(20):
            while (state := self.ask("GET", path, (200,)).json())["state"] != "done":
                assert state["state"] != "failed", state
        topic.directory = there

    def delete(self, name: str, topic: Topic) -> None:
        self.ask("DELETE", f"/topics/{name}", (200, 204))
        del self.topics[name]
        self.sent = {key: where for key, where in self.sent.items() if where[0] != name}

    def make_key(self, name: str, topic: Topic) -> None:
        """As `tidelog keys create` makes it, in a directory of its own: the service needs none."""
        self.keys.append(f"key-{self.number}")
        (self.data / "keys").mkdir(exist_ok=True)
        create_key(self.data / "keys", self.keys[-1], "read:*")

    def ensure_all_there(self) -> None:
        """Compare everything that was answered with what a service answers after the cut."""
        listed = self.ask("GET", "/topics", (200,)).json()["topics"]
        assert {one["topic"] for one in listed} == {*self.topics}
        for name, topic in self.topics.items():
            page = f"/topics/{name}/partitions/0/records?max_bytes=9000000&offset="
            if name == COMPACTED:
                last = self.ask("GET", page + "0", (200,)).json()["records"][-1]
                assert (last["offset"], last["value"]) == (len(topic.values) - 1, topic.values[-1])
                continue
            found = self.ask("GET", page + str(topic.start), (200,)).json()
            assert [one["value"] for one in found["records"]] == topic.values[topic.start :]
            assert (found["log_start_offset"], found["high_watermark"]) == (
                topic.start,
                len(topic.values),
            )
            if topic.cursor is not None:
                path = f"/groups/readers/offsets/{name}/0"
                assert self.ask("GET", path, (200,)).json()["offset"] == topic.cursor
            if topic.profile != Topic.profile:
                profile = self.ask("GET", f"/topics/{name}/ingest-profile", (200,)).json()
                assert profile["window_deliveries"] == topic.profile
            tokens = self.ask("GET", f"/topics/{name}/ingest-tokens", (200,)).json()["tokens"]
            assert [one["id"] for one in tokens] == topic.tokens
            for key, (sent_to, offset) in self.sent.items():
                if sent_to == name and offset >= topic.start:  # else a start may forget it
                    self.ensure_known(key, name, offset, topic)
            if topic.directory:
                moved = self.ask("GET", f"/topics/{name}/partitions/0/move", (200,)).json()
                assert moved["directory"] == topic.directory

    def ensure_known(self, key: str, name: str, offset: int, topic: Topic) -> None:
        """A repetition is answered with what was stored the first time."""
        number = key.removeprefix("key-")
        values = [value for value in topic.values[offset:] if value.split()[0] == number]
        body = {"records": [{"key": "k", "value": value} for value in values]}
        path = f"/topics/{name}/partitions/0/records"
        again = self.ask("POST", path, (200,), json=body, headers={"idempotency-key": key}).json()
        assert (again["duplicate"], again["base_offset"]) == (True, offset)


def service_on(folder: Path) -> Any:
    """A service of two data directories on that file system."""
    return serving_process(folder / "data", folder / "more")


@pytest.mark.parametrize("preallocate", ["false", "true"])
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("seed", range(3))
def test_what_was_answered_survives_a_power_cut(
    tmp_path: Path, library: Path, kind: str, preallocate: str, seed: int
) -> None:
    """Appends, rolls, moves, compactions, deletions, truncations, cursors, profiles and keys."""
    random = Random(f"{kind} {preallocate} {seed}")
    config = {"preallocate": preallocate, "segment.bytes": "200000", "segment.index.bytes": "1200"}
    folder, out = tmp_path / "mounted", tmp_path / "out"
    folder.mkdir()
    with (
        disk_of(kind, tmp_path / "disk", out, library) as disk,
        mounted(tmp_path / "disk" / "disk", folder),
        service_on(folder) as process,
        httpx.Client(base_url=process.url, timeout=60) as http,
    ):
        client = Client(http, folder, random, config)
        for _ in range(random.randint(STEPS // 2, STEPS)):
            client.step()
        disk.send_signal(signal.SIGUSR1)
        with at_most(30):
            while not out.exists():
                assert disk.poll() is None
        process.stop(signal.SIGKILL)
        process.exit_code()
    with (
        mounted(out, folder),
        service_on(folder) as process,
        httpx.Client(base_url=process.url, timeout=60) as http,
    ):
        client.http = http
        client.ensure_all_there()
        keys = read_keys(FS, folder / "keys") or {}
        assert {one.name for one in keys.values()} == {*client.keys}
