"""Whose checkpoint it is: one checkpoint belongs to one sink and one log.

Mixed up, they would lose or repeat records silently: with a new checkpoint the numbers of
micro-batches start again and would overwrite folders that hold other records; with another log the
offsets mean something else. So both, checkpoint and sink, carry a small file with the name of their
job, made at the first run and compared at every later one.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark_tidelog.errors import JobError, OptionError

VERSION: Final = 1

IDENTITY_NAME: Final = "_tidelog-job.json"
"""With an underscore in front, so that whoever reads the sink as a table does not see it."""

_LOCK_NAME: Final = "_tidelog-job.lock"


@dataclass(frozen=True, slots=True)
class Identity:
    """What belongs together; the address of the service is not part of it, for services move."""

    job_id: str
    sink: str
    topic_ids: Mapping[str, str]
    version: int = VERSION


@contextmanager
def claimed(
    checkpoint: Path, sink_folder: Path, *, sink: str, topic_ids: Mapping[str, str]
) -> Iterator[Identity]:
    """Hold checkpoint and sink for this job alone while it runs.

    A first run marks both; a later one raises JobError unless both still belong together and to the
    same topics.
    """
    _make_folder(checkpoint)
    _make_folder(sink_folder)
    with _locked(checkpoint):
        known = _load(checkpoint / IDENTITY_NAME)
        if known is None:
            _require_unused(checkpoint, sink_folder)
            known = Identity(str(uuid.uuid4()), sink, dict(sorted(topic_ids.items())))
            _store(checkpoint / IDENTITY_NAME, known)
        _require_same(checkpoint, known, sink, topic_ids)
        _claim_sink(sink_folder, checkpoint, known)
        yield known


def _claim_sink(sink_folder: Path, checkpoint: Path, known: Identity) -> None:
    owner = _load(sink_folder / IDENTITY_NAME)
    if owner is None and _has_data(sink_folder):
        raise JobError(f"{sink_folder} holds files that no job of tidelog wrote: choose another")
    if owner is not None and owner.job_id != known.job_id:
        raise JobError(
            f"{sink_folder} belongs to another checkpoint than {checkpoint}: "
            f"use that one, or choose a new folder for both"
        )
    if owner is None:
        _store(sink_folder / IDENTITY_NAME, known)


def _require_unused(checkpoint: Path, sink_folder: Path) -> None:
    """Refuse a checkpoint or a sink that has a past but no identity of this checkpoint's."""
    if (checkpoint / "offsets").exists():
        raise JobError(f"{checkpoint} is the checkpoint of some other query: choose a new folder")
    if _load(sink_folder / IDENTITY_NAME) is not None:
        raise JobError(
            f"{sink_folder} was filled with another checkpoint than {checkpoint}, which is new: "
            f"use the old one, or choose a new folder for both"
        )


def _require_same(
    checkpoint: Path, known: Identity, sink: str, topic_ids: Mapping[str, str]
) -> None:
    if known.sink != sink:
        raise JobError(
            f"{checkpoint} belongs to the sink {known.sink}, not to {sink}: "
            f"use that sink, or choose a new checkpoint"
        )
    if known.topic_ids.keys() != topic_ids.keys():
        raise JobError(
            f"{checkpoint} belongs to the topics {', '.join(known.topic_ids)}, "
            f"not to {', '.join(topic_ids)}: choose a new checkpoint and sink"
        )
    for topic, topic_id in topic_ids.items():
        if known.topic_ids[topic] != topic_id:
            raise JobError(
                f"{checkpoint} belongs to another topic {topic} than the service has now: it was "
                f"deleted and made again, or this is another service; choose a new checkpoint "
                f"and sink"
            )


@contextmanager
def _locked(checkpoint: Path) -> Iterator[None]:
    """Refuse a second job on the checkpoint; the lock goes with the process, however that ends."""
    with (checkpoint / _LOCK_NAME).open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JobError(f"another job is running on the checkpoint {checkpoint}") from error
        yield


def _load(path: Path) -> Identity | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        document: dict[str, Any] = json.loads(text)
        if document["version"] == VERSION:
            return Identity(**document)
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(f"{path} is damaged: {error}") from error
    raise JobError(f"{path} was written by another version of tidelog: {document['version']}")


def _store(path: Path, identity: Identity) -> None:
    """Write the file so that it is there whole or not at all, after a power cut too."""
    staging = path.with_suffix(".tmp")
    with staging.open("w") as handle:
        json.dump(asdict(identity), handle, indent=2)
        handle.flush()
        os.fsync(handle.fileno())
    staging.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names that were added to or removed from the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def local_folder(option: str, text: str) -> Path:
    """Return the absolute folder a path or `file:` address names; raise OptionError for others."""
    path = text.removeprefix("file://") if text.startswith("file:///") else text
    if not path or "://" in path:
        raise OptionError(f"{option} must be a folder of this machine, not {text!r}")
    return Path(path).expanduser().absolute()


def _has_data(folder: Path) -> bool:
    return any(not entry.name.startswith(("_", ".")) for entry in folder.iterdir())


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError(f"{folder} cannot be made a folder: {error.strerror}") from error
