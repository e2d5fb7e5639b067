"""Reads over HTTP: protocol rules R1 to R12."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from anyio.lowlevel import checkpoint

from engine.records.builder import build_batch
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin
from tests.support.service import BATCHES, OFFSETS, RAW, RECORDS, Api, running

pytestmark = pytest.mark.anyio


def values(answer: httpx.Response) -> list[object]:
    return [record["value"] for record in answer.json()["records"]]


def as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


async def test_a_read_starts_inside_a_batch(api: Api) -> None:
    """`records` skips what is before the offset, `batches` does not and says so (R3)."""
    await api.append(0, 1, 2, 3)
    records = await api.client.get(RECORDS, params={"offset": 2})
    assert values(records) == [2, 3]
    assert records.json()["next_offset"] == 4
    batches = await api.client.get(BATCHES, params={"offset": 2})
    assert batches.headers["log-first-offset"] == "0"
    assert batches.headers["log-next-offset"] == "4"


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", [0, 1, 2, 3, 4, 5]),
        ("offset=earliest", [0, 1, 2, 3, 4, 5]),
        ("offset=latest", []),
        ("offset=4", [4, 5]),
        ("offset=1&end_offset=3", [1, 2]),
        ("offset=1&end_offset=2", [1]),
        ("offset=3&end_offset=3", []),
        ("offset=1&max_records=2", [1, 2]),
        ("max_bytes=0", [0, 1]),
        ("max_bytes=1000000000000", [0, 1, 2, 3, 4, 5]),
        ("isolation=read_committed", [0, 1, 2, 3, 4, 5]),
        ("offset=ts:0", [0, 1, 2, 3, 4, 5]),
        ("offset=ts:9000000000000", []),
        ("offset=99&on_out_of_range=earliest", [0, 1, 2, 3, 4, 5]),
        ("offset=99&on_out_of_range=latest", []),
    ],
)
async def test_parameters_bound_a_read(api: Api, query: str, shown: list[int]) -> None:
    """Start, end and budgets select exactly the records they name; one batch always comes (R2)."""
    for pair in ((0, 1), (2, 3), (4, 5)):
        await api.append(*pair)
    assert values(await api.client.get(f"{RECORDS}?{query}")) == shown


async def test_pages_follow_their_links_to_the_end(api: Api) -> None:
    """Following rel=next returns every record once, with the same parameters, and then nothing.

    As (R4) says.
    """
    await api.append(*range(25))
    url, seen = f"{RECORDS}?offset=0&max_records=7", []
    while page := values(answer := await api.client.get(url)):
        seen += page
        url = answer.links["next"]["url"]
        assert "max_records=7" in url
    assert seen == list(range(25))


async def test_ndjson_has_one_record_a_line(api: Api) -> None:
    """Line breaks inside stored JSON do not break lines; next_offset is in the headers (R8)."""
    spread = b'{"records":[{"key":"k","value":[1,\n2]}]}'
    await api.client.post(RECORDS, content=spread, headers={"content-type": "application/json"})
    await api.append(3)
    answer = await api.client.get(RECORDS, headers={"accept": "application/x-ndjson"})
    lines = answer.text.splitlines()
    assert [json.loads(line)["value"] for line in lines] == [[1, 2], 3]
    assert answer.headers["log-next-offset"] == "2"
    assert answer.headers["content-type"] == "application/x-ndjson"


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("*/*", 200),
        ("application/*", 200),
        ("text/html, application/json;q=0.5", 200),
        ("application/x-ndjson;q=0.9, application/json;q=x", 200),
        ("text/html", 406),
        ("application/json;q=0", 406),
    ],
)
async def test_what_cannot_be_made_is_not_acceptable(api: Api, accept: str, status: int) -> None:
    """406 lists what can be made."""
    answer = await api.client.get(RECORDS, headers={"accept": accept})
    assert answer.status_code == status
    if status == 406:
        assert answer.json()["accepted"] == [
            "application/json",
            "application/x-ndjson",
            "application/vnd.apache.arrow.stream",
        ]
    batches = await api.client.get(BATCHES, headers={"accept": "text/plain"})
    assert batches.status_code == 406


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("json", [("json", '{"a":1}'), ("utf8", "text"), ("base64", "/w==")]),
        ("utf8", [("utf8", '{"a":1}'), ("utf8", "text"), ("base64", "/w==")]),
        ("base64", [("base64", "eyJhIjoxfQ=="), ("base64", "dGV4dA=="), ("base64", "/w==")]),
    ],
)
async def test_a_field_falls_back_on_its_own(
    api: Api, encoding: str, shown: list[tuple[str, str]]
) -> None:
    """A field that does not fit the preferred encoding uses the next, and names it (R6)."""
    stored = [b'{"a":1}', b"text", b"\xff"]
    batch = build_batch([(1, value, value, ()) for value in stored])
    await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    read = (await api.client.get(RECORDS, params={"encoding": encoding})).json()["records"]
    for field in ("key", "value"):
        made = [(record[f"{field}_encoding"], as_text(record[field])) for record in read]
        assert made == shown


async def test_offsets_can_be_text(api: Api) -> None:
    """With offsets=string browsers lose no digit."""
    await api.append(1)
    page = (await api.client.get(RECORDS, params={"offsets": "string"})).json()
    assert (page["records"][0]["offset"], page["next_offset"]) == ("0", "1")
    assert page["high_watermark"] == "1"


async def test_an_offset_that_is_gone_is_410(api: Api) -> None:
    """Below the log start: 410 with all offsets, so that a reader knows where to continue."""
    await api.append(0, 1, 2)
    await api.client.post(
        "/v1/topics/events/partitions/0/delete-records", json={"before_offset": 2}
    )
    for path in (RECORDS, BATCHES):
        answer = await api.client.get(path, params={"offset": 0})
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (410, "offset_below_log_start")
        assert (problem["kafka_error_code"], problem["retryable"]) == (1, False)
        assert (problem["log_start_offset"], problem["log_end_offset"]) == (2, 3)
    assert values(await api.client.get(RECORDS)) == [2]


async def test_an_offset_that_is_not_there_yet_is_416(api: Api) -> None:
    """Beyond the log end: not yet, worth another try; the log end itself is an empty read."""
    await api.append(0)
    answer = await api.client.get(RECORDS, params={"offset": 2})
    assert (answer.status_code, answer.json()["code"]) == (416, "offset_beyond_log_end")
    assert answer.json()["retryable"] is True
    assert values(await api.client.get(RECORDS, params={"offset": 1})) == []


async def test_control_batches_are_passed_over(api: Api) -> None:
    """A marker is not returned; next_offset advances past it."""
    batch = build_batch(
        [(1, None, b"1", ())],
        base_sequence=0,
        is_transactional=True,
        producer_id=5,
        producer_epoch=0,
    )
    await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    marker = build_end_marker(
        ControlType.COMMIT, timestamp=2, coordinator_epoch=0, producer_id=5, producer_epoch=0
    )

    api.log().append(marker, origin=AppendOrigin.COORDINATOR)
    api.log().durability.commit()
    page = await api.client.get(RECORDS)
    assert values(page) == [1]
    assert page.json()["next_offset"] == 2


async def test_a_long_poll_is_woken_by_the_commit(api: Api) -> None:
    """A reader at the end gets the record as soon as it is on disk, long before its time is up."""
    waiting = asyncio.create_task(
        api.client.get(RECORDS, params={"offset": 0, "max_wait_ms": 60_000})
    )
    while not api.service.tail.waiting:
        await checkpoint()
    await api.append("new")
    answer = await asyncio.wait_for(waiting, 30)
    assert values(answer) == ["new"]
    assert api.service.admission.waiting_readers == 0


async def test_a_long_poll_that_is_cancelled_gives_its_place_back(api: Api) -> None:
    """A stopping server cancels the waiting polls: nothing stays counted for them."""
    waiting = asyncio.create_task(
        api.client.get(RECORDS, params={"offset": 0, "max_wait_ms": 60_000})
    )
    while not api.service.tail.waiting:
        await checkpoint()
    admission = api.service.admission
    assert (admission.requests, admission.waiting_readers) == (0, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (admission.requests, admission.waiting_readers) == (0, 0)


async def test_a_long_poll_ends_empty_at_its_time(api: Api) -> None:
    """Without records: 200 and empty, and the reader may poll again."""
    answer = await api.client.get(RECORDS, params={"offset": 0, "max_wait_ms": 20})
    assert (answer.status_code, values(answer)) == (200, [])


async def test_a_long_poll_waits_for_enough_bytes(api: Api) -> None:
    """min_bytes counts stored bytes: one small batch does not end the wait, two do (R9)."""
    waiting = asyncio.create_task(
        api.client.get(RECORDS, params={"offset": 0, "max_wait_ms": 60_000, "min_bytes": 100})
    )
    while not api.service.tail.waiting:
        await checkpoint()
    await api.append(1)
    while not api.service.tail.waiting:
        await checkpoint()
    assert not waiting.done()
    await api.append(2)
    assert values(await asyncio.wait_for(waiting, 30)) == [1, 2]


async def test_what_is_not_cached_is_read_by_a_worker(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that would touch the disk on the event loop is done again elsewhere."""
    await api.append(1)
    log = api.log()
    real = log.reader.read

    def cold(*arguments: object, cached_only: bool = False, **options: object) -> object:
        if cached_only:
            return None
        return real(*arguments, **options)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(log.reader, "read", cold)
    assert values(await api.client.get(RECORDS)) == [1]


