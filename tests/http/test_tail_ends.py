"""How tails end, and what slow clients receive: protocol rules W4 and W5."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from app.http import slow_clients
from app.server.process import compose
from engine.errors import StorageOffline
from engine.fs.names import log_name
from tests.support.credentials import bearer, create_key, revoke
from tests.support.events import TAIL, listening, metrics, quiet, tailing
from tests.support.service import OFFSETS, Api, running

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/events"
PARTITION = f"{TOPIC}/partitions/0"


async def test_draining_ends_tails_with_their_last_event(api: Api) -> None:
    """Waiting tails end at once, with the offset to resume from."""
    await api.append(0)
    async with tailing(api) as tail:
        await quiet(api)
        api.service.drain()
        end = (await tail.to_end())[-1]
    assert (end.name, end.offset, end.data["reason"]) == ("end", 1, "draining")
    assert (end.data["next_offset"], end.data["retryable"]) == (1, True)
    assert end.data["problem"]["status"] == 503


async def test_a_tail_does_not_last_for_ever(tmp_path: Path) -> None:
    """After max_tail_ms it ends with a reason; nothing is wrong, the client comes again (W4)."""
    async with running(tmp_path, max_tail_ms=60, tail_heartbeat_ms=25) as api:
        await api.create()
        await api.append(0)
        async with tailing(api) as tail:
            *_, end = await tail.to_end()
    assert (end.offset, end.data["reason"], end.data["retryable"]) == (1, "time_limit", True)


async def test_a_deleted_topic_ends_its_tails(api: Api) -> None:
    """The reason is that of the request that would come next."""
    async with tailing(api) as tail:
        await quiet(api)
        await api.client.delete(TOPIC)
        end = (await tail.to_end())[-1]
    assert (end.data["reason"], end.data["retryable"]) == ("topic_not_found", False)
    assert end.data["problem"]["status"] == 404


async def test_a_topic_that_closes_under_a_look_is_told_as_deleted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the closing of its log and its being forgotten a topic is gone already."""
    log = api.log()

    def closed(*_: object, **__: object) -> None:
        raise StorageOffline("closed")

    async with tailing(api) as tail:
        await quiet(api)
        monkeypatch.setattr(log.reader, "read", closed)
        monkeypatch.setattr(api.service, "forget", lambda _name: None)
        await api.client.delete(TOPIC)
        api.service.tail.wake(log)
        end = (await tail.to_end())[-1]
    assert end.data["reason"] == "topic_not_found"


