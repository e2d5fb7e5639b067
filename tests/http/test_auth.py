"""Which callers are accepted, and what each may do, in both ways in."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.application import document_text
from app.limits.admission import Phase
from app.operations.service import Service
from app.security.authority import PEER_KEY
from app.security.rules import RULES, Reach
from app.server.process import compose
from app.settings import Settings
from engine.errors import InvalidConfig
from tests.support.credentials import bearer, create_key, revoke
from tests.support.issuer import AUDIENCE, ISSUER, Wanted, jwk, jwks, token
from tests.support.service import (
    BATCHES,
    NDJSON,
    OFFSETS,
    RAW,
    RECORDS,
    Api,
    client_of,
    open_service,
    running,
)
from tests.support.time import ManualClock
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

ODD = "?acks=all&acks=all"
"""A query that leads to FastAPI, which then refuses it."""

AVRO = {"format": "avro", "definition": "{}"}

ADMIN = ("read:*", "append:*", "admin:*", "metrics")


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Api]:
    """A service that requires keys, and a client with a key for everything."""
    key = create_key(tmp_path, "root", *ADMIN)
    async with running(tmp_path) as api:
        api.client.headers.update(bearer(key))
        await api.create()
        yield api


def as_nobody(api: Api) -> httpx.AsyncClient:
    """Another client, without credentials."""
    return wired(api.service)


async def as_key(api: Api, name: str, *scopes: str, **more: Any) -> httpx.AsyncClient:
    """Another client, with a key of these scopes."""
    client = as_nobody(api)
    client.headers.update(
        bearer(create_key(api.service.settings.data_directory, name, *scopes, **more))
    )
    await api.service.security.refresh_keys()
    return client


def check(answer: httpx.Response, status: int, code: str, *, challenge: str = "") -> dict[str, Any]:
    """Look at a refusal and return its problem document."""
    assert answer.status_code == status, answer.text
    problem: dict[str, Any] = answer.json()
    assert (problem["code"], problem["side_effects"]) == (code, "none")
    assert challenge in answer.headers.get("www-authenticate", "")
    assert answer.headers["cache-control"] == "no-store"
    return problem


@pytest.mark.parametrize("is_hot", [True, False])
async def test_every_operation_asks_for_credentials(guarded: Api, *, is_hot: bool) -> None:
    """All documented operations are 401 with a challenge, except the probes (Z1)."""
    document = json.loads(document_text())
    async with wired(guarded.service, is_hot=is_hot) as nobody:
        for path, operations in document["paths"].items():
            url = path.replace("{topic}", "events").replace("{partition}", "0")
            for method, operation in operations.items():
                answer = await nobody.request(method, url)
                if RULES[operation["operationId"]].reach is Reach.OPEN:
                    assert answer.status_code == 200
                    continue
                assert answer.status_code == 401, (method, url)
                assert answer.headers["www-authenticate"] == 'Bearer realm="tidelog"'


async def test_every_operation_has_its_rule() -> None:
    """The table of rules and the document name the same operations."""
    paths = json.loads(document_text())["paths"].values()
    documented = {one["operationId"]: one for path in paths for one in path.values()}
    assert RULES.keys() - documented.keys() == {"kafkaRestUseConsumer"}  # it only returns advice
    for name, operation in documented.items():
        assert operation.get("x-required-scopes", []) == list(RULES[name].scopes)


async def test_without_credentials_nothing_is_written_on_either_lane(guarded: Api) -> None:
    """An append that is refused leaves the log as it was (Z5)."""
    async with as_nobody(guarded) as nobody:
        body = json.dumps({"records": [{"value": 1}]})
        for path in (RECORDS, RECORDS + ODD, "/v1/topics/events/records", BATCHES):
            check(await nobody.post(path, content=body), 401, "unauthenticated")
    assert guarded.log().watermarks.log_end_offset == 0


# Permissions: an operation, and which of four keys may call it on the topic `events`.
ALLOWED: tuple[tuple[str, str, Any, set[str]], ...] = (
    ("GET", OFFSETS, None, {"reader", "writer", "admin"}),
    ("GET", OFFSETS + "?timestamp=earliest", None, {"reader", "writer", "admin"}),
    ("GET", "/v1/topics/events", None, {"reader", "writer", "admin"}),
    ("GET", "/v1/topics/events/partitions/0/segments", None, {"reader", "writer", "admin"}),
    ("GET", RECORDS, None, {"reader"}),
    ("GET", BATCHES, None, {"reader"}),
    ("GET", RECORDS + "?explain=1", None, {"reader"}),
    ("POST", RECORDS, {"records": [{"value": 1}]}, {"writer"}),
    ("POST", RECORDS + "?acks=1", {"records": [{"value": 1}]}, {"writer"}),
    ("POST", "/v1/topics/events/records", {"records": [{"value": 1}]}, {"writer"}),
    ("POST", "/v1/producers", None, {"writer", "elsewhere"}),
    ("POST", "/v1/topics/events/partitions/0/flush", None, {"admin"}),
    ("POST", "/v1/topics/events/partitions/0/roll", None, {"admin"}),
    ("PATCH", "/v1/topics/events", {"config": {}}, {"admin"}),
    ("GET", "/v1/topics/events/ingest-profile", None, {"reader", "writer", "admin"}),
    ("PUT", "/v1/topics/events/ingest-profile", {"split": "lines"}, {"admin"}),
    ("GET", "/v1/topics/events/value-schema", None, {"reader", "writer", "admin"}),
    ("PUT", "/v1/topics/events/value-schema", AVRO, {"admin"}),
    ("GET", "/v1/topics/events/ingest-tokens", None, {"admin"}),
    ("POST", "/v1/topics/events/ingest-tokens", None, {"admin"}),
    ("DELETE", "/v1/topics/events/ingest-tokens/0", None, {"admin"}),
    ("GET", "/v1/groups/g/offsets/events/0", None, {"reader"}),
    ("GET", "/metrics", None, {"scraper"}),
    ("GET", "/v1/limits", None, {"reader", "writer", "admin", "elsewhere", "scraper"}),
    ("DELETE", "/v1/topics/events", None, {"admin"}),
)


async def test_a_scope_allows_its_actions_on_its_topics(guarded: Api) -> None:
    """A key allows what its scopes say and nothing else; describing needs any of them."""
    clients = {
        "reader": await as_key(guarded, "reader", "read:ev*"),
        "writer": await as_key(guarded, "writer", "append:events"),
        "admin": await as_key(guarded, "admin", "admin:*"),
        "elsewhere": await as_key(guarded, "elsewhere", "read:other", "append:other.*"),
        "scraper": await as_key(guarded, "scraper", "metrics"),
    }
    for method, path, body, allowed in ALLOWED:
        for name, client in clients.items():
            if method == "DELETE" and name in allowed:
                continue
            answer = await client.request(method, path, json=body)
            if name in allowed:
                assert answer.status_code in {200, 201, 404}, (name, method, path, answer.text)
                assert answer.json().get("code", "x") != "topic_not_found" if body else True
            else:
                problem = check(answer, 403, "forbidden", challenge='error="insufficient_scope"')
                assert problem["kafka_error_code"] == 29
    for client in clients.values():
        await client.aclose()


async def test_a_refusal_does_not_reveal_whether_the_topic_exists(guarded: Api) -> None:
    """A hidden topic is forbidden, whether it exists or not (Z3)."""
    async with await as_key(guarded, "other", "read:other") as client:
        for path in ("/v1/topics/events", "/v1/topics/nowhere", OFFSETS.replace("events", "no")):
            problem = check(await client.get(path), 403, "forbidden")
            assert problem["scope"].startswith("read:")


async def test_what_is_of_the_whole_service_needs_all_of_it(guarded: Api) -> None:
    """No answer without a topic in its URL has another topic's name, or a path of the disk."""
    folder = str(guarded.service.settings.data_directory)
    document = json.loads(document_text())["paths"]
    paths = [path for path, one in document.items() if "{" not in path and "get" in one]
    assert {"/v1/moves", "/v1/keys", "/v1/settings", "/v1/directories", "/v1/scrub"} < {*paths}
    for topic in ("acquisition-of-acme", "mine"):
        await guarded.create(topic)
    move = "/v1/topics/{}/partitions/0/move"
    secret = move.format("acquisition-of-acme")
    moved = await guarded.client.post(secret, json={"directory": folder})
    assert moved.status_code == 200
    for path in paths:
        if not path.startswith("/services/"):  # there a key is no credential
            assert (await guarded.client.get(path)).status_code == 200, path
    await as_key(guarded, "reader", "read:acquisition-of-acme")
    async with await as_key(guarded, "team", "admin:mine", "admin:m*", "read:m*") as client:
        for path in paths:
            answer = await client.get(path)
            told = (path, answer.status_code, answer.text)
            assert answer.status_code in {200, 401, 403}, told
            assert "acquisition" not in answer.text, told
            assert folder not in answer.text, told
        assert folder in (await client.get(move.format("mine"))).text
    async with await as_key(guarded, "some", "read:mine") as client:
        check(await client.get(move.format("mine")), 403, "forbidden")


