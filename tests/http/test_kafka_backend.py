"""The API on a Kafka cluster: what maps, what is 501, and what the service says of itself."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from app.codecs.calls import AppendCall
from app.errors import NotEnoughReplicas
from app.operations.append.append import AppendOptions, BatchesAppend, RecordsAppend, Way
from app.operations.append.batching import Batcher
from app.settings import Settings
from app.store.choice import make_store
from engine.errors import EngineError, InvalidConfig, InvalidRecord
from tests.support.builders import new_batch
from tests.support.fake_kafka import FakeKafka, eventually, fake_kafka
from tests.support.kafka_store import hurry
from tests.support.service import RECORDS, Api, running

pytestmark = pytest.mark.anyio

SHARED = AppendCall()


class Unencodable(RecordsAppend):
    """Records that cannot be encoded: the memory is used up."""

    __slots__ = ()

    def batch(self, others: Sequence[RecordsAppend] = ()) -> bytearray:
        raise MemoryError


@pytest.fixture
async def fake(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeKafka]:
    hurry(monkeypatch)
    async with fake_kafka(nodes=2) as fake:
        yield fake


@pytest.fixture
async def api(fake: FakeKafka, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(tmp_path, kafka=fake.addresses) as api:
        yield api


async def test_the_service_says_what_stores_the_logs(api: Api) -> None:
    """And what `acks=all` means there."""
    assert (await api.client.get("/v1")).json()["backend"] == "kafka"
    limits = (await api.client.get("/v1/limits")).json()
    assert (limits["backend"], limits["durability"]) == ("kafka", "replicated")
    assert (await api.client.get("/readyz")).json() == {"status": "ready"}
    settings = (await api.client.get("/v1/settings")).json()["settings"]
    assert "Brokers of a Kafka cluster" in settings["kafka"]["description"]


async def test_records_go_in_and_come_out(api: Api) -> None:
    """A receipt has the offsets and the location, and no ETag."""
    await api.create()
    answer = await api.client.post(RECORDS, json={"records": [{"value": 1}, {"value": 2}]})
    assert answer.status_code == 201
    assert "etag" not in answer.headers
    read = await api.client.get(answer.headers["location"])
    assert [record["value"] for record in read.json()["records"]] == [1, 2]
    keyed = {"idempotency-key": "a"}
    answers = [
        await api.client.post(RECORDS, json={"records": [{"value": 3}]}, headers=keyed)
        for _ in range(2)
    ]
    assert [one.json()["duplicate"] for one in answers] == [False, True]


async def test_no_broker_says_where_acks_0_is(api: Api) -> None:
    """The offsets are -1, as in Kafka's producer, and there is no location."""
    await api.create()
    answer = await api.client.post(f"{RECORDS}?acks=0", json={"records": [{"value": 1}]})
    assert (answer.status_code, answer.json()["base_offset"]) == (202, -1)
    assert "location" not in answer.headers


async def test_a_delivery_with_acks_0_is_remembered_once_it_is_read(api: Api) -> None:
    """Nothing says where it is; the log does."""
    await api.create()
    keyed, body = {"idempotency-key": "a"}, {"records": [{"value": 1}]}
    answer = await api.client.post(f"{RECORDS}?acks=0", json=body, headers=keyed)
    assert (answer.status_code, answer.json()["base_offset"]) == (202, -1)
    await eventually(lambda: api.service.deliveries.remembered == 1)
    again = await api.client.post(f"{RECORDS}?acks=0", json=body, headers=keyed)
    assert (again.json()["base_offset"], again.json()["duplicate"]) == (0, True)


async def test_what_kafka_cannot_do_is_501(api: Api) -> None:
    """Conditions on the log's end, and what only the engine has."""
    await api.create()
    body = {"records": [{"value": 1}]}
    for request in (
        api.client.post(RECORDS, json=body, headers={"expected-offset": "0"}),
        api.client.post(RECORDS, json=body, headers={"if-match": '"0-0-00000000"'}),
        api.client.post("/v1/topics/events/partitions/0/roll"),
        api.client.get("/v1/topics/events/partitions/0/segments"),
    ):
        answer = await request
        assert (answer.status_code, answer.json()["code"]) == (501, "not_supported_by_backend")


async def test_the_parts_of_a_topic_append_fail_apart(fake: FakeKafka, api: Api) -> None:
    """One partition without its replicas is one entry of the answer."""
    await api.create(partitions=2)
    body = {"records": [{"key": key, "value": 1} for key in "abcdefgh"]}
    fake.errors["Produce"].append(ErrorCode.not_enough_replicas)
    answer = await api.client.post("/v1/topics/events/records", json=body)
    assert answer.status_code == 207
    codes = {record.get("code") for record in answer.json()["records"]}
    assert codes == {None, "not_enough_replicas"}
    fake.errors["Produce"] += [ErrorCode.not_enough_replicas] * 2
    answer = await api.client.post("/v1/topics/events/records", json=body)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_a_topic_of_another_service_is_found(fake: FakeKafka, api: Api) -> None:
    """And a partition that it added, and that it has deleted the topic."""
    fake.create("events")
    await api.append(1)
    fake.create("events", 2)
    other = "/v1/topics/events/partitions/1/records"
    answer = await api.client.post(other, json={"records": [{"value": 1}]})
    assert answer.status_code == 201
    assert (await api.client.get("/v1/topics/none")).status_code == 404


