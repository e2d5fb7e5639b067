"""Offsets over HTTP: protocol rules O1 to O4."""

import pytest

from tests.support.service import OFFSETS, RECORDS, Api

pytestmark = pytest.mark.anyio


async def test_all_marks_come_from_one_moment(api: Api) -> None:
    """Marks in the body and in the headers agree, and the tag names the end of the log (O1)."""
    await api.append(1, 2)
    answer = await api.client.get(OFFSETS)
    assert answer.json() == {
        "log_start_offset": 0,
        "high_watermark": 2,
        "last_stable_offset": 2,
        "log_end_offset": 2,
        "leader_epoch": 0,
        "recovery_point": 0,
        "log_id": api.log().reader.log_id,
    }
    assert answer.headers["log-high-watermark"] == "2"
    assert answer.headers["etag"].startswith('"0-2-')
    url = answer.links["next"]["url"]
    assert url == f"{RECORDS}?offset=2&log_id={api.log().reader.log_id}"
    await api.append(3)
    (record,) = (await api.client.get(url)).json()["records"]
    assert record["value"] == 3
    again = await api.client.get(OFFSETS, headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 200  # the tail is never cached


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [
        ("0", 0, 1000),
        ("1000", 0, 1000),
        ("1001", 1, 3000),
        ("3001", None, None),
        ("earliest", 0, None),
        ("latest", 3, None),
        ("max_timestamp", 1, 3000),
    ],
)
async def test_an_offset_is_looked_up_by_time(
    api: Api, timestamp: str, offset: int | None, found: int | None
) -> None:
    """The first record at or after the time; null when there is none (O2)."""
    for time_ms in (1000, 3000, 2000):
        await api.append(0, timestamp=time_ms)
    answer = await api.client.get(OFFSETS, params={"timestamp": timestamp})
    assert (answer.json()["offset"], answer.json()["timestamp"]) == (offset, found)
    of_topic = await api.client.get("/v1/topics/events/offsets", params={"timestamp": timestamp})
    assert of_topic.json()["partitions"][0]["offset"] == offset


@pytest.mark.parametrize("timestamp", ["yesterday", "-1", "9223372036854775808"])
async def test_a_time_that_is_none_is_malformed(api: Api, timestamp: str) -> None:
    """Neither a name nor milliseconds in 63 bits is 400."""
    answer = await api.client.get(OFFSETS, params={"timestamp": timestamp})
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")


async def test_offsets_with_a_timestamp_answers_what_offset_at_does(api: Api) -> None:
    """Clients older than getOffsetAt use `offsets?timestamp=`.

    Their other parameters are refused.
    """
    await api.append(1, 2)
    at = OFFSETS.replace("offsets", "offset-at")
    for timestamp in ("0", "earliest", "latest", "max_timestamp"):
        now = await api.client.get(at, params={"timestamp": timestamp})
        before = await api.client.get(OFFSETS, params={"timestamp": timestamp})
        assert (now.status_code, now.json()) == (200, before.json())
        assert now.headers["etag"] == before.headers["etag"]
    for url in (f"{OFFSETS}?timestamp=0&more=1", f"{OFFSETS}?more=1", f"{at}?more=1", at):
        answer = await api.client.get(url)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")


async def test_the_ends_have_names(api: Api) -> None:
    """`earliest` is the log start, `latest` the high watermark; neither has a time (O3)."""
    await api.append(1, 2, 3)
    log = "/v1/topics/events/partitions/0"
    await api.client.post(f"{log}/delete-records", json={"before_offset": 2})
    for name, offset in (("earliest", 2), ("latest", 3)):
        told = (await api.client.get(f"{OFFSETS}?timestamp={name}")).json()
        assert (told["offset"], told["timestamp"]) == (offset, None)


async def test_all_partitions_of_a_topic_are_told(api: Api) -> None:
    """One entry a partition, with the log_id that immutable reads carry (O4)."""
    await api.create("many", partitions=3)
    await api.append(1, path="/v1/topics/many/partitions/2/records")
    answer = (await api.client.get("/v1/topics/many/offsets")).json()
    assert [entry["log_end_offset"] for entry in answer["partitions"]] == [0, 0, 1]
    assert answer["partitions"][2]["log_id"] == api.log("many", 2).reader.log_id
