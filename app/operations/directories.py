"""Data directories: their contents, moves of partitions, the scrub report."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from app.codecs.receipts import log_answer, to_json
from app.http.answers import Answer, json_answer
from app.operations.service import Service, local_store
from app.store.local.partition import LocalPartition
from engine.background.mover import MoveReport, MoveState
from engine.background.scrubber import ScrubReport

_NO_SEARCH_YET: Final = ScrubReport(
    start_ms=-1, end_ms=-1, checked_bytes=0, damaged_count=0, damage=()
)


async def list_directories(service: Service) -> Answer:
    """Return all data directories with their contents."""
    store = local_store(service.store)
    shown = [
        {
            "path": str(one.path),
            "status": "online" if one.problem is None else "offline",
            "detail": None if one.problem is None else store.shown(one.problem),
            "partitions": one.partitions,
            "size_bytes": one.size_bytes,
            "total_bytes": one.space and one.space.total_bytes,
            "free_bytes": one.space and one.space.free_bytes,
        }
        for one in await store.topics.directories()
    ]
    return json_answer(to_json({"directories": shown}))


async def list_moves(service: Service) -> Answer:
    """Return the moves of partitions since the start, the newest first."""
    store = local_store(service.store)
    shown = [
        {
            "topic": report.log.topic,
            "partition": report.log.partition,
            "source": str(report.source),
            "target": str(report.target),
            "state": report.state.value,
            "first_offset": report.first_offset,
            "copied_offset": report.copied_offset,
            "end_offset": report.end_offset,
            "problem": None if report.problem is None else store.shown(report.problem),
        }
        for report in reversed(await store.topics.moves())
    ]
    return json_answer(to_json({"moves": shown}))


def get_scrub_report(service: Service) -> Answer:
    """Return the report of the last complete scrub."""
    store = local_store(service.store)
    report = store.topics.scrub_report or _NO_SEARCH_YET
    body = {
        "interval_ms": service.settings.scrub_interval_ms,
        "start_timestamp": report.start_ms,
        "end_timestamp": report.end_ms,
        "checked_bytes": report.checked_bytes,
        "damaged_count": report.damaged_count,
        "damage": [
            {
                "topic": one.log.topic,
                "partition": one.log.partition,
                "file": Path(one.file).name,
                "position": one.position,
                "offset": one.offset,
                "problem": store.shown(one.problem),
            }
            for one in report.damage
        ],
    }
    return json_answer(to_json(body))


async def move_partition(service: Service, partition: LocalPartition, directory: str) -> Answer:
    """Move a partition to another data directory: 202, or 200 if it is already there.

    Raises as `PartitionMover.start`.
    """
    report = await partition.maintenance.move_to(Path(directory))
    status = 200 if report.state is MoveState.DONE else 202
    return log_answer(partition, _described(service, partition, report), status=status)


async def get_move(service: Service, partition: LocalPartition) -> Answer:
    """Return a partition's directory and the state of its last move."""
    report = await partition.maintenance.last_move()
    return log_answer(partition, _described(service, partition, report))


def _described(
    service: Service, partition: LocalPartition, report: MoveReport | None
) -> dict[str, object]:
    problem = None if report is None else report.problem
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "directory": str(partition.maintenance.directory),
        "state": "idle" if report is None else report.state.value,
        "target": None if report is None else str(report.target),
        "first_offset": -1 if report is None else report.first_offset,
        "copied_offset": -1 if report is None else report.copied_offset,
        "end_offset": -1 if report is None else report.end_offset,
        "problem": None if problem is None else local_store(service.store).shown(problem),
    }
