"""What compaction may take from a log and what it has to, record by record."""

from __future__ import annotations

from collections.abc import Iterable

from engine.cleaner.cleaner import CleaningReport
from engine.log.log import Log
from engine.types import INT64_MAX
from tests.support.log_model import Content, LogModel, Stored


def adopt_cleaned(
    model: LogModel,
    log: Log,
    now_ms: int,
    delete_retention_ms: int,
    report: CleaningReport | None,
    *,
    surely_there_below: int = INT64_MAX,
    before: LogModel | None = None,
) -> None:
    """Take over what a cleaning left, if it could: all of it may go that a newer record replaces.

    With `report` it must have gone; without one the cleaning was interrupted, or there was none.
    Batches from `surely_there_below` on may be lost: where compaction may leave gaps, a start takes
    a segment for whole whose tail never reached the disk, though the name of the next one did.
    If the log was cut or moved since, `before` is all that it was when it was cleaned.
    """
    found = _raw_batches(log)
    first_base = log.reader.first_segment_base_offset
    sealed_end = log.reader.segments[-1].base_offset if report is None else report.end_offset
    if before is not None:
        first_base, sealed_end = 0, max(before.end, model.end)
    newest = newest_of_keys((model, before or model), 0, sealed_end)
    aborted = {batch.base_offset for batch in (before or model).batches if batch.is_aborted}
    replaced = (
        {} if report is None else newest_of_keys((model,), report.first_dirty_offset, sealed_end)
    )
    stays: list[Stored] = []
    for batch in model.batches:  # first of all: what stays below takes over how it ended
        if batch.base_offset >= surely_there_below and batch.base_offset not in found:
            model.reopen_transactions(batch)
    for batch in model.batches:
        base_offset = batch.base_offset
        data = found.pop(base_offset, None)
        if data is None and batch.next_offset <= model.log_start:
            stays.append(batch)  # not readable, but its transaction may be undecided
        elif data is None and base_offset >= surely_there_below:
            continue
        elif not first_base <= base_offset < sealed_end:
            assert base_offset < first_base or data == batch.data
            stays.append(batch)
        elif data is None:
            if before is None:
                _ensure_may_go(model, batch)
            _judge_records(batch, [], now_ms, newest, replaced, is_aborted=base_offset in aborted)
            model.compacted_away.append(batch)
        else:
            after = Stored.of(data)
            is_aborted = base_offset in aborted
            # A start reads no batch below the log start, so the abort of a transaction that began
            # there has no entry in its index afterwards. No reader can see that batch either.
            may_stay = is_aborted and batch.next_offset <= model.log_start
            _judge_records(
                batch,
                after.records,
                now_ms,
                newest,
                {} if may_stay else replaced,
                is_aborted=is_aborted,
            )
            _judge_header(batch, after, now_ms + delete_retention_ms)
            after.ended_at, after.is_aborted = batch.ended_at, batch.is_aborted
            stays.append(after)
    assert not found, "there are batches that nobody appended"
    model.batches = stays


def _judge_records(
    batch: Stored,
    kept: list[Content],
    now_ms: int,
    newest: dict[bytes | None, int],
    replaced: dict[bytes | None, int],
    *,
    is_aborted: bool,
) -> None:
    """Fail unless what is gone could go and, if anything is `replaced`, what had to go is gone."""
    assert set(kept) <= set(batch.records), "compaction changed a record"
    is_over = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
    for record in batch.records:
        offset, _, key, value = record
        if batch.header.is_control:
            assert record in kept or is_over, "a marker went too early"
            continue
        is_gone_for_good = is_aborted or (value is None and is_over)
        if record not in kept:
            assert is_gone_for_good or newest[key] > offset, "the newest of a key is lost"
        elif replaced:
            assert not is_gone_for_good, "it had to go"
            assert replaced.get(key, offset) <= offset, "there is a newer one of its key"


def _judge_header(before: Stored, after: Stored, new_horizon_ms: int) -> None:
    for name in (
        "last_offset",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "is_transactional",
        "is_control",
    ):
        assert getattr(before.header, name) == getattr(after.header, name), name
    if after.records and after.horizon_ms != before.horizon_ms:
        assert before.horizon_ms is None
        assert after.horizon_ms == new_horizon_ms


def _raw_batches(log: Log) -> dict[int, bytes]:
    return {
        header.base_offset: bytes(segment.records.read(position, header.size_bytes))
        for segment in log.reader.segments
        for position, header in segment.headers()
    }


def newest_of_keys(models: Iterable[LogModel], start: int, end: int) -> dict[bytes | None, int]:
    """Return the last offset of each key in a range, as readers of what is committed see it."""
    newest: dict[bytes | None, int] = {}
    for model in models:
        for batch in model.batches:
            if not batch.header.is_control and not batch.is_aborted:
                for offset, _, key, _ in batch.records:
                    if start <= offset < end:
                        newest[key] = max(offset, newest.get(key, 0))
    return newest


def _ensure_may_go(model: LogModel, batch: Stored) -> None:
    """The last batch of a producer says where its sequence is: its header stays."""
    sent = model.remembered.get(batch.header.producer_id)
    assert not sent or sent[-1].base_offset != batch.base_offset, "a sequence is lost"
