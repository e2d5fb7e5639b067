"""Health, limits, metrics, and a service that is not ready: protocol rules H1 to H6."""

import shutil
from pathlib import Path

import pytest
from anyio.lowlevel import checkpoint

from app.api.application import lifespan
from app.operations.service import Service
from app.settings import Settings
from engine.errors import DirectoryLocked, Recovering
from tests.support.service import RECORDS, Api, open_service, running
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

LOG = "/v1/topics/events/partitions/0"


async def test_a_ready_service_says_so(api: Api) -> None:
    """Alive and ready are 200 (H1)."""
    assert (await api.client.get("/livez")).json() == {"status": "live"}
    assert (await api.client.get("/readyz")).json() == {"status": "ready"}


async def test_limits_are_listed_by_name(api: Api) -> None:
    """The limit named in a 413 or 503 is in the list with its value."""
    limits = (await api.client.get("/v1/limits")).json()["limits"]
    assert limits["max_request_bytes"] == api.service.settings.max_request_bytes
    assert {"max_in_flight_requests", "max_wait_ms", "default_fetch_bytes"} <= limits.keys()
    assert {"max_share_percent", "max_address_connections_percent"} <= limits.keys()
    assert {"min_body_bytes_per_second", "min_free_files"} <= limits.keys()
    timeouts = ("body_stall", "tls_handshake", "jwks_stale", "api_keys_read")
    assert {f"{name}_timeout_ms" for name in timeouts} <= limits.keys()


async def test_metrics_count_what_happened(api: Api) -> None:
    """Requests by operation and status, and the marks of every log (H5)."""
    await api.append(1, 2)
    await api.client.get(RECORDS)
    text = (await api.client.get("/metrics")).text
    assert 'tidelog_requests_total{operation="appendRecords",status="201"} 1.0' in text
    assert 'tidelog_log_end_offset{partition="0",topic="events"} 2.0' in text
    assert 'tidelog_records_in_total{topic="events"} 2.0' in text
    assert 'tidelog_request_seconds_count{operation="readRecords"} 1.0' in text


async def test_a_recovering_service_answers_503(tmp_path: Path) -> None:
    """Before the logs are open: alive, not ready with progress, everything else retryable (H2)."""
    service = Service(Settings(data_directory=tmp_path))
    async with wired(service) as client:
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "recovering")
        assert ready.json()["recovery"] == {
            "opened_logs": 0,
            "total_logs": 0,
            "loaded_group_logs": 0,
            "total_group_logs": 0,
        }
        refused = await client.post(RECORDS, json={"records": [{"value": 1}]})
        assert (refused.status_code, refused.json()["code"]) == (503, "recovering")
        assert refused.headers["retry-after"] == "1"
        assert (await client.get("/livez")).status_code == 200
    await service.close()


async def test_credentials_do_not_let_in_while_the_logs_are_opened(tmp_path: Path) -> None:
    """A known caller is asked to come back while the logs are opened."""
    service = Service(Settings(data_directory=tmp_path))
    with pytest.raises(Recovering, match="readyz"):
        service.admission.admit("another")
    await service.close()


async def test_a_draining_service_answers_503(api: Api) -> None:
    """While it stops, new requests get 503."""
    api.service.drain()
    refused = await api.client.get("/v1/topics")
    assert (refused.status_code, refused.json()["code"]) == (503, "draining")
    assert (await api.client.get("/readyz")).json() == {"status": "draining"}


async def test_a_failed_disk_is_reported_by_readyz(api: Api) -> None:
    """Offline for writes: not ready with the cause, appends 503, reads continue (H3)."""
    await api.append(1)
    health = api.local.manager.health
    health.fail(OSError(5, "Input/output error", str(health.directory / "events-0" / "index")))
    ready = await api.client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "offline")
    assert ready.json()["detail"] == "[Errno 5] Input/output error: 'events-0/index'"
    refused = await api.client.post(RECORDS, json={"records": [{"value": 1}]})
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (503, "storage_offline")
    assert (problem["retryable"], problem["side_effects"]) == (False, "none")
    assert "retry-after" not in refused.headers
    assert problem["kafka_error_code"] == 56
    assert len((await api.client.get(RECORDS)).json()["records"]) == 1


