"""The checkpoint of a job: Spark's logs of the offsets it has planned and committed.

Spark writes them through Hadoop, which has no object store without jars. If the checkpoint is in
an object store, Spark writes to a folder of the driver, which lasts as long as the run. The job
copies what a restart needs: each micro-batch's offsets before its first row, and the commits. A
copy is only ever created, never replaced, so two drivers cannot plan one micro-batch differently.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pyspark_tidelog.errors import JobError, JobFailed, OptionError
from pyspark_tidelog.source.stream_offsets import StreamOffset, ranges_between
from pyspark_tidelog.source.tasks import OffsetRange
from pyspark_tidelog.tables.durable_files import sync_file, sync_folder
from pyspark_tidelog.tables.leases import Claim
from pyspark_tidelog.tables.opening import require
from pyspark_tidelog.tables.places import FolderPlace, ObjectPlace, Place
from pyspark_tidelog.tables.storage import Storage
from pyspark_tidelog.tables.target import SCHEMES, is_remote, local_folder

KEPT_BATCHES: Final = 100
"""As many as Spark keeps; older copies are removed a hundred at a time."""

_OFFSETS: Final = "offsets"
_COMMITS: Final = "commits"
_QUERY: Final = "metadata"  # the id of Spark's query


class Checkpoint:
    """A checkpoint by its path or URL; open or claim it before the rest is used."""

    def __init__(self, name: str) -> None:
        """Raise OptionError if it can be no checkpoint."""
        self._remote: Storage | None = None
        self.claims: list[Claim] = []
        """That of the checkpoint, then those of the tables."""
        if is_remote(name):
            require("obstore", "delta")
            self._remote = Storage.at(name.rstrip("/"))
            self.folder = Path()
            self.place: Place = ObjectPlace(self._remote)
        elif "://" in name and not name.startswith("file:///"):
            raise OptionError(
                f"the checkpoint must be a folder of this machine, or in an object store "
                f"({', '.join(f'{each}://' for each in SCHEMES)}), not {name!r}"
            )
        else:
            self.folder = local_folder("the checkpoint", name)
            self.place = FolderPlace(self.folder)
        self._stored_commit = -1
        self._is_query_stored = False

    def __str__(self) -> str:
        return str(self.place)

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Keep other jobs out of the block; raise JobError if one is running."""
        with self.place.claim() as own, self.open():
            self.claims = [own]
            self._remove_torn_entries()
            try:
                yield
            finally:
                with suppress(JobFailed):  # the next run repeats a micro-batch, and adds nothing
                    self._store_commit()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Make the checkpoint readable in the block."""
        if self._remote is None:
            yield
            return
        with tempfile.TemporaryDirectory(prefix="tidelog-checkpoint-") as folder:
            self.folder = Path(folder)
            self._restore(self._remote)
            yield

    @property
    def location(self) -> str:
        """The folder for Spark, whose default file system can be another one."""
        return f"file://{self.folder}"

    @property
    def run(self) -> int:
        """The number of this run of the job, once the checkpoint is claimed."""
        return self.claims[0].run

    def ensure_held(self) -> None:
        """Raise JobError if another process has taken the checkpoint or a table over."""
        for claim in self.claims:
            claim.ensure_held()

    def has_begun(self) -> bool:
        """Whether a micro-batch was planned."""
        return (self.folder / _OFFSETS).exists()

    def last_commit(self) -> int | None:
        """Return the last micro-batch that Spark has committed, None if there is none."""
        return max(_numbers(self.folder / _COMMITS), default=None)

    def sync_plan(self, batch_id: int) -> int:
        """Make the offsets of a micro-batch durable, and return a digest of them.

        This must precede its first byte in the lake. A micro-batch in the lake is never written
        again, so after a crash Spark must repeat the same offsets instead of planning others.
        """
        entry = self.folder / _OFFSETS / str(batch_id)
        if self._remote is None:
            sync_file(entry)
            sync_folder(entry.parent)
        else:
            self._store(self._remote, batch_id)
        return int.from_bytes(hashlib.sha256(entry.read_bytes()).digest()[:7])  # a signed long

    def planned_offset(self, batch_id: int) -> StreamOffset:
        """Return where a micro-batch ends, from Spark's offset log."""
        entry = self.folder / _OFFSETS / str(batch_id)
        try:
            return StreamOffset.from_json(json.loads(entry.read_text().splitlines()[-1]))
        except (OSError, ValueError, IndexError) as error:
            raise JobError(f"{entry} cannot be read: {error}") from error

    def planned_ranges(self, batch_id: int) -> list[OffsetRange]:
        """Return the ranges of a micro-batch, by topic and partition, as the source plans them."""
        end = self.planned_offset(batch_id)
        if batch_id > 0:
            return ranges_between(self.planned_offset(batch_id - 1), end)
        return ranges_between(StreamOffset.beginning_at(end.initial, end.topic_ids), end)

    def _remove_torn_entries(self) -> None:
        """Remove the last entry of each of Spark's logs if a power cut left it empty.

        Spark does not sync these files, and would refuse the checkpoint. No row of such a
        micro-batch is in the lake, because `sync_plan` syncs its entry first.
        """
        for name in (_OFFSETS, _COMMITS):
            folder = self.folder / name
            newest = folder / str(max(_numbers(folder), default=-1))
            if newest.exists() and newest.stat().st_size == 0:
                newest.unlink()
                newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)

    def _restore(self, remote: Storage) -> None:
        """Copy what Spark reads at a start: the last two plans, and the last commit."""
        wanted = {_OFFSETS: 2, _COMMITS: 1}
        names = [
            f"{log}/{number}"
            for log, count in wanted.items()
            for number in sorted(_stored(remote, log))[-count:]
        ]
        for name in (*names, _QUERY):
            data = remote.load(name)
            if data is not None:
                path = self.folder / name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)
        last = self.last_commit()
        self._stored_commit = -1 if last is None else last
        self._is_query_stored = (self.folder / _QUERY).exists()

    def _store(self, remote: Storage, batch_id: int) -> None:
        """Copy the plan of a micro-batch, and the commit of the one before it."""
        self._store_commit()
        if not self._is_query_stored:
            remote.create(_QUERY, (self.folder / _QUERY).read_bytes())
            self._is_query_stored = True
        name = f"{_OFFSETS}/{batch_id}"
        if not remote.create(name, (self.folder / name).read_bytes()):
            raise JobError(
                f"another job has planned micro-batch {batch_id} of {self}: stop one of the two, "
                f"and run the other again"
            )
        if batch_id % KEPT_BATCHES == 0:
            last = range(max(batch_id - 2 * KEPT_BATCHES, 0), max(batch_id - KEPT_BATCHES, 0))
            remote.remove([f"{log}/{each}" for each in last for log in (_OFFSETS, _COMMITS)])

    def _store_commit(self) -> None:
        """Copy the last commit, unless that was done before."""
        last = self.last_commit()
        if self._remote is not None and last is not None and last > self._stored_commit:
            name = f"{_COMMITS}/{last}"
            self._remote.create(name, (self.folder / name).read_bytes())
            self._stored_commit = last


def _numbers(folder: Path) -> Iterator[int]:
    return (int(entry.name) for entry in folder.glob("[0-9]*"))


def _stored(remote: Storage, log: str) -> list[int]:
    return [int(name) for name in remote.names(log)[1] if name.isdigit()]
