"""Every read operation beside whatever changes a log: each answer was true at one moment.

A failure prints its seed, which plays it again, the question, and the lines of `app` at which the
log changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.interleavings.faults import Edit, Fault, put_back
from tests.interleavings.service.questions import MAKERS
from tests.support.campaign import CHECKOUT, ensure_clean, played, seed_of_today

PROGRAM = "tests.interleavings.service"
FIXED = 150
FRESH_FROM = 1_000_000
FRESH_PER_DAY = 75
LONG_FROM = 100_000_000
LONG_RUNS = 20_000
MOST_RUNS = 4_500
OTHERS = {
    "listTopics",
    "getAppendOutcome",
    "getMove",
    "getTopicRestore",
    "listGroups",
    "listGroupOffsets",
    "getGroupOffset",
    "listMoves",
    "listLeases",
    "getValueSchema",
}
"""What reads no offsets of a log."""

FAULTS = (
    Fault(
        "a read that names a log is answered with the records of the next one",
        (
            Edit(
                "app/operations/read/fetch.py",
                "if log_id is not None and log_id != partition.log_id_at(fetched.leader_epoch):",
                "if False:",
            ),
        ),
        ("readRecords", "readBatches", "fetchMany"),
        1,
    ),
    Fault(
        "a link names the log of a later moment than the records",
        (
            Edit(
                "app/codecs/receipts.py",
                "        log_id = partition.log_id_at(fetched.leader_epoch).encode()\n",
                "        log_id = partition.log_id.encode()\n",
            ),
        ),
        ("readRecords", "readBatches", "fetchMany"),
        1,
    ),
    Fault(
        "equal tags mean other bytes once the log was compacted in between",
        (
            Edit(
                "app/store/local/partition.py",
                "return self.log.reader.content_version(start_offset, end_offset, segments)",
                'return "0"',
            ),
        ),
        ("readRecords", "readBatches"),
        1,
    ),
    Fault(
        "segments are listed with the offsets of an earlier moment",
        (
            Edit(
                "app/operations/maintenance.py",
                "    marks, segments = await partition.maintenance.listing()\n",
                "    marks = partition.watermarks\n"
                "    _, segments = await partition.maintenance.listing()\n",
            ),
        ),
        ("listSegments",),
        1,
    ),
)
"""Faults that the service once had."""


def test_every_answer_is_of_one_moment() -> None:
    """Truncation, re-creation, configuration, retention and compaction at any line of a read."""
    ensure_clean(PROGRAM, 1, FIXED)


def test_every_answer_is_of_one_moment_today() -> None:
    """The same, with new plays each day."""
    ensure_clean(PROGRAM, seed_of_today(FRESH_FROM, FRESH_PER_DAY), FRESH_PER_DAY)


@pytest.mark.long
def test_every_answer_is_of_one_moment_for_long() -> None:
    """The same, in twenty thousand plays."""
    ensure_clean(PROGRAM, LONG_FROM, LONG_RUNS)


@pytest.mark.parametrize(
    "fault",
    [FAULTS[0], *(pytest.param(fault, marks=pytest.mark.long) for fault in FAULTS[1:])],
    ids=lambda fault: fault.name,
)
def test_a_fault_of_the_service_is_found_again(fault: Fault, tmp_path: Path) -> None:
    """The plays find each fault that the service once had."""
    put_back(fault, tmp_path)
    works, first = ",".join(fault.works), str(fault.seed)
    options = ("--works", works, "--seed", first, "--runs", str(MOST_RUNS))
    told = played(PROGRAM, *options, folder=tmp_path)
    assert "1 failed" in told, told
    assert "again: make interleavings OF=service SEED=" in told


def test_no_operation_that_reads_a_partition_is_left_out() -> None:
    """Whatever the document has is asked, or has nothing to say of a log's offsets."""
    document = json.loads((CHECKOUT / "openapi/openapi.json").read_text(encoding="utf-8"))
    reads = {
        operation["operationId"]
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method == "get" and ("{topic}" in path or "{group}" in path) and "ingest" not in path
    }
    asked = {make(Random(1), "t", "id.0", 1).operation for make in MAKERS}
    rest = {"kafkaRestGetTopic", "kafkaRestListPartitions"}
    assert reads - OTHERS - rest <= asked, reads - OTHERS - rest - asked
    assert not OTHERS & asked