async def test_draining_ends_long_polls(api: Api) -> None:
    """When the service stops, a reader that waits is answered at once with what there is."""
    waiting = asyncio.create_task(
        api.client.get(RECORDS, params={"offset": 0, "max_wait_ms": 60_000})
    )
    while not api.service.tail.waiting:
        await checkpoint()
    api.service.drain()
    answer = await asyncio.wait_for(waiting, 30)
    assert (answer.status_code, values(answer)) == (200, [])


async def test_what_can_never_change_may_be_kept_forever(api: Api) -> None:
    """With a log_id and a bound that ended it, a page is immutable and a 304 needs no data."""
    await api.append(0, 1, 2)
    log_id = api.log().reader.log_id
    bounded = f"?offset=0&end_offset=2&log_id={log_id}"
    for path in (RECORDS, BATCHES):
        answer = await api.client.get(path + bounded)
        assert "immutable" in answer.headers["cache-control"]
        tag = {"if-none-match": answer.headers["etag"]}
        again = await api.client.get(path + bounded, headers=tag)
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "query",
    [
        "offset=0&end_offset=2",  # no log_id
        "offset=0&log_id={id}",  # ended because data ran out
        "offset=earliest&end_offset=2&log_id={id}",  # no number
        "offset=0&end_offset=2&log_id={id}&explain=1",
        "offset=0&end_offset=2&log_id={id}&on_out_of_range=earliest",
    ],
)
async def test_whatever_may_change_is_never_kept(api: Api, query: str) -> None:
    """Responses at the end of the log, or without a log id in the URL, have no-store and no tag."""
    await api.append(0, 1, 2)
    answer = await api.client.get(f"{RECORDS}?{query}".replace("{id}", api.log().reader.log_id))
    assert answer.headers["cache-control"] == "no-store"
    assert "etag" not in answer.headers


