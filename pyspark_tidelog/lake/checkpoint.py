"""The identity of a job: one checkpoint belongs to one lake and one set of topics.

A mix-up would lose or repeat records silently. With a new checkpoint the numbers of micro-batches
start again, and would be taken for micro-batches that are in the lake already; the offsets of
another topic mean something else; another schema gives part of the lake other columns. So
checkpoint and lake both hold a small file with the identity, written by the first run and checked
by every later one.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.source.stream_offsets import StreamOffset, ranges_between
from pyspark_tidelog.source.tasks import OffsetRange
from pyspark_tidelog.tables.durable_files import sync_file, sync_folder
from pyspark_tidelog.tables.places import IDENTITY_NAME, FolderPlace, Place

VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class Terms:
    """The properties of a job that cannot change; the service's address can."""

    sink: str
    """`--to` as an absolute path."""
    topic_ids: Mapping[str, str]
    schema: Mapping[str, Any] | None = None
    """Spark's JSON form of the columns of the values."""
    partition_by: tuple[str, ...] = ()
    bad_records: str | None = None
    """Where records go that do not fit the schema; None lets them stop the job."""
    include_headers: bool = False
    isolation: str = "read_uncommitted"
    topic_pattern: str | None = None
    """Of a job with a table for each topic, whose own terms name the topic."""
    added: tuple[str, ...] = ()
    """Columns that a later run has added to the schema; rows of before have null there."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A job that has run at least once."""

    job_id: str
    terms: Terms


@contextmanager
def claimed(checkpoint: Path, places: Sequence[Place], terms: Terms) -> Iterator[Identity]:
    """Lock checkpoint and tables for this job.

    The first run writes the identity into all of them; a later one raises JobError unless they
    still have the same identity and the terms are unchanged.
    """
    own = FolderPlace(checkpoint)
    if len({str(own), *map(str, places)}) <= len(places):
        raise JobError("checkpoint, sink and bad records must be at places of their own")
    with ExitStack() as stack:
        stack.enter_context(own.claim())
        known = load_identity(own)
        if known is None:
            _require_unused(checkpoint, places)
        elif _is_open(checkpoint, known.terms, terms):
            known = replace(known, terms=terms)
        else:
            terms = evolved(known.terms, terms)
            _require_same(checkpoint, known.terms, terms)
            known = replace(known, terms=terms)
        for place in places:
            stack.enter_context(place.claim())
            _require_own(place, checkpoint, known)
        if known is None:
            known = Identity(str(uuid.uuid4()), terms)
        # The checkpoint first: a table without identity and without data can be claimed again.
        for place in (own, *places):
            if load_identity(place) != known:
                _store(place, known)
        yield known


def join(stack: ExitStack, checkpoint: Path, places: Sequence[Place], identity: Identity) -> None:
    """Lock the places of one more table of a running job; raise JobError as `claimed` does."""
    for place in places:
        stack.enter_context(place.claim())
        known = load_identity(place)
        if known is not None and known.job_id == identity.job_id:
            identity = replace(identity, terms=evolved(known.terms, identity.terms))
            _require_same(checkpoint, known.terms, identity.terms)
        _require_own(place, checkpoint, identity)
        if known != identity:
            _store(place, identity)


def load_identity(place: Place) -> Identity | None:
    """Return the identity in a place, None if there is none; raise JobError if it is damaged."""
    text = place.load()
    if text is None:
        return None
    try:
        document: dict[str, Any] = json.loads(text)
        if document.pop("version") == VERSION:
            document["partition_by"] = tuple(document["partition_by"])
            document["added"] = tuple(document.get("added", ()))
            return Identity(document.pop("job_id"), Terms(**document))
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(f"{IDENTITY_NAME} in {place} is damaged: {error}") from error
    raise JobError(
        f"{IDENTITY_NAME} in {place} was written by another version of tidelog: choose new folders"
    )


def mend_torn_entry(checkpoint: Path) -> None:
    """Remove the last entry of Spark's offset and commit logs if a power cut left it empty.

    Spark does not sync these files, and would refuse the checkpoint. No row of such a micro-batch
    is in the lake, because `sync_plan` syncs its entry first.
    """
    for name in ("offsets", "commits"):
        entries = [*(checkpoint / name).glob("[0-9]*")]
        newest = max(entries, key=lambda entry: int(entry.name), default=None)
        if newest is not None and newest.stat().st_size == 0:
            newest.unlink()
            newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def sync_plan(checkpoint: Path, batch_id: int) -> int:
    """Sync the offsets of a micro-batch, and return a digest of them.

    This must precede its first byte in the lake. A micro-batch in the lake is never written again,
    so after a power cut Spark must repeat the same offsets instead of planning others.
    """
    offsets = checkpoint / "offsets"
    entry = offsets / str(batch_id)
    sync_file(entry)
    sync_folder(offsets)
    return int.from_bytes(hashlib.sha256(entry.read_bytes()).digest()[:7])  # fits a signed long


