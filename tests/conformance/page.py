"""Write docs/conformance.md: every row with the tests that prove it, or why there is none.

python -m tests.conformance.page
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.conformance.rows import CHECKOUT, Matrix, NamingTest, Row, load_matrix

PAGE = CHECKOUT / "docs" / "conformance.md"

INTRODUCTION = """\
# What Kafka's tests check, and which test here checks it

Written by `make conformance` from `tests/conformance/rows.toml` and the docstrings of the tests: a
test ends its docstring with the names of the rows that it proves. `tests/conformance/test_page.py`
fails if a row has neither a test nor a reason, if a docstring names a row that does not exist, or
if this page is not current.

The rows are the tests of Apache Kafka's log layer, of its 4.0 development line. Tests of Kafka that
check one behaviour share a row; a behaviour that concerns two parts of the log has a row in both.
The files of a real broker under `tests/golden` are of 4.3. Where the two versions differ, 4.3
applies:

| | 4.0 in development | 4.3, and here |
| --- | --- | --- |
| `message.timestamp.after.max.ms` | no limit | one hour |
| `message.timestamp.difference.max.ms` | deprecated | an unknown name |
| `message.format.version` | deprecated | an unknown name |
| `message.downconversion.enable` | for old clients | an unknown name |
| appends in the formats 0 and 1 | converted | refused |
| `segment.bytes` | at least 14 | a mebibyte over HTTP (`min_segment_bytes`), else 14 |
"""

PREFIXES = {
    "BI": "ByteBufferLogInputStreamTest",
    "BU": "ByteUtilsTest",
    "CC": "LogConcurrencyTest",
    "CL": "LogCleanerTest",
    "CM": "LogCleanerManagerTest",
    "CP": "tests of checkpoints, markers and metadata files",
    "DB": "DefaultRecordBatchTest",
    "DL": "DumpLogSegmentsTest",
    "DR": "DefaultRecordTest",
    "FI": "FileLogInputStreamTest",
    "FR": "FileRecordsTest",
    "LC": "LogConfigTest",
    "LEC": "LeaderEpochFileCacheTest",
    "LL": "LogLoaderTest",
    "LM": "LogManagerTest",
    "LO": "LocalLogTest",
    "LV": "LogValidatorTest",
    "MAP": "OffsetMapTest",
    "MB": "MemoryRecordsBuilderTest",
    "MR": "MemoryRecordsTest",
    "OI": "OffsetIndexTest",
    "OM": "LogOffsetMetadataTest",
    "PSM": "ProducerStateManagerTest",
    "RM": "ReplicaManagerTest",
    "SEG": "LogSegmentTest",
    "SGS": "LogSegmentsTest",
    "TI": "TimeIndexTest",
    "TX": "TransactionIndexTest",
    "UL": "UnifiedLogTest",
}


def render(matrix: Matrix) -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *_prefixes(), *_sections(matrix)])


def _prefixes() -> Iterator[str]:
    named = ", ".join(f"{prefix} {name}" for prefix, name in PREFIXES.items())
    yield f"Names before the dot: {named}."
    yield ""


def _sections(matrix: Matrix) -> Iterator[str]:
    rows = [row for section in matrix.sections for row in section.rows]
    tested = sum(1 for row in rows if matrix.tests_of(row))
    yield f"{len(rows)} rows, {tested} with a test, {len(rows) - tested} with a reason."
    for section in matrix.sections:
        yield ""
        yield f"## {section.title}"
        yield ""
        yield "| Kafka's tests | Behaviour | Here |"
        yield "| --- | --- | --- |"
        for row in section.rows:
            yield _line(row, matrix.tests_of(row))


def _line(row: Row, tests: list[NamingTest]) -> str:
    behaviour = row.says if row.note is None else f"{row.says} *{row.note}*"
    here = "<br>".join(f"[{test.function}](../{test.path})" for test in tests)
    if not tests:
        here = f"No test: {row.reason}"
    return f"| {', '.join(row.names)} | {behaviour} | {here} |"


def main() -> int:
    """Write the page and name what is wrong with the rows, if anything is."""
    matrix = load_matrix()
    PAGE.write_text(render(matrix), encoding="utf-8")
    faults = list(matrix.faults())
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
