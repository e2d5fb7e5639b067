"""Look-ups by time in compressed batches: what they decode has the limits of reads (H6)."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from engine.records.builder import build_batch
from engine.records.header import Codec
from tests.support.process import serving_process
from tests.support.raw import connect
from tests.support.service import BATCHES, RAW, Api, running
from tests.support.time import START_MS
from tests.support.turnstile import Turnstile, hang_up_meanwhile
from tests.support.wire import Listener, request

pytestmark = pytest.mark.anyio

MIB = 1 << 20
LOG = "/v1/topics/events/partitions/0"
PARTITIONS = 6
LATE_MS = START_MS + 1


def bomb_of(values: list[bytes]) -> bytes:
    """A batch whose last record alone is late: a look-up decodes all that comes before it."""
    records = [(START_MS, None, value, ()) for value in values] + [(LATE_MS, None, b"late", ())]
    return bytes(build_batch(records, codec=Codec.ZSTD))


BOMB = bomb_of([bytes(MIB)] * 3)


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service whose requests may decode 10 MiB, with 3 MiB from a few KB in each partition."""
    limits = {"max_decoded_bytes": 10 * MIB, "max_decompressed_batch_bytes": 4 * MIB}
    async with running(tmp_path, **limits) as api:
        await api.create(partitions=PARTITIONS)
        for number in range(PARTITIONS):
            path = BATCHES.replace("/0/", f"/{number}/")
            assert (await api.client.post(path, content=BOMB, headers=RAW)).status_code == 201
        yield api


@pytest.mark.parametrize("timestamp", [LATE_MS, "max_timestamp"])
async def test_a_look_up_in_many_bombs_is_refused_when_the_budget_is_spent(
    api: Api, timestamp: object, decoding: Callable[[Callable[[], None]], None]
) -> None:
    """Six partitions of 3 MiB each: 413 with the fourth, and each of them alone is answered."""
    pieces: list[int] = []
    decoding(lambda: pieces.append(1))
    parameters = {"timestamp": str(timestamp)}
    answer = await api.client.get("/v1/topics/events/offsets", params=parameters)
    problem = answer.json()
    assert (answer.status_code, problem["limit"]) == (413, "max_decoded_bytes")
    assert "fewer partitions" in problem["detail"]
    assert 10 < len(pieces) < 20
    for number in range(PARTITIONS):
        path = LOG.replace("/0", f"/{number}")
        answer = await api.client.get(f"{path}/offset-at", params=parameters)
        assert (answer.status_code, answer.json()["offset"]) == (200, 3), answer.text


async def test_a_plan_and_a_fetch_that_start_at_a_time_have_the_budget_of_one_request(
    api: Api,
) -> None:
    """A plan is refused as a whole, a fetch for the partitions that it could not look into."""
    cut = {"start": f"ts:{LATE_MS}", "end": "latest"}
    answer = await api.client.post("/v1/topics/events/splits", json=cut)
    assert (answer.status_code, answer.json()["limit"]) == (413, "max_decoded_bytes")
    few = cut | {"partitions": [0, 5]}
    answer = await api.client.post("/v1/topics/events/splits", json=few)
    assert [one["start_offset"] for one in answer.json()["partitions"]] == [3, 3]
    wanted = [
        {"topic": "events", "partition": number, "offset": f"ts:{LATE_MS}"}
        for number in range(PARTITIONS)
    ]
    answer = await api.client.post("/v1/fetch", json={"partitions": wanted})
    outcomes = [entry["outcome"] for entry in answer.json()["partitions"]]
    assert outcomes[3:] == ["failed"] * 3
    assert "failed" not in outcomes[:3]


@pytest.mark.parametrize(
    "path",
    [
        f"{LOG}/offset-at?timestamp={LATE_MS}",
        f"/v1/topics/events/offsets?timestamp={LATE_MS}",
        f"{LOG}/records?offset=ts:{LATE_MS}",
    ],
)
async def test_no_look_up_goes_on_for_a_client_that_has_gone(
    api: Api, decoding: Callable[[Callable[[], None]], None], path: str
) -> None:
    """The thread is free again after the present piece."""
    turnstile = Turnstile()
    decoding(turnstile.enter)
    connection = Listener(api.service).connect()
    connection.send(request("GET", path))
    await hang_up_meanwhile(api.service, connection, turnstile)
    assert turnstile.passed == 2


def test_ten_look_ups_in_bombs_do_not_decode_them_all_at_once(tmp_path: Path) -> None:
    """Ten look-ups in a few KB that decode to 62 MiB: they share the memory of reads."""
    bomb = bomb_of([b"\x01" * (62 * MIB)])
    ask = f"GET {LOG}/offset-at?timestamp={LATE_MS} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    with serving_process(tmp_path) as process, contextlib.ExitStack() as stack:
        httpx.put(f"{process.url}/v1/topics/events", json={}).raise_for_status()
        stored = httpx.post(f"{process.url}{BATCHES}", content=bomb, headers=RAW, timeout=60)
        stored.raise_for_status()
        before = process.begin_peak()
        wires = [stack.enter_context(connect(process.url)) for _ in range(10)]
        for wire in wires:
            wire.sendall(ask)
        assert {int(wire.recv(12)[9:]) for wire in wires} == {200}
        assert process.peak_bytes() - before < 250 * MIB


def test_two_appends_of_bombs_do_not_decode_them_at_once(tmp_path: Path) -> None:
    """Four appends of a few KB that decode to 62 MiB, on two threads: one is decoded at a time.

    One takes up to 250 MiB for a moment, four times what it decodes to.
    """
    bomb = bomb_of([b"\x01" * (62 * MIB)])
    head = f"POST {BATCHES} HTTP/1.1\r\nhost: localhost\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in RAW.items())
    append = f"{head}content-length: {len(bomb)}\r\n\r\n".encode() + bomb
    with serving_process(tmp_path) as process, contextlib.ExitStack() as stack:
        httpx.put(f"{process.url}/v1/topics/events", json={}).raise_for_status()
        before = process.begin_peak()
        wires = [stack.enter_context(connect(process.url)) for _ in range(4)]
        for wire in wires:
            wire.sendall(append)
        assert {int(wire.recv(12)[9:]) for wire in wires} == {201}
        assert process.peak_bytes() - before < 300 * MIB
