"""A file of API keys that cannot be read, under a service that runs."""

from pathlib import Path

import httpx
import pytest

from tests.support.credentials import bearer, create_key
from tests.support.service import OFFSETS, running
from tests.support.time import ManualClock
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

ADMIN = ("read:*", "append:*", "admin:*")


def code_of(answer: httpx.Response) -> object:
    return answer.json()["code"]


async def test_a_damaged_file_of_keys_refuses_all_callers(tmp_path: Path) -> None:
    """A key may have been revoked in it. The file as it was lets its keys in again (Z4)."""
    key = bearer(create_key(tmp_path, "root", *ADMIN))
    path = tmp_path / "tidelog-api-keys.json"
    whole = path.read_bytes()
    async with running(tmp_path) as api, wired(api.service) as nobody:
        api.client.headers.update(key)
        await api.create()
        for damaged in (b"{", b"", whole[:50], whole.replace(b"root", b"toor")):
            path.write_bytes(damaged)
            await api.service.security.refresh_keys()
            for way in (OFFSETS, "/v1/topics"):
                closed = await api.client.get(way)
                assert (closed.status_code, code_of(closed)) == (503, "credentials_unavailable")
                assert code_of(await nobody.get(way)) == "unauthenticated"
            path.write_bytes(whole)
            await api.service.security.refresh_keys()
            assert (await api.client.get(OFFSETS)).status_code == 200


async def test_a_damaged_file_of_keys_closes_an_open_service(tmp_path: Path) -> None:
    """The operator wanted credentials: until the keys can be read, all requests are refused."""
    async with running(tmp_path) as api:
        await api.create()
        (tmp_path / "tidelog-api-keys.json").write_text("{")
        await api.service.security.refresh_keys()
        assert code_of(await api.client.get(OFFSETS)) == "unauthenticated"


async def test_keys_in_an_unreadable_file_expire_after_a_timeout(
    tmp_path: Path,
) -> None:
    """Its keys are valid for `api_keys_read_timeout_ms` more; one of them may be revoked."""
    path, aside = tmp_path / "tidelog-api-keys.json", tmp_path / "aside"
    key = bearer(create_key(tmp_path, "root", *ADMIN))
    clock = ManualClock()
    async with running(tmp_path, clock=clock, api_keys_read_timeout_ms=5_000) as api:
        api.client.headers.update(key)
        await api.create()
        path.rename(aside)
        path.symlink_to(path)
        for passed_ms, status in ((4_999, 200), (1, 503), (0, 503)):
            clock.advance(passed_ms)
            await api.service.security.refresh_keys()
            assert (await api.client.get(OFFSETS)).status_code == status
        aside.replace(path)
        await api.service.security.refresh_keys()
        assert (await api.client.get(OFFSETS)).status_code == 200


async def test_an_open_service_stays_open_if_there_may_be_no_keys(tmp_path: Path) -> None:
    """If no file of keys has been seen, one that cannot be opened does not close the service."""
    clock = ManualClock()
    path = tmp_path / "tidelog-api-keys.json"
    async with running(tmp_path, clock=clock) as api:
        await api.create()
        path.symlink_to(path)
        clock.advance(3_600_000)
        await api.service.security.refresh_keys()
        assert (await api.client.get(OFFSETS)).status_code == 200
