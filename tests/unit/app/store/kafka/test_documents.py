"""Documents in a topic: every replica has the same ones, also after a race, a start and damage."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from app.store.kafka.documents import CREATE_ONLY
from app.store.local.documents import VERSION
from engine.checkpoint.tidelog_files import write_json
from engine.errors import StoredDataCorrupt
from engine.fs.names import INGEST_FILE
from engine.fs.posix import PosixFileSystem
from engine.records.batch import BatchView
from engine.records.builder import build_batch
from tests.support.fake_kafka import FakeKafka, eventually, fake_kafka
from tests.support.kafka_store import Opened, hurry, opened

pytestmark = pytest.mark.anyio

TOPIC = "__tidelog_documents"


@pytest.fixture
async def fake(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeKafka]:
    hurry(monkeypatch)
    async with fake_kafka() as fake:
        yield fake


@pytest.fixture
async def service(fake: FakeKafka, tmp_path: Path) -> AsyncIterator[Opened]:
    async with opened(fake, tmp_path) as service:
        yield service


async def test_a_change_is_there_on_return_and_after_a_start(
    fake: FakeKafka, service: Opened, tmp_path: Path
) -> None:
    """All of its documents, or none; None removes one."""
    documents = service.store.documents
    await documents.change({"a": {"n": 1}, "b": {"n": 2}})
    await documents.change({"a": None})
    assert dict(documents.all()) == {"b": {"n": 2}}
    async with opened(fake, tmp_path) as again:
        assert dict(again.store.documents.all()) == {"b": {"n": 2}}


async def test_other_replicas_learn_of_a_change(
    fake: FakeKafka, service: Opened, tmp_path: Path
) -> None:
    """It calls what the service has set for that."""
    changes = []
    async with opened(fake, tmp_path) as other:
        other.store.documents.on_changed = lambda: changes.append(True)
        await service.store.documents.change({"a": {"n": 1}})
        await eventually(lambda: dict(other.store.documents.all()) == {"a": {"n": 1}})
        await eventually(lambda: changes == [True])


async def test_the_first_of_two_that_are_added_counts(
    fake: FakeKafka, service: Opened, tmp_path: Path
) -> None:
    """It is written again after the second, or compaction would keep that one."""
    async with opened(fake, tmp_path) as other:
        sides = [service.store.documents, other.store.documents]
        added = await asyncio.gather(*[one.add("a", {"n": n}) for n, one in enumerate(sides)])
        assert added[0] == added[1]
        (log,) = fake.topics[TOPIC][1]

        def last_value() -> object:
            *_, record = BatchView(log.batches[-1]).records()
            return bytes(record.value or b""), len(record.headers)

        first = next(iter(BatchView(log.batches[0]).records()))
        assert [name for name, _ in first.headers] == [CREATE_ONLY]
        await eventually(lambda: last_value() == (bytes(first.value or b""), 0))


async def test_a_damaged_document_is_skipped_and_logged(
    fake: FakeKafka, service: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are used."""
    log = fake.topics[TOPIC][1][0]
    records = [(1, b"a", b"{", ()), (1, b"b", b'{"n":1}', ()), (1, None, b"", ())]
    fake.append(log, build_batch(records))
    await eventually(lambda: "b" in service.store.documents.all())
    assert "document a in topic" in caplog.text
    assert isinstance(service.store.documents.damaged("a", "?"), StoredDataCorrupt)


async def test_faults_of_brokers_are_survived(fake: FakeKafka, service: Opened) -> None:
    """A moved leader, a lost connection, a refusal, records that are gone."""
    documents = service.store.documents
    await documents.change({"a": {"n": 1}})
    log = fake.topics[TOPIC][1][0]
    fake.errors["Fetch"] += [
        ErrorCode.not_leader_or_follower,
        ErrorCode.offset_out_of_range,
        ErrorCode.unknown_topic_id,
    ]
    fake.move()
    await documents.change({"b": {"n": 2}})
    fake.silent.add("Fetch")
    fake.move()
    await documents.change({"c": {"n": 3}})
    assert set(documents.all()) == {"a", "b", "c"}
    assert log.end_offset == 3


async def test_a_start_goes_on_where_the_records_begin(
    fake: FakeKafka, service: Opened, tmp_path: Path
) -> None:
    """An operator has deleted the first ones. A broker that refuses an offset does not say it."""
    await service.store.documents.change({"a": {"n": 1}})
    await service.store.documents.change({"b": {"n": 2}})
    fake.topics[TOPIC][1][0].start_offset = 1
    fake.silent.add("ListOffsets")
    async with opened(fake, tmp_path) as other:
        assert set(other.store.documents.all()) == {"b"}


async def test_a_document_that_cannot_be_written_again_stays(
    fake: FakeKafka, service: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    """Another service added it too late, and the brokers refuse to have the first one after it."""
    documents = service.store.documents
    await documents.change({"a": {"n": 1}})
    fake.errors["Produce"].append(ErrorCode.topic_authorization_failed)
    late = build_batch([(1, b"a", b'{"n":2}', ((CREATE_ONLY, b""),))])
    fake.append(fake.topics[TOPIC][1][0], late)
    await eventually(lambda: "could not be written again" in caplog.text)
    assert dict(documents.all()) == {"a": {"n": 1}}


async def test_an_unexpected_fault_is_logged_and_tried_again(
    fake: FakeKafka,
    service: Opened,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is not in the documents yet comes with the next attempt."""
    monkeypatch.setattr("app.store.kafka.documents.MAX_WAIT_MS", 1)
    documents = service.store.documents
    failures = [ValueError("broken")]

    def fail() -> None:
        if failures:
            raise failures.pop()

    documents.on_changed = fail
    await documents.change({"a": {"n": 1}})
    assert set(documents.all()) == {"a"}
    assert "cannot be read" in caplog.text


async def test_a_topic_that_was_made_again_is_read_from_its_start(
    fake: FakeKafka, service: Opened
) -> None:
    """Its documents are those of the new one."""
    await service.store.documents.change({"a": {"n": 1}})
    (log,) = fake.create(TOPIC)
    await service.store.topics.look_for(TOPIC)
    fake.append(log, build_batch([(1, b"b", b'{"n":2}', ())]))
    await eventually(lambda: set(service.store.documents.all()) == {"b"})


async def test_documents_of_a_data_directory_move_along_once(
    fake: FakeKafka, tmp_path: Path
) -> None:
    """The first service with an empty topic writes them; later ones do not change the topic."""
    fs, old = PosixFileSystem(), tmp_path / "old"
    old.mkdir()
    documents = {"a": {"n": 1}, "b": {"n": 2}}
    write_json(fs, old / INGEST_FILE, VERSION, {"documents": documents})
    async with opened(fake, old) as service:
        assert dict(service.store.documents.all()) == documents
        await service.store.documents.change({"a": None})
    async with opened(fake, old) as service:
        assert dict(service.store.documents.all()) == {"b": {"n": 2}}


async def test_a_topic_of_an_operator_is_used(fake: FakeKafka, tmp_path: Path) -> None:
    """Two services that start together create it once."""
    fake.errors["CreateTopics"].append(ErrorCode.topic_already_exists)
    fake.create(TOPIC)
    fake.configs[TOPIC] = {"cleanup.policy": "compact", "retention.ms": "1"}
    async with opened(fake, tmp_path) as service:
        await service.store.documents.change({"a": {"n": 1}})