async def test_a_disk_that_fails_ends_a_tail(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of a read end the tail with the problem that the read would return."""

    def failing(*_: object, **__: object) -> None:
        raise StorageOffline("the disk failed")

    async with tailing(api) as tail:
        await quiet(api)
        monkeypatch.setattr(api.log().reader, "read", failing)
        api.service.tail.wake(api.log())
        end = (await tail.to_end())[-1]
    assert (end.data["reason"], end.data["detail"]) == ("storage_offline", "the disk failed")


async def test_a_truncated_log_ends_its_tails(api: Api) -> None:
    """Sent records may be deleted: another log_id, so another tail."""
    await api.append(0, 1)
    await api.append(2)
    async with tailing(api, "offset=latest") as tail:
        await quiet(api)
        etag = (await api.client.get(OFFSETS)).headers["etag"]
        cut = {"to_offset": 2}
        await api.client.post(f"{PARTITION}/truncate", json=cut, headers={"if-match": etag})
        end = (await tail.to_end())[-1]
    assert (end.data["reason"], end.offset) == ("log_replaced", 3)


async def test_a_recreated_topic_is_another_log(api: Api) -> None:
    """A client that received nothing meanwhile does not continue in the new one."""
    await api.append(0)
    async with tailing(api, stalls_after=1) as tail:
        await api.client.delete(TOPIC)
        await api.create()
        await api.append("new")
        tail.takes.set()
        begin, records, end = await tail.to_end()
    assert (begin.name, records.values, end.data["reason"]) == ("offsets", [0], "log_replaced")


async def test_damage_ends_a_tail_where_it_is(tmp_path: Path) -> None:
    """Intact records before it are sent; the last event names the place of the damage."""
    async with running(tmp_path) as api:
        await api.create()
        for value in range(4):
            await api.append(value)
    file = tmp_path / "events-0" / log_name(0)
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    async with running(tmp_path) as api, tailing(api, "max_bytes=1") as tail:
        told = await tail.to_end()
        assert [event.values for event in told[1:-1]] == [[0], [1], [2]]
        end = told[-1]
        assert (end.offset, end.data["reason"]) == (3, "stored_data_corrupt")
        assert end.data["problem"]["file"].endswith(log_name(0))
        assert end.data["problem"]["offset"] == 3


@pytest.mark.parametrize("where", ["error", "earliest"])
async def test_a_log_start_that_passes_a_tail_ends_it(api: Api, where: str) -> None:
    """A tail too slow for retention ends with the missed offsets, or continues if requested."""
    for value in range(4):
        await api.append(value)
    query = f"offset=0&max_bytes=1&on_out_of_range={where}"
    async with tailing(api, query, stalls_after=2) as tail:
        await api.client.post(f"{PARTITION}/delete-records", json={"before_offset": 3})
        tail.takes.set()
        _, first, second, third = await tail.read(4)
    assert (first.values, second.values) == ([0], [1])  # it was on its way already
    if where == "earliest":
        assert (third.values, third.offset) == ([3], 4)
    else:
        assert (third.offset, third.data["reason"]) == (2, "offset_below_log_start")
        assert third.data["problem"]["log_start_offset"] == 3


async def blocked_too_long(api: Api) -> None:
    """Return when a client counts as slow."""
    async with asyncio.timeout(60):
        while api.service.slow_clients.slow == 0:
            await checkpoint()


async def test_a_client_that_takes_nothing_for_too_long_is_closed(tmp_path: Path) -> None:
    """Once it receives again, it gets the reason and the offset to resume from.

    Nothing is lost (W5).
    """
    async with running(tmp_path, tail_stall_timeout_ms=200) as api:
        await api.create()
        await api.append(0)
        await api.append(1)
        async with tailing(api, "max_bytes=1", stalls_after=1) as tail:
            await blocked_too_long(api)
            await api.append(2)
            tail.takes.set()
            _, records, end = await tail.to_end()
            assert records.values == [0]
            assert (end.offset, end.data["reason"], end.data["problem"]) == (
                1,
                "slow_consumer",
                None,
            )
            assert not tail.is_cut_off
        assert 'tidelog_tail_ends_total{reason="slow_consumer"} 1.0' in await metrics(api)


async def test_a_client_that_takes_nothing_at_all_is_cut_off(tmp_path: Path) -> None:
    """Its memory is freed, though it stays connected and reads nothing."""
    async with running(tmp_path, tail_stall_timeout_ms=50) as api:
        await api.create()
        await api.append(0)
        async with tailing(api, stalls_after=1) as tail:
            async with asyncio.timeout(60):
                await tail.gone.wait()
            assert tail.is_cut_off
        assert (api.service.admission.tails, api.service.admission.answer_bytes) == (0, 0)
        assert 'tidelog_tail_ends_total{reason="slow_consumer"} 1.0' in await metrics(api)


async def test_draining_does_not_wait_for_a_client_that_takes_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the service stops, such a client does not get its thirty seconds."""
    monkeypatch.setattr(slow_clients, "HURRY_SECONDS", 0.05)
    await api.append(0)
    async with tailing(api, stalls_after=1) as tail:
        api.service.drain()
        async with asyncio.timeout(60):
            await tail.gone.wait()
        assert tail.is_cut_off


async def test_a_server_without_a_way_to_cut_off_is_fine(tmp_path: Path) -> None:
    """The extension is the server's to offer."""
    async with running(tmp_path, tail_stall_timeout_ms=50) as api:
        await api.create()
        await api.append(0)
        app = compose(api.service)

        async def bare(scope: Any, receive: Any, send: Any) -> None:
            del scope["extensions"]
            await app(scope, receive, send)

        async with listening(bare, TAIL, stalls_after=1) as tail:
            await blocked_too_long(api)
            tail.takes.set()
            assert (await tail.to_end())[-1].data["reason"] == "slow_consumer"


async def test_memory_that_is_full_ends_a_tail(tmp_path: Path) -> None:
    """What waits for slow clients is counted with all answers; beyond the limit a tail ends."""
    async with running(tmp_path, max_in_flight_answer_bytes=1_000) as api:
        await api.create()
        async with tailing(api) as tail:
            await quiet(api)
            ticket = api.service.admission.admit("another")
            ticket.hold_answer(900)
            await api.append("x" * 200)
            end = (await tail.to_end())[-1]
            ticket.close()
    assert (end.offset, end.data["reason"], end.data["retryable"]) == (0, "overloaded", True)


@pytest.mark.parametrize("is_stalled", [False, True], ids=["waiting", "stalled"])
async def test_a_tail_is_ended_when_its_key_is_revoked(tmp_path: Path, *, is_stalled: bool) -> None:
    """One that waits for a commit sends the reason; one that waits for its client is cut off."""
    create_key(tmp_path, "root", "admin:*")
    leaked = bearer(create_key(tmp_path, "leaked", "read:*", "append:*", "admin:*"))
    async with running(tmp_path, tail_heartbeat_ms=600_000) as api:
        await api.service.security.refresh_keys()
        api.client.headers.update(leaked)
        await api.create()
        await api.append(0)
        async with tailing(api, "offset=earliest", stalls_after=int(is_stalled), **leaked) as tail:
            if not is_stalled:
                await quiet(api)
            revoke(tmp_path, "leaked")
            await api.service.security.refresh_keys()
            if is_stalled:
                async with asyncio.timeout(60):
                    await tail.gone.wait()
            else:
                assert (await tail.to_end())[-1].data["reason"] == "unauthenticated"
            assert tail.is_cut_off is is_stalled
        assert api.service.admission.tails == 0
