"""The service's description of itself and its configuration: protocol rules H7 and H8."""

import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from app.operations.configuration import get_settings
from app.operations.service import Service
from app.security.keys import api_keys_path
from app.settings import Settings
from app.settings_sources import read_settings
from schemas.service import ApiKeyList, Caller, ServiceInfo, SettingList, TopicConfigList
from tests.support.credentials import bearer, create_key, revoke
from tests.support.service import Api, running

pytestmark = pytest.mark.anyio

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize("path", ["/", "/v1"])
async def test_programs_learn_name_version_backend_and_links(api: Api, path: str) -> None:
    """At the root and at `/v1` alike; every link is served (H7)."""
    answer = await api.client.get(path, headers={"accept": "*/*"})
    info = TypeAdapter(ServiceInfo).validate_json(answer.content, strict=True)
    assert (info.name, info.backend) == ("tidelog", "local")
    document = (await api.client.get("/openapi.json")).json()
    assert info.version == document["info"]["version"]
    for name, link in info.links:
        if name != "console":
            assert (await api.client.get(link)).status_code == 200, link
    assert (await api.client.head(path)).status_code == 200


async def test_a_browser_at_the_root_is_redirected_to_the_console(api: Api) -> None:
    """It prefers HTML; a cache keeps the two answers apart, a proxy's prefix is kept (H7)."""
    for method in ("GET", "HEAD"):
        answer = await api.client.request(method, "/", headers={"accept": BROWSER})
        assert (answer.status_code, answer.headers["location"]) == (302, "console/")
        assert answer.headers["vary"] == "accept"
    for accept in ("application/json", "application/json, text/html;q=0.9", BROWSER):
        assert (await api.client.get("/v1", headers={"accept": accept})).status_code == 200
    plain = await api.client.get("/", headers={"accept": "application/json, text/html;q=0.9"})
    assert (plain.status_code, plain.headers["vary"]) == (200, "accept")
    assert (await api.client.get("/", headers={"accept": "image/png"})).status_code == 406


