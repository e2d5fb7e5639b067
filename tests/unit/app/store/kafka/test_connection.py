"""Connections to brokers: versions, frames, timeouts, TLS files and tokens."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.produce.v9.request import ProduceRequest
from kio.static.primitive import i16
from pydantic import ValidationError

from app.errors import BackendUnavailable
from app.settings import Settings
from app.store.kafka.cluster import Cluster
from app.store.kafka.connection import ALL_TOPICS, Address, Connection, Connector, Metadata
from app.store.kafka.errors import NoAnswer, NotTrusted, milliseconds
from engine.errors import InvalidConfig
from tests.support.certificates import Authority
from tests.support.fake_kafka import VERSIONS, FakeKafka, eventually, fake_kafka

pytestmark = pytest.mark.anyio

ALL_GROUPS = ListGroupsRequest(states_filter=())


@pytest.fixture
async def fake(anyio_backend: str) -> AsyncIterator[FakeKafka]:
    async with fake_kafka() as fake:
        yield fake


async def connected(fake: FakeKafka, **settings: object) -> Connection:
    made = Settings.model_validate({"kafka": fake.addresses, **settings})
    return await Connector(made).connect(Address(*made.kafka_addresses[0]))


async def test_responses_come_in_the_order_of_requests(fake: FakeKafka) -> None:
    """Several may be in flight; each gets its own response, as one buffer."""
    connection = await connected(fake)
    responses = [connection.send(ALL_GROUPS) for _ in range(3)]
    frames = await asyncio.gather(*responses)
    assert [int.from_bytes(frame[:4], "big") for frame in frames] == [1, 2, 3]
    connection.close()


async def test_a_closed_connection_has_not_sent(fake: FakeKafka) -> None:
    """What waited does not know; what comes later was not sent."""
    connection = await connected(fake)
    fake.holds["ListGroups"] = asyncio.Event()
    waiting = connection.send(ALL_GROUPS)
    connection.close()
    with pytest.raises(NoAnswer) as caught:
        await waiting
    assert caught.value.was_sent
    with pytest.raises(NoAnswer) as caught:
        await connection.send(ALL_GROUPS)
    assert not caught.value.was_sent
    connection.close()


async def test_a_silent_broker_is_given_up(fake: FakeKafka) -> None:
    """The connection ends with the oldest request's time; answered ones do not count."""
    connection = await connected(fake, kafka_request_timeout_ms=200)
    await connection.send(ALL_GROUPS)
    fake.holds["ListGroups"] = asyncio.Event()
    with pytest.raises(NoAnswer, match=r"no response within 0\.2 s"):
        await connection.send(ALL_GROUPS)
    assert not connection.is_open


async def test_an_idle_connection_has_no_time(fake: FakeKafka) -> None:
    """The timer of an answered request does nothing."""
    connection = await connected(fake, kafka_request_timeout_ms=50)
    await connection.send(ALL_GROUPS)
    loop = asyncio.get_running_loop()
    late = loop.time() + 0.1
    await eventually(lambda: loop.time() > late)
    assert connection.is_open
    connection.close()