async def test_an_append_that_the_disk_did_not_confirm_may_be_there(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write went well and its sync failed: side effects are unknown, afterwards none."""
    await api.append(1)
    health = api.local.manager.health

    def failing() -> int:
        raise health.fail(OSError(5, "Input/output error"))

    monkeypatch.setattr(api.log().durability, "commit", failing)
    effects = []
    for _ in range(2):
        refused = await api.client.post(RECORDS, json={"records": [{"value": 1}]})
        assert (refused.status_code, refused.json()["code"]) == (503, "storage_offline")
        effects.append(refused.json()["side_effects"])
    assert effects == ["unknown", "none"]


async def test_a_log_that_cannot_be_opened_is_named_and_the_others_are_served(
    tmp_path: Path,
) -> None:
    """Its reads and appends are 503 with the file and what to do; the service is ready (H6)."""
    async with running(tmp_path) as api:
        await api.create(partitions=2)
        await api.create("other")
        for number in range(2):
            await api.append(1, path=RECORDS.replace("/0", f"/{number}"))
    file = tmp_path / "events-0" / "leader-epoch-checkpoint"
    file.unlink()
    file.mkdir()
    async with running(tmp_path) as api:
        ready = await api.client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        assert ready.json()["offline_logs_count"] == 1
        (offline,) = ready.json()["offline_logs"]
        assert (offline["topic"], offline["partition"]) == ("events", 0)
        assert offline["file"] == file.name
        assert str(tmp_path) not in ready.text
        assert "is not a regular file" in offline["problem"]
        topics = (await api.client.get("/v1/topics")).json()["topics"]
        assert {one["topic"]: one["offline_partitions"] for one in topics} == {
            "events": [0],
            "other": [],
        }
        for answer in (
            await api.client.get(RECORDS),
            await api.client.post(RECORDS, json={"records": [{"value": 1}]}),
            await api.client.get("/v1/topics/events/offsets"),
        ):
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (503, "storage_offline")
            assert (problem["retryable"], problem["side_effects"]) == (False, "none")
            assert (problem["partition"], problem["file"]) == (0, file.name)
            assert "tidelog repair" in problem["detail"]
        listed = (await api.client.get("/v1/topics/events/partitions")).json()
        assert [one["partition"] for one in listed["partitions"]] == [1]
        assert listed["offline_partitions"] == [0]
        await api.append(2, path=RECORDS.replace("/0", "/1"))
        keyed = {"records": [{"key": f"k{number}", "value": 1} for number in range(20)]}
        assert (await api.client.post("/v1/topics/other/records", json=keyed)).status_code == 201
        mixed = await api.client.post("/v1/topics/events/records", json=keyed)
        assert mixed.status_code == 207
        assert {(one["partition"], one.get("code")) for one in mixed.json()["records"]} == {
            (0, "storage_offline"),
            (1, None),
        }
        metrics = (await api.client.get("/metrics")).text
        assert "tidelog_offline_logs 1.0" in metrics
        assert 'tidelog_log_offline{partition="0",topic="events"} 1.0' in metrics
        assert "tidelog_remaining_logs_to_recover 0.0" in metrics


async def test_a_topic_without_an_open_log_says_why(tmp_path: Path) -> None:
    """Appends that choose their partition are refused with the reason of the last one."""
    async with running(tmp_path) as api:
        await api.create()
        await api.append(1)
    file = tmp_path / "events-0" / "leader-epoch-checkpoint"
    file.unlink()
    file.mkdir()
    async with running(tmp_path) as api:
        body = {"records": [{"value": 1}]}
        refused = await api.client.post("/v1/topics/events/records", json=body)
        assert (refused.status_code, refused.json()["code"]) == (503, "storage_offline")
        assert refused.json()["file"] == file.name
        assert str(tmp_path) not in refused.text


async def test_one_failed_disk_of_several_leaves_the_service_ready(tmp_path: Path) -> None:
    """Its partitions respond with 503, the others are served, and readiness says so."""
    more = (tmp_path / "b",)
    async with running(tmp_path / "a", more_data_directories=more) as api:
        await api.create(partitions=2)
        api.local.manager.directories[1].fail(OSError(5, "Input/output error"))
        ready = await api.client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json() == {
            "status": "ready",
            "detail": "1 of 2 data directories are offline",
            "offline_directories_count": 1,
        }
        statuses = [
            (await api.client.post(RECORDS.replace("/0", f"/{number}"), json=body)).status_code
            for number, body in enumerate([{"records": [{"value": 1}]}] * 2)
        ]
        assert statuses == [201, 503]
        (topic,) = (await api.client.get("/v1/topics")).json()["topics"]
        assert topic["offline_partitions"] == [1]
        listed = (await api.client.get("/v1/topics/events/partitions")).json()
        assert [one["partition"] for one in listed["partitions"]] == [0, 1]  # both can be read
        assert listed["offline_partitions"] == [1]


async def test_what_a_missing_directory_holds_is_named_and_never_left_out(tmp_path: Path) -> None:
    """Its partitions are listed as offline; a list of groups without its own is refused (H6)."""
    more = (tmp_path / "b",)
    async with running(tmp_path / "a", more_data_directories=more) as api:
        await api.create(partitions=2)
        await api.client.put("/v1/groups/g/offsets/events/0", json={"offset": 0})
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "b").write_bytes(b"in its place")
    async with running(tmp_path / "a", more_data_directories=more) as api:
        (topic,) = (await api.client.get("/v1/topics")).json()["topics"]
        assert topic["offline_partitions"] == [1]
        listed = (await api.client.get("/v1/topics/events/partitions")).json()
        assert [one["partition"] for one in listed["partitions"]] == [0]
        assert listed["offline_partitions"] == [1]
        for path in ("/v1/groups", "/v1/topics/events/offsets"):
            refused = await api.client.get(path)
            assert (refused.status_code, refused.json()["code"]) == (503, "storage_offline")


def damaged(log: Path) -> bytes:
    """Flip a bit in the first batch of a log's only segment; return what it was."""
    (file,) = log.glob("*.log")
    content = file.read_bytes()
    with file.open("r+b") as opened:
        opened.seek(65)
        opened.write(bytes([content[65] ^ 1]))
    return content


async def test_damage_is_known_until_it_is_gone(tmp_path: Path) -> None:
    """With its place, in readiness, the list of segments and a gauge, after a restart too (H9)."""
    async with running(tmp_path) as api:
        await api.create()
        await api.append("one")
        before = damaged(tmp_path / "events-0")
        assert (await api.client.get(RECORDS)).status_code == 500
    async with running(tmp_path) as api:
        ready = (await api.client.get("/readyz")).json()
        assert (ready["status"], ready["damaged_places_count"]) == ("ready", 1)
        (place,) = ready["damage"]
        assert (place["topic"], place["partition"], place["position"]) == ("events", 0, 0)
        assert (place["offset"], place["file"]) == (0, f"{0:020}.log")
        assert str(tmp_path) not in place["problem"]
        segments = (await api.client.get(f"{LOG}/segments")).json()
        assert segments["damage"] == [place]
        assert "tidelog_damaged_places 1.0" in (await api.client.get("/metrics")).text
        api.local.manager.review_damage()
        assert (await api.client.get("/readyz")).json()["damaged_places_count"] == 1
        api.log().close()
        api.local.manager.review_damage()
        assert (await api.client.get("/readyz")).json()["damaged_places_count"] == 1
    async with running(tmp_path) as api:
        (tmp_path / "events-0" / f"{0:020}.log").write_bytes(before)
        api.local.manager.review_damage()
        assert "damage" not in (await api.client.get("/readyz")).json()
        assert (await api.client.get(RECORDS)).status_code == 200
    async with running(tmp_path) as api:
        assert "damage" not in (await api.client.get("/readyz")).json()


async def test_records_survive_a_restart(tmp_path: Path) -> None:
    """Acknowledged records are served again after closing and opening."""
    async with running(tmp_path) as api:
        await api.create()
        await api.append(1, 2, 3)
    async with running(tmp_path) as api:
        page = (await api.client.get(RECORDS)).json()
        assert [record["value"] for record in page["records"]] == [1, 2, 3]


async def test_the_lifespan_opens_while_it_answers(tmp_path: Path) -> None:
    """The application responds at once and becomes ready by itself; closing leaves it draining."""
    service = Service(Settings(data_directory=tmp_path))
    async with lifespan(service, pytest.fail), wired(service) as client:
        while (await client.get("/readyz")).status_code != 200:
            await checkpoint()
    assert service.readiness() == {"status": "draining"}


async def test_a_directory_in_use_ends_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the logs cannot be opened, the reason is kept and reported, and the process ends."""
    told: list[str] = []
    async with open_service(tmp_path):
        service = Service(Settings(data_directory=tmp_path))
        async with lifespan(service, lambda: told.append("stop")):
            while not told:
                await checkpoint()
    assert isinstance(service.failure, DirectoryLocked)
    (told_why,) = [one for one in caplog.records if one.name == "app.api.application"]
    assert "is in use by another process" in told_why.getMessage()
    assert not told_why.exc_info  # a stack is only logged for unexpected errors


async def test_a_refusal_while_stopping_is_no_failure(tmp_path: Path) -> None:
    """An error of an opening during a stop is not reported as the reason of the stop."""
    async with open_service(tmp_path):
        service = Service(Settings(data_directory=tmp_path))
        service.drain_soon()
        async with lifespan(service, pytest.fail):
            pass
    assert service.failure is None


async def test_closing_gives_up_an_opening(tmp_path: Path) -> None:
    """A service that stops while it recovers ends without calling that a failure."""
    service = Service(Settings(data_directory=tmp_path))
    async with lifespan(service, pytest.fail):
        service.drain()
    assert service.failure is None


async def test_the_access_log_is_one_line_a_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With access_log every request is logged, on either lane."""
    caplog.set_level("INFO", logger="tidelog.access")
    async with running(tmp_path, access_log=True) as api:
        await api.create()
        await api.append(1)
    lines = [record.getMessage() for record in caplog.records if record.name == "tidelog.access"]
    assert lines == ["PUT /v1/topics/events 201", f"POST {RECORDS} 201"]
