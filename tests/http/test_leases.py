"""Workers of a group share its partitions: section 13 of the contract, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.operations.leases import leases, operations
from app.operations.leases.claims import decode_records
from app.operations.leases.leases import CONFIGURATION, LEASES_TOPIC, SKEW_MS
from engine.records.builder import build_batch
from schemas.leases import Lease, LeaseList
from tests.support.credentials import bearer, create_key
from tests.support.fake_kafka import fake_kafka
from tests.support.kafka_store import hurry
from tests.support.service import Api, open_service, running
from tests.support.time import ManualClock
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

LEASES = "/v1/groups/lake/leases"
TTL_MS = 30_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def api(tmp_path: Path, clock: ManualClock, anyio_backend: str) -> AsyncIterator[Api]:
    """A service with a topic of four partitions, whose time is the test's."""
    async with running(tmp_path, clock=clock) as api:
        await api.create(partitions=4, retention_ms="-1")
        yield api


async def renew(
    api: Api, worker: str, *topics: str, release: list[dict[str, Any]] | None = None, **more: object
) -> dict[str, Any]:
    """What a worker has after it has renewed its lease."""
    places = [{"topic": one["topic"], "partition": one["partition"]} for one in release or []]
    body = {"worker": worker, "topics": topics or ["events"], "release": places, **more}
    answer = await api.client.post(LEASES, json=body)
    assert answer.status_code == 200, answer.text
    Lease.model_validate_json(answer.content)
    lease: dict[str, Any] = answer.json()
    return lease


def numbers(lease: dict[str, Any], member: str = "partitions") -> list[int]:
    return [one["partition"] for one in lease[member]]


async def shared(api: Api, *workers: str) -> list[dict[str, Any]]:
    """The leases of some workers once nothing moves between them any more."""
    leases: dict[str, dict[str, Any]] = {}
    for _ in range(3):
        for worker in workers:
            before = leases.get(worker, {"revoking": []})
            leases[worker] = await renew(api, worker, release=before["revoking"])
    return [leases[worker] for worker in workers]


async def commit(api: Api, partition: int, offset: int, fence: object) -> httpx.Response:
    url = f"/v1/groups/lake/offsets/events/{partition}"
    return await api.client.put(url, json={"offset": offset}, headers={"lease-fence": str(fence)})


async def test_the_first_worker_gets_everything(api: Api, clock: ManualClock) -> None:
    """It is told where to read on, until when it may, and when to ask again (U1)."""
    lease = await renew(api, "a")
    assert numbers(lease) == [0, 1, 2, 3]
    assert lease["revoking"] == []
    assert lease["expires_at"] == clock.now_ms() + TTL_MS
    assert lease["renew_in_ms"] == TTL_MS * 30 // 100
    assert {one["offset"] for one in lease["partitions"]} == {0}


async def test_a_partition_moves_only_when_it_is_released(api: Api) -> None:
    """The worker that joins gets it with the next renewal after that, with another fence (U2)."""
    first = await renew(api, "a")
    joined = await renew(api, "b")
    assert numbers(joined) == []
    assert joined["renew_in_ms"] < TTL_MS // 10  # it is about to get some
    assert joined["waiting"] == 2
    asked = await renew(api, "a")
    assert (numbers(asked), numbers(asked, "revoking")) == ([0, 1], [2, 3])
    assert numbers(await renew(api, "b")) == []
    await renew(api, "a", release=asked["revoking"][:1])
    assert numbers(await renew(api, "b")) == [2]
    done = await renew(api, "a", release=asked["revoking"][1:])
    assert (numbers(done), done["revoking"]) == ([0, 1], [])
    last = await renew(api, "b")
    assert numbers(last) == [2, 3]
    assert last["renew_in_ms"] == TTL_MS * 30 // 100
    assert not {one["fence"] for one in first["partitions"]} & {
        one["fence"] for one in last["partitions"]
    }


async def test_a_partition_that_is_never_released_moves_with_the_end_of_its_lease(
    api: Api, clock: ManualClock
) -> None:
    """However often its worker renews: the lease that it had when the partition was to move."""
    await renew(api, "a")
    await renew(api, "b", ttl_ms=600_000)
    for _ in range(3):
        clock.advance(9_000)
        assert numbers(await renew(api, "a"), "revoking") == [2, 3]
    assert numbers(await renew(api, "b", ttl_ms=600_000)) == []
    clock.advance(3_000)
    assert numbers(await renew(api, "b", ttl_ms=600_000)) == [2, 3]
    assert (await renew(api, "a"))["revoking"] == []