async def test_an_unknown_outcome_has_a_url(fake: FakeKafka, api: Api) -> None:
    """For a producer: its sequence can be asked for, or sent again."""
    await api.create()
    producer = (await api.client.post("/v1/producers")).json()
    headers = {
        "producer-id": str(producer["producer_id"]),
        "producer-epoch": "0",
        "producer-sequence": "0",
    }
    fake.errors["Produce"].append(ErrorCode.request_timed_out)
    body = {"records": [{"value": 1}]}
    answer = await api.client.post(RECORDS, json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (504, "append_outcome_unknown")
    again = await api.client.post(RECORDS, json=body, headers=headers)
    assert again.json()["base_offset"] == 0


async def test_profiles_and_tokens_follow_the_other_replicas(
    fake: FakeKafka, api: Api, tmp_path: Path
) -> None:
    """What one replica stores, revokes or removes, the others know."""
    await api.create()
    async with running(tmp_path, kafka=fake.addresses) as other:
        url = "/v1/topics/events/ingest-profile"
        profile = {"signature": {"scheme": "github", "secrets": ["0123456789abcdef"]}}
        assert (await api.client.put(url, json=profile)).status_code in {200, 201}
        await eventually(lambda: other.service.profiles.of("events").signature is not None)
        token = (await api.client.post("/v1/topics/events/ingest-tokens", json={})).json()
        tokens = other.service.ingest_tokens
        await eventually(lambda: token["id"] in tokens.of("events"))
        path = f"/v1/topics/events/ingest-tokens/{token['id']}"
        assert (await api.client.delete(path)).status_code == 204
        await eventually(lambda: token["id"] not in tokens.of("events"))


async def test_appends_of_one_turn_share_a_batch(fake: FakeKafka, api: Api) -> None:
    """A producer's stays alone; after a refusal each is sent alone; one may not be encoded."""
    await api.create()
    service, partition = api.service, api.service.partition("events", 0)
    told: list[Exception | None] = []

    def add(
        batcher: Batcher, body: bytes, *, kind: type = RecordsAppend, call: AppendCall = SHARED
    ) -> None:
        append = kind(service, partition, AppendOptions.of({}, call))
        assert append.way_of(body) is Way.SHARED
        append.take(body)
        batcher.add(append, len(body), told.append)

    batcher, body = Batcher(service), b'{"records":[{"value":1}]}'
    for _ in range(3):
        add(batcher, body)
    add(batcher, bytes(new_batch(2)), kind=BatchesAppend)
    await eventually(lambda: len(told) == 4)
    assert told == [None] * 4
    (log,) = fake.topics["events"][1]
    assert sorted(len(batch) for batch in log.batches) == sorted({len(b) for b in log.batches})
    assert (len(log.batches), log.end_offset) == (2, 5)
    told.clear()
    fake.errors["Produce"] += [ErrorCode.invalid_record, ErrorCode.none, ErrorCode.invalid_record]
    for _ in range(2):
        add(batcher, body)
    await eventually(lambda: len(told) == 2)
    assert {type(one) for one in told} == {type(None), InvalidRecord}
    told.clear()
    fake.errors["Produce"].append(ErrorCode.not_enough_replicas)
    for _ in range(2):
        add(batcher, body)
    await eventually(lambda: len(told) == 2)
    assert {type(one) for one in told} == {NotEnoughReplicas}
    told.clear()
    before = len(log.batches)
    add(batcher, body)
    add(batcher, body, call=AppendCall(producer_id=7, producer_epoch=0, base_sequence=0))
    add(batcher, body, kind=Unencodable)
    await eventually(lambda: len(told) == 3)
    assert [type(one) for one in told if one] == [MemoryError]
    assert len(log.batches) == before + 2


async def test_a_lost_cluster_is_503(fake: FakeKafka, api: Api) -> None:
    """With `Retry-After`, and not ready; the service goes on when a broker is back."""
    await api.create()
    for node in (1, 2):
        await fake.stop(node)
    await eventually(lambda: api.service.store.failure() is not None or _refreshed(api))
    answer = await api.client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "offline")


def _refreshed(api: Api) -> bool:
    asyncio.ensure_future(api.service.topics.look_for("none"))  # noqa: RUF006  # it ends alone
    return False


async def test_the_extra_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without it, a start says what to install."""
    monkeypatch.setattr("app.store.choice.find_spec", lambda _: None)
    with pytest.raises(InvalidConfig, match="tidelog\\[kafka\\]"):
        make_store(
            Settings(kafka="broker:9092"),
            **dict.fromkeys(
                ("workers", "clock", "fs", "recorder", "on_moved", "has_readers", "on_gone")
            ),  # type: ignore[arg-type]  # none of them is used
        )
    assert issubclass(InvalidConfig, EngineError)


@pytest.mark.parametrize(
    "settings",
    [
        {"kafka": "broker"},
        {"kafka": "broker:99999"},
        {"kafka": "broker:9092,:9092"},
        {"kafka_security_protocol": "SASL_SSL"},
        {"kafka_security_protocol": "SASL_SSL", "kafka_sasl_mechanism": "OAUTHBEARER"},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, str]) -> None:
    """At the start, with a sentence."""
    with pytest.raises(ValueError, match=r"HOST:PORT|needs"):
        Settings.model_validate(settings)
