"""The history of a schedule's log, ordered afterwards: one model for each leader epoch.

The order of appends is that of their offsets; the leader epoch in each batch says whether it came
before or after a truncation. So the models follow from the results alone, and say what any reader
may have seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from engine.records.batch import BatchView
from tests.interleavings.scene import Moment, Scene
from tests.support.log_model import Content, LogModel


@dataclass
class History:
    """The changes of a log, and its states in between."""

    scene: Scene
    appended: list[tuple[bytes, bool | None]] = field(default_factory=list)
    """Batches as they were stamped, and of a marker whether it aborts."""
    cut_at: int | None = None
    """To where a truncation takes the log's end, if there is one."""
    deleted_below: int = 0
    """The greatest offset below which records were deleted."""
    appends_under_way: int = 0
    is_cutting: bool = False
    """Whether the truncation is running."""
    moved: bool = False
    changes_start: bool = False
    """Whether something may raise the log start, or lower it."""
    producers: set[int] = field(default_factory=set)
    """The works that append in this schedule."""
    awaited: int = 0
    """Up to where clients wait for the committer."""
    is_closing: bool = False
    """Whether the service stops meanwhile."""
    _drawn: set[str] = field(default_factory=set)
    models: dict[int, LogModel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.begun_with = self.scene.driven.model.copy()
        self.first_epoch = self.begun_with.leader_epoch

    @property
    def is_cut(self) -> bool:
        return self.scene.log.reader.leader_epoch > self.first_epoch

    def moment(self) -> Moment:
        is_appending = self.appends_under_way > 0
        return Moment(self.scene.log, is_cutting=self.is_cutting, is_appending=is_appending)

    def is_first(self, kind: str) -> bool:
        """Return whether no work of this kind was drawn before: one thread alone does such work."""
        is_first = kind not in self._drawn
        self._drawn.add(kind)
        return is_first

    # -- the end -----------------------------------------------------------------------------

    def conclude(self) -> None:
        """Build the models, of which the last must be the present log."""
        model = self.begun_with.copy()
        self._take(model, self.first_epoch)
        self.models[self.first_epoch] = model
        log, driven = self.scene.log, self.scene.driven
        if self.is_cut:
            assert self.cut_at is not None, "the epoch rises by a truncation alone"
            model = model.copy()
            model.commit()
            model.truncate_to(self.cut_at)
            self.models[model.leader_epoch] = model
            self._take(model, model.leader_epoch)
            driven.saved_log_start = min(driven.saved_log_start, model.log_start)
        else:
            driven.saved_log_start = max(driven.saved_log_start, self.deleted_below)
        assert sum(len(one) for one in self._by_epoch().values()) == len(self.appended)
        self._take_start(model)
        assert model.high_watermark <= log.watermarks.high_watermark <= model.end
        model.show_up_to(log.watermarks.high_watermark)
        driven.model = model.copy()
        if self.moved:
            driven.model.forget_producers()
        if not self.is_closing:
            self.take_cleaned()

    def take_cleaned(self) -> None:
        """Have the model of the log take over what compaction did."""
        if self.scene.is_compacted:
            is_laid_out_anew = self.moved or self.is_cut
            self.scene.driven.adopt_cleaned(before=self.whole if is_laid_out_anew else None)

    def end(self, random: Random) -> None:
        """Compare the log with its model, end the process somehow, start again, compare again."""
        if self.is_closing:
            self.scene.start_after_close(random)
            self.take_cleaned()
            self.scene.machine.check()
            return
        self.scene.machine.threads.commit_round()
        if not self.is_cut:
            assert self.scene.log.watermarks.high_watermark >= self.awaited, "somebody waits"
        self.scene.end(random)

    @property
    def whole(self) -> LogModel:
        """The log as it was with all that a truncation took away."""
        return self.models[self.first_epoch]

    def _by_epoch(self) -> dict[int, list[tuple[bytes, bool | None]]]:
        found: dict[int, list[tuple[bytes, bool | None]]] = {
            epoch: [] for epoch in (self.first_epoch, self.first_epoch + 1)
        }
        for one in sorted(self.appended, key=lambda one: BatchView(one[0]).header.base_offset):
            found[BatchView(one[0]).header.leader_epoch].append(one)
        return found

    def _take(self, model: LogModel, epoch: int) -> None:
        for data, is_abort in self._by_epoch()[epoch]:
            producer_id = BatchView(data).header.producer_id
            if is_abort is not None and model.is_in_transaction(producer_id):
                model.append_marker(data, is_abort=is_abort)
            else:
                model.append(data)

    def _take_start(self, model: LogModel) -> None:
        """Check and take over the log start."""
        log, config = self.scene.log, self.scene.log.config
        start, before = log.watermarks.log_start_offset, model.log_start
        model.log_start = start
        if start == before:
            return
        assert self.changes_start, "nobody has moved the log start"
        if start < before:
            assert self.is_cut
            assert start == self.cut_at
        elif start > self.deleted_below and not (self.is_cut and start == self.cut_at):
            oldest_ms = self.scene.machine.clock.now_ms() - config.retention_ms
            removed = model.due(max(before, self.deleted_below), start)
            is_old = all(one[1] < oldest_ms for batch in removed for one in batch.records)
            assert is_old or config.retention_bytes >= 0, "a record was removed before its time"

    # -- what readers may see ------------------------------------------------------------------

    def model_of(self, epoch: int) -> LogModel:
        assert epoch in self.models, f"there was no epoch {epoch}"
        return self.models[epoch]

    def first_at(self, moment: Moment, timestamp_ms: int) -> list[Content | None]:
        """Return the first record of at least that time, if it was committed at that moment."""
        return [
            committed(next((one for one in records if one[1] >= timestamp_ms), None), high)
            for records, high in self._views(moment)
        ]

    def newest_at(self, moment: Moment) -> list[Content | None]:
        """Return the first record with the largest time, if it was committed at that moment."""
        return [
            committed(max(records, key=lambda one: (one[1], -one[0]), default=None), high)
            for records, high in self._views(moment)
        ]

    def _views(self, moment: Moment) -> list[tuple[list[Content], int]]:
        """Return records and high watermark; while something is changed, those before and after."""
        marks, epoch = moment.marks, moment.leader_epoch
        ends = [(epoch, marks.log_end_offset, marks.high_watermark)]
        later = [one.next_offset for one in self.model_of(epoch).batches]
        if moment.is_appending:
            ends += [(epoch, end, marks.high_watermark) for end in later if end > ends[0][1]]
        if self.moved:  # in the files that the log has left it is as it was at any time before
            ends += [(epoch, end, end) for end in later]
        if epoch > self.first_epoch and self.cut_at is not None and moment.is_cutting:
            ends.append((epoch, min(self.cut_at, marks.log_end_offset), marks.high_watermark))
            ends.append((self.first_epoch, self.whole.end, self.whole.end))
        return [
            (self._records(epoch, marks.log_start_offset, end), high) for epoch, end, high in ends
        ]

    def _records(self, epoch: int, start: int, end: int) -> list[Content]:
        return [
            record
            for batch in self.model_of(epoch).batches
            if batch.next_offset <= end
            for record in batch.records
            if record[0] >= start
        ]


def committed(record: Content | None, high_watermark: int) -> Content | None:
    return record if record is not None and record[0] < high_watermark else None
