"""`tidelog restore` and `tidelog archive`: the commands import this when they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple, TypeVar

from app.buckets import open_bucket
from app.client.connection import Connection, Request, json_request, topic_path
from app.client.failures import Failure
from app.client.record_lines import iso_ms
from app.client.terminal import Terminal
from engine.archive import upkeep
from engine.archive.restore import Progress, RestoredPartition, Selection, restore, select, verify
from engine.archive.store import ArchiveError, ObjectStore
from engine.errors import EngineError
from engine.fs.posix import PosixFileSystem
from engine.tools.cold_copy import (
    CopiedPartition,
    is_data_directory,
    restore_copy,
    size_of_copy,
)
from engine.types import TopicPartition

_POLL_S: Final = 0.5

_Row = TypeVar("_Row", RestoredPartition, CopiedPartition, upkeep.PartitionStatus)


class ArchiveProblems(Failure):
    """Something in the archive is damaged or missing."""

    code = "archive_damaged"


class Wanted(NamedTuple):
    """What to restore: all topics or some, as they are or as they were."""

    topics: Sequence[str]
    until: str | None

    @property
    def until_ms(self) -> int | None:
        """The time in ms; Failure if it is not one."""
        return None if self.until is None else moment_ms(self.until)


def moment_ms(text: str) -> int:
    """Return a time in ms: ISO 8601, in UTC if it has no offset, or ms since the epoch."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return iso_ms(text)
    except ValueError as error:
        raise Failure(
            f"{text!r} is not a time: write 2026-11-28T09:30:00Z, or milliseconds since 1970", 2
        ) from error


@contextmanager
def archive_at(url: str) -> Iterator[ObjectStore]:
    """Yield the bucket; what goes wrong with it in the block is a Failure of one sentence."""
    try:
        yield open_bucket(url)
    except ArchiveError as error:
        raise Failure(str(error)) from error
    except (EngineError, OSError) as error:
        raise Failure(f"the restore stopped: {error}; the same command goes on") from error


def restore_directory(terminal: Terminal, url: str, directory: Path, wanted: Wanted) -> None:
    """Fill a data directory from an archive, and say how far each partition came."""
    with archive_at(url) as store:
        chosen = select(store, topics=wanted.topics or None, until_ms=wanted.until_ms)
        with _progress(terminal, "bytes restored", chosen) as count:
            done = restore(store, PosixFileSystem(), directory, chosen, count)
    _tell_partitions(terminal, done)
    problems = [*chosen.problems, *(f"{one.log}: {one.problem}" for one in done if one.problem)]
    _tell_problems(terminal, problems)
    size_bytes = sum(one.size_bytes for one in done)
    told = {
        "directory": str(directory),
        "partitions": len(done),
        "size_bytes": size_bytes,
        "problems": len(problems),
    }
    terminal.result(
        told,
        f"restored {len(done)} partitions, {size_bytes:,} bytes, into {directory}. Start it with\n"
        f"tidelog serve --data-dir {directory}\n"
        f"and add --archive {url} --archive-take-over if it is to be archived there from now on.",
    )
    if problems:
        raise ArchiveProblems(f"{len(problems)} problem(s): not everything was restored")


def restore_topic(connection: Connection, terminal: Terminal, name: str, wanted: Wanted) -> None:
    """Have a service bring back a topic of its archive as `name`, and wait until it has."""
    (source,) = wanted.topics
    path = topic_path(name, operation="restore")
    body = {"source": source, "until": wanted.until_ms}
    report = connection.json(json_request("POST", path, body))
    read_bytes = 0
    with terminal.progress("bytes restored", report["total_bytes"]) as meter:
        while report["state"] in {"waiting", "restoring"}:
            connection.wait(_POLL_S)
            report = connection.json(Request("GET", path))
            meter.advance(report["restored_bytes"] - read_bytes)
            read_bytes = report["restored_bytes"]
    if report["state"] == "failed":
        raise Failure(f"{source} was not restored: {'; '.join(report['problems'])}")
    _tell_problems(terminal, report["problems"])
    terminal.result(
        report,
        f"restored {source} as {name}: {report['partitions']} partitions, {read_bytes:,} bytes. It "
        "keeps everything: set retention.ms, retention.bytes or cleanup.policy when it need not",
    )
    if report["problems"]:
        raise ArchiveProblems(f"{len(report['problems'])} problem(s): not everything was restored")


def restore_copy_of(
    terminal: Terminal, source: Path, directory: Path, wanted: Wanted, *, looks_only: bool
) -> None:
    """Fill a data directory from a plain copy of another one, and say what of it is usable."""
    fs = PosixFileSystem()
    if not is_data_directory(fs, source):
        raise Failure(f"{source} is neither the URL of an archive nor a copy of a data directory")
    if wanted.topics or wanted.until or looks_only:
        raise Failure("a copy is restored as a whole: it has no --topic, --until or look", 2)
    try:
        with terminal.progress("bytes copied", size_of_copy(fs, source)) as meter:
            done = restore_copy(fs, source, directory, lambda _, size: meter.advance(size))
    except (EngineError, OSError) as error:
        raise Failure(f"the copy was not restored: {error}") from error
    _tell_rows(
        terminal,
        done,
        ("partition", ">from", ">up to", ">bytes", ">bytes cut"),
        lambda one: (
            str(one.log),
            f"{one.first_offset:,}",
            f"{one.end_offset:,}",
            f"{one.size_bytes:,}",
            f"{one.cut_bytes:,}",
        ),
        lambda one: bool(one.size_bytes or one.cut_bytes),
    )
    problems = [f"{one.log}: {one.problem}" for one in done if one.problem]
    _tell_problems(terminal, problems)
    told = {"directory": str(directory), "partitions": len(done), "problems": len(problems)}
    terminal.result(
        told,
        f"{len(done)} partitions in {directory}; what was appended since the copy was made is not "
        f"in it. Start it with\ntidelog serve --data-dir {directory}",
    )
    if problems:
        raise ArchiveProblems(f"{len(problems)} problem(s): not everything in the copy is usable")


