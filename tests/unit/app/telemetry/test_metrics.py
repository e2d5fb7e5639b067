"""Metrics and logging."""

import io
import json
import logging

import pytest

from app.server.logging_setup import configure_logging
from app.telemetry.metrics import Telemetry
from engine.types import TopicPartition

LOG = TopicPartition("events", 0)


def test_everything_the_engine_reports_is_exposed() -> None:
    """Each call of the recorder shows in the text that Prometheus scrapes."""
    telemetry = Telemetry()
    telemetry.appended(LOG, records=3, size_bytes=100)
    telemetry.read(LOG, size_bytes=50)
    telemetry.flushed(LOG, duration_ms=2.0)
    telemetry.rolled(LOG)
    telemetry.recovering(LOG, segments=4)
    telemetry.recovering(LOG, segments=3)
    telemetry.recovering(TopicPartition("events", 1), segments=2)
    telemetry.recovered(LOG, scanned_bytes=10, truncated_bytes=4, damaged=True)
    telemetry.records_missing(LOG, count=3)
    telemetry.corrupt_data_found(LOG)
    telemetry.segments_deleted(LOG, count=2, size_bytes=20)
    telemetry.directory_offline("/data")
    telemetry.moved(LOG, succeeded=True)
    telemetry.moved(LOG, succeeded=False)
    telemetry.gauge("answer", "Forty-two", lambda: 42)
    lines = telemetry.exposition().decode().splitlines()
    for line in (
        'tidelog_records_in_total{topic="events"} 3.0',
        'tidelog_bytes_in_total{topic="events"} 100.0',
        'tidelog_bytes_out_total{topic="events"} 50.0',
        "tidelog_log_flush_seconds_count 1.0",
        'tidelog_log_flush_seconds_bucket{le="0.0025"} 1.0',
        "tidelog_segments_rolled_total 1.0",
        "tidelog_remaining_segments_to_recover 5.0",
        "tidelog_recovered_bytes_total 10.0",
        "tidelog_truncated_bytes_total 4.0",
        "tidelog_damaged_segments_total 1.0",
        "tidelog_missing_records_total 3.0",
        "tidelog_corrupt_reads_total 1.0",
        "tidelog_segments_deleted_total 2.0",
        "tidelog_bytes_deleted_total 20.0",
        "tidelog_offline_directories_total 1.0",
        "tidelog_moves_total 1.0",
        "tidelog_failed_moves_total 1.0",
        "tidelog_answer 42.0",
    ):
        assert line in lines


def test_what_the_cleaner_reports_is_shown_under_kafkas_names() -> None:
    """Percents and seconds of the last round and the last look; counters go on."""
    telemetry = Telemetry()
    names = ("recopy_percent", "max_dirty_percent", "max_clean_time_secs")
    before = telemetry.exposition().decode().splitlines()
    assert {f"tidelog_cleaner_{name} 0.0" for name in names} <= set(before)
    for read_bytes, written_bytes in ((200, 100), (200, 50), (0, 0)):
        telemetry.compacted(
            LOG,
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            duration_ms=1500,
            map_utilization=0.25,
        )
        shown = telemetry.exposition().decode().splitlines()
        percent = 100 * written_bytes / (read_bytes or 1)
        assert f"tidelog_cleaner_recopy_percent {percent}" in shown
    telemetry.cleaner_looked(dirty_ratio=0.75, delay_ms=2500)
    telemetry.uncleanable("/data", logs=2, size_bytes=300)
    telemetry.cleaner_io(size_bytes=70)
    telemetry.cleaner_io(size_bytes=7)
    telemetry.cleaner_died()
    lines = telemetry.exposition().decode().splitlines()
    for line in (
        "tidelog_compactions_total 3.0",
        "tidelog_cleaner_max_clean_time_secs 1.5",
        "tidelog_cleaner_max_buffer_utilization_percent 25.0",
        "tidelog_cleaner_max_dirty_percent 75.0",
        "tidelog_cleaner_max_compaction_delay_secs 2.5",
        'tidelog_cleaner_uncleanable_partitions_count{log_directory="/data"} 2.0',
        'tidelog_cleaner_uncleanable_bytes{log_directory="/data"} 300.0',
        "tidelog_cleaner_io_bytes_total 77.0",
        "tidelog_cleaner_dead_threads_total 1.0",
    ):
        assert line in lines
    idle = next(line for line in lines if line.startswith("tidelog_cleaner_time_since_last_run_ms"))
    assert 0 <= float(idle.split()[1]) < 60_000


@pytest.mark.usefixtures("root_logger")
def test_no_level_shows_the_requests_of_aiokafka() -> None:
    """Those that authenticate have a password."""
    configure_logging("debug", io.StringIO())
    assert not logging.getLogger("aiokafka.conn").isEnabledFor(logging.DEBUG)


def test_a_log_line_is_one_json_object(root_logger: logging.Logger) -> None:
    """Message, level and what was given as extra are members; an exception keeps its stack."""
    stream = io.StringIO()
    configure_logging("info", stream)
    logging.getLogger("x").debug("not shown")
    logging.getLogger("httpx").info("GET what nobody asked about")
    logging.getLogger("x").info("hello %s", "wörld", extra={"topic": "events"})
    try:
        raise ValueError("broken")  # noqa: TRY301  # what is logged below
    except ValueError:
        logging.getLogger("x").exception("failed")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["message"], first["level"], first["topic"]) == ("hello wörld", "info", "events")
    assert "wörld" in stream.getvalue(), "people read it, too"
    assert "ValueError: broken" in second["exception"]