async def test_an_unknown_version_says_what_is_needed(
    fake: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is too old, or too new."""
    monkeypatch.delitem(VERSIONS, 3)
    connection = await connected(fake)
    with pytest.raises(InvalidConfig, match=r"tidelog needs Kafka 3\.5"):
        connection.send(ALL_TOPICS)
    connection.close()


async def test_a_request_without_an_answer_is_sent(fake: FakeKafka) -> None:
    """A produce request with `acks=0` has none."""
    connection = await connected(fake)
    request = ProduceRequest(
        transactional_id=None, acks=i16(0), timeout=milliseconds(1), topic_data=()
    )
    assert bytes(await connection.send(request, has_response=False)) == b""
    await connection.send(ALL_GROUPS)
    assert fake.requests["Produce"] == 1
    connection.close()


@pytest.mark.parametrize(
    "frame",
    [b"\x00\x00\x00\x01", b"\xff\xff\xff\xff", b"\x00\x00\x00\x04\x00\x00\x00\x63"],
    ids=["too short", "negative", "of no request"],
)
async def test_what_is_no_response_ends_the_connection(fake: FakeKafka, frame: bytes) -> None:
    """Nothing after it could be understood."""
    connection = await connected(fake)
    for byte in frame:
        connection.get_buffer(1)[:1] = bytes([byte])
        connection.buffer_updated(1)
    assert not connection.is_open


async def test_a_response_for_a_client_that_has_gone_is_dropped(fake: FakeKafka) -> None:
    """The next one is read as usual."""
    connection = await connected(fake)
    first, second = connection.send(ALL_GROUPS), connection.send(ALL_GROUPS)
    first.cancel()
    assert int.from_bytes((await second)[:4], "big") == 2
    connection.close()


def test_addresses_are_shown_as_they_are_written() -> None:
    """An IPv6 address is in brackets."""
    assert [str(Address("broker", 1)), str(Address("::1", 2))] == ["broker:1", "[::1]:2"]


def test_tls_files_that_are_missing_are_named(tmp_path: Path) -> None:
    """At the start, with a sentence."""
    settings = Settings(
        kafka="broker:9092", kafka_security_protocol="SSL", kafka_tls_ca=tmp_path / "none.pem"
    )
    with pytest.raises(InvalidConfig, match="TLS files for Kafka"):
        Connector(settings)


async def test_an_encrypted_key_is_refused(tmp_path: Path) -> None:
    """OpenSSL would ask for its password on the terminal."""
    pair = Authority(tmp_path).vouch("service")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    pair.key.write_bytes(key.private_bytes(pem, pkcs8, encryption))
    settings = Settings(
        kafka_security_protocol="SSL", kafka_tls_cert=pair.cert, kafka_tls_key=pair.key
    )
    with pytest.raises(InvalidConfig, match="TLS files for Kafka"):
        Connector(settings)
    with pytest.raises(ValidationError, match="kafka_tls_key needs kafka_tls_cert"):
        Settings(kafka_tls_key=pair.key)


async def test_a_certificate_of_another_authority_is_not_accepted(
    anyio_backend: str, tmp_path: Path
) -> None:
    """Nothing is sent to such a broker."""
    pair = Authority(tmp_path).vouch("broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    address = Address(*server.sockets[0].getsockname())
    settings = Settings(
        kafka_security_protocol="SSL", kafka_tls_ca=Authority(tmp_path, "other").path
    )
    with pytest.raises(NotTrusted, match="certificate is not accepted"):
        await Connector(settings).connect(address)
    server.close()


SASL = {
    "kafka_security_protocol": "SASL_PLAINTEXT",
    "kafka_sasl_username": "tidelog",
    "kafka_sasl_password": "not-to-be-shown",
}
REFUSED = (ErrorCode.sasl_authentication_failed, b"")


@pytest.mark.parametrize(
    ("mechanism", "handshake", "answers", "sentence"),
    [
        ("PLAIN", ErrorCode.none, [REFUSED], "refuses the PLAIN credentials: wrong"),
        ("OAUTHBEARER", ErrorCode.none, [(ErrorCode.none, b"{}"), REFUSED], "the OAUTHBEARER"),
        ("SCRAM-SHA-256", ErrorCode.none, [(ErrorCode.none, b"r=other,s=,i=1")], "does not answer"),
        ("SCRAM-SHA-512", ErrorCode.unsupported_sasl_mechanism, [], "does not offer .* SCRAM-SHA"),
    ],
)
async def test_a_broker_that_is_not_trusted_is_named(
    fake: FakeKafka,
    tmp_path: Path,
    mechanism: str,
    handshake: ErrorCode,
    answers: list[tuple[ErrorCode, bytes]],
    sentence: str,
) -> None:
    """Credentials are not shown; a start does not wait for others."""
    token = tmp_path / "token"
    token.write_text("not-to-be-shown")
    settings = {**SASL, "kafka_sasl_mechanism": mechanism, "kafka_oauth_token_file": token}
    fake.errors["SaslHandshake"] += [handshake] * 2
    fake.sasl += answers * 2
    with pytest.raises(NotTrusted, match=sentence) as caught:
        await connected(fake, **settings)
    assert "not-to-be-shown" not in str(caught.value)
    cluster = Cluster(Settings.model_validate({"kafka": fake.addresses, **settings}), ignore)
    with pytest.raises(BackendUnavailable, match=sentence):
        await cluster.open()
    await cluster.close()


async def test_a_token_that_is_accepted_connects(fake: FakeKafka, tmp_path: Path) -> None:
    """One that cannot be read yet may be there later."""
    token = tmp_path / "token"
    settings = {**SASL, "kafka_sasl_mechanism": "OAUTHBEARER", "kafka_oauth_token_file": token}
    with pytest.raises(NoAnswer, match="kafka_oauth_token_file cannot be read") as caught:
        await connected(fake, **settings)
    assert str(tmp_path) not in str(caught.value)
    token.write_text("accepted")
    (await connected(fake, **settings)).close()


async def test_a_connection_that_is_not_made_in_time_is_given_up(fake: FakeKafka) -> None:
    """So is one that the broker closes: it may want another protocol."""
    fake.closes["ApiVersions"] = 1
    with pytest.raises(NoAnswer, match="kafka_security_protocol"):
        await connected(fake)
    fake.holds["ApiVersions"] = asyncio.Event()
    with pytest.raises(NoAnswer, match=r"no connection within 0\.05 s"):
        await connected(fake, kafka_request_timeout_ms=50)


async def ignore(_: Metadata) -> None:
    """Have nothing to do with new metadata."""


async def test_a_token_is_read_for_each_connection(tmp_path: Path) -> None:
    """Another program renews the file."""
    file = tmp_path / "token"
    settings = Settings(
        kafka="broker:9092",
        kafka_security_protocol="SASL_PLAINTEXT",
        kafka_sasl_mechanism="OAUTHBEARER",
        kafka_oauth_token_file=file,
    )
    provider = Connector(settings).security["sasl_oauth_token_provider"]
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        assert await provider.token() == token  # type: ignore[attr-defined]  # the provider for aiokafka


def test_a_password_needs_no_token() -> None:
    """Only OAUTHBEARER has one."""
    settings = Settings.model_validate({"kafka": "broker:9092", **SASL})
    assert "sasl_oauth_token_provider" not in Connector(settings).security


async def test_a_refused_broker_leaves_no_connection_open(tmp_path: Path) -> None:
    """With TLS it would stay open until the broker says farewell, which this one never does."""
    authority = Authority(tmp_path)
    pair = authority.vouch("broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def read_to_the_end() -> None:
            plain, _ = listening.accept()
            with plain.dup() as bytes_below, context.wrap_socket(plain, server_side=True):
                bytes_below.settimeout(10)
                with contextlib.suppress(ConnectionResetError):  # an end, too
                    while bytes_below.recv(1_000):
                        pass

        end = asyncio.create_task(asyncio.to_thread(read_to_the_end))
        settings = Settings(
            kafka_security_protocol="SSL", kafka_tls_ca=authority.path, kafka_request_timeout_ms=300
        )
        with pytest.raises(NoAnswer, match="no connection within"):
            await Connector(settings).connect(Address(*listening.getsockname()))
        await end
