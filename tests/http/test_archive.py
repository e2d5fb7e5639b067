"""What HTTP says of an archive: how far each log is in it, and whether it is well."""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from engine.errors import InvalidConfig
from tests.support.credentials import bearer, create_key
from tests.support.service import RECORDS, Api, running
from tests.support.swap import swap

LOG = "/v1/topics/events/partitions/0"

pytestmark = pytest.mark.anyio


async def told(api: Api, path: str, is_right: Callable[[Any], bool]) -> Any:
    """Ask until the answer is right; the archiver has a thread of its own."""
    while True:
        answer = (await api.client.get(path)).json()
        if is_right(answer):
            return answer


async def test_each_log_says_how_far_it_is_archived(tmp_path: Path) -> None:
    """In its offsets, its description and the list of its segments, once the archive has it."""
    url = f"file://{tmp_path}/bucket"
    async with running(tmp_path / "data", archive=url, archive_interval_ms=1) as api:
        await api.create()
        await api.append("one", "two")
        for path in (LOG, f"{LOG}/offsets", f"{LOG}/segments"):
            answer = await told(api, path, lambda body: body.get("archived_offset") == 2)
            assert answer["high_watermark"] == 2
        listed = await told(api, "/v1/topics/events/partitions", bool)
        assert listed["partitions"][0]["archived_offset"] == 2


async def test_without_an_archive_nothing_is_said(tmp_path: Path) -> None:
    """The member is absent, as is the report of readiness."""
    async with running(tmp_path) as api:
        await api.create()
        await api.append("one")
        for path in (LOG, f"{LOG}/offsets", f"{LOG}/segments"):
            assert "archived_offset" not in (await api.client.get(path)).json()
        assert "archive" not in (await api.client.get("/readyz")).json()


async def test_an_archive_that_fails_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    """Appends and readiness do not notice; it is well again when the store is."""
    bucket = tmp_path / "bucket"
    async with running(tmp_path / "data", archive=f"file://{bucket}", archive_interval_ms=1) as api:
        await api.create()
        await api.append("one")
        await told(api, f"{LOG}/offsets", lambda body: body.get("archived_offset") == 1)
        await told(
            api, "/readyz", lambda body: body["archive"]["lag_ms"] == 0
        )  # nothing is written
        (tmp_path / "file").write_bytes(b"in its place")
        swap(bucket, tmp_path / "file")  # in one step: the archiver makes a directory that is gone
        await api.append("two")
        ready = await told(api, "/readyz", lambda body: body["archive"]["phase"] == "failing")
        assert ready["status"] == "ready"
        assert ready["archive"]["url"] == f"file://{bucket}"
        assert ready["archive"]["problem"]
        assert (await api.client.get(RECORDS)).status_code == 200
        swap(bucket, tmp_path / "file")
        await told(api, "/readyz", lambda body: body["archive"]["phase"] == "running")
        await told(api, f"{LOG}/offsets", lambda body: body["archived_offset"] == 2)


async def test_where_the_archive_is_needs_the_scope_metrics(tmp_path: Path) -> None:
    """A load balancer only learns whether the service is ready."""
    key = create_key(tmp_path / "data", "ops", "metrics")
    url = f"file://{tmp_path}/bucket"
    async with running(tmp_path / "data", archive=url) as api:
        assert "archive" not in (await api.client.get("/readyz")).json()
        answer = await api.client.get("/readyz", headers=bearer(key))
        assert answer.json()["archive"]["url"] == url


@pytest.mark.parametrize(
    ("url", "said"),
    [("bucket", "not the URL"), ("file://{data}/inside", "in a data directory")],
)
async def test_a_wrong_archive_is_refused_at_the_start(tmp_path: Path, url: str, said: str) -> None:
    """With a sentence, before anything is opened."""
    data = tmp_path / "data"
    wrong: Callable[[], Awaitable[object]] = running(data, archive=url.format(data=data)).__aenter__
    with pytest.raises(InvalidConfig, match=said):
        await wrong()
    assert not data.exists()


