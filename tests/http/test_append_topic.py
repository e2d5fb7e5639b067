"""Appends to a topic, the server picking partitions: protocol rules A13 and A14."""

import asyncio
from pathlib import Path

import pytest
from anyio.lowlevel import checkpoint

from engine.errors import StorageOffline
from tests.support.service import NDJSON, Api, running

pytestmark = pytest.mark.anyio

PATH = "/v1/topics/spread/records"


async def test_a_key_goes_where_a_kafka_producer_puts_it(spread: Api) -> None:
    """The partition is murmur2 of the key, as of Kafka's own partitioner (A13)."""
    keys = ["21", "foobar", "a-little-bit-long-string"]
    hashes = [-973932308, -790332482, -985981536]  # of Kafka's UtilsTest
    records = [{"key": key, "value": 1} for key in keys]
    answer = await spread.client.post(PATH, json={"records": records})
    assert answer.status_code == 201, answer.text
    expected = [(hashed & 0x7FFFFFFF) % 3 for hashed in hashes]
    assert [record["partition"] for record in answer.json()["records"]] == expected


async def test_records_without_a_key_stay_together(spread: Api) -> None:
    """One request without keys goes to one partition, the next to another."""
    seen: list[int] = []
    for _ in range(3):
        answer = await spread.client.post(PATH, json={"records": [{"value": 1}, {"value": 2}]})
        partitions = {record["partition"] for record in answer.json()["records"]}
        assert len(partitions) == 1
        seen += partitions
    assert sorted(seen) == [0, 1, 2]


async def test_each_record_gets_its_offset(spread: Api) -> None:
    """Outcomes are in input order and agree with what is stored; for large bodies too."""
    body = b"".join(b'{"key":"k%d","value":%d}\n' % (n % 50, n) for n in range(2_000))
    padded = body + b" " * 200_000
    answer = await spread.client.post(PATH, content=padded, headers=NDJSON)
    assert answer.json()["count"] == 2_000
    assert sum(receipt["count"] for receipt in answer.json()["partitions"]) == 2_000
    for value in (0, 999, 1_999):
        outcome = answer.json()["records"][value]
        path = f"/v1/topics/spread/partitions/{outcome['partition']}/records"
        read = await spread.client.get(path, params={"offset": outcome["offset"]})
        assert read.json()["records"][0]["value"] == value


@pytest.mark.parametrize("acks", ["0", "1"])
async def test_acks_hold_for_topics_too(spread: Api, acks: str) -> None:
    """Without `all` the response does not wait for the disk."""
    answer = await spread.client.post(f"{PATH}?acks={acks}", json={"records": [{"value": 1}]})
    assert (answer.status_code, answer.json()["acks"]) == ({"0": 202, "1": 201}[acks], acks)


@pytest.mark.parametrize("header", ["producer-id", "expected-offset", "if-match"])
async def test_conditions_are_about_one_partition(spread: Api, header: str) -> None:
    """What makes sense for one log only is refused."""
    body = {"records": [{"value": 1}]}
    answer = await spread.client.post(PATH, json=body, headers={header: "1"})
    assert (answer.status_code, answer.json()["header"]) == (400, header)


async def test_a_disk_that_never_confirms_fails_its_part(patient: Api) -> None:
    """A part whose flush fails is reported with its records; the others are on disk."""
    log = patient.log("spread", 0)
    records = [{"key": f"k{n}", "value": n} for n in range(20)]
    await patient.client.post(PATH, json={"records": records})  # all partitions are written to
    patient.local.commits.attach(asyncio.get_running_loop(), lambda: None)  # no flush happens
    posting = asyncio.create_task(patient.client.post(PATH, json={"records": records}))
    while not posting.done():
        for other in (patient.log("spread", 1), patient.log("spread", 2)):
            patient.local.commits.committed([(other, other.durability.commit())])
        patient.local.commits.abandon([log], StorageOffline("the disk failed"))
        await checkpoint()
    answer = await asyncio.wait_for(posting, 30)
    assert answer.status_code == 207
    codes = {entry.get("code") for entry in answer.json()["records"] if entry["partition"] == 0}
    assert codes == {"storage_offline"}


async def test_a_partition_that_is_not_here_fails_its_part(tmp_path: Path) -> None:
    """An adopted topic may lack partitions: their records get that error."""
    (tmp_path / "adopted-1").mkdir()
    async with running(tmp_path) as api:
        records = [{"key": f"k{n}", "value": n} for n in range(20)]
        answer = await api.client.post("/v1/topics/adopted/records", json={"records": records})
        assert answer.status_code == 207
        codes = {entry.get("code") for entry in answer.json()["records"]}
        assert codes == {None, "partition_not_found"}
        offsets = (await api.client.get("/v1/topics/adopted/offsets")).json()["partitions"]
        assert [entry["partition"] for entry in offsets] == [1]
        assert (await api.client.get("/v1/topics/adopted")).json()["adopted"] is True


async def test_an_unknown_topic_is_not_found(spread: Api) -> None:
    """It is 404, as everywhere else."""
    answer = await spread.client.post("/v1/topics/nowhere/records", json={"records": [{}]})
    assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found")


async def test_some_partitions_may_fail(spread: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """207 only if some failed and others did not, with an entry for each record.

    Else the one error. As (A14) says.
    """
    log = spread.log("spread", 0)
    real = spread.local.runtime.committer.append

    def failing(target: object, *arguments: object, **options: object) -> object:
        if target is log:
            raise StorageOffline("the disk failed")
        return real(target, *arguments, **options)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(spread.local.runtime.committer, "append", failing)
    records = [{"key": f"k{n}", "value": n} for n in range(20)]
    answer = await spread.client.post(PATH, json={"records": records})
    assert answer.status_code == 207
    outcomes = answer.json()["records"]
    failed = [outcome for outcome in outcomes if outcome["partition"] == 0]
    assert {outcome["code"] for outcome in failed} == {"storage_offline"}
    assert all("offset" in outcome for outcome in outcomes if outcome["partition"] != 0)
    assert len(outcomes) == 20
    lost = [record for record, out in zip(records, outcomes, strict=True) if out["partition"] == 0]
    alone = await spread.client.post(PATH, json={"records": lost})
    assert (alone.status_code, alone.json()["code"]) == (503, "storage_offline")