def show_selection(terminal: Terminal, url: str, wanted: Wanted) -> None:
    """Say what a restore would restore, without reading the records."""
    with archive_at(url) as store:
        chosen = select(store, topics=wanted.topics or None, until_ms=wanted.until_ms)
    _tell_partitions(terminal, [*_expected(chosen)])
    _tell_problems(terminal, chosen.problems)


def verify_archive(terminal: Terminal, url: str, wanted: Wanted) -> None:
    """Read every object that a restore would read; Failure if one is damaged or missing."""
    with archive_at(url) as store:
        chosen = select(store, topics=wanted.topics or None, until_ms=wanted.until_ms)
        with _progress(terminal, "bytes verified", chosen) as count:
            problems = verify(store, chosen, count)
    _tell_problems(terminal, problems)
    size_bytes = sum(one.size_bytes for one in chosen.partitions)
    told = {"partitions": len(chosen.partitions), "size_bytes": size_bytes}
    if problems:
        raise ArchiveProblems(
            f"{len(problems)} problem(s) in {url}: a restore would end before each of them. While "
            "the service still has these records, give it an empty folder as its archive"
        )
    terminal.result(
        told, f"{len(chosen.partitions)} partitions, {size_bytes:,} bytes, all of them intact"
    )


def show_status(terminal: Terminal, url: str) -> None:
    """Say what the archive has of each partition."""
    with archive_at(url) as store:
        found = list(upkeep.status(store))
    _tell_rows(
        terminal,
        found,
        ("partition", ">from", ">up to", "archived at", ">bytes", ">removed bytes", ">objects"),
        lambda one: (
            str(one.log),
            f"{one.log_start_offset:,}",
            f"{one.archived_offset:,}",
            _moment(one.archived_ms),
            f"{one.size_bytes:,}",
            f"{one.removed_bytes:,}",
            f"{one.objects:,}",
        ),
        lambda one: bool(one.objects),
    )


def prune_archive(terminal: Terminal, url: str, *, dry_run: bool) -> None:
    """Delete what earlier processes uploaded and no manifest names."""
    with archive_at(url) as store:
        found = upkeep.unnamed(store)
        if not dry_run:
            store.delete([one.name for one in found.objects])
    what = f"{len(found.objects):,} objects, {found.size_bytes:,} bytes, that no manifest names"
    told = {"objects": len(found.objects), "size_bytes": found.size_bytes, "deleted": not dry_run}
    terminal.result(told, f"{'would delete' if dry_run else 'deleted'} {what}")


@contextmanager
def _progress(terminal: Terminal, what: str, chosen: Selection) -> Iterator[Progress]:
    total = sum(one.size_bytes for one in chosen.partitions)
    with terminal.progress(what, total) as meter:
        lock = Lock()

        def count(_: TopicPartition, size_bytes: int) -> None:
            with lock:
                meter.advance(size_bytes)

        yield count


def _expected(chosen: Selection) -> Iterable[RestoredPartition]:
    for one in chosen.partitions:
        manifest = one.manifest
        last = manifest.pieces[-1] if manifest.pieces else None
        yield RestoredPartition(
            one.log,
            manifest.log_start_offset,
            manifest.archived_offset,
            one.size_bytes,
            last.archived_ms if last else 0,
            last.max_timestamp if last else -1,
        )


def _tell_partitions(terminal: Terminal, found: Sequence[RestoredPartition]) -> None:
    _tell_rows(
        terminal,
        found,
        ("partition", ">from", ">up to", ">bytes", "archived at", "last record time"),
        lambda one: (
            str(one.log),
            f"{one.first_offset:,}",
            f"{one.end_offset:,}",
            f"{one.size_bytes:,}",
            _moment(one.archived_ms),
            _moment(one.max_timestamp),
        ),
        lambda one: bool(one.size_bytes),
    )


def _tell_rows(
    terminal: Terminal,
    found: Sequence[_Row],
    headings: Sequence[str],
    cells: Callable[[_Row], Sequence[str]],
    has_content: Callable[[_Row], bool],
) -> None:
    """Print an object for each partition, or a table of those that have content."""
    if terminal.as_json:
        for one in found:
            topic, partition = one.log
            others = {name: value for name, value in one._asdict().items() if name != "log"}
            terminal.json({"topic": topic, "partition": partition, **others})
        return
    shown = [one for one in found if has_content(one)]
    terminal.table(headings, map(cells, shown))
    if len(shown) < len(found):
        terminal.notice(f"{len(found) - len(shown)} partition(s) without records are not listed")


def _tell_problems(terminal: Terminal, problems: Iterable[str]) -> None:
    for problem in problems:
        terminal.notice(problem)


def _moment(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%SZ") if time_ms > 0 else "-"