async def test_a_compacted_topic_is_never_kept(api: Api) -> None:
    """Compaction takes records away below any bound."""
    await api.create("compacted", cleanup_policy="compact")
    path = "/v1/topics/compacted/partitions/0/records"
    await api.append(0, 1, path=path, key="k")
    log_id = api.log("compacted").reader.log_id
    answer = await api.client.get(
        path, params={"offset": 0, "end_offset": 1, "isolation": "read_committed", "log_id": log_id}
    )
    assert answer.headers["cache-control"] == "no-store"


async def test_another_log_under_the_same_name_is_told(api: Api) -> None:
    """A log_id of a topic that was made again is 409 with the present one (R10)."""
    answer = await api.client.get(RECORDS, params={"log_id": "AAAAAAAAAAAAAAAAAAAAAA.0"})
    assert (answer.status_code, answer.json()["code"]) == (409, "log_replaced")
    assert answer.json()["log_id"] == api.log().reader.log_id


async def test_a_read_explains_itself(api: Api) -> None:
    """explain=true returns the segment, the index entry and why the response ended; 1 is true."""
    await api.append(0)
    answer = await api.client.get(BATCHES, params={"explain": "true"})
    assert "log-explain" not in (await api.client.get(f"{BATCHES}?explain=false")).headers
    assert "segment_base_offset=0" in answer.headers["log-explain"]
    assert "ended_by=log_bound" in answer.headers["log-explain"]
    empty = await api.client.get(BATCHES, params={"explain": "1", "offset": 1})
    assert empty.headers["log-explain"] == "ended_by=log_bound"


