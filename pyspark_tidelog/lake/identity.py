"""The identity of a job: one checkpoint belongs to one lake and one set of topics.

A mix-up would lose or repeat records silently. With a new checkpoint the numbers of micro-batches
start again, and would be taken for micro-batches that are in the lake already; the offsets of
another topic mean something else; another schema gives part of the lake other columns. So
checkpoint and lake both hold a small file with the identity, written by the first run and checked
by every later one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pyspark.sql.types import StructType

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.checkpoint import Checkpoint
from pyspark_tidelog.tables.places import IDENTITY_NAME, Place

VERSION: Final = 3
_SCHEMA: Final = "another schema"
_SHOWN_COLUMNS: Final = 10


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
    rescue: str | None = None
    """The column for fields that the schema does not have; a later run can add it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A job that has run at least once."""

    job_id: str
    terms: Terms


@contextmanager
def claimed(checkpoint: Checkpoint, places: Sequence[Place], terms: Terms) -> Iterator[Identity]:
    """Lock checkpoint and tables for this job.

    The first run writes the identity into all of them; a later one raises JobError unless they
    still have the same identity and the terms are unchanged.
    """
    own = checkpoint.place
    if len({str(own), *map(str, places)}) <= len(places):
        raise JobError("checkpoint, sink and bad records must be at places of their own")
    with ExitStack() as stack:
        stack.enter_context(checkpoint.claim())
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
            checkpoint.claims.append(stack.enter_context(place.claim()))
            _require_own(place, checkpoint, known)
        if known is None:
            known = Identity(str(uuid.uuid4()), terms)
        # The checkpoint first: a table without identity and without data can be claimed again.
        for place in (own, *places):
            if load_identity(place) != known:
                _store(place, known)
        yield known


def join(
    stack: ExitStack, checkpoint: Checkpoint, places: Sequence[Place], identity: Identity
) -> None:
    """Lock the places of one more table of a running job; raise JobError as `claimed` does."""
    for place in places:
        checkpoint.claims.append(stack.enter_context(place.claim()))
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


def _is_open(checkpoint: Checkpoint, known: Terms, terms: Terms) -> bool:
    """Whether no micro-batch was planned yet, so that the schema can still change."""
    return not checkpoint.has_begun() and (known.sink, known.topic_ids) == (
        terms.sink,
        terms.topic_ids,
    )


def evolved(known: Terms, terms: Terms) -> Terms:
    """Return the terms with the columns that were added to the schema since its first run."""
    if known.schema is None or terms.schema is None:
        return terms
    names = {each["name"] for each in known.schema["fields"]}
    new = [each["name"] for each in terms.schema["fields"] if each["name"] not in names]
    if known.rescue is None and terms.rescue is not None:
        new.append(terms.rescue)
    return replace(terms, added=(*known.added, *new))


def _without(terms: Terms, known: Terms) -> Mapping[str, Any] | None:
    """Return the schema without the nullable columns that are not in the known one."""
    if known.schema is None or terms.schema is None:
        return terms.schema
    names = {each["name"] for each in known.schema["fields"]}
    fields = terms.schema["fields"]
    kept = [each for each in fields if each["name"] in names or not each["nullable"]]
    return {**terms.schema, "fields": kept}


def _difference(known: Terms, terms: Terms) -> str:
    """Say which columns of two schemas differ, as `-` what was and `+` what would be."""

    def columns(schema: Mapping[str, Any] | None) -> dict[str, str]:
        found = StructType([]) if schema is None else StructType.fromJson(dict(schema))
        return {
            each.name: f"{each.name} {each.dataType.simpleString()}"
            + ("" if each.nullable else " NOT NULL")
            for each in found.fields
        }

    before, now = columns(known.schema), columns(terms.schema)
    names = [*before, *(name for name in now if name not in before)]
    changed = [name for name in names if before.get(name) != now.get(name)]
    lines = [
        f"{sign} {side[name]}"
        for name in changed
        for sign, side in (("-", before), ("+", now))
        if name in side
    ]
    if not lines:
        return "the same columns in another order"
    more = len(lines) - _SHOWN_COLUMNS
    return ", ".join(lines[:_SHOWN_COLUMNS]) + (f" and {more} more" if more > 0 else "")


def _require_own(place: Place, checkpoint: Checkpoint, known: Identity | None) -> None:
    owner = load_identity(place)
    if owner is None and place.has_data():
        raise JobError(f"{place} holds files that no tidelog job wrote: choose another")
    if owner is not None and (known is None or owner.job_id != known.job_id):
        raise JobError(
            f"{place} belongs to another checkpoint than {checkpoint}: "
            f"use that one, or choose a new folder for both"
        )


def _require_unused(checkpoint: Checkpoint, places: Sequence[Place]) -> None:
    """Raise JobError for a checkpoint or lake that was used before, without this identity."""
    if checkpoint.has_begun():
        raise JobError(f"{checkpoint} is the checkpoint of another query: choose a new folder")
    for table in places[:1]:
        if load_identity(table) is not None:
            raise JobError(
                f"{table} was filled with another checkpoint than {checkpoint}, which is new: "
                f"use the old one, or choose a new folder for both"
            )


def _require_same(checkpoint: Checkpoint, known: Terms, terms: Terms) -> None:
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
        (_SCHEMA, known.schema, _without(terms, known)),
        ("other columns to partition by", known.partition_by, terms.partition_by),
        (
            "another place for bad records",
            known.bad_records or terms.bad_records,  # one can be added
            terms.bad_records,
        ),
        ("another --rescue", known.rescue or terms.rescue, terms.rescue),
        ("another setting of --headers", known.include_headers, terms.include_headers),
        ("another isolation level", known.isolation, terms.isolation),
    ):
        if before != now:
            detail = f" ({_difference(known, terms)})" if what == _SCHEMA else ""
            raise JobError(
                f"{checkpoint} belongs to a job with {what}{detail}: use the options of its "
                f"first run, or choose a new checkpoint and sink"
            )


def _store(place: Place, identity: Identity) -> None:
    document = {"version": VERSION, "job_id": identity.job_id, **asdict(identity.terms)}
    place.store(json.dumps(document, indent=2))
