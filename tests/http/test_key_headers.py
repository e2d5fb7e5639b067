"""The headers in which an API key travels: Bearer, Basic and X-API-Key, on every lane (Z1, Z2)."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.credentials import bearer, create_key, revoke
from tests.support.issuer import AUDIENCE, ISSUER, jwk, jwks, token
from tests.support.service import OFFSETS, RECORDS, Api, running
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

PATHS = (OFFSETS, RECORDS, "/v1/topics", "/topics", "/topics/events/partitions/0/offsets")
"""Hot and other operations, native and of the proxies."""


def basic(password: str, user: str = "ada") -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


def api_key(key: str) -> dict[str, str]:
    return {"x-api-key": key}


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[Api, str]]:
    """A service that requires keys, and the one key that reads."""
    root = create_key(tmp_path, "root", "admin:*")
    key = create_key(tmp_path, "reader", "read:*")
    async with running(tmp_path) as api:
        api.client.headers.update(bearer(root))
        await api.create()
        del api.client.headers["authorization"]
        yield api, key


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status of a refusal, and the error of its challenge."""
    return answer.status_code, answer.headers["www-authenticate"].partition("error=")[2].strip('"')


@pytest.mark.parametrize("is_hot", [True, False])
async def test_a_key_is_accepted_in_every_header(guarded: tuple[Api, str], *, is_hot: bool) -> None:
    """The scopes are those of the key, whichever header it travels in."""
    api, key = guarded
    async with wired(api.service, is_hot=is_hot) as client:
        for headers in (bearer(key), basic(key), api_key(key)):
            for path in PATHS:
                assert (await client.get(path, headers=headers)).status_code == 200, (path, headers)
            body = {"records": [{"value": 1}]}
            assert (await client.post(RECORDS, headers=headers, json=body)).status_code == 403


async def test_the_user_name_of_basic_is_ignored(guarded: tuple[Api, str]) -> None:
    """A key has its own id; the scheme is case-insensitive."""
    api, key = guarded
    for user in ("", "reader", "someone else", "u", "us", "usé"):
        assert (await api.client.get(OFFSETS, headers=basic(key, user))).status_code == 200
    upper = {"authorization": basic(key)["authorization"].replace("Basic", "BASIC ")}
    assert (await api.client.get(OFFSETS, headers=upper)).status_code == 200


async def test_a_password_that_is_not_a_key_is_refused(guarded: tuple[Api, str]) -> None:
    """Unknown, changed, empty, in the place of the user name, or with something before it."""
    api, key = guarded
    for wrong in ("", "secret", "tlk_0_0", f"{key[:-1]}?", f"x:{key}", f"Bearer {key}"):
        for headers in (basic(wrong), api_key(wrong)):
            for path in PATHS:
                answer = await api.client.get(path, headers=headers)
                assert refusal(answer) == (401, "invalid_token"), (wrong, headers)
                assert key not in answer.text
    as_user = await api.client.get(OFFSETS, headers=basic("", user=key))
    assert refusal(as_user) == (401, "invalid_token")


async def test_a_basic_that_cannot_be_read_is_malformed(guarded: tuple[Api, str]) -> None:
    """No base64, no colon, two tokens, and more than max_credential_bytes."""
    api, key = guarded
    no_colon = b64encode(key.encode()).decode()
    encoded = basic(key)["authorization"]
    for value in ("Basic ?", "Basic YQ", f"Basic {no_colon}", f"{encoded} {encoded}", "Basic"):
        answer = await api.client.get(OFFSETS, headers={"authorization": value})
        assert refusal(answer) == (400, "invalid_request"), value
    for headers in (basic("x" * 9_000), api_key("x" * 9_000)):
        answer = await api.client.get(OFFSETS, headers=headers)
        assert refusal(answer) == (400, "invalid_request")
        assert answer.json()["header"] == next(iter(headers))


async def test_two_credentials_are_malformed(guarded: tuple[Api, str]) -> None:
    """A proxy in front may have checked only one of them, even if both are valid (Z2)."""
    api, key = guarded
    for path in PATHS:
        both = await api.client.get(path, headers=bearer(key) | api_key(key))
        assert refusal(both) == (400, "invalid_request")
        for name, headers in (
            ("x-api-key", [*api_key(key).items(), *api_key(key).items()]),
            ("authorization", [*basic(key).items(), *bearer(key).items()]),
        ):
            problem = (await api.client.get(path, headers=headers)).json()
            assert (problem["status"], problem["code"]) == (400, "malformed_request")
            assert problem["detail"] == f"{name}: send each of them at most once"


async def test_one_key_has_few_decisions_however_it_is_written(guarded: tuple[Api, str]) -> None:
    """User names and white space take no memory, and push no other caller's decision out."""
    api, key = guarded
    known = api.service.security._decisions  # noqa: SLF001  # its memory is the matter
    for number in range(20):
        for headers in (
            basic(key, "u" * number),
            {"authorization": "Bearer" + " " * (number + 2) + key},
            {"authorization": f"{'bEarer'[: number % 6]}{'Bearer'[number % 6 :]} {key}"},
            bearer(key),
        ):
            assert (await api.client.get(OFFSETS, headers=headers)).status_code == 200
    assert len(known) <= 2


async def test_what_was_let_in_is_remembered_with_its_header(guarded: tuple[Api, str]) -> None:
    """The bytes of a valid Authorization are not credentials in X-API-Key, and the reverse."""
    api, key = guarded
    value = bearer(key)["authorization"]
    assert (await api.client.get(OFFSETS, headers=bearer(key))).status_code == 200
    assert (await api.client.get(OFFSETS, headers=api_key(value))).status_code == 401
    assert (await api.client.get(OFFSETS, headers=api_key(key))).status_code == 200
    assert (await api.client.get(OFFSETS, headers={"authorization": key})).status_code == 401


async def test_a_revoked_key_is_refused_in_every_header(guarded: tuple[Api, str]) -> None:
    """From the next look at the file on."""
    api, key = guarded
    ways = (bearer(key), basic(key), api_key(key))
    for headers in ways:
        assert (await api.client.get(OFFSETS, headers=headers)).status_code == 200
    await asyncio.to_thread(revoke, api.service.settings.data_directory, "reader")
    await api.service.security.refresh_keys()
    for headers in ways:
        answer = await api.client.get(OFFSETS, headers=headers)
        assert refusal(answer) == (401, "invalid_token")


async def test_no_refusal_asks_for_basic(guarded: tuple[Api, str]) -> None:
    """A browser would prompt for it, and then send the password by itself."""
    api, _ = guarded
    for path in PATHS:
        for headers in ({}, basic("wrong"), api_key("wrong")):
            answer = await api.client.get(path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Bearer ")
            assert "basic" not in answer.headers["www-authenticate"].lower()


async def test_a_token_is_accepted_as_bearer_only(tmp_path: Path) -> None:
    """Basic and X-API-Key carry API keys."""
    path = tmp_path / "jwks"
    path.write_bytes(jwks(jwk("P-256", "k")))
    named: dict[str, Any] = {"jwks": str(path), "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    async with running(tmp_path / "data", **named) as api:
        given = token(scope="read:*")
        assert (await api.client.get("/v1/topics", headers=bearer(given))).status_code == 200
        for headers in (basic(given), api_key(given)):
            answer = await api.client.get("/v1/topics", headers=headers)
            assert refusal(answer) == (401, "invalid_token")
            assert "is not an API key" in answer.json()["detail"]
