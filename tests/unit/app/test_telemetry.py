"""Metrics and logging."""

import io
import json
import logging

from app.logging_setup import configure_logging
from app.telemetry import Telemetry
from engine.types import TopicPartition

LOG = TopicPartition("events", 0)


def test_everything_the_engine_reports_is_exposed() -> None:
    """Each call of the recorder shows in the text that Prometheus scrapes."""
    telemetry = Telemetry()
    telemetry.appended(LOG, records=3, size_bytes=100)
    telemetry.read(LOG, size_bytes=50)
    telemetry.flushed(LOG, duration_ms=2.0)
    telemetry.rolled(LOG)
    telemetry.recovered(LOG, scanned_bytes=10, truncated_bytes=4, damaged=True)
    telemetry.corrupt_data_found(LOG)
    telemetry.segments_deleted(LOG, count=2, size_bytes=20)
    telemetry.directory_offline("/data")
    telemetry.gauge("answer", "Forty-two", lambda: 42)
    lines = telemetry.exposition().decode().splitlines()
    for line in (
        'tidelog_records_in_total{topic="events"} 3.0',
        'tidelog_bytes_in_total{topic="events"} 100.0',
        'tidelog_bytes_out_total{topic="events"} 50.0',
        "tidelog_log_flush_seconds_count 1.0",
        'tidelog_log_flush_seconds_bucket{le="0.0025"} 1.0',
        "tidelog_segments_rolled_total 1.0",
        "tidelog_recovered_bytes_total 10.0",
        "tidelog_truncated_bytes_total 4.0",
        "tidelog_damaged_segments_total 1.0",
        "tidelog_corrupt_reads_total 1.0",
        "tidelog_segments_deleted_total 2.0",
        "tidelog_bytes_deleted_total 20.0",
        "tidelog_offline_directories_total 1.0",
        "tidelog_answer 42.0",
    ):
        assert line in lines


def test_a_log_line_is_one_json_object(root_logger: logging.Logger) -> None:
    """Message, level and what was given as extra are members; an exception keeps its stack."""
    stream = io.StringIO()
    configure_logging("info", stream)
    logging.getLogger("x").debug("not shown")
    logging.getLogger("x").info("hello %s", "world", extra={"topic": "events"})
    try:
        raise ValueError("broken")  # noqa: TRY301  # what is logged below
    except ValueError:
        logging.getLogger("x").exception("failed")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["message"], first["level"], first["topic"]) == ("hello world", "info", "events")
    assert "ValueError: broken" in second["exception"]