async def test_a_load_balancer_may_ask_what_the_root_takes(api: Api) -> None:
    """HAProxy's default check is OPTIONS, and wants 2xx or 3xx."""
    answer = await api.client.options("/")
    assert (answer.status_code, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS")


async def test_a_caller_learns_its_name_and_scopes(tmp_path: Path) -> None:
    """A key its own; without credentials 401, or everything where none are needed (H8)."""
    async with running(tmp_path) as api:
        assert (await api.client.get("/v1/caller")).json() == {
            "name": "anonymous",
            "scopes": ["read:*", "append:*", "admin:*", "metrics"],
            "expires_timestamp": None,
            "masked_fields": [],
        }
        expires_ms = api.service.clock.now_ms() + 3_600_000
        key = create_key(tmp_path, "dash", "read:web-*", "metrics", expires_ms=expires_ms)
        await api.service.security.refresh_keys()
        caller = await api.client.get("/v1/caller", headers=bearer(key))
        assert TypeAdapter(Caller).validate_json(caller.content, strict=True) == Caller(
            name="key:dash",
            scopes=["read:web-*", "metrics"],
            expires_timestamp=expires_ms,
            masked_fields=[],
        )
        assert (await api.client.get("/v1/caller")).status_code == 401
        assert (await api.client.get("/v1")).status_code == 200


async def test_keys_are_listed_without_their_secrets(tmp_path: Path) -> None:
    """Names and scopes, for administrators alone; after a revocation without it (H8)."""
    async with running(tmp_path) as api:
        create_key(tmp_path, "web", "append:web-*")
        ops = create_key(tmp_path, "ops", "admin:*")
        reader = create_key(tmp_path, "reader", "read:*")
        await api.service.security.refresh_keys()
        listed = await api.client.get("/v1/keys", headers=bearer(ops))
        keys = TypeAdapter(ApiKeyList).validate_json(listed.content, strict=True).keys
        assert [(key.name, key.scopes) for key in keys] == [
            ("ops", ["admin:*"]),
            ("reader", ["read:*"]),
            ("web", ["append:web-*"]),
        ]
        stored = api_keys_path(tmp_path).read_text(encoding="utf-8")
        for digest in re.findall(r'"sha256":\s*"(\w+)"', stored):
            assert digest not in listed.text
        for path in ("/v1/keys", "/v1/settings"):
            refused = await api.client.get(path, headers=bearer(reader))
            assert (refused.status_code, refused.json()["scope"]) == (403, "admin:*")
        revoke(tmp_path, "web")
        await api.service.security.refresh_keys()
        listed = await api.client.get("/v1/keys", headers=bearer(ops))
        assert [key["name"] for key in listed.json()["keys"]] == ["ops", "reader"]


async def test_settings_are_told_with_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line overrides the environment; credentials in a URL are not shown (H8)."""
    monkeypatch.setenv("TIDELOG_MAX_TAILS", "77")
    monkeypatch.setenv("TIDELOG_DATA_DIRECTORY", "elsewhere")
    monkeypatch.setenv("TIDELOG_CORS_ORIGINS", "https://user:secret@example.org")
    (tmp_path / "other.toml").write_text("max_topics = 7")
    known = read_settings({"data_directory": tmp_path}, tmp_path / "other.toml")
    async with running(tmp_path) as api:
        monkeypatch.setattr(api.service, "settings", known)
        answer = await api.client.get("/v1/settings")
        settings = TypeAdapter(SettingList).validate_json(answer.content, strict=True).settings
        assert settings.keys() == Settings.model_fields.keys()
        tails = settings["max_tails"]
        assert (tails.value, tails.source) == ("77", "environment")
        assert tails.description == "Concurrent tails; beyond it 503."
        directory = settings["data_directory"]
        assert (directory.value, directory.source) == (str(tmp_path), "command_line")
        assert settings["tls_cert"].value == "null"
        assert settings["max_wait_ms"].source == "default"
        assert (settings["max_topics"].value, settings["max_topics"].source) == ("7", "file")
        origins = settings["cors_origins"]
        assert (origins.value, origins.source) == ('["https://example.org"]', "environment")
        assert all(one.description for one in settings.values())


async def test_no_part_of_a_url_that_may_be_a_secret_is_told(tmp_path: Path) -> None:
    """Neither its user nor its query, wherever a setting has a URL (H8)."""
    service = Service(
        Settings(
            data_directory=tmp_path / "what?",
            cors_origins=("https://secret@a.example", "https://b.example"),
            jwks="https://issuer.example/keys?token=secret&x#secret",
            jwt_issuer="https://i.example/?secret",
            jwt_audience="a",
        )
    )
    told = SettingList.model_validate_json(bytes(get_settings(service).body)).settings
    assert "secret" not in str(told)
    assert told["data_directory"].value == str(tmp_path / "what?")
    assert told["jwks"].value == "https://issuer.example/keys"
    assert told["cors_origins"].value == '["https://a.example", "https://b.example"]'


async def test_topic_configurations_are_told_with_default_and_meaning(tmp_path: Path) -> None:
    """Every one that `putTopic` accepts, with the defaults of this service (H8)."""
    async with running(tmp_path, default_topic_config={"retention.ms": "1000"}) as api:
        answer = await api.client.get("/v1/topic-configs")
        configs = TypeAdapter(TopicConfigList).validate_json(answer.content, strict=True).configs
        await api.create()
        topic = (await api.client.get("/v1/topics/events")).json()["config"]
        assert {one.name: one.default for one in configs} == {
            name: entry["value"] for name, entry in topic.items()
        }
        accepted = {one.name: one.accepted for one in configs}
        assert accepted["cleanup.policy"] == "a list of compact, delete"
        assert accepted["preallocate"] == "true or false"
        assert all(one.description and one.accepted for one in configs)
