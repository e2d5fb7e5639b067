"""Damage below the recovery point, as a client of the service meets it."""

from pathlib import Path

import pytest

from engine.fs.names import index_name, log_name
from tests.support.service import BATCHES, OFFSETS, RECORDS, running

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
            assert problem["file"].endswith(str(PARTITION / log_name(0)))
            assert problem["position"] == 20 * batch_bytes
            assert problem["offset"] == 20


async def test_what_is_not_damaged_is_served(tmp_path: Path) -> None:
    """Records before and behind the damage, in its segment and in the next."""
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
