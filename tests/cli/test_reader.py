"""Pages of one partition against scripted answers: ends, gaps, and what is asked for next."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from app.client.commands.read import follow, read_to_end
from app.client.connection import Connection
from app.client.failures import Unreachable
from engine.records.header import Codec
from tests.support.builders import values_of
from tests.support.server import serving
from tests.support.service import RAW

Asked = list[dict[str, str]]


def page(lines: bytes, *, next_offset: int, high_watermark: int) -> httpx.Response:
    marks = {"Log-Next-Offset": str(next_offset), "Log-High-Watermark": str(high_watermark)}
    return httpx.Response(200, content=lines, headers=marks)


def answering(asked: Asked, *answers: httpx.Response) -> Connection:
    script: Iterator[httpx.Response] = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        return next(script)

    return Connection("http://127.0.0.1", transport=httpx.MockTransport(answer))


def test_the_end_is_that_of_the_first_page() -> None:
    """What is committed while the pages are read is not part of the answer."""
    asked: Asked = []
    first = page(b"a\nb\n", next_offset=2, high_watermark=3)
    second = page(b"c\n", next_offset=3, high_watermark=50)
    with answering(asked, first, second) as connection:
        pages = list(read_to_end(connection, "t", 0, "earliest", max_records=None))
    assert [each.lines for each in pages] == [[b"a", b"b"], [b"c"]]
    assert [each["offset"] for each in asked] == ["earliest", "2"]
    assert "end_offset" not in asked[0]
    assert asked[1]["end_offset"] == "3"


def test_a_page_of_nothing_but_a_gap_is_passed_over() -> None:
    """Offsets without records (compaction, markers) cost a request and show nothing."""
    asked: Asked = []
    gap = page(b"", next_offset=9, high_watermark=10)
    last = page(b"z\n", next_offset=10, high_watermark=10)
    with answering(asked, gap, last) as connection:
        pages = list(read_to_end(connection, "t", 0, "0", max_records=None))
    assert [each.lines for each in pages] == [[b"z"]]


def test_the_count_asked_for_shrinks_with_each_page() -> None:
    """A limit is of all pages together."""
    asked: Asked = []
    first = page(b"a\nb\n", next_offset=2, high_watermark=9)
    second = page(b"c\n", next_offset=3, high_watermark=9)
    with answering(asked, first, second) as connection:
        pages = list(read_to_end(connection, "t", 0, "0", max_records=3))
    assert sum(len(each.lines) for each in pages) == 3
    assert [each["max_records"] for each in asked] == ["3", "1"]


def test_following_goes_on_over_an_empty_poll() -> None:
    """A long poll that timed out is asked again, from the same offset."""
    asked: Asked = []
    empty = page(b"", next_offset=4, high_watermark=4)
    new = page(b"n\n", next_offset=5, high_watermark=5)
    with answering(asked, empty, new) as connection:
        assert next(follow(connection, "t", 0, "latest")).lines == [b"n"]
    assert [each["offset"] for each in asked] == ["latest", "4"]
    assert {each["max_wait_ms"] for each in asked} == {"30000"}


def test_an_answer_without_marks_is_not_tidelog() -> None:
    """Another service that answers 200 is reported as such."""
    with answering([], httpx.Response(200, content=b"hello")) as connection:
        pages = read_to_end(connection, "t", 0, "0", max_records=None)
        with pytest.raises(Unreachable, match="lacks Log-Next-Offset"):
            next(pages)


def test_pages_that_end_inside_a_batch_are_read_on(tmp_path: Path) -> None:
    """A batch of 2 MB in a few KB comes in many small answers; no record is lost or repeated."""
    values = [b'{"number":%d,"text":"%b"}' % (n, b"x" * 2_000) for n in range(1_000)]
    with serving(tmp_path, max_answer_bytes=100_000) as served:
        httpx.put(f"{served.url}/v1/topics/t", json={}).raise_for_status()
        batch = bytes(values_of(values, codec=Codec.ZSTD))
        path = f"{served.url}/v1/topics/t/partitions/0/batches"
        httpx.post(path, content=batch, headers=RAW).raise_for_status()
        with Connection(served.url) as connection:
            pages = list(read_to_end(connection, "t", 0, "earliest", max_records=None))
            following = follow(connection, "t", 0, "earliest")
            followed = [next(following) for _ in pages]
    for read in (pages, followed):
        lines = [msgspec.json.decode(line) for page in read for line in page.lines]
        assert [line["offset"] for line in lines] == list(range(1_000))
        assert [line["value"]["number"] for line in lines] == list(range(1_000))
    assert len(pages) > 20
