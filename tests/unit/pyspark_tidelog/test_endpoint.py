"""Who asks, and whom it trusts: credentials reach the service and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pyspark_tidelog import DefaultSource
from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.endpoint import Endpoint, parse_endpoint
from pyspark_tidelog.errors import OptionError, ServiceError
from pyspark_tidelog.source.service import snapshot_of
from pyspark_tidelog.source.topics import Topics
from tests.support.certificates import Authority, Pair
from tests.support.credentials import bearer, create_key
from tests.support.log_service import LogService, Reply
from tests.support.server import Served, serving

URL = {"url": "http://x"}
SECRET = "tl-s3cret"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the environment variables of the machine that runs the tests."""
    for name in ("API_KEY", "CA_FILE", "CLIENT_CERT", "CLIENT_KEY"):
        monkeypatch.delenv(f"TIDELOG_{name}", raising=False)


def test_a_key_is_an_option_a_file_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option goes before the environment; a file is read when it is needed, so it may change."""
    path = tmp_path / "key"
    path.write_text(f"{SECRET}\n")
    by_file = parse_endpoint({**URL, "tokenfile": str(path)})
    monkeypatch.setenv("TIDELOG_API_KEY", "other")
    monkeypatch.setenv("TIDELOG_CA_FILE", "ca.pem")
    assert parse_endpoint(URL).authorization() == "Bearer other"
    assert parse_endpoint({**URL, "token": SECRET}).authorization() == f"Bearer {SECRET}"
    in_file = parse_endpoint({**URL, "tokenfile": str(path)})
    assert (in_file.token, in_file.ca_file) == (None, "ca.pem")
    assert by_file.authorization() == f"Bearer {SECRET}"
    path.write_text("changed")
    assert by_file.authorization() == "Bearer changed"


def test_a_task_carries_a_key_and_shows_it_nowhere() -> None:
    """What is pickled for the executors has it; what is printed has not."""
    endpoint = parse_endpoint({**URL, "token": SECRET})
    assert pickle.loads(pickle.dumps(endpoint)).authorization() == f"Bearer {SECRET}"
    assert SECRET not in repr(endpoint)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"token": SECRET, "tokenfile": "x"}, "options token and tokenFile exclude each other"),
        ({"token": f"{SECRET}\nx: y"}, "option token: a key is one word of visible ASCII"),
        ({"tokenfile": "none-such"}, "tokenFile: none-such cannot be read here: No such file"),
        ({"clientkey": "x"}, "option clientKey needs the certificate it belongs to"),
        ({"url": f"http://me:{SECRET}@x"}, "option url must be only an address"),
        ({"url": "https://x", "cafile": "none-such"}, "option caFile: no certificates can be read"),
        ({"url": "https://x", "clientcert": "none-such"}, "option clientCert: no certificate with"),
    ],
)
def test_credentials_that_cannot_be_used_are_one_sentence(
    given: dict[str, str], sentence: str
) -> None:
    """The option to mend is named, and a secret never repeated."""
    with pytest.raises(OptionError) as refused:
        ServiceClient(parse_endpoint({**URL, **given}))
    assert sentence in str(refused.value)
    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"two words", b"\xff", b""])
def test_a_file_that_holds_no_key_is_told(tmp_path: Path, content: bytes) -> None:
    """Bytes that fit into no header stop the query before anything is sent."""
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(OptionError, match="option tokenFile: "):
        parse_endpoint({**URL, "tokenfile": str(path)}).authorization()


def test_a_refused_key_is_not_repeated(service: LogService) -> None:
    """The error has the service's message, and the option to correct."""
    service.fault = lambda _path: Reply.of_json(401, code="unauthenticated", detail="unknown key")
    source = DefaultSource({"url": service.url, "subscribe": "t", "token": SECRET})
    told = r"refuses the credentials \(401 unauthenticated: unknown key\): set the option token"
    with pytest.raises(ServiceError, match=told) as refused:
        source.reader(source.schema()).partitions()
    assert service.authorizations == [f"Bearer {SECRET}"]
    assert SECRET not in str(refused.value)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guest(authority: Authority) -> Pair:
    return authority.vouch("spark", "acme")


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, guest: Pair
) -> Iterator[tuple[Served, str]]:
    """The real service with TLS, with a topic `t`; and a key that may read it."""
    data = tmp_path_factory.mktemp("guarded") / "data"
    server = authority.vouch("server")
    root = create_key(data, "root", "admin:*")
    key = create_key(data, "reader", "read:*")
    trusted = Endpoint("https://x", ca_file=str(authority.path)).trust()
    with serving(
        data,
        trusted=trusted,
        tls_cert=server.cert,
        tls_key=server.key,
        tls_client_ca=authority.path,
        client_certificates={"CN=spark,O=acme": ["read:*"]},
    ) as served:
        answer = httpx.put(
            f"{served.url}/v1/topics/t", json={}, headers=bearer(root), verify=trusted
        )
        answer.raise_for_status()
        yield served, key


def logs_seen(**given: str) -> int:
    with ServiceClient(parse_endpoint({"retries": "0", **given})) as client:
        return len(snapshot_of(client, Topics(("t",))).marks)


def test_a_key_opens_the_service_behind_tls(
    guarded: tuple[Served, str], authority: Authority
) -> None:
    """With the authority of its certificate and a key; without the key it stays shut."""
    served, key = guarded
    assert logs_seen(url=served.url, cafile=str(authority.path), token=key) == 1
    with pytest.raises(ServiceError, match=r"refuses the credentials.* set the option token"):
        logs_seen(url=served.url, cafile=str(authority.path))


def test_a_certificate_opens_the_service_as_well(
    guarded: tuple[Served, str], authority: Authority, guest: Pair
) -> None:
    """Mutual TLS needs no key; certificate and key may be in one file."""
    served, _ = guarded
    both = authority.path.with_name("both.pem")
    both.write_bytes(guest.cert.read_bytes() + guest.key.read_bytes())
    trusted = {"url": served.url, "cafile": str(authority.path)}
    assert logs_seen(**trusted, clientcert=str(guest.cert), clientkey=str(guest.key)) == 1
    assert logs_seen(**trusted, clientcert=str(both)) == 1


def test_a_stranger_behind_the_address_is_told_at_once(guarded: tuple[Served, str]) -> None:
    """A certificate of another authority is a permanent failure, and no key is sent."""
    served, key = guarded
    with pytest.raises(ServiceError, match=r"certificate of .* is not trusted here.*caFile"):
        logs_seen(url=served.url, token=key, retries="1000")
