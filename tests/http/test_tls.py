"""The service with TLS, and both ways in without credentials."""

import json
import logging
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from app.server.tls import tls_options
from app.settings import Settings
from engine.errors import InvalidConfig
from tests.support.certificates import Authority, Pair
from tests.support.credentials import bearer, create_key
from tests.support.server import serving
from tests.support.service import OFFSETS, RECORDS
from tests.support.time import ManualClock

ALL = ("read:*", "append:*", "admin:*", "metrics")
TOPIC = "/v1/topics/events"


def context_of(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    """The CA that a client trusts, and its certificate."""
    context = ssl.create_default_context(cafile=str(authority.path))
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


def test_a_certificate_opens_what_its_subject_may(tmp_path: Path) -> None:
    """A client with a certificate is its subject; without one, or with a key, it is optional."""
    authority = Authority(tmp_path)
    server, spark, other = (authority.vouch(name, "acme") for name in ("server", "spark", "other"))
    key = create_key(tmp_path / "data", "root", *ALL)
    named: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key}
    named["tls_client_ca"] = authority.path
    trusted = context_of(authority)
    named["client_certificates"] = {"CN=spark,O=acme": ["read:*", "append:*"]}
    with serving(tmp_path / "data", trusted=trusted, **named) as served:
        assert served.url.startswith("https://127.0.0.1:")
        with httpx.Client(base_url=served.url, verify=trusted) as client:
            assert client.get(OFFSETS).status_code == 401
            client.put(TOPIC, json={}, headers=bearer(key)).raise_for_status()
        with httpx.Client(base_url=served.url, verify=context_of(authority, spark)) as client:
            for _ in range(3):  # on one connection, whose later appends the hot lane takes
                answer = client.post(RECORDS, json={"records": [{"value": 1}]})
                assert answer.status_code == 201
            assert client.get(OFFSETS).json()["log_end_offset"] == 3
            assert client.delete(TOPIC).status_code == 403
            assert client.delete(TOPIC, headers=bearer("x")).status_code == 401
        with httpx.Client(base_url=served.url, verify=context_of(authority, other)) as client:
            assert client.get(OFFSETS).status_code == 401
            assert client.get(OFFSETS, headers=bearer(key)).status_code == 200


def test_a_certificate_of_a_stranger_is_no_certificate(tmp_path: Path) -> None:
    """What another authority signed does not even make a connection."""
    authority = Authority(tmp_path)
    stranger = Authority(tmp_path, "stranger").vouch("spark")
    server = authority.vouch("server")
    named: dict[str, Any] = {
        "tls_cert": server.cert,
        "tls_key": server.key,
        "tls_client_ca": authority.path,
    }
    trusted = context_of(authority)
    with serving(tmp_path / "data", trusted=trusted, **named) as served:
        url = f"{served.url}/livez"
        with pytest.raises(httpx.TransportError):
            httpx.get(url, verify=context_of(authority, stranger))
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http"))
        assert httpx.get(url, verify=trusted).status_code == 200


