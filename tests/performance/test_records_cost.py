"""What records in JSON may cost on their way into a batch: calls are counted, time is not."""

from app.codecs.records_in import read_records
from engine.config import LogConfig
from engine.records.builder import build_batch
from tests.support.counting import counted

CONFIG = LogConfig()


def calls_for(records_count: int) -> int:
    """How many functions written in Python run until so many records of a body are a batch."""
    body = b"\n".join(b'{"key":"k%d","value":{"n":%d}}' % (n % 9, n) for n in range(records_count))
    with counted() as calls:
        made = read_records(body, is_ndjson=True, max_records=10_000, now_ms=1, config=CONFIG)
        build_batch(made)
    return calls.count


def test_no_function_runs_for_a_record_of_usual_form() -> None:
    """Ten times as many records are decoded, judged and encoded by as many calls."""
    assert calls_for(200) == calls_for(2_000) > 0
