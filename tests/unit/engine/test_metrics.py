"""The recorder that records nothing, and that it covers the whole port."""

import inspect

from engine.metrics import NullRecorder, Recorder
from engine.types import TopicPartition

LOG = TopicPartition("events", 0)


def test_it_takes_everything_and_keeps_nothing() -> None:
    """Every event of the port can be reported, without an effect."""
    recorder = NullRecorder()
    recorder.appended(LOG, records=1, size_bytes=2)
    recorder.read(LOG, size_bytes=2)
    recorder.flushed(LOG, duration_ms=0.5)
    recorder.rolled(LOG)
    recorder.recovering(LOG, segments=3)
    recorder.recovered(LOG, scanned_bytes=1, truncated_bytes=0, damaged=False)
    recorder.records_missing(LOG, count=3)
    recorder.corrupt_data_found(LOG)
    recorder.segments_deleted(LOG, count=1, size_bytes=9)
    recorder.directory_offline("/data")
    recorder.compacted(LOG, read_bytes=9, written_bytes=3, duration_ms=1, map_utilization=0.5)
    recorder.cleaner_looked(dirty_ratio=0.5, delay_ms=0)
    recorder.uncleanable("/data", logs=1, size_bytes=9)
    recorder.cleaner_io(size_bytes=9)
    recorder.cleaner_died()
    recorder.scrubbed(LOG, size_bytes=9, damaged=0)
    recorder.moved(LOG, succeeded=True)
    assert vars(recorder) == {}


def test_it_has_the_ports_methods() -> None:
    """Names and parameters are those of `Recorder`, so that no report can fail."""
    port = {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(Recorder, inspect.isfunction)
        if not name.startswith("_")
    }
    null = {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(NullRecorder, inspect.isfunction)
        if not name.startswith("_")
    }
    assert null == port