async def test_lists_show_what_may_be_seen(guarded: Api) -> None:
    """Topics, and groups with their offsets and lag, are those of the caller's scopes."""
    await guarded.create("other")
    for topic in ("events", "other"):
        url = f"/v1/groups/g-{topic}/offsets/{topic}/0"
        assert (await guarded.client.put(url, json={"offset": 0})).status_code == 201
        url = f"/v1/groups/both/offsets/{topic}/0"
        assert (await guarded.client.put(url, json={"offset": 0})).status_code == 201
    async with await as_key(guarded, "some", "read:events", "append:o*") as client:
        names = [one["topic"] for one in (await client.get("/v1/topics")).json()["topics"]]
        assert names == ["events", "other"]
        groups = (await client.get("/v1/groups")).json()["groups"]
        assert groups == ["both", "g-events"]
        for url in ("/v1/groups/both/offsets", "/v1/groups/both/lag"):
            shown = (await client.get(url)).json()
            assert [one["topic"] for one in shown.get("offsets") or shown["partitions"]] == [
                "events"
            ]
        check(
            await client.put("/v1/groups/g/offsets/other/0", json={"offset": 0}), 403, "forbidden"
        )
    async with await as_key(guarded, "one", "admin:other") as client:
        names = [one["topic"] for one in (await client.get("/v1/topics")).json()["topics"]]
        assert names == ["other"]


