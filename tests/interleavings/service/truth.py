"""The truth about one partition: which records each log had at each offset, and its states."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.operations.service import Service
from engine.log.log import Log
from engine.records.builder import build_batch
from engine.state.watermarks import Watermarks
from engine.types import FetchIsolation, TopicPartition
from tests.support.logs import ALL_BYTES, batches_in
from tests.support.service import local
from tests.support.time import START_MS

MOST_OF_A_BATCH = 4

State = dict[str, object]
"""What an answer may say of the log at one moment."""


def state_of(log: Log, marks: Watermarks) -> State:
    return {
        "log_id": f"{log.topic_id}.{marks.leader_epoch}",
        "leader_epoch": marks.leader_epoch,
        "log_start_offset": marks.log_start_offset,
        "high_watermark": marks.high_watermark,
        "last_stable_offset": marks.last_stable_offset,
        "log_end_offset": marks.log_end_offset,
    }


@dataclass
class Truth:
    """Records are numbers, each written once; the time of each says which it is."""

    service: Service
    topic: str
    logs: dict[str, dict[int, int]] = field(default_factory=dict)
    """By log id: the number at each offset that the log ever had."""
    states: list[State] = field(default_factory=list)
    """The states between which the log changed."""
    cleaned: set[str] = field(default_factory=set)
    """The ids of logs of which compaction may have removed records."""
    number: int = 0

    @property
    def log(self) -> Log | None:
        manager = local(self.service).manager
        if self.topic not in manager.topics():
            return None
        return manager.log(TopicPartition(self.topic, 0))

    def append(self, count: int) -> None:
        """Append the next numbers in small batches, and have them shown and told."""
        log = self.log
        if log is None:
            return
        numbers = range(self.number, self.number + count)
        self.number += count
        records = [(START_MS + one, b"k%d" % (one % 2), b"%d" % one, ()) for one in numbers]
        for at in range(0, count, MOST_OF_A_BATCH):
            log.append(build_batch(records[at : at + MOST_OF_A_BATCH]))
            self.states.append(state_of(log, log.watermarks))  # a reader may see the log's end now
        self.tell(log, log.durability.commit())

    def tell(self, log: Log, high_watermark: int) -> None:
        """Wake the readers that wait, as a round of the committer does."""
        local(self.service).commits.committed([(log, high_watermark)])

    def look(self) -> None:
        """Note the present state, and every record that is there."""
        log = self.log
        if log is None:
            return
        marks = log.watermarks
        state = state_of(log, marks)
        if not self.states or self.states[-1] != state:
            self.states.append(state)
        known = self.logs.setdefault(str(state["log_id"]), {})
        if marks.log_start_offset == marks.log_end_offset:
            return
        fetched = log.reader.read(
            marks.log_start_offset, max_bytes=ALL_BYTES, isolation=FetchIsolation.LOG_END
        )
        assert fetched is not None
        for batch in batches_in(fetched.data):
            for record in batch.records():
                number = int(record.value or b"-1")
                assert known.setdefault(record.offset, number) == number, "an offset was reused"
