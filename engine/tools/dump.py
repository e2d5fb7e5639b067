"""Dumps the files of a log, like Kafka's `kafka-dump-log --deep-iteration`.

It is read-only and does not depend on other files being valid: a fault becomes an entry, and the
dump continues after it if possible. `entries.render` formats an entry like Kafka's tool; programs
use its names and values.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import CorruptIndex, CorruptSnapshot
from engine.fs import names
from engine.fs.port import FileSystem
from engine.index.transaction import TransactionIndex
from engine.state.producer_entry import ProducerEntry
from engine.state.producer_snapshot import decode_snapshot
from engine.tools.dump_index import dump_offset_index, dump_time_index
from engine.tools.dump_log import dump_log
from engine.tools.entries import Dump, Entry, Value, problem


def dump_file(
    fs: FileSystem, path: Path, *, deep: bool = True, max_bytes: int | None = None
) -> Dump:
    """Yield the entries of one file, by its suffix; `deep` adds the records of batches.

    With `max_bytes`, only the whole batches within that many bytes of a `.log` file. Indexes are
    compared with their `.log` file, which must exist. An unknown file is a problem entry; an
    unreadable file is an OSError.
    """
    base_offset = names.base_offset_of(path.name)
    if base_offset is None or path.suffix not in _KNOWN_SUFFIXES:
        yield problem(f"Ignoring unknown file {path}", file=str(path))
        return
    yield Entry("file", {"path": str(path)})
    match path.suffix:
        case names.LOG_SUFFIX:
            yield from dump_log(fs, path, base_offset, deep=deep, max_bytes=max_bytes)
        case names.INDEX_SUFFIX:
            yield from dump_offset_index(fs, path, base_offset)
        case names.TIME_INDEX_SUFFIX:
            yield from dump_time_index(fs, path, base_offset)
        case names.TXN_INDEX_SUFFIX:
            yield from _dump_transaction_index(fs, path, base_offset)
        case _:
            yield from _dump_snapshot(fs, path)


_KNOWN_SUFFIXES = frozenset({names.LOG_SUFFIX, *names.INDEX_SUFFIXES, names.SNAPSHOT_SUFFIX})


def _dump_transaction_index(fs: FileSystem, path: Path, base_offset: int) -> Dump:
    index = TransactionIndex(fs, path, base_offset, read_only=True)
    try:
        for aborted in index.entries():
            yield Entry(
                "transaction",
                {
                    "version": 0,
                    "producerId": aborted.producer_id,
                    "firstOffset": aborted.first_offset,
                    "lastOffset": aborted.last_offset,
                    "lastStableOffset": aborted.last_stable_offset,
                },
            )
    except CorruptIndex as error:
        yield problem(f"{path}: {error}", file=str(path))
    finally:
        index.close()


def _dump_snapshot(fs: FileSystem, path: Path) -> Dump:
    try:
        producers = decode_snapshot(fs.read_bytes(path), loaded_ms=0)
    except CorruptSnapshot as error:
        yield problem(f"{path}: {error}", file=str(path))
        return
    for producer in producers:
        yield Entry("producer", _producer_fields(producer))


def _producer_fields(producer: ProducerEntry) -> dict[str, Value]:
    fields: dict[str, Value] = {
        "producerId": producer.producer_id,
        "producerEpoch": producer.producer_epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "currentTxnFirstOffset": producer.transaction_first_offset,
        "lastTimestamp": producer.last_timestamp,
    }
    for batch in producer.batches:  # a snapshot has at most one
        fields |= {
            "firstSequence": batch.first_sequence,
            "lastSequence": batch.last_sequence,
            "lastOffset": batch.last_offset,
            "offsetDelta": batch.offset_delta,
            "timestamp": batch.timestamp,
        }
    return fields