# The fault of the header, and the error.
WRONG: dict[str, tuple[bytes, int, str, str]] = {
    "another scheme": (b"Basic YWRhOmI=", 401, "unauthenticated", "invalid_token"),
    "no scheme": (b"tlk_0_0", 401, "unauthenticated", "invalid_token"),
    "no token": (b"Bearer", 400, "malformed_request", "invalid_request"),
    "two tokens": (b"Bearer a b", 400, "malformed_request", "invalid_request"),
    "a list": (b"Bearer a, Bearer b", 400, "malformed_request", "invalid_request"),
    "an unknown key": (b"Bearer tlk_0_0", 401, "unauthenticated", "invalid_token"),
    "no key": (b"Bearer x", 401, "unauthenticated", "invalid_token"),
    "bytes": (b"Bearer \xff\xfe", 401, "unauthenticated", "invalid_token"),
    "huge": (b"Bearer " + b"x" * 9_000, 400, "malformed_request", "invalid_request"),
}


async def test_a_header_that_is_wrong_is_refused(guarded: Api) -> None:
    """What can be no credentials is malformed, what could be and is not is 401 (RFC 6750)."""
    async with as_nobody(guarded) as client:
        for value, status, code, error in WRONG.values():
            for path in (OFFSETS, "/v1/topics"):
                answer = await client.get(path, headers=[(b"authorization", value)])
                problem = check(answer, status, code, challenge=f'error="{error}"')
                assert value.decode("latin-1") not in json.dumps(problem)


async def test_two_headers_are_one_too_many(guarded: Api) -> None:
    """A proxy in front may have checked only one of them (Z2)."""
    good = guarded.client.headers["authorization"]
    headers = [("authorization", "Bearer x"), ("authorization", good)]
    async with as_nobody(guarded) as client:
        for path in (OFFSETS, "/v1/topics"):
            problem = check(await client.get(path, headers=headers), 400, "malformed_request")
            assert problem["detail"] == "authorization: send each of them at most once"


async def test_a_scheme_is_known_in_any_spelling(guarded: Api) -> None:
    """Names of schemes have no case (RFC 9110)."""
    key = guarded.client.headers["authorization"].removeprefix("Bearer ")
    for spelling in ("bearer", "BEARER", "Bearer "):
        answer = await guarded.client.get(OFFSETS, headers={"authorization": f"{spelling} {key}"})
        assert answer.status_code == 200


async def test_credentials_in_the_url_are_refused(guarded: Api) -> None:
    """URLs end up in logs and histories, so credentials must never be sent in them."""
    for query in ("access_token=x", "api_key=x", "API_KEY=x", "offset=0&access_token=x"):
        for path in ("/v1/topics", "/v1/topics/events", RECORDS, "/metrics"):
            problem = check(await guarded.client.get(f"{path}?{query}"), 400, "malformed_request")
            assert problem["header"] == "authorization"