async def test_a_worker_that_dies_costs_its_ttl_and_one_that_leaves_nothing(
    api: Api, clock: ManualClock
) -> None:
    """Before the lease ends nobody else has its partitions (U4)."""
    await shared(api, "a", "b")
    clock.advance(TTL_MS - 1)
    assert numbers(await renew(api, "a")) == [0, 1]
    clock.advance(1)
    assert numbers(await renew(api, "a")) == [0, 1, 2, 3]
    await shared(api, "a", "b")
    for _ in range(2):  # a request may be repeated
        assert (await api.client.delete(f"{LEASES}/b")).status_code == 204
    assert numbers(await renew(api, "a")) == [0, 1, 2, 3]


async def test_a_worker_that_slept_cannot_move_a_cursor(api: Api, clock: ManualClock) -> None:
    """Until another has the partition it may commit; a commit without a fence is as before (U5)."""
    await api.append(*range(10), path="/v1/topics/events/partitions/3/records")
    fence = (await renew(api, "a"))["partitions"][3]["fence"]
    assert (await commit(api, 3, 4, fence)).status_code == 201
    clock.advance(TTL_MS)
    assert (await commit(api, 3, 5, fence)).status_code == 200  # nobody has it yet
    taken = await renew(api, "b")
    assert taken["partitions"][3]["offset"] == 5
    late = await commit(api, 3, 6, fence)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    assert "'b' has it" in late.json()["detail"]
    assert (await commit(api, 3, 7, taken["partitions"][3]["fence"])).status_code == 200
    await api.client.delete(f"{LEASES}/b")
    assert (await commit(api, 3, 1, fence)).status_code == 409
    plain = await api.client.put("/v1/groups/lake/offsets/events/3", json={"offset": 2})
    assert plain.status_code == 200


async def test_a_fence_of_a_group_without_leases_is_lost(api: Api) -> None:
    """What is not known is refused, and nothing is stored."""
    answer = await commit(api, 0, 0, 17)
    assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost")
    assert (await api.client.get("/v1/groups/lake/offsets/events/0")).status_code == 404
    assert LEASES_TOPIC not in api.service.topics.all()


@pytest.mark.parametrize("fence", ["", "-1", "1.0", "x", "9" * 20, "1, 2"])
async def test_a_fence_is_a_number(api: Api, fence: str) -> None:
    """Anything else is refused before the offset is looked at."""
    answer = await commit(api, 0, 0, fence)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    assert [one["field"] for one in answer.json()["errors"]] == ["header.lease-fence"]


