"""The archive: what it takes from appends, how fast it fills a bucket, and the way back.

The server is versitygw, as in `bench.lakes`; it shares the two cores with the service, so every
figure is a ratio of two measures in one run, in turn.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import obstore

from app.buckets import CHUNK_BYTES, PARTS_AT_ONCE, open_bucket
from app.client.connection import Connection, topic_path
from bench.appends import batch_of, json_value
from bench.figures import Figure
from bench.lakes import s3_server
from bench.load import post
from bench.memory import present_bytes
from bench.start import wait_until_ready
from bench.target import Bench, Loaded
from demo.children import Server, serve_arguments
from engine.archive.archiver import Archiver
from engine.archive.range_cache import RANGE_BYTES
from engine.archive.restore import restore, select
from engine.archive.store import ObjectStore
from engine.clock import SystemClock
from engine.config import ArchiveConfig
from engine.fs.posix import PosixFileSystem
from engine.metrics import NullRecorder
from engine.runtime import Runtime
from engine.types import TopicPartition

_ROUNDS: Final = 3
_PARTITIONS: Final = 4
_RECORDS_OF_64_KIB: Final = 403
_PACE_BYTES: Final = 50_000_000
_BACKLOG_BYTES: Final = 1_000_000_000
_MANY: Final = 1_000
_MB: Final = 1_000_000
_BATCHES: Final = "application/vnd.kafka.recordbatch.v2"
_JSON: Final = "application/json"


def archive(bench: Bench) -> list[Figure]:
    """Appends with and without an archive, a backlog, a restore, and a thousand partitions."""
    program = shutil.which("versitygw")
    if program is None:
        raise SystemExit("archive: versitygw is not in the path")
    with ExitStack() as stack:
        # A bucket is on another machine: on this disk it would be the disk that is measured.
        memory = Path("/dev/shm")  # noqa: S108 - below it mkdtemp makes a folder of its own
        place = tempfile.mkdtemp(dir=memory if memory.is_dir() else bench.folder)
        stack.callback(shutil.rmtree, place)
        stack.enter_context(s3_server(Path(place), program))
        return [*_appends(bench), *_backlog(bench), _memory(bench)]


@contextmanager
def _service(bench: Bench, name: str, url: str | None) -> Iterator[Bench]:
    """Serve an empty directory, with an archive or without."""
    arguments = serve_arguments(bench.folder / name)
    arguments += [] if url is None else ["--archive", url]
    with (
        Server(arguments, bench.folder / f"{name}.txt") as service,
        httpx.Client() as client,
        Connection(service.url) as connection,
    ):
        wait_until_ready(service, client)
        yield replace(bench, service=service, connection=connection)


def _appends(bench: Bench) -> list[Figure]:
    chance = random.Random(3)
    batch = batch_of([json_value(chance)] * _RECORDS_OF_64_KIB)
    paths = [topic_path("raw", partition, "batches") for partition in range(_PARTITIONS)]
    large = [post(path, _BATCHES, batch) for path in paths]
    record = b'{"records":[{"key":"AA","value":%s}]}' % json_value(chance)
    small = [post(topic_path("single", 0, "records"), _JSON, record)]
    pace = _PACE_BYTES / len(batch)
    with (
        _service(bench, "archived", "s3://tide/appends") as on,
        _service(bench, "alone", None) as off,
    ):
        for one in (on, off):
            one.create_topic("raw", segment_bytes="104857600")
            one.create_topic("single", partitions=1)
        rounds = [
            (
                off.load(large, 8, rate_per_s=pace),
                on.load(large, 8, rate_per_s=pace),
                off.load(large, 64),
                on.load(large, 64),
                off.load(small, 64),
                on.load(small, 64),
            )
            for _ in range(_ROUNDS)
        ]
    paced_off, paced_on, large_off, large_on, small_off, small_on = zip(*rounds, strict=True)
    return [
        _ratio("64 KiB raw batches, archive on ÷ off", large_off, large_on, _rate, 0.9),
        _ratio("their p99 at 50 MB/s, on ÷ off", paced_off, paced_on, _p99, 1.1, ceiling=True),
        _ratio("small appends, 64 connections, on ÷ off", small_off, small_on, _rate, 0.95),
    ]


def _rate(loaded: Loaded) -> float:
    return loaded.per_second


def _p99(loaded: Loaded) -> float:
    return loaded.result.p99_ms


def _ratio(
    name: str,
    off: Sequence[Loaded],
    on: Sequence[Loaded],
    figure: Callable[[Loaded], float],
    target: float,
    *,
    ceiling: bool = False,
) -> Figure:
    pairs = [figure(with_it) / figure(alone) for alone, with_it in zip(off, on, strict=True)]
    note = ", ".join(f"{figure(a):,.1f} → {figure(b):,.1f}" for a, b in zip(off, on, strict=True))
    return Figure(name, median(pairs), "ratio", target=target, is_ceiling=ceiling, note=note)


def _backlog(bench: Bench) -> list[Figure]:
    """A directory that fills up without an archive, then gets one; and its restore."""
    chance = random.Random(4)
    with _service(bench, "backlog", None) as filling:
        filling.create_topic("raw", segment_bytes="104857600")
        batch = batch_of([chance.randbytes(980) for _ in range(1_000)])
        requests = [post(topic_path("raw", n, "batches"), _BATCHES, batch) for n in range(4)]
        while _size(bench.folder / "backlog") < _BACKLOG_BYTES:
            replace(filling, seconds=1.0).load(requests, 4)
    upload_s, processor_s = _upload(bench.folder / "backlog", "s3://tide/backlog")
    size_bytes = _size(bench.folder / "backlog")
    copied_s = _plain_copy(bench)
    store, target = open_bucket("s3://tide/backlog"), bench.folder / "restored"
    chosen = select(store)
    started = time.perf_counter()
    restore(store, PosixFileSystem(), target, chosen, lambda *_: None)
    restore_s = time.perf_counter() - started
    download_s = _plain_download(store, bench.folder / "downloaded")
    rates = [size_bytes / _MB / one for one in (upload_s, copied_s, restore_s, download_s)]
    return [
        _sequential(bench.folder / "backlog", "s3://tide/backlog"),
        Figure(
            "upload of a backlog ÷ a copy with the same library",
            copied_s / upload_s,
            "ratio",
            target=0.8,
            note=f"{size_bytes / 1e9:.1f} GB: {rates[0]:,.0f} and {rates[1]:,.0f} MB/s",
        ),
        Figure(
            "processor time of the uploader at 50 MB/s",
            processor_s / size_bytes * _PACE_BYTES,
            "cores",
            target=0.15,
            is_ceiling=True,
            note=f"{processor_s / size_bytes * 1e9:.2f} s a GB",
        ),
        Figure(
            "restore ÷ download of the same objects",
            download_s / restore_s,
            "ratio",
            target=0.7,
            note=f"checksums and syncs included: {rates[2]:,.0f} and {rates[3]:,.0f} MB/s",
        ),
    ]


def _upload(directory: Path, url: str) -> tuple[float, float]:
    """Archive a directory in this process; return the seconds, and those of a processor."""
    runtime = Runtime(directory)
    runtime.open()
    clock = SystemClock()
    archiver = Archiver(
        runtime.manager,
        open_bucket(url),
        fs=PosixFileSystem(),
        clock=clock,
        config=ArchiveConfig(),
        recorder=NullRecorder(),
    )
    started, processor_s = time.perf_counter(), time.process_time()
    while archiver.lag_ms:
        archiver.run_pass()
    passed = time.perf_counter() - started, time.process_time() - processor_s
    runtime.close()
    return passed


def _sequential(directory: Path, url: str) -> Figure:
    """Read a log that only the archive has, from its start on; and its objects by ranges."""
    runtime = Runtime(directory, archive=open_bucket(url))
    runtime.open()
    archiver = runtime.archiver
    assert archiver is not None, "it has one"
    tiered = {"remote.storage.enable": "true", "local.retention.bytes": "0", "retention.ms": "-1"}
    runtime.manager.update_topic("raw", tiered)
    log = runtime.manager.log(TopicPartition("raw", 0))
    while archiver.run_pass() and len(log.reader.segments) > 1:
        pass  # some segments at a time
    ours: list[float] = []
    plain: list[float] = []
    store = obstore.store.from_url(url, client_options={"allow_http": True})
    archived = {one.log: one.manifest for one in select(open_bucket(url)).partitions}
    pieces = archived[log.topic_partition].pieces
    objects = [one.objects["log"] for one in pieces if one.is_sealed]
    for _ in range(_ROUNDS):
        started, offset, read_bytes = time.perf_counter(), 0, 0
        while offset < log.reader.local_log_start_offset:
            fetched = log.reader.read(offset, max_bytes=RANGE_BYTES)
            assert fetched is not None, "it may wait"
            offset, read_bytes = fetched.next_offset, read_bytes + len(fetched.data)
        ours.append(read_bytes / (time.perf_counter() - started))
        started = time.perf_counter()
        for name, size_bytes, _ in objects:
            for position in range(0, size_bytes, RANGE_BYTES):
                length = min(RANGE_BYTES, size_bytes - position)
                obstore.get_range(store, name, start=position, length=length)
        plain.append(sum(one.size_bytes for one in objects) / (time.perf_counter() - started))
    runtime.close()
    return Figure(
        "sequential read of archived segments ÷ ranged gets of the same bytes",
        median(a / b for a, b in zip(ours, plain, strict=True)),
        "ratio",
        target=0.8,
        note=f"checksums included: {median(ours) / _MB:,.0f} and {median(plain) / _MB:,.0f} MB/s",
    )


def _plain_copy(bench: Bench) -> float:
    """Upload the same files with the library alone, as many parts at once."""
    store = obstore.store.from_url("s3://tide/copy", client_options={"allow_http": True})
    started = time.perf_counter()
    for path in sorted((bench.folder / "backlog").rglob("*.log")):
        obstore.put(store, path.name, path, chunk_size=CHUNK_BYTES, max_concurrency=PARTS_AT_ONCE)
    return time.perf_counter() - started


def _plain_download(store: ObjectStore, target: Path) -> float:
    """Download the segments one after the other into files that are synced."""
    target.mkdir()
    started = time.perf_counter()
    for number, one in enumerate(store.list("logs/")):
        if one.name.endswith(".log"):
            with (target / str(number)).open("wb") as file:
                for data in store.read(one.name):
                    file.write(data)
                file.flush()
                os.fsync(file.fileno())
    return time.perf_counter() - started


def _memory(bench: Bench) -> Figure:
    """What a thousand archived partitions add to the service's memory."""
    grown: list[float] = []
    for name, url in (("many-alone", None), ("many-archived", "s3://tide/many")):
        with _service(bench, name, url) as one:
            one.create_topic("many", _MANY)
            body = b'{"records":[{"value":1}]}'
            for partition in range(_MANY):
                one.ask("POST", topic_path("many", partition, "records"), _JSON, body)
            if url is not None:
                while "tidelog_archive_lag_seconds 0.0\n" not in _metrics(one):
                    time.sleep(0.1)
            grown.append(present_bytes(one.service.pid) / 2**20)
    return Figure(
        "memory for 1,000 archived partitions",
        grown[1] - grown[0],
        "MiB",
        target=30,
        is_ceiling=True,
        note=f"{grown[0]:,.0f} → {grown[1]:,.0f} MiB",
    )


def _metrics(bench: Bench) -> str:
    return httpx.get(f"{bench.service.url}/metrics").text


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.log"))