def _is_open(checkpoint: Path, known: Terms, terms: Terms) -> bool:
    """Whether no micro-batch was planned yet, so that the schema can still change."""
    has_begun = (checkpoint / "offsets").exists()
    return not has_begun and (known.sink, known.topic_ids) == (terms.sink, terms.topic_ids)


def evolved(known: Terms, terms: Terms) -> Terms:
    """Return the terms with the columns that were added to the schema since its first run."""
    if known.schema is None or terms.schema is None:
        return terms
    names = {each["name"] for each in known.schema["fields"]}
    new = [each["name"] for each in terms.schema["fields"] if each["name"] not in names]
    return replace(terms, added=(*known.added, *new))


def _without(terms: Terms, known: Terms) -> Mapping[str, Any] | None:
    """Return the schema without the nullable columns that are not in the known one."""
    if known.schema is None or terms.schema is None:
        return terms.schema
    names = {each["name"] for each in known.schema["fields"]}
    fields = terms.schema["fields"]
    kept = [each for each in fields if each["name"] in names or not each["nullable"]]
    return {**terms.schema, "fields": kept}


def _require_own(place: Place, checkpoint: Path, known: Identity | None) -> None:
    owner = load_identity(place)
    if owner is None and place.has_data():
        raise JobError(f"{place} holds files that no tidelog job wrote: choose another")
    if owner is not None and (known is None or owner.job_id != known.job_id):
        raise JobError(
            f"{place} belongs to another checkpoint than {checkpoint}: "
            f"use that one, or choose a new folder for both"
        )


def planned_offset(checkpoint: Path, batch_id: int) -> StreamOffset:
    """Return where a micro-batch ends, from Spark's offset log."""
    entry = checkpoint / "offsets" / str(batch_id)
    try:
        return StreamOffset.from_json(json.loads(entry.read_text().splitlines()[-1]))
    except (OSError, ValueError, IndexError) as error:
        raise JobError(f"{entry} cannot be read: {error}") from error


def planned_ranges(checkpoint: Path, batch_id: int) -> list[OffsetRange]:
    """Return the ranges of a micro-batch, by topic and partition, as the source plans them."""
    end = planned_offset(checkpoint, batch_id)
    if batch_id > 0:
        return ranges_between(planned_offset(checkpoint, batch_id - 1), end)
    return ranges_between(StreamOffset.beginning_at(end.initial, end.topic_ids), end)


def _require_unused(checkpoint: Path, places: Sequence[Place]) -> None:
    """Raise JobError for a checkpoint or lake that was used before, without this identity."""
    if (checkpoint / "offsets").exists():
        raise JobError(f"{checkpoint} is the checkpoint of another query: choose a new folder")
    for table in places[:1]:
        if load_identity(table) is not None:
            raise JobError(
                f"{table} was filled with another checkpoint than {checkpoint}, which is new: "
                f"use the old one, or choose a new folder for both"
            )


def _require_same(checkpoint: Path, known: Terms, terms: Terms) -> None:
    if known.sink != terms.sink:
        raise JobError(
            f"{checkpoint} belongs to the sink {known.sink}, not to {terms.sink}: "
            f"use that sink, or choose a new checkpoint"
        )
    if known.topic_pattern != terms.topic_pattern:
        raise JobError(
            f"{checkpoint} belongs to the topic pattern {known.topic_pattern}, not to "
            f"{terms.topic_pattern}: choose a new checkpoint and sink"
        )
    if known.topic_ids.keys() != terms.topic_ids.keys():
        raise JobError(
            f"{checkpoint} belongs to the topics {', '.join(sorted(known.topic_ids))}, "
            f"not to {', '.join(sorted(terms.topic_ids))}: choose a new checkpoint and sink"
        )
    for topic, topic_id in terms.topic_ids.items():
        if known.topic_ids[topic] != topic_id:
            raise JobError(
                f"{checkpoint} belongs to another topic {topic} than the service has now: the "
                f"topic was deleted and created again, or this is another service; choose a new "
                f"checkpoint and sink"
            )
    for what, before, now in (
        ("another schema", known.schema, _without(terms, known)),
        ("other columns to partition by", known.partition_by, terms.partition_by),
        (
            "another place for bad records",
            known.bad_records or terms.bad_records,  # one can be added
            terms.bad_records,
        ),
        ("another setting of --headers", known.include_headers, terms.include_headers),
        ("another isolation level", known.isolation, terms.isolation),
    ):
        if before != now:
            raise JobError(
                f"{checkpoint} belongs to a job with {what}: use the options of its first run, or "
                f"choose a new checkpoint and sink"
            )


def _store(place: Place, identity: Identity) -> None:
    document = {"version": VERSION, "job_id": identity.job_id, **asdict(identity.terms)}
    place.store(json.dumps(document, indent=2))
