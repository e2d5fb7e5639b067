"""`earliest` and `latest` stand wherever an offset does."""

from typing import Any

import pytest

from tests.support.service import BATCHES, OFFSETS, RECORDS, Api

pytestmark = pytest.mark.anyio

LOG = "/v1/topics/events/partitions/0"


@pytest.fixture
async def cut(api: Api) -> Api:
    """A log of the offsets 2 to 4."""
    for value in range(5):
        await api.append(value)
    await api.client.post(f"{LOG}/delete-records", json={"before_offset": 2})
    return api


@pytest.mark.parametrize(("name", "end"), [("earliest", 2), ("latest", 5)])
@pytest.mark.parametrize("path", [RECORDS, BATCHES])
async def test_a_read_may_end_at_a_name(cut: Api, path: str, name: str, end: int) -> None:
    """The name is resolved now, so the response is not immutable (O5)."""
    query: dict[str, str | int] = {
        "offset": 2,
        "end_offset": name,
        "log_id": cut.log().reader.log_id,
    }
    answer = await cut.client.get(path, params=query)
    assert (answer.status_code, answer.headers["log-next-offset"]) == (200, str(end))
    assert answer.headers["cache-control"] == "no-store"
    assert "link" not in answer.headers
    other = await cut.client.get(path, params=query | {"log_id": "x.0"})
    assert (other.status_code, other.json()["code"]) == (409, "log_replaced")


async def test_a_fetch_may_end_at_a_name(cut: Api) -> None:
    """Each partition has its own end, which may be a name."""
    wanted = {"topic": "events", "partition": 0, "end_offset": "latest"}
    answer = await cut.client.post("/v1/fetch", json={"partitions": [wanted]})
    (entry,) = answer.json()["partitions"]
    assert (len(entry["records"]), entry["next_offset"]) == (3, 5)


@pytest.mark.parametrize(("name", "offset"), [("earliest", 2), ("latest", 5)])
async def test_a_group_may_store_a_name(cut: Api, name: str, offset: int) -> None:
    """The offset of the name is stored."""
    stored = await cut.client.put("/v1/groups/g/offsets/events/0", json={"offset": name})
    assert (stored.status_code, stored.json()["offset"]) == (201, offset)


@pytest.mark.parametrize(("name", "start"), [("earliest", 2), ("latest", 5), (-1, 5)])
async def test_records_are_deleted_up_to_a_name(cut: Api, name: object, start: int) -> None:
    """-1 is the high watermark, as in Kafka."""
    answer = await cut.client.post(f"{LOG}/delete-records", json={"before_offset": name})
    assert (answer.status_code, answer.json()["log_start_offset"]) == (200, start)


@pytest.mark.parametrize(("name", "end"), [("earliest", 2), ("latest", 5)])
async def test_a_log_is_cut_at_a_name(cut: Api, name: str, end: int) -> None:
    """With its ETag, as at any offset."""
    etag = {"if-match": (await cut.client.get(OFFSETS)).headers["etag"]}
    answer = await cut.client.post(f"{LOG}/truncate", json={"to_offset": name}, headers=etag)
    assert (answer.status_code, answer.json()["log_end_offset"]) == (200, end)


@pytest.mark.parametrize("wrong", [-1, -2, "-3", "first", True, 1.5, None])
async def test_another_word_is_no_offset(cut: Api, wrong: Any) -> None:
    """Nor is the number inside a name."""
    etag = {"if-match": (await cut.client.get(OFFSETS)).headers["etag"]}
    answer = await cut.client.post(f"{LOG}/truncate", json={"to_offset": wrong}, headers=etag)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "to_offset")
    if isinstance(wrong, int | str) and not isinstance(wrong, bool):
        assert (await cut.client.get(f"{RECORDS}?end_offset={wrong}")).status_code == 400