def test_tls_settings_that_cannot_work_are_told(tmp_path: Path) -> None:
    """Half a pair, missing files and invalid certificates are one sentence each."""
    pair = Authority(tmp_path).vouch("server")
    other = Authority(tmp_path, "other").vouch("another")
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        load_pem_private_key(pair.key.read_bytes(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
    )
    none = tmp_path / "none"
    for wrong in (
        {"tls_cert": pair.cert},
        {"tls_key": pair.key},
        {"tls_client_ca": pair.cert},
        {"tls_cert": none, "tls_key": pair.key},
        {"tls_cert": pair.cert, "tls_key": other.key},
        {"tls_cert": pair.cert, "tls_key": locked},
        {"tls_cert": pair.cert, "tls_key": pair.key, "tls_client_ca": none},
        {"tls_cert": pair.cert, "tls_key": pair.key, "tls_client_ca": pair.key},
    ):
        with pytest.raises(InvalidConfig):
            tls_options(Settings(**wrong))  # type: ignore[arg-type]  # paths by name
    assert tls_options(Settings()) == {}
    assert set(tls_options(Settings(tls_cert=pair.cert, tls_key=pair.key))) == {
        "ssl_certfile",
        "ssl_keyfile",
    }


def exchange(url: str, *requests: bytes) -> bytes:
    """Send requests on one connection and return all that comes until it is closed."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        wire.sendall(b"".join(requests))
        answer = b""
        while piece := wire.recv(65_536):
            answer += piece
    return answer


def request(method: str, path: str, token: str, body: bytes, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", f"content-length: {len(body)}", *more]
    if token:
        lines.append(f"authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_no_lane_lets_anybody_in_without_credentials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Hot requests and FastAPI refuse alike, and let the key's owner in."""
    caplog.set_level(logging.DEBUG)
    key = create_key(tmp_path, "root", *ALL)
    wrong = f"{key[:-1]}x"
    one = b'{"records":[{"value":1}]}'
    last = ("connection: close",)
    with serving(tmp_path, access_log=True) as served:
        client = httpx.Client(base_url=served.url, headers=bearer(key))
        client.put(TOPIC, json={}).raise_for_status()
        for _ in range(2):  # from the second on the path is cached, and hot
            client.post(RECORDS, json={"records": [{"value": 1}]}).raise_for_status()
        for path, more in (
            (RECORDS, ()),  # below ASGI
            (RECORDS, ("expect: nothing",)),  # FastAPI, by a header
            (f"{RECORDS}?acks=all&acks=all", ()),  # FastAPI
        ):
            for token in ("", wrong, "x" * 9_000):
                answer = exchange(
                    served.url,
                    request("POST", path, token, one, *more),
                    request("GET", "/livez", "", b"", *last),
                )
                status = b"400 Bad Request" if len(token) > 8_000 else b"401 Unauthorized"
                assert answer.startswith(b"HTTP/1.1 " + status), answer
                assert b"www-authenticate: Bearer realm" in answer
                assert b"x-content-type-options: nosniff" in answer
                assert b'{"status":"live"}' in answer
        assert client.get(OFFSETS).json()["log_end_offset"] == 2
        client.close()
    secret = key.split("_", 2)[2][:-1]
    ours = [record for record in caplog.records if not record.name.startswith("http")]
    assert ours
    assert not [record for record in ours if secret in str(vars(record))]


def test_the_hot_lane_counts_against_the_quota(tmp_path: Path) -> None:
    """Bytes and requests of appends below ASGI are the key's as well."""
    key = create_key(tmp_path, "root", *ALL, quota={"bytes_in": 1_000})
    body = json.dumps({"records": [{"value": "x" * 900}]})
    headers = bearer(key) | {"content-type": "application/json"}
    with serving(tmp_path) as served, httpx.Client(base_url=served.url, headers=headers) as client:
        client.put(TOPIC, json={}).raise_for_status()
        statuses = [client.post(RECORDS, content=body).status_code for _ in range(8)]
        assert statuses[:2] == [201, 201]
        assert 429 in statuses


def shown_by(url: str, trusted: ssl.SSLContext) -> bytes:
    """The certificate that a new connection is shown."""
    host, _, port = url.removeprefix("https://").partition(":")
    with (
        socket.create_connection((host, int(port)), timeout=30) as wire,
        trusted.wrap_socket(wire, server_hostname=host) as secure,
    ):
        shown = secure.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def in_der(pair: Pair) -> bytes:
    """A certificate as connections show it."""
    return ssl.PEM_cert_to_DER_cert(pair.cert.read_text())


def end_of(pair: Pair) -> float:
    return x509.load_pem_x509_certificate(pair.cert.read_bytes()).not_valid_after_utc.timestamp()


def end_shown(client: httpx.Client) -> float:
    """When the certificate ends, as a scraper is told."""
    name = "tidelog_certificate_expiry_timestamp_seconds "
    (line,) = [one for one in client.get("/metrics").text.splitlines() if one.startswith(name)]
    return float(line.removeprefix(name))


def test_a_renewed_certificate_counts_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """New connections get it; open ones continue; half a renewal changes nothing."""
    authority = Authority(tmp_path)
    server, renewed = authority.vouch("server"), authority.vouch("renewed", hours=2)
    first, second = in_der(server), in_der(renewed)
    trusted = context_of(authority)
    named: dict[str, Any] = {
        "tls_cert": server.cert,
        "tls_key": server.key,
        "tls_check_interval_ms": 3_600_000,
    }
    with (
        serving(tmp_path / "data", trusted=trusted, **named) as served,
        httpx.Client(base_url=served.url, verify=trusted) as open_before,
    ):
        certificates = served.server.certificates
        assert certificates is not None
        assert open_before.get("/livez").status_code == 200
        certificates.refresh()
        assert shown_by(served.url, trusted) == first
        assert end_shown(open_before) == end_of(server)
        server.cert.write_bytes(renewed.cert.read_bytes())
        certificates.refresh()
        assert shown_by(served.url, trusted) == first
        server.key.unlink()
        certificates.refresh()
        assert shown_by(served.url, trusted) == first
        assert len([one for one in caplog.records if "cannot be used" in one.message]) == 2
        server.key.write_bytes(renewed.key.read_bytes())
        certificates.refresh()
        assert shown_by(served.url, trusted) == second
        assert open_before.get("/livez").status_code == 200
        assert end_shown(open_before) == end_of(renewed)


def test_unusable_tls_files_refuse_all_clients_after_a_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client CA may be withdrawn in a file that cannot be read.

    After a time, all clients are refused.
    """
    authority = Authority(tmp_path)
    server = authority.vouch("server")
    whole = authority.path.read_bytes()
    clients = tmp_path / "clients.pem"
    clients.write_bytes(whole)
    trusted, clock = context_of(authority), ManualClock()
    named: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key}
    named |= {"tls_client_ca": clients, "tls_check_interval_ms": 3_600_000}
    named["tls_read_timeout_ms"] = 10_000
    with serving(tmp_path / "data", trusted=trusted, clock=clock, **named) as served:
        certificates = served.server.certificates
        assert certificates is not None
        clients.unlink()
        for _ in range(2):
            certificates.refresh()
            assert shown_by(served.url, trusted) == in_der(server)
            clock.advance(9_999)
        clock.advance(1)
        for _ in range(2):
            certificates.refresh()
            with pytest.raises(ssl.SSLError):
                shown_by(served.url, trusted)
        clients.write_bytes(b"nonsense")
        certificates.refresh()
        with pytest.raises(ssl.SSLError):
            shown_by(served.url, trusted)
        assert len([one for one in caplog.records if "no TLS connection" in one.message]) == 1
        clients.write_bytes(whole)
        certificates.refresh()
        assert shown_by(served.url, trusted) == in_der(server)


def test_a_renewed_authority_decides_about_clients(tmp_path: Path) -> None:
    """Clients of the new CA are accepted, those of the old one refused."""
    authority, before, after = (Authority(tmp_path, name) for name in ("own", "before", "after"))
    server = authority.vouch("server")
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(before.path.read_bytes())
    old, new = (
        context_of(authority, one.vouch(name)) for one, name in ((before, "old"), (after, "new"))
    )
    named: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key}
    named |= {"tls_client_ca": trusted, "tls_check_interval_ms": 3_600_000}
    named["client_certificates"] = {"CN=old": ["read:*"], "CN=new": ["read:*"]}
    with serving(tmp_path / "data", trusted=context_of(authority), **named) as served:
        url = f"{served.url}/v1/topics"
        assert httpx.get(url, verify=old).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(url, verify=new)
        trusted.write_bytes(after.path.read_bytes())
        assert served.server.certificates is not None
        served.server.certificates.refresh()
        assert httpx.get(url, verify=new).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(url, verify=old)


def resumed(
    url: str, shown: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[bytes, bool, ssl.SSLSession | None]:
    """The status line of a request in this session, whether it was resumed, and the session."""
    host, _, port = url.removeprefix("https://").partition(":")
    with (
        socket.create_connection((host, int(port)), timeout=30) as wire,
        shown.wrap_socket(wire, server_hostname=host, session=session) as secure,
    ):
        secure.sendall(b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        come = b""
        with suppress(OSError):
            while piece := secure.recv(65_536):
                come += piece
        return come[:12], bool(secure.session_reused), secure.session


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_does_not_outlive_the_authority_of_its_certificate(
    tmp_path: Path, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed session is refused if its certificate would not be verified today."""
    monkeypatch.setattr("app.server.tls_clients.MAX_SESSIONS", 2)
    authority, before, after = (Authority(tmp_path, name) for name in ("own", "before", "after"))
    server = authority.vouch("server")
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(before.path.read_bytes())
    spark = context_of(authority, before.vouch("spark"))
    spark.minimum_version = spark.maximum_version = version
    named: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key}
    named |= {"tls_client_ca": trusted, "tls_check_interval_ms": 3_600_000}
    named["client_certificates"] = {"CN=spark": ["read:*"]}
    is_resumable = version is ssl.TLSVersion.TLSv1_2
    with serving(tmp_path / "data", trusted=context_of(authority), **named) as served:
        assert served.server.certificates is not None
        for _ in range(3):
            status, _, session = resumed(served.url, spark)
            assert status == b"HTTP/1.1 200"
        assert session is not None
        assert not session.has_ticket
        assert resumed(served.url, spark, session)[:2] == (b"HTTP/1.1 200", is_resumable)
        trusted.write_bytes(after.path.read_bytes())
        served.server.certificates.refresh()
        assert resumed(served.url, spark, session)[0] == b""
        trusted.write_bytes(before.path.read_bytes())
        served.server.certificates.refresh()
        assert resumed(served.url, spark)[0] == b"HTTP/1.1 200"


def test_the_files_of_tls_are_looked_at_again_and_again(tmp_path: Path) -> None:
    """The service detects by itself that they changed."""
    authority = Authority(tmp_path)
    server, renewed = authority.vouch("server"), authority.vouch("renewed")
    second = in_der(renewed)
    trusted = context_of(authority)
    named: dict[str, Any] = {
        "tls_cert": server.cert,
        "tls_key": server.key,
        "tls_check_interval_ms": 1,
    }
    with serving(tmp_path / "data", trusted=trusted, **named) as served:
        server.cert.write_bytes(renewed.cert.read_bytes())
        server.key.write_bytes(renewed.key.read_bytes())
        while shown_by(served.url, trusted) != second:
            pass