async def test_a_fence_is_given_once(api: Api) -> None:
    """Of two, nobody knows which one counts."""
    headers = [("lease-fence", "1"), ("lease-fence", "2"), ("content-type", "application/json")]
    url = "/v1/groups/lake/offsets/events/0"
    answer = await api.client.put(url, content=b'{"offset":0}', headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")


async def test_leases_survive_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    """Who holds what, the fences, and the time that is left (U6)."""
    async with running(tmp_path, clock=clock) as api:
        await api.create(partitions=4, retention_ms="-1")
        before = await shared(api, "a", "b")
        listed = (await api.client.get(LEASES)).json()
    clock.advance(1_000)
    async with running(tmp_path, clock=clock) as api:
        assert (await api.client.get(LEASES)).json() == listed
        fence = before[0]["partitions"][0]["fence"]
        assert (await commit(api, 0, 0, fence)).status_code == 201
        after = await renew(api, "a")
        assert after["partitions"] == before[0]["partitions"]
        assert after["generation"] == before[0]["generation"]


async def test_a_start_reads_the_last_state_and_what_follows(
    tmp_path: Path, clock: ManualClock
) -> None:
    """A state is written at the first claim after ten minutes; then a worker leaves."""
    async with running(tmp_path, clock=clock) as api:
        await api.create(partitions=4, retention_ms="-1")
        for _ in range(3):
            await shared(api, "a", "b", "c")
            clock.advance(250_000)
            await renew(api, "long", ttl_ms=600_000)
        await api.client.delete(f"{LEASES}/long")
        listed = (await api.client.get(LEASES)).json()
        log = api.log(LEASES_TOPIC)
        fetched = log.reader.read(0, max_bytes=1 << 20)
        assert fetched is not None
        kinds = [type(one).__name__ for one in decode_records(fetched.data, 0, 1 << 20)]
        assert len(list(decode_records(fetched.data, 2, 1 << 20))) == len(kinds) - 2
    assert kinds.count("State") == 1
    async with running(tmp_path, clock=clock) as api:
        assert (await api.client.get(LEASES)).json() == listed


async def test_the_topic_of_leases_is_compacted_and_not_served(api: Api) -> None:
    """It belongs to the service: clients cannot name it."""
    await renew(api, "a")
    assert dict(api.service.topics.topic(LEASES_TOPIC).overrides) == dict(CONFIGURATION)
    assert (await api.client.get(f"/v1/topics/{LEASES_TOPIC}")).status_code == 404
    listed = (await api.client.get("/v1/topics")).json()["topics"]
    assert [one["topic"] for one in listed] == ["events"]


async def test_workers_are_listed_with_what_they_hold(api: Api, clock: ManualClock) -> None:
    """By name and in pages; those whose leases are over are left out."""
    await shared(api, "a", "b")
    await renew(api, "c")
    listed = LeaseList.model_validate_json((await api.client.get(LEASES)).content)
    assert [one.worker for one in listed.workers] == ["a", "b", "c"]
    assert [len(one.partitions) for one in listed.workers] == [2, 2, 0]
    assert [one.waiting for one in listed.workers] == [0, 0, 1]
    assert sum(place.revoking for one in listed.workers for place in one.partitions) == 1
    page = (await api.client.get(f"{LEASES}?page_size=2")).json()
    assert [one["worker"] for one in page["workers"]] == ["a", "b"]
    url = f"{LEASES}?page_size=2&page_token={page['next_page_token']}"
    page = (await api.client.get(url)).json()
    assert ([one["worker"] for one in page["workers"]], page["next_page_token"]) == (["c"], None)
    clock.advance(TTL_MS)
    assert (await api.client.get(LEASES)).json()["workers"] == []


async def test_a_group_without_workers_has_none(api: Api) -> None:
    """Nothing is made for it."""
    assert (await api.client.get(LEASES)).json() == {
        "group": "lake",
        "generation": -1,
        "workers": [],
        "next_page_token": None,
    }
    assert (await api.client.delete(f"{LEASES}/nobody")).status_code == 204
    assert LEASES_TOPIC not in api.service.topics.all()


async def test_reading_goes_on_where_the_group_has_committed(api: Api) -> None:
    """Otherwise at the log start, so that nothing is left out."""
    for number in (0, 1):
        path = f"/v1/topics/events/partitions/{number}/records"
        await api.append(*range(5), path=path)
        body = {"before_offset": 2}
        url = f"/v1/topics/events/partitions/{number}/delete-records"
        answer = await api.client.post(url, json=body)
        assert answer.status_code == 200, answer.text
    await api.client.put("/v1/groups/lake/offsets/events/1", json={"offset": 4})
    lease = await renew(api, "a")
    assert [one["offset"] for one in lease["partitions"]] == [2, 4, 0, 0]


async def test_partitions_that_are_added_are_shared_out(api: Api) -> None:
    """With the next renewal of any worker."""
    await renew(api, "a")
    await api.client.patch(
        "/v1/topics/events",
        json={"partitions": 6},
        headers={"content-type": "application/merge-patch+json"},
    )
    assert numbers(await renew(api, "a")) == [0, 1, 2, 3, 4, 5]


async def test_a_topic_that_is_made_again_is_shared_out_anew(api: Api) -> None:
    """Nothing is held of the one before, and its fences are lost."""
    before = await renew(api, "a")
    await api.client.delete("/v1/topics/events")
    await api.create(partitions=2)
    first = await renew(api, "b")
    second = await renew(api, "a")
    assert sorted(numbers(first) + numbers(second)) == [0, 1]
    assert (await commit(api, 0, 0, before["partitions"][0]["fence"])).status_code == 409


async def test_several_topics_are_shared_by_the_number_of_partitions(api: Api) -> None:
    """Ten topics of one partition do not all go to the first worker (U3)."""
    names = [f"t{number}" for number in range(10)]
    for name in names:
        await api.create(name)
    first, second = await renew(api, "a", *names), await renew(api, "b", *names)
    first = await renew(api, "a", *names)
    await renew(api, "a", *names, release=first["revoking"])
    second = await renew(api, "b", *names)
    assert len(second["partitions"]) == 5


WRONG: list[tuple[dict[str, object], int, str]] = [
    ({"topics": ["events"]}, 422, "invalid_request"),
    ({"worker": "a"}, 422, "invalid_request"),
    ({"worker": "a", "topics": []}, 422, "invalid_request"),
    ({"worker": "a", "topics": ["events"] * 101}, 422, "invalid_request"),
    ({"worker": "", "topics": ["events"]}, 422, "invalid_request"),
    ({"worker": "a\n", "topics": ["events"]}, 422, "invalid_request"),
    ({"worker": "ä" * 128, "topics": ["events"]}, 422, "invalid_request"),
    ({"worker": "..", "topics": ["events"]}, 422, "invalid_request"),
    ({"worker": "a", "topics": ["absent"]}, 404, "topic_not_found"),
    ({"worker": "a", "topics": [LEASES_TOPIC]}, 404, "topic_not_found"),
    ({"worker": "a", "topics": ["events"], "ttl_ms": 999}, 422, "invalid_request"),
    ({"worker": "a", "topics": ["events"], "ttl_ms": 600_001}, 422, "invalid_request"),
    ({"worker": "a", "topics": ["events"], "ttl_ms": True}, 422, "invalid_request"),
    ({"worker": "a", "topics": ["events"], "relaese": []}, 422, "invalid_request"),
    (
        {"worker": "a", "topics": ["events"], "release": [{"topic": "events"}]},
        422,
        "invalid_request",
    ),
]


@pytest.mark.parametrize(("body", "status", "code"), WRONG)
async def test_what_cannot_be_leased_changes_nothing(
    api: Api, body: dict[str, object], status: int, code: str
) -> None:
    """The problem names what is wrong; no topic is made for it."""
    answer = await api.client.post(LEASES, json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert LEASES_TOPIC not in api.service.topics.all()


async def test_a_name_that_a_url_cannot_have_is_refused(api: Api) -> None:
    """A group's name is judged as for offsets."""
    body = {"worker": "a", "topics": ["events"]}
    answer = await api.client.post("/v1/groups/%00/leases", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert (await api.client.post("/v1/groups/a%2Fb/leases", json=body)).json()["group"] == "a/b"


async def test_a_release_of_what_another_has_changes_nothing(api: Api) -> None:
    """A worker lets go of its own partitions only."""
    first, second = await shared(api, "a", "b")
    again = await renew(api, "b", release=first["partitions"])
    assert again["partitions"] == second["partitions"]
    assert (await renew(api, "a"))["partitions"] == first["partitions"]


async def test_workers_are_limited(tmp_path: Path, clock: ManualClock) -> None:
    """The limit has a name; who is there may go on, and what has ended makes room."""
    async with running(tmp_path, clock=clock, max_lease_workers=2) as api:
        await api.create()
        await renew(api, "a", ttl_ms=60_000)
        await renew(api, "b")
        body = {"worker": "c", "topics": ["events"]}
        answer = await api.client.post("/v1/groups/other/leases", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "policy_violation")
        assert answer.json()["limit"] == "max_lease_workers"
        await renew(api, "a", ttl_ms=60_000)
        clock.advance(TTL_MS)
        await renew(api, "c")


async def test_one_key_cannot_take_the_leases_of_all(tmp_path: Path, clock: ManualClock) -> None:
    """It has a share of the limit, which comes back as its leases end."""
    keys = {name: create_key(tmp_path, name, "read:*", "admin:*") for name in ("one", "two")}
    async with open_service(tmp_path, clock=clock, max_lease_workers=10) as service:
        clients = {name: wired(service) for name in keys}
        for name, client in clients.items():
            client.headers.update(bearer(keys[name]))
        await clients["one"].put("/v1/topics/events", json={})

        async def join(name: str, worker: int) -> int:
            body = {"worker": f"{name}{worker}", "topics": ["events"]}
            return (await clients[name].post(LEASES, json=body)).status_code

        statuses = [await join("one", number) for number in range(10)]
        assert 200 in statuses
        assert 422 in statuses
        assert await join("two", 0) == 200
        clock.advance(TTL_MS)
        assert await join("one", 99) == 200


async def test_a_key_sees_and_takes_only_topics_that_it_may_read(tmp_path: Path) -> None:
    """A worker of other topics is shown without them, or not at all, and cannot be ended (U7)."""
    scopes = {"root": ("admin:*", "read:*"), "one": ("read:events",)}
    keys = {name: create_key(tmp_path, name, *some) for name, some in scopes.items()}
    async with open_service(tmp_path) as service:
        clients = {name: wired(service) for name in keys}
        for name, client in clients.items():
            client.headers.update(bearer(keys[name]))
        for topic in ("events", "other"):
            await clients["root"].put(f"/v1/topics/{topic}", json={})
        for worker, topics in (("both", ["events", "other"]), ("far", ["other"])):
            body = {"worker": worker, "topics": topics}
            assert (await clients["root"].post(LEASES, json=body)).status_code == 200
        refused = await clients["one"].post(LEASES, json={"worker": "x", "topics": ["other"]})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        (seen,) = (await clients["one"].get(LEASES)).json()["workers"]
        assert (seen["worker"], seen["topics"]) == ("both", ["events"])
        assert {place["topic"] for place in seen["partitions"]} <= {"events"}
        assert (await clients["one"].delete(f"{LEASES}/both")).status_code == 403
        assert len((await clients["root"].get(LEASES)).json()["workers"]) == 2


async def test_many_workers_at_once_share_everything(api: Api) -> None:
    """Claims that are under way together are applied in one order."""
    names = [f"w{number}" for number in range(40)]
    await asyncio.gather(*(renew(api, name) for name in names))
    for _ in range(3):
        leases = await asyncio.gather(*(renew(api, name) for name in names))
        await asyncio.gather(
            *(
                renew(api, one["worker"], release=one["revoking"])
                for one in leases
                if one["revoking"]
            )
        )
    leases = await asyncio.gather(*(renew(api, name) for name in names))
    assert sorted(number for one in leases for number in numbers(one)) == [0, 1, 2, 3]
    assert {len(one["partitions"]) for one in leases} == {0, 1}


async def test_two_replicas_on_a_cluster_agree(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is asked: who holds what, and whose commit counts."""
    hurry(monkeypatch)
    async with (
        fake_kafka(nodes=2) as fake,
        running(tmp_path / "1", kafka=fake.addresses, clock=clock) as one,
        running(tmp_path / "2", kafka=fake.addresses, clock=clock) as two,
    ):
        await one.create(partitions=4, retention_ms="-1")
        first = await renew(one, "a")
        await renew(two, "b")
        asked = await renew(two, "a")
        assert numbers(asked, "revoking") == [2, 3]
        await renew(one, "a", release=asked["revoking"])
        taken = await renew(two, "b")
        assert numbers(taken) == [2, 3]
        assert (await one.client.get(LEASES)).json() == (await two.client.get(LEASES)).json()
        assert (await commit(two, 2, 0, first["partitions"][2]["fence"])).status_code == 409
        assert (await commit(one, 2, 0, taken["partitions"][0]["fence"])).status_code == 201
        async with running(tmp_path / "3", kafka=fake.addresses, clock=clock) as three:
            assert (await three.client.get(LEASES)).json() == (await one.client.get(LEASES)).json()


async def test_one_key_cannot_use_up_the_memory_of_leases(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Partitions of all groups are counted; those of groups without workers make room."""
    keys = {name: create_key(tmp_path, name, "read:*", "admin:*") for name in ("one", "two")}
    async with open_service(tmp_path, clock=clock, max_lease_partitions=100) as service:
        clients = {name: wired(service) for name in keys}
        for name, client in clients.items():
            client.headers.update(bearer(keys[name]))
        await clients["one"].put("/v1/topics/events", json={"partitions": 10})

        async def join(name: str, group: str) -> httpx.Response:
            body = {"worker": "w", "topics": ["events"]}
            return await clients[name].post(f"/v1/groups/{group}/leases", json=body)

        answers = [await join("one", f"g{number}") for number in range(10)]
        assert answers[0].status_code == 200
        refused = answers[-1].json()
        assert (refused["code"], refused["limit"]) == ("policy_violation", "max_share_percent")
        assert (await join("two", "mine")).status_code == 200
        assert (await join("one", "g0")).status_code == 200  # it is counted already
        clock.advance(TTL_MS + SKEW_MS)
        assert (await join("two", "late")).status_code == 200


async def test_records_that_are_no_claims_are_passed_over(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote them: they are logged, and the leases are what the claims say."""
    monkeypatch.setattr(leases, "_INLINE_BYTES", 0)  # as a long log: a worker decodes it
    rubbish = [
        (b"x", b"x"),
        (b'["claim"]', b"{}"),
        (b'["claim","lake","a"]', b"[]"),
        (b'["state","lake"]', b'{"before_offset":1}'),
        (b'["state","other"]', b'{"before_offset":1,"leases":[1]}'),
        (b'["state","third"]', b'{"before_offset":1,"leases":[0,0,{},[],[[7,[],1,1]],{},{}]}'),
    ]
    async with running(tmp_path, clock=clock) as api:
        await api.create(retention_ms="-1")
        before = await renew(api, "a")
        partition = api.service.store.topics.partition(LEASES_TOPIC, 0)
        batch = build_batch([(clock.now_ms(), key, value, ()) for key, value in rubbish])
        appended = partition.append_now(batch, acks="all", checked=True)
        await partition.committed(appended.last_offset + 1)
        assert (await renew(api, "a"))["partitions"] == before["partitions"]
    async with running(tmp_path, clock=clock) as api:
        assert (await renew(api, "a"))["partitions"] == before["partitions"]


async def test_groups_without_leases_make_room(tmp_path: Path, clock: ManualClock) -> None:
    """For workers and for partitions; their fences are lost then."""
    limits = {"max_lease_workers": 2, "max_lease_partitions": 15}
    async with running(tmp_path, clock=clock, **limits) as api:
        await api.create(partitions=10, retention_ms="-1")
        body = {"worker": "w", "topics": ["events"], "ttl_ms": 1_000}
        for number in range(4):
            url = f"/v1/groups/g{number}/leases"
            assert (await api.client.post(url, json=body)).status_code == 200
            clock.advance(SKEW_MS + 1_000)
        await api.client.post("/v1/groups/g9/leases", json=body)
        answer = await api.client.post("/v1/groups/g8/leases", json=body)
        assert answer.json()["limit"] == "max_lease_partitions"


async def test_as_many_groups_are_remembered_as_may_have_workers(
    tmp_path: Path, clock: ManualClock
) -> None:
    """A fence of one that had to go is lost; that of a later one is not."""
    async with running(tmp_path, clock=clock, max_lease_workers=2) as api:
        await api.create(retention_ms="-1")
        fences = []
        for number in range(3):
            body = {"worker": "w", "topics": ["events"], "ttl_ms": 1_000}
            answer = await api.client.post(f"/v1/groups/g{number}/leases", json=body)
            fences.append(answer.json()["partitions"][0]["fence"])
            clock.advance(SKEW_MS + 1_000)
        found = [
            (
                await api.client.put(
                    f"/v1/groups/g{number}/offsets/events/0",
                    json={"offset": 0},
                    headers={"lease-fence": str(fence)},
                )
            ).status_code
            for number, fence in enumerate(fences)
        ]
        assert found == [409, 409, 201]


async def test_a_topic_that_is_gone_is_left_out(api: Api) -> None:
    """Of what is to be released, too."""
    await api.create("other")
    await renew(api, "a", "events", "other")
    await api.client.delete("/v1/topics/events")
    lease = await renew(api, "a", "other")
    assert [one["topic"] for one in lease["partitions"]] == ["other"]
    assert lease["revoking"] == []


async def test_a_worker_cannot_ask_for_too_much(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions of its topics are counted."""
    monkeypatch.setattr(operations, "MOST_PARTITIONS", 3)
    answer = await api.client.post(LEASES, json={"worker": "a", "topics": ["events"]})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_claims_that_the_cluster_lost_are_read_again(api: Api) -> None:
    """What was applied and is not in the log any more does not count."""
    first = await renew(api, "a")
    api.service.leases._next_offset += 5  # noqa: SLF001  # as if five claims had been there
    again = await renew(api, "a")
    assert again["partitions"] == first["partitions"]
    assert (await renew(api, "b"))["waiting"] == 2
