"""Requests that decode to far more than they are: budgets, and the end of unwanted work (A15)."""

import gzip
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.codecs import body_stream
from app.operations.append import append
from app.operations.service import Service
from app.settings import Settings
from engine.records.codecs.zstd import zstd
from engine.records.header import Codec
from tests.support.builders import values_of
from tests.support.service import (
    BATCHES,
    NDJSON,
    RAW,
    RECORDS,
    Api,
    running,
)
from tests.support.turnstile import Turnstile, hang_up_meanwhile
from tests.support.wire import Listener, request
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

MIB = 1 << 20
BOMB = bytes(values_of([bytes(MIB)], codec=Codec.ZSTD))
LANES = ("hot", "fastapi")


def before_each_frame(monkeypatch: pytest.MonkeyPatch, look: Callable[[], object]) -> None:
    """Have something called each time that a frame of zstd is about to be decoded."""
    real = zstd.ZstdDecompressor

    def decompressor() -> zstd.ZstdDecompressor:  # as the library's
        look()
        return real()

    monkeypatch.setattr(zstd, "ZstdDecompressor", decompressor)


def append_by(lane: str, body: bytes) -> bytes:
    """A request that goes this way through the service."""
    path = BATCHES.replace("events", "%65vents") if lane == "fastapi" else BATCHES
    return request("POST", path, body, RAW)


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service whose requests may decode 10 MiB."""
    limits = {"max_decoded_bytes": 10 * MIB, "max_decompressed_batch_bytes": 4 * MIB}
    async with running(tmp_path, **limits) as api:
        await api.create()
        yield api


def clients(service: Service) -> dict[str, httpx.AsyncClient]:
    return {"fast": wired(service), "slow": wired(service, is_hot=False)}


async def test_five_hundred_bombs_in_one_request_are_refused(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The eleventh MiB is one too many: 413 names the limit, and nothing is written (A15)."""
    decoded = []
    before_each_frame(monkeypatch, lambda: decoded.append(1))
    for name, client in clients(api.service).items():
        decoded.clear()
        answer = await client.post(BATCHES, content=BOMB * 500, headers=RAW)
        assert answer.status_code == 413, name
        problem = answer.json()
        assert (problem["code"], problem["limit"]) == ("too_large", "max_decoded_bytes")
        assert problem["limit_bytes"] == 10 * MIB
        assert (problem["retryable"], problem["side_effects"]) == (False, "none")
        assert "fewer or smaller batches" in problem["detail"]
        assert len(decoded) == 10, name
    assert api.log().watermarks.log_end_offset == 0
    answer = await api.client.post(BATCHES, content=BOMB * 9, headers=RAW)
    assert (answer.status_code, answer.json()["count"]) == (201, 9)


async def test_a_body_and_its_batches_share_the_budget(api: Api) -> None:
    """A coded body counts, and what its batches decode to counts, too."""
    plain = bytes(values_of([bytes(4 * MIB)]))
    headers = RAW | {"content-encoding": "gzip"}
    await api.client.patch("/v1/topics/events", json={"config": {"max.message.bytes": 8 * MIB}})
    for batches, status in ((plain + BOMB * 5, 201), (plain + BOMB * 7, 413)):
        answer = await api.client.post(BATCHES, content=gzip.compress(batches, 1), headers=headers)
        assert answer.status_code == status, answer.text


async def test_a_bomb_behind_a_plain_batch_is_not_for_the_event_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small body is decoded by a worker, whichever of its batches is compressed."""
    threads = set()
    before_each_frame(monkeypatch, lambda: threads.add(threading.current_thread()))
    body = bytes(values_of([b"x"])) + BOMB
    for lane in LANES:
        reply = await Listener(api.service).connect().ask(append_by(lane, body))
        assert reply.status == 201, (lane, reply.body)
    assert threads
    assert threading.main_thread() not in threads


async def test_processor_time_is_a_budget(tmp_path: Path) -> None:
    """A request that needs more than `max_decode_cpu_ms` is refused, with advice."""
    limits = {"max_decode_cpu_ms": 1, "max_decoded_bytes": 10_000 * MIB}
    async with running(tmp_path, **limits) as api:
        await api.create()
        answer = await api.client.post(BATCHES, content=BOMB * 500, headers=RAW)
        problem = answer.json()
        assert (answer.status_code, problem["limit"]) == (413, "max_decode_cpu_ms")
        assert problem["limit_ms"] == 1
        assert api.log().watermarks.log_end_offset == 0
        told = (await api.client.get("/v1/limits")).json()["limits"]
        assert (told["max_decode_cpu_ms"], told["max_decoded_bytes"]) == (1, 10_000 * MIB)


def test_what_a_batch_may_hold_fits_into_what_a_request_may_decode() -> None:
    """Otherwise a stored batch could not be read: such settings are refused."""
    with pytest.raises(ValueError, match="max_decoded_bytes"):
        Settings(max_decoded_bytes=MIB, max_decompressed_batch_bytes=2 * MIB)


@pytest.mark.parametrize("lane", LANES)
async def test_batches_are_not_decoded_for_a_client_that_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    """The worker is free again after the present batch, in both ways in."""
    turnstile = Turnstile()
    before_each_frame(monkeypatch, turnstile.enter)
    async with running(tmp_path, max_decoded_bytes=10_000 * MIB) as api:
        await api.create()
        await api.append(0)
        connection = Listener(api.service).connect()
        connection.send(append_by(lane, BOMB * 500))
        await hang_up_meanwhile(api.service, connection, turnstile)
        assert turnstile.passed == 2
        assert api.log().watermarks.log_end_offset == 1


async def test_a_body_is_not_decoded_for_a_client_that_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding many members ends with the present piece."""
    turnstile = Turnstile()
    real = body_stream.MembersDecoder.read

    def read(self: body_stream.MembersDecoder) -> Any:  # as the decoder's
        turnstile.enter()
        return real(self)

    monkeypatch.setattr(body_stream.MembersDecoder, "read", read)
    async with running(tmp_path) as api:
        await api.create()
        connection = Listener(api.service).connect()
        body = gzip.compress(bytes(64)) * 100_000
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        connection.send(request("POST", RECORDS, body, headers))
        await hang_up_meanwhile(api.service, connection, turnstile)
        assert turnstile.passed == 2


async def test_a_repetition_gets_its_answer_although_the_first_client_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append with an Idempotency-Key continues: another request may wait for it."""
    turnstile = Turnstile()
    real = append.RecordsAppend.take

    def take(self: append.RecordsAppend, body: Any) -> None:  # as the append's
        turnstile.enter()
        turnstile.enter()
        real(self, body)

    monkeypatch.setattr(append.RecordsAppend, "take", take)
    async with running(tmp_path, inline_append_bytes=0) as api:
        await api.create()
        headers = NDJSON | {"idempotency-key": "k"}
        body = b'{"value":1}\n{"value":2}'
        connection = Listener(api.service).connect()
        connection.send(request("POST", RECORDS, body, headers))
        await hang_up_meanwhile(api.service, connection, turnstile)
        answer = await api.client.post(RECORDS, content=body, headers=headers)
        assert (answer.status_code, answer.json()["count"]) == (200, 2)
        assert answer.headers["idempotency-replayed"] == "true"
        assert turnstile.passed == 2