async def test_a_key_ends_with_its_time(tmp_path: Path) -> None:
    """By the clock of the service, to the millisecond."""
    clock = ManualClock()
    key = create_key(tmp_path, "short", *ADMIN, expires_ms=clock.now_ms() + 1_000)
    async with running(tmp_path, clock=clock) as api:
        api.client.headers.update(bearer(key))
        clock.advance(999)
        await api.create()
        clock.advance(1)
        problem = check(await api.client.get(OFFSETS), 401, "unauthenticated")
        assert "expired" in problem["detail"]


async def test_a_revoked_key_is_refused_without_a_restart(guarded: Api) -> None:
    """From the next read of the file on, in both ways in; other keys stay valid."""
    async with await as_key(guarded, "leaked", "read:*") as client:
        assert (await client.get(OFFSETS)).status_code == 200
        revoke(guarded.service.settings.data_directory, "leaked")
        await guarded.service.security.refresh_keys()
        check(await client.get(OFFSETS), 401, "unauthenticated", challenge="invalid_token")
    assert (await guarded.client.get(OFFSETS)).status_code == 200


async def test_the_first_key_shuts_an_open_service(tmp_path: Path) -> None:
    """A running service needs no restart for the first key, because it watches the file."""
    async with running(tmp_path, api_keys_check_interval_ms=1) as api:
        await api.create()
        key = create_key(tmp_path, "root", *ADMIN)
        while (answer := await api.client.get(OFFSETS)).status_code == 200:
            await asyncio.to_thread(int)  # a turn of the loop, for the watcher of the file
        check(answer, 401, "unauthenticated")
        assert (await api.client.get(OFFSETS, headers=bearer(key))).status_code == 200


async def test_a_damaged_file_of_keys_stops_the_start(tmp_path: Path) -> None:
    """A service whose keys cannot be read must refuse all callers instead of accepting all."""
    create_key(tmp_path, "root", *ADMIN)
    (tmp_path / "tidelog-api-keys.json").write_text("{")
    service = Service(Settings(data_directory=tmp_path))
    with pytest.raises(Exception, match="tidelog-api-keys"):
        await service.open()
    async with wired(service) as client:
        check(await client.get("/v1/topics"), 503, "recovering")
    await service.close()


async def test_before_the_keys_are_read_all_callers_are_refused(tmp_path: Path) -> None:
    """The probes respond, everything else is 503: the service is never open while it starts."""
    service = Service(Settings(data_directory=tmp_path))
    async with wired(service) as client:
        check(await client.get("/v1/topics"), 503, "recovering")
        check(await client.get("/metrics"), 503, "recovering")
        assert (await client.get("/livez")).status_code == 200
    assert service.admission.phase is Phase.RECOVERING
    await service.close()


async def test_metrics_can_be_left_open(tmp_path: Path) -> None:
    """A scraper without credentials is accepted if the settings say so, and only there."""
    create_key(tmp_path, "root", *ADMIN)
    async with running(tmp_path, open_metrics=True) as api:
        assert (await api.client.get("/metrics")).status_code == 200
        check(await api.client.get("/v1/limits"), 401, "unauthenticated")