async def test_the_archive_of_another_directory_is_refused_at_the_start(tmp_path: Path) -> None:
    """With a sentence: it has the records of somebody else."""
    archive = f"file://{tmp_path}/bucket"
    async with running(tmp_path / "a", archive=archive):
        pass
    with pytest.raises(InvalidConfig, match="archive"):
        await running(tmp_path / "b", archive=archive).__aenter__()


def test_an_archive_is_for_data_directories() -> None:
    """On a Kafka cluster there is nothing here to archive."""
    with pytest.raises(ValueError, match="archive is for data directories"):
        Settings(archive="s3://bucket", kafka="127.0.0.1:9092")


TIERED: dict[str, object] = {
    "segment_bytes": "300",
    "retention_ms": "-1",
    "remote_storage_enable": "true",
    "local_retention_bytes": "0",
}


async def filled(api: Api) -> Any:
    """Append twenty records; return the offsets once only the archive has the first ten."""
    await api.create("events", 1, **TIERED)
    for value in range(20):
        await api.append(value)
    return await told(api, f"{LOG}/offsets", lambda body: body["local_log_start_offset"] > 9)


async def pages(api: Api) -> list[Any]:
    """The records of a log, a hundred bytes a request."""
    records: list[Any] = []
    while True:
        at = {"offset": len(records), "max_bytes": 100}
        page = (await api.client.get(RECORDS, params=at)).json()
        if not page["records"]:
            return records
        records += page["records"]


async def test_every_operation_reads_what_only_the_archive_has(tmp_path: Path) -> None:
    """Pages, fetches, tails, splits, times, segments and their files."""
    url = f"file://{tmp_path}/bucket"
    async with running(tmp_path / "data", archive=url, archive_interval_ms=1) as api:
        offsets = await filled(api)
        assert offsets["log_start_offset"] == 0
        for path in (LOG, f"{LOG}/segments"):
            assert (await api.client.get(path)).json()["local_log_start_offset"] > 9
        (listed,) = (await api.client.get("/v1/topics/events/offsets")).json()["partitions"]
        assert listed["local_log_start_offset"] > 9
        records = await pages(api)
        assert [record["value"] for record in records] == list(range(20))

        asked = {"partitions": [{"topic": "events", "partition": 0, "offset": 0}]}
        fetched = (await api.client.post("/v1/fetch", json=asked)).json()
        assert fetched["partitions"][0]["records"] == records
        async with api.client.stream("GET", f"{LOG}/tail", params={"offset": 0}) as stream:
            assert stream.status_code == 200
            async for line in stream.aiter_lines():
                if '"value":19' in line:
                    break

        plan = (await api.client.post("/v1/topics/events/splits", json={"min_splits": 4})).json()
        assert plan["splits"][0]["start_offset"] == 0
        for name, offset in (("earliest", 0), (records[0]["timestamp"], 0)):
            at = await api.client.get(f"{LOG}/offset-at", params={"timestamp": name})
            assert at.json()["offset"] == offset
        local = await api.client.get(f"{LOG}/offset-at", params={"timestamp": "earliest_local"})
        assert local.json()["offset"] >= offsets["local_log_start_offset"]

        segments = (await api.client.get(f"{LOG}/segments")).json()["segments"]
        assert segments[0]["base_offset"] == 0
        for kind in ("log", "index", "timeindex"):
            file = await api.client.get(segments[0]["files"][kind])
            assert file.status_code == 200
            assert kind != "log" or len(file.content) == segments[0]["size_bytes"]


async def test_a_bucket_that_is_gone_is_503_for_what_only_it_has(tmp_path: Path) -> None:
    """With a code of its own and when to ask again; what the disk has is read as ever."""
    bucket = tmp_path / "bucket"
    url = f"file://{bucket}"
    async with running(tmp_path / "data", archive=url, archive_interval_ms=1) as api:
        offsets = await filled(api)
        shutil.move(bucket, tmp_path / "away")
        answer = await api.client.get(RECORDS, params={"offset": 0})
        problem = answer.json()
        assert answer.status_code == 503
        assert (problem["code"], problem["retryable"]) == ("archive_unavailable", True)
        assert int(answer.headers["retry-after"]) >= 1
        here = {"offset": 19}  # in the active segment, which never leaves the disk
        assert (await api.client.get(RECORDS, params=here)).status_code == 200
        off = {"config": {"remote.storage.enable": "false"}}
        refused = await api.client.patch("/v1/topics/events", json=off)
        assert refused.json()["code"] == "policy_violation"
        assert refused.json()["local_log_start_offset"] >= offsets["local_log_start_offset"]


