"""What people read when a micro-batch cannot be written."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.ingest.table_writer import LakeWriter, TableWriter
from pyspark_tidelog.lake.checkpoint import Checkpoint


class FailingTables:
    """Tables whose storage raises an error."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def check(self, records: Any) -> None:
        """Do nothing."""

    def parts(self, frame: Any, batch_id: int) -> Iterable[tuple[TableWriter, Any]]:
        raise self._error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/lake"),
            "/lake: No space left on device",
        ),
        (
            OSError("When uploading part for key 'a':\nslow down"),
            "the lake: When uploading part for key 'a': slow down",
        ),
        (TimeoutError(), "the lake: TimeoutError"),
    ],
)
def test_a_failed_write_names_its_reason(tmp_path: Path, error: OSError, sentence: str) -> None:
    """PyArrow's file systems raise OSError without a number, so without `strerror`."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{}")
    writer = LakeWriter(
        FailingTables(error), Checkpoint(str(tmp_path)), threading.Event(), threading.Event()
    )
    frame: Any = None
    with pytest.raises(JobFailed) as failed:
        writer.write(frame, 0)
    assert str(failed.value) == sentence
    assert not writer.is_writing