@pytest.mark.parametrize(
    ("bound", "reason"),
    [({"max_records": 1}, "max_records"), ({"end_offset": 1}, "end_offset"), ({}, "log_bound")],
)
async def test_a_page_says_what_kept_records_out_of_it(
    api: Api, bound: dict[str, int], reason: str
) -> None:
    """Inside a batch the reason is the page, not the log."""
    await api.append(0, 1)
    answer = await api.client.get(RECORDS, params={"offset": 0, "explain": "1", **bound})
    assert answer.headers["log-explain"].endswith(f"ended_by={reason}")


@pytest.mark.parametrize(
    ("asked", "reason"), [({}, "default_fetch_records"), ({"max_records": 2}, "max_records")]
)
async def test_a_page_names_the_limit_of_the_service(
    tmp_path: Path, asked: dict[str, int], reason: str
) -> None:
    """Without `max_records` the default ends the page; the client reads which of the two it was."""
    async with running(tmp_path, default_fetch_records=2) as api:
        await api.create()
        await api.append(0, 1, 2)
        answer = await api.client.get(RECORDS, params={"offset": 0, "explain": "1", **asked})
    assert values(answer) == [0, 1]
    assert answer.headers["log-explain"].endswith(f"ended_by={reason}")


async def test_large_reads_come_in_pieces_and_whole(api: Api) -> None:
    """A response that a worker renders and that is sent in pieces is the same."""
    await api.append(*["x" * 1000] * 500)
    assert len(values(await api.client.get(RECORDS))) == 500
    assert len((await api.client.get(BATCHES)).content) > 500_000
    headers = (await api.client.get(OFFSETS)).headers
    assert (headers["log-end-offset"], headers["log-high-watermark"]) == ("500", "500")


async def test_traceparent_is_echoed(api: Api) -> None:
    """A trace goes through: echoed, and its id is in problem documents (E8)."""
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for path in (RECORDS, "/v1/topics"):
        answer = await api.client.get(path, headers={"traceparent": trace})
        assert answer.headers["traceparent"] == trace
    lost = await api.client.get("/v1/nothing", headers={"traceparent": trace})
    assert lost.json()["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("json", "application/json"),
        ("ndjson", "application/x-ndjson"),
        ("arrow", "application/vnd.apache.arrow.stream"),
    ],
)
async def test_the_url_can_say_the_media_type(api: Api, name: str, media_type: str) -> None:
    """For programs that cannot send Accept, and it wins over what they send (R15)."""
    await api.append(1)
    for accept in ("*/*", "application/json", "image/png"):
        answer = await api.client.get(f"{RECORDS}?format={name}", headers={"accept": accept})
        assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
        assert f"format={name}" in answer.links["next"]["url"]
    assert (await api.client.get(f"{RECORDS}?format=xml")).status_code == 400
    assert (await api.client.get(f"{BATCHES}?format={name}")).status_code == 400