async def restored(api: Api, name: str) -> Any:
    """How the restore of a topic of that name has ended."""
    return await told(
        api,
        f"/v1/topics/{name}/restore",
        lambda body: body.get("state") not in {"waiting", "restoring"},
    )


async def test_a_deleted_topic_is_brought_back_under_another_name(tmp_path: Path) -> None:
    """With its offsets and records, in a topic that keeps everything (T11)."""
    url = f"file://{tmp_path}/bucket"
    async with running(tmp_path / "data", archive=url, archive_interval_ms=1) as api:
        await api.create(retention_ms="-1")
        await api.append("one", "two")
        await told(api, f"{LOG}/offsets", lambda body: body.get("archived_offset") == 2)
        before = (await api.client.get(RECORDS)).json()["records"]
        until = int(time.time() * 1000)
        await api.client.delete("/v1/topics/events")
        body = {"source": "events", "until": until}
        answer = await api.client.post("/v1/topics/copy/restore", json=body)
        assert answer.status_code == 202, answer.text
        report = await restored(api, "copy")
        assert (report["state"], report["problems"]) == ("done", [])
        assert report["restored_bytes"] == report["total_bytes"] > 0
        records = "/v1/topics/copy/partitions/0/records"
        assert (await api.client.get(records)).json()["records"] == before
        config = (await api.client.get("/v1/topics/copy")).json()["config"]
        assert config["retention.ms"] == {"value": "-1", "source": "topic"}
        assert (await api.client.get("/v1/topics/events")).status_code == 404


@pytest.mark.parametrize(
    ("name", "body", "status", "code"),
    [
        ("events", {"source": "events"}, 409, "topic_conflict"),
        ("copy", {"source": "nothing"}, 404, "topic_not_found"),
        ("co py", {"source": "events"}, 422, "invalid_topic_name"),
        ("copy", {}, 422, "invalid_request"),
    ],
)
async def test_what_cannot_be_brought_back_is_refused(
    tmp_path: Path, name: str, body: dict[str, str], status: int, code: str
) -> None:
    """With what is wrong; the groups of a topic that is there are untouched."""
    url = f"file://{tmp_path}/bucket"
    async with running(tmp_path / "data", archive=url, archive_interval_ms=1) as api:
        await api.create()
        await api.append("one")
        cursor = "/v1/groups/g/offsets/events/0"
        await api.client.put(cursor, json={"offset": 1})
        await told(api, f"{LOG}/offsets", lambda body: body.get("archived_offset") == 1)
        answer = await api.client.post(f"/v1/topics/{name}/restore", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert (await api.client.get(cursor)).json()["offset"] == 1
        none = await api.client.get("/v1/topics/copy/restore")
        assert (none.status_code, none.json()["code"]) == (404, "topic_restore_not_found")


async def test_without_an_archive_nothing_is_brought_back(api: Api) -> None:
    """The answer says what the service was started without."""
    answer = await api.client.post("/v1/topics/copy/restore", json={"source": "events"})
    assert (answer.status_code, answer.json()["code"]) == (422, "policy_violation")
    assert "--archive" in answer.json()["detail"]


async def test_only_who_may_read_a_topic_brings_it_back(tmp_path: Path) -> None:
    """Otherwise a copy would show what its original does not."""
    admin = create_key(tmp_path / "data", "admin", "admin:*", "read:copy")
    url = f"file://{tmp_path}/bucket"
    async with running(tmp_path / "data", archive=url) as api:
        answer = await api.client.post(
            "/v1/topics/copy/restore", json={"source": "events"}, headers=bearer(admin)
        )
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
