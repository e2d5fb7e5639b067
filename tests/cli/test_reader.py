"""Pages of one partition against scripted answers: ends, gaps, and what is asked for next."""

from collections.abc import Iterator

import httpx
import pytest

from app.client.connection import Connection
from app.client.failures import Unreachable
from app.client.reader import follow, read_to_end

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
    """Something else that answers 200 is told as such."""
    with answering([], httpx.Response(200, content=b"hello")) as connection:
        pages = read_to_end(connection, "t", 0, "0", max_records=None)
        with pytest.raises(Unreachable, match="lacks Log-Next-Offset"):
            next(pages)
