"""Which data directories are complete and belong to the same log, and which logs are offline.

The caller reads and writes the files; this module only decides. A directory whose disk fails is
only known by its path.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from engine.checkpoint.tidelog_files import DirectorySet
from engine.errors import EngineError, InvalidDataDirectory, LogOffline
from engine.fs.health import permission_advice
from engine.fs.names import DIRECTORIES_FILE
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

_PLACE: Final = ("file", "position", "offset")
"""The facts of an error that locate the problem."""


@dataclass(frozen=True, slots=True)
class OfflineLog:
    """The log, its directory, and the file and problem that kept it from being opened."""

    topic_partition: TopicPartition
    directory: Path
    problem: str
    place: Mapping[str, object]
    """The file, and in a `.log` file the position and offset, if known."""

    @classmethod
    def of(cls, topic_partition: TopicPartition, directory: Path, error: Exception) -> Self:
        """Describe and log the failure. The traceback is dropped: it would keep files open."""
        is_foreseen = isinstance(error, EngineError | OSError)
        _LOG.error("%s is offline: %s", topic_partition, error, exc_info=not is_foreseen)
        place: dict[str, object] = {"file": str(directory)}
        problem = str(error)
        if isinstance(error, EngineError):
            facts = error.facts()
            place |= {name: facts[name] for name in _PLACE if name in facts}
        elif isinstance(error, OSError):
            place["file"] = str(error.filename or directory)
            problem += permission_advice(error)
        else:
            problem = f"{type(error).__name__}: {problem}"
        return cls(topic_partition, directory, problem, place)

    def refusal(self) -> LogOffline:
        """Return the error for reads and appends of the log."""
        topic, partition = self.topic_partition
        return LogOffline(
            f"{self.topic_partition} could not be opened and is offline until restart: "
            f"{self.problem}; stop the service and run `tidelog repair`",
            topic=topic,
            partition=partition,
            directory=str(self.directory.parent),
            **self.place,
        )


@dataclass(frozen=True, slots=True)
class Membership:
    """The content to write to each directory's file, by path; empty if nothing has changed."""

    files: Mapping[Path, DirectorySet]
    left_out: Mapping[str, str]
    """The directories that are declared gone: ids and last paths."""


def decide(
    found: Mapping[Path, DirectorySet | None], unread: Sequence[Path], gone: Collection[Path]
) -> Membership:
    """Return the new membership.

    `found` has the content of the readable files, None for directories without a file; `unread` are
    given directories whose disk fails, `gone` those that are gone for good. Raises
    InvalidDataDirectory if a directory is missing and not gone, belongs to another log, or is a
    copy.
    """
    known = {path: one for path, one in found.items() if one is not None}
    if not known and (unread or len(found) == 1):
        return Membership({}, {})  # the unreadable one may belong to a set already
    _ensure_related(known)
    newest = max(known.values(), key=lambda one: one.generation, default=None)
    if newest is None:
        newest = DirectorySet("", uuid.uuid4().hex, 0)
    paths = {one: Path(seen) for one, seen in newest.paths.items()}
    by_path = {seen: one for one, seen in paths.items()}
    claimed = {one.own_id for one in known.values()}
    ids: dict[Path, str] = {}
    for path, one in found.items():
        own_id = by_path.get(path.absolute())
        if one is not None:
            own_id = one.own_id
        elif own_id in claimed:
            own_id = None
        ids[path] = own_id or uuid.uuid4().hex
    absent = {one: seen for one, seen in paths.items() if one not in ids.values()}
    unread_paths = {path.absolute() for path in unread}
    kept = {one: seen for one, seen in absent.items() if seen in unread_paths}
    missing = {one: seen for one, seen in absent.items() if one not in kept}
    left_out = {one: seen for one, seen in missing.items() if seen in {p.absolute() for p in gone}}
    doubtful = {one: seen for one, seen in missing.items() if one not in left_out}
    if len(doubtful) > len(unread_paths - set(paths.values())):
        raise _missing(doubtful, found)
    kept |= doubtful  # it may be the failing one, under a new path
    wanted = {one: str(seen) for one, seen in kept.items()}
    wanted |= {own_id: str(path.absolute()) for path, own_id in ids.items()}
    shown = {one: str(seen) for one, seen in left_out.items()}
    if wanted == newest.paths and all(
        one is not None and one.generation == newest.generation for one in found.values()
    ):
        return Membership({}, shown)
    now = replace(newest, generation=newest.generation + 1, paths=wanted)
    return Membership({path: replace(now, own_id=own) for path, own in ids.items()}, shown)


def _ensure_related(known: Mapping[Path, DirectorySet]) -> None:
    by_id: dict[str, Path] = {}
    first: tuple[Path, DirectorySet] | None = None
    for path, one in known.items():
        if one.own_id in by_id:
            raise InvalidDataDirectory(
                f"{by_id[one.own_id]} and {path} are copies of one data directory, according to "
                f"{DIRECTORIES_FILE} in them: leave one of them out",
                name=str(path),
            )
        by_id[one.own_id] = path
        first = first or (path, one)
        if one.set_id != first[1].set_id:
            raise InvalidDataDirectory(
                f"{first[0]} and {path} are data directories of different logs, according to "
                f"{DIRECTORIES_FILE} in them: give those of one log only",
                name=str(path),
            )


def _missing(doubtful: Mapping[str, Path], found: Collection[Path]) -> InvalidDataDirectory:
    names = ", ".join(sorted(str(path) for path in doubtful.values()))
    given = ", ".join(str(path) for path in found)
    return InvalidDataDirectory(
        f"{names} belongs to the same log as {given} and was not given: its partitions would be "
        "created again, empty. Give it too, or say that it is gone for good (--gone)",
        name=names,
    )
