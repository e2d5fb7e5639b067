"""Damage below the recovery point, as a client of the service meets it."""

from pathlib import Path

import pytest

from engine.fs.names import index_name, log_name
from tests.support.logs import batches_in
from tests.support.service import BATCHES, OFFSETS, RECORDS, Api, running

pytestmark = pytest.mark.anyio

PARTITION = Path("events-0")


async def fill(directory: Path) -> list[str]:
    """Make a log of two segments and stop cleanly; return the values."""
    values = [f"value {number:04d}" for number in range(60)]
    async with running(directory) as api:
        await api.create(index_interval_bytes=200)
        for value in values[:40]:
            await api.append(value)
        api.log().roll()
        for value in values[40:]:
            await api.append(value)
    return values


@pytest.mark.parametrize("path", [RECORDS, BATCHES])
async def test_damage_is_a_problem_with_its_place(path: str, tmp_path: Path) -> None:
    """500 `stored_data_corrupt` names file, position and offset, time after time (R12)."""
    await fill(tmp_path)
    file = tmp_path / PARTITION / log_name(0)
    content = bytearray(file.read_bytes())
    batch_bytes = len(content) // 40
    content[20 * batch_bytes + 70] ^= 1
    file.write_bytes(content)
    async with running(tmp_path) as api:
        for _ in range(2):
            answer = await api.client.get(path, params={"offset": 20, "max_bytes": 1})
            assert answer.status_code == 500
            problem = answer.json()
            assert problem["code"] == "stored_data_corrupt"
            assert problem["file"] == log_name(0)
            assert (problem["topic"], problem["partition"]) == ("events", 0)
            assert problem["position"] == 20 * batch_bytes
            assert problem["offset"] == 20


@pytest.mark.parametrize("damaged", [20, 39, 41], ids=["within", "at the end", "in the next"])
@pytest.mark.parametrize("is_framing", [True, False])
async def test_what_is_before_damage_is_read(
    tmp_path: Path, damaged: int, *, is_framing: bool
) -> None:
    """A page ends before it, raw and rendered, and is not kept as immutable (R12)."""
    values = await fill(tmp_path)
    base, number = (0, damaged) if damaged < 40 else (40, damaged - 40)
    file = tmp_path / PARTITION / log_name(base)
    content = bytearray(file.read_bytes())
    batch_bytes = len(content) // (40 if base == 0 else len(values) - 40)
    content[number * batch_bytes + (8 if is_framing else 70)] ^= 1
    file.write_bytes(content)
    async with running(tmp_path) as api:
        log_id = api.log().reader.log_id
        answer = await api.client.get(f"{RECORDS}?offset=0&max_bytes=100000&log_id={log_id}")
        page = answer.json()
        assert [record["value"] for record in page["records"]] == values[:damaged]
        assert page["next_offset"] == damaged
        assert "immutable" not in answer.headers["cache-control"]
        raw = await api.client.get(f"{BATCHES}?offset=0&max_bytes=100000")
        assert raw.headers["log-next-offset"] == str(damaged)
        assert len(list(batches_in(raw.content))) == damaged
        assert (await api.client.get(f"{RECORDS}?offset={damaged}")).status_code == 500


RAW_TYPE = "application/vnd.kafka.recordbatch.v2"
ARROW_TYPE = "application/vnd.apache.arrow.stream"
SEGMENT = "/v1/topics/events/partitions/0/segments/0/log"
FETCH = {"partitions": [{"topic": "events", "partition": 0, "offset": 2}]}


async def flip_under(api: Api, directory: Path, *, is_sealed: bool) -> int:
    """Append five batches, flip one bit of the third on the disk, and return its position."""
    await api.create()
    for _ in range(5):
        await api.append("y" * 200)
    if is_sealed:
        api.log().roll()
    file = directory / PARTITION / log_name(0)
    position = 2 * api.log().reader.segments[0].size_bytes // 5
    with file.open("r+b") as opened:
        opened.seek(position + 100)
        opened.write(b"x")
    return position


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "active"])
async def test_a_bit_that_flips_under_a_running_service_is_never_served(
    *, is_sealed: bool, tmp_path: Path
) -> None:
    """Bytes that this process wrote are verified at each read: every view has the same problem."""
    async with running(tmp_path) as api:
        position = await flip_under(api, tmp_path, is_sealed=is_sealed)
        answers = [
            await api.client.get(
                f"{path}?offset=2&max_bytes=1&isolation={isolation}", headers={"accept": accept}
            )
            for isolation in ("read_uncommitted", "read_committed")
            for path, accept in (
                (RECORDS, "application/json"),
                (RECORDS, "application/x-ndjson"),
                (RECORDS, ARROW_TYPE),
                (BATCHES, RAW_TYPE),
            )
        ]
        answers.append(await api.client.get(SEGMENT, headers={"range": f"bytes={position}-"}))
        problems = [answer.json() for answer in answers]
        assert {answer.status_code for answer in answers} == {500}
        fetched = await api.client.post("/v1/fetch", json=FETCH)
        problems.append(fetched.json()["partitions"][0]["problem"])
        for problem in problems:
            assert problem["code"] == "stored_data_corrupt"
            assert (problem["topic"], problem["partition"]) == ("events", 0)
            assert (problem["file"], problem["position"]) == (log_name(0), position)
            assert problem["offset"] == 2
            assert str(tmp_path) not in str(problem)
        old = await api.client.get("/topics/events/partitions/0/records?offset=2")
        assert old.status_code == 500
        assert f"{PARTITION / log_name(0)}, byte {position}: " in old.json()["message"]
        assert str(tmp_path) not in old.text
        metrics = (await api.client.get("/metrics")).text
        assert "\ntidelog_corrupt_reads_total 11.0\n" in metrics


async def test_what_is_not_damaged_is_served(tmp_path: Path) -> None:
    """Records before and after the damage, in its segment and in the next."""
    values = await fill(tmp_path)
    file = tmp_path / PARTITION / log_name(0)
    content = bytearray(file.read_bytes())
    content[20 * (len(content) // 40) + 70] ^= 1
    file.write_bytes(content)
    async with running(tmp_path) as api:
        for offset in (0, 19, 21, 39, 40, 59):
            query = {"offset": offset, "max_bytes": 1}
            answer = await api.client.get(RECORDS, params=query)
            assert answer.status_code == 200
            assert [record["value"] for record in answer.json()["records"]] == [values[offset]]


async def test_a_wrong_index_costs_a_client_nothing(tmp_path: Path) -> None:
    """Offsets and times are found as before, with the index of a segment shifted by an entry."""
    values = await fill(tmp_path)
    file = tmp_path / PARTITION / index_name(0)
    content = file.read_bytes()
    entries = [content[at : at + 8] for at in range(0, len(content), 8)]
    assert len(entries) > 4
    shifted = [
        first[:4] + second[4:]
        for first, second in zip(entries, [*entries[1:-1], *entries[-2:]], strict=True)
    ]
    file.write_bytes(b"".join(shifted))
    async with running(tmp_path) as api:
        for offset, value in enumerate(values):
            query = {"offset": offset, "max_bytes": 1}
            answer = await api.client.get(RECORDS, params=query)
            assert [record["value"] for record in answer.json()["records"]] == [value]
        answer = await api.client.get(OFFSETS)
        assert answer.json()["high_watermark"] == 60
