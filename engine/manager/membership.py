"""Checks that the given data directories are complete and belong to the same log.

The caller reads and writes the files; this module only decides. A directory whose disk fails is
only known by its path.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.checkpoint.directory_set import DirectorySet
from engine.errors import InvalidDataDirectory
from engine.fs.names import DIRECTORIES_FILE


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
