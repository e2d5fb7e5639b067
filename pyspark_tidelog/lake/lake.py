"""Opens a lake by its folder, to verify or compact it; the job left its properties there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql.types import StructType

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.checkpoint import Checkpoint
from pyspark_tidelog.lake.compaction import TARGET_BYTES, Compacted
from pyspark_tidelog.lake.identity import Identity, load_identity
from pyspark_tidelog.lake.layout import Layout, parse_partition_column
from pyspark_tidelog.lake.maintenance import compact_table, vacuum_table
from pyspark_tidelog.lake.verifier import TURN_OFFSETS, Extent, StoredRows, Verdict, Verifier
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.service import snapshot_of
from pyspark_tidelog.source.stream_offsets import StreamOffset
from pyspark_tidelog.tables.opening import open_table
from pyspark_tidelog.tables.places import FolderPlace, Place
from pyspark_tidelog.tables.target import KINDS, Target, is_remote, local_folder, parse_target


class Lake:
    """A lake that a job has written; raises JobError for any other folder."""

    def __init__(self, name: str) -> None:
        """Open the table with a name as `--to` has it; a local one also by its folder alone."""
        self.target, self._identity = _opened(name)
        self._table = open_table(self.target)

    def verify(
        self,
        options: Mapping[str, str],
        *,
        checkpoint: str | None = None,
        turn_offsets: int = TURN_OFFSETS,
    ) -> Verdict:
        """Compare the lake with the log that `options` lead to (`url`, credentials, ...).

        With `checkpoint`, all offsets that it has committed must be in the lake; without it, all
        between the lake's first and last offset. Raises JobError if the log is another one.
        """
        terms = self._identity.terms
        expected = None if checkpoint is None else self._done(checkpoint)
        given = {"subscribe": ",".join(terms.topic_ids), "isolation.level": terms.isolation}
        known = Options.parse({**given, **options})
        with ServiceClient(known.endpoint) as client:
            snapshot = snapshot_of(client, known.topics, isolation=known.isolation)
        for topic, topic_id in terms.topic_ids.items():
            if snapshot.topic_ids.get(topic) != topic_id:
                raise JobError(
                    f"{self.target} was filled from another topic {topic} than the service has "
                    f"now: the topic was deleted and created again, or this is another service"
                )
        layout = self._layout()
        verifier = Verifier(
            StoredRows(self._table, layout.rows, terms.added),
            self._bad_rows(layout),
            layout,
            known,
            snapshot,
            turn_offsets,
            terms.added,
        )
        return verifier.verify(expected)

    def compact(self, *, target_bytes: int = TARGET_BYTES) -> Compacted:
        """Merge small files."""
        return compact_table(self._table, target_bytes)

    def vacuum(self, *, hours: int) -> int:
        """Remove files that have been unused for so long, and return how many."""
        return vacuum_table(self._table, self._identity.job_id, hours)

    def _layout(self) -> Layout:
        terms = self._identity.terms
        return Layout(
            None if terms.schema is None else StructType.fromJson(dict(terms.schema)),
            tuple(map(parse_partition_column, terms.partition_by)),
            has_headers=terms.include_headers,
            rescue=terms.rescue,
        )

    def _bad_rows(self, layout: Layout) -> StoredRows | None:
        kind, _, place = (self._identity.terms.bad_records or "topic:").partition(":")
        if kind == "topic":
            return None
        before = Path(self._identity.terms.sink.partition(":")[2])
        if Path(place).is_relative_to(before):  # the lake may have been moved
            place = str(self.target.folder / Path(place).relative_to(before))
        return StoredRows(open_table(Target(kind, place)), layout.bad_rows)

    def _done(self, name: str) -> dict[TopicPartition, Extent]:
        checkpoint = Checkpoint(name)
        owner = load_identity(checkpoint.place)
        if owner is None or owner.job_id != self._identity.job_id:
            raise JobError(f"{checkpoint} is not the checkpoint of {self.target}")
        with checkpoint.open():
            done = checkpoint.last_commit()
            return {} if done is None else extents_of(checkpoint.planned_offset(done))


def _opened(name: str) -> tuple[Target, Identity]:
    """Return the table with a name, and its job, which knows the kind of a local folder."""
    if is_remote(name):
        name = f"delta:{name}"
    if name.partition(":")[0] in KINDS:
        target = parse_target(name)
        return target, _identity_in(open_table(target).place)
    folder = local_folder("the lake", name)
    identity = _identity_in(FolderPlace(folder))
    return Target(identity.terms.sink.partition(":")[0], str(folder)), identity


def _identity_in(place: Place) -> Identity:
    identity = load_identity(place)
    if identity is None:
        raise JobError(f"{place} is not a lake: no tidelog job has written it")
    return identity


def extents_of(offset: StreamOffset) -> dict[TopicPartition, Extent]:
    """Return the offsets that a stream has read."""
    return {
        log: Extent(offset.initial[log], end)
        for log, end in offset.offsets.items()
        if log in offset.initial
    }