async def test_tokens_and_keys_are_taken_side_by_side(tmp_path: Path) -> None:
    """A token is recognized by its issuer's key, an API key by its prefix."""
    path = tmp_path / "jwks"
    path.write_bytes(jwks(jwk("P-256", "k")))
    data = tmp_path / "data"
    key = create_key(data, "root", *ADMIN)
    named = {"jwks": str(path), "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    async with running(data, **named) as api:
        api.client.headers.update(bearer(key))
        await api.create()
        async with as_nobody(api) as client:
            reader = bearer(token(scope="read:events"))
            assert (await client.get(OFFSETS, headers=reader)).status_code == 200
            check(await client.post(RECORDS, headers=reader, json={}), 403, "forbidden")
            wrong = bearer(token(Wanted(number=1), scope="read:events"))
            answer = await client.get(OFFSETS, headers=wrong)
            problem = check(answer, 401, "unauthenticated", challenge="invalid_token")
            assert "the token is not valid" in problem["detail"]
            ended = bearer(token(now_s=0))
            check(await client.get(OFFSETS, headers=ended), 401, "unauthenticated")


async def test_a_key_that_the_issuer_withdraws_ends_its_tokens(tmp_path: Path) -> None:
    """An accepted token is verified again when the issuer's keys change."""
    path = tmp_path / "jwks"
    path.write_bytes(jwks(jwk("P-256", "k")))
    named: dict[str, Any] = {"jwks": str(path), "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    async with running(tmp_path / "data", jwks_refresh_interval_ms=1, **named) as api:
        api.client.headers.update(bearer(token(scope="read:* admin:*")))
        await api.create()
        assert (await api.client.get(OFFSETS)).status_code == 200
        path.write_bytes(jwks(jwk("P-256", "k", number=1)))
        while (answer := await api.client.get(OFFSETS)).status_code == 200:
            await asyncio.to_thread(int)  # a turn of the loop, for the fetcher of the keys
        assert answer.status_code in {401, 503}


async def test_what_is_remembered_of_callers_is_bounded(
    guarded: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit all are verified again, and accepted again."""
    monkeypatch.setattr("app.security.authority.MAX_CACHED_DECISIONS", 1)
    for _ in range(2):
        for path in (OFFSETS, RECORDS, BATCHES):
            assert (await guarded.client.get(path)).status_code == 200


async def test_a_withdrawn_key_ends_its_tokens_at_once_if_it_is_asked_for(tmp_path: Path) -> None:
    """SIGHUP reads the issuer's keys, too, not only at their interval."""
    path = tmp_path / "jwks"
    path.write_bytes(jwks(jwk("P-256", "k")))
    named: dict[str, Any] = {"jwks": str(path), "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    async with running(tmp_path / "data", jwks_refresh_interval_ms=3_600_000, **named) as api:
        headers = {"authorization": f"Bearer {token(scope='read:*')}"}
        while (await api.client.get("/v1/topics", headers=headers)).status_code != 200:
            await api.service.security.reread()
        path.write_bytes(jwks(jwk("P-256", "k", number=1)))
        assert (await api.client.get("/v1/topics", headers=headers)).status_code == 200
        await api.service.security.reread()
        assert (await api.client.get("/v1/topics", headers=headers)).status_code == 401


async def test_while_the_issuer_is_away_a_token_can_be_tried_again(tmp_path: Path) -> None:
    """Neither accepted nor refused: 503 with Retry-After, because it cannot be verified (Z4)."""
    for source in (str(tmp_path / "none"), "http://127.0.0.1:1/jwks"):
        named = {"jwks": source, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
        async with running(tmp_path / "data", **named) as api:
            answer = await api.client.get("/v1/topics", headers=bearer(token()))
            check(answer, 503, "credentials_unavailable")
            assert answer.headers["retry-after"] == "1"


async def test_a_subject_that_is_certified_is_a_principal(tmp_path: Path) -> None:
    """The subject of a client's certificate has the scopes of the settings; others are 401."""
    named: dict[str, Any] = {
        "client_certificates": {"CN=spark": ["read:*"]},
        "tls_client_ca": tmp_path / "ca",
    }
    async with open_service(tmp_path / "data", **named) as service:
        for subject, path, status in (
            ("CN=spark", "/v1/topics", 200),
            ("CN=spark", "/metrics", 403),
            ("CN=spark,O=other", "/v1/topics", 401),
        ):
            async with client_of(_certified(compose(service), subject)) as client:
                assert (await client.get(path)).status_code == status


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"client_certificates": {"CN=a": ["read:*"]}}, "tls_client_ca"),
        ({"client_certificates": {"CN=a": ["all"]}, "tls_client_ca": "ca.pem"}, "'all' is not a"),
        ({"jwks": "keys.json"}, "jwt_issuer"),
    ],
)
async def test_settings_that_contradict_each_other_are_refused(
    tmp_path: Path, named: dict[str, Any], sentence: str
) -> None:
    """A service whose credentials cannot work does not start."""
    with pytest.raises(InvalidConfig, match=sentence):
        Service(Settings(data_directory=tmp_path, **named))


def _certified(app: Any, subject: str) -> Any:
    """The application as it is called for a client with a certificate."""

    async def certified(scope: Any, receive: Any, send: Any) -> None:
        scope[PEER_KEY] = subject
        await app(scope, receive, send)

    return certified


async def test_the_lanes_refuse_alike(guarded: Api) -> None:
    """A refusal does not reveal which way in the request took."""
    reader = (await as_key(guarded, "reader", "read:other")).headers["authorization"]
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    for method, path, more in (
        ("GET", OFFSETS, {}),
        ("GET", RECORDS, {}),
        ("POST", RECORDS, NDJSON),
        ("POST", BATCHES, RAW),
    ):
        for credentials in ({}, {"authorization": reader}, {"authorization": "Bearer x"}):
            answers = []
            for is_hot in (True, False):
                async with wired(guarded.service, is_hot=is_hot) as client:
                    answer = await client.request(method, path, headers=trace | more | credentials)
                    answers.append((answer.status_code, answer.headers.raw, answer.content))
            assert answers[0] == answers[1]
            assert answers[0][0] in {401, 403}
