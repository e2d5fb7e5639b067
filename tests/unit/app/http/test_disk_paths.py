"""No problem shows where the server keeps its files."""

from pathlib import Path

import pytest

from app.disk_paths import without_directories
from app.http.problems import problem_members
from engine.errors import (
    CorruptCheckpoint,
    CorruptIndex,
    EngineError,
    SegmentOverflow,
    StorageFull,
    StorageOffline,
    StoredDataCorrupt,
)

ROOT = "/srv/disks/a"
LOG = f"{ROOT}/my-events-3/00000000000000000000.log"
CAUSE = f"[Errno 5] Input/output error: '{LOG}'"
OFFLINE = (
    "a data directory is offline until restart: [Errno 5] Input/output error: "
    "'my-events-3/00000000000000000000.log'"
)
OF_LOG = {"topic": "my-events", "partition": 3}


@pytest.mark.parametrize(
    ("error", "detail", "facts"),
    [
        (
            StoredDataCorrupt(f"{LOG}, byte 7: bad", file=Path(LOG), position=7, offset=2),
            "my-events-3/00000000000000000000.log, byte 7: bad",
            {"file": "00000000000000000000.log", "position": 7, "offset": 2, **OF_LOG},
        ),
        (
            CorruptIndex(f"{LOG} is bad", file=LOG),
            "my-events-3/00000000000000000000.log is bad",
            {"file": "00000000000000000000.log", **OF_LOG},
        ),
        (
            SegmentOverflow("too far", segment=LOG, offset=9),
            "too far",
            {"segment": "00000000000000000000.log", "offset": 9, **OF_LOG},
        ),
        (
            CorruptCheckpoint(
                f"{ROOT}/cleaner-checkpoint is bad", file=f"{ROOT}/cleaner-checkpoint"
            ),
            "a/cleaner-checkpoint is bad",
            {"file": "cleaner-checkpoint"},
        ),
        (
            StorageOffline(f"{ROOT} is offline until restart: {CAUSE}", directory=ROOT),
            OFFLINE,
            {},
        ),
        (
            StorageFull(f"no space left under {ROOT}", directory=ROOT),
            "no space left under a data directory",
            {},
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, EngineError) else "",
)
def test_a_problem_names_the_log_and_the_file_alone(
    error: EngineError, detail: str, facts: dict[str, object]
) -> None:
    """Topic, partition and file name, in members and in the sentence."""
    members = problem_members(error)
    assert members["detail"] == detail
    assert facts.items() <= members.items()
    assert "/srv" not in str(members)


@pytest.mark.parametrize(
    ("report", "shown"),
    [
        ("/data/events-0/x.log is damaged", "events-0/x.log is damaged"),
        ("/data/more/events-0 is there", "events-0 is there"),
        ("/data is offline", "a data directory is offline"),
        ("/data2/x and data are not ours", "/data2/x and data are not ours"),
        ("/my/data/x is not ours", "/my/data/x is not ours"),
        ("here/events-0/x.log, here", "events-0/x.log, here"),
    ],
)
def test_a_report_has_paths_within_the_data_directories(report: str, shown: str) -> None:
    """Of each directory, also of one inside another; words and other paths stay."""
    assert without_directories(report, map(Path, ("/data", "/data/more", "here"))) == shown
