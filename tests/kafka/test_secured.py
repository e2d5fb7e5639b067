"""A real broker that asks for TLS and SASL: each mechanism works, each refusal is explained."""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from bench.peers.packages import jars_of
from bench.peers.program import free_ports
from tests.support.broker import RealBroker
from tests.support.certificates import Authority
from tests.support.service import NDJSON, OFFSETS, RECORDS, running

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.needs("java", "mvn")]

USER: Final = "tidelog"
PASSWORD: Final = "not-to-be-shown"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM, "OAUTHBEARER")
LOGIN_MODULES: Final = {
    "PLAIN": f'plain.PlainLoginModule required user_{USER}="{PASSWORD}"',
    "SCRAM-SHA-256": "scram.ScramLoginModule required",
    "SCRAM-SHA-512": "scram.ScramLoginModule required",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker"',
}
EXIT_TIMEOUT_S: Final = 120


@dataclass
class Secured:
    """A running broker: the port of each protocol, and what clients need."""

    ports: Mapping[str, int]
    authority: Authority
    other_authority: Authority
    token: Path
    """A file with a token that the broker accepts."""

    def settings(self, protocol: str, mechanism: str = "PLAIN", **more: object) -> dict[str, Any]:
        """The settings of a service that may connect, changed by `more`."""
        host = more.pop("host", "127.0.0.1")
        settings: dict[str, Any] = {
            "kafka": f"{host}:{self.ports[protocol]}",
            "kafka_security_protocol": protocol,
        }
        if protocol.startswith("SASL"):
            settings["kafka_sasl_mechanism"] = mechanism
            if mechanism == "OAUTHBEARER":
                settings["kafka_oauth_token_file"] = self.token
            else:
                settings |= {"kafka_sasl_username": USER, "kafka_sasl_password": PASSWORD}
        if protocol.endswith("SSL"):
            settings["kafka_tls_ca"] = self.authority.path
        return {**settings, **more}


def token_of(*, seconds: int) -> str:
    """A token without a signature, as the broker's own validator for developers takes it."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": USER, "iat": now - 10, "exp": now + seconds})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join(part.rstrip("=") for part in encoded) + "."


def listeners_of(ports: Mapping[str, int], controller: int) -> dict[str, str]:
    """The lines of a broker that listens with each protocol, and asks SSL clients for theirs."""
    addresses = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    lines = {
        "listeners": ",".join([*addresses, f"CONTROLLER://127.0.0.1:{controller}"]),
        "advertised.listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join(
            ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in ports)]
        ),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.ssl.ssl.client.auth": "required",
        "offsets.topic.replication.factor": "1",
        "log.cleaner.dedupe.buffer.size": "8388608",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        for mechanism, module in LOGIN_MODULES.items():
            name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
            lines[name] = f"org.apache.kafka.common.security.{module};"
    return lines


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority, other = Authority(folder), Authority(folder, "other")
    server = authority.vouch("broker")
    store = folder / "store.pem"
    store.write_bytes(server.key.read_bytes() + server.cert.read_bytes())
    names = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
    *found, controller = free_ports(len(names) + 1)
    ports = dict(zip(names, found, strict=True))
    settings = listeners_of(ports, controller) | {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.path),
    }
    users = [f"{mechanism}=[name={USER},password={PASSWORD}]" for mechanism in SCRAM]
    broker = RealBroker(
        jars_of("kafka"), folder, heap_mib=256, settings=settings, scram_users=users
    )
    broker.address = f"127.0.0.1:{ports['PLAINTEXT']}"
    token = folder / "token"
    token.write_text(token_of(seconds=3_600))
    with broker:
        broker.wait_until_it_answers()
        yield Secured(ports, authority, other, token)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_mechanism_appends_and_reads(
    secured: Secured, tmp_path: Path, protocol: str, mechanism: str
) -> None:
    """With and without TLS."""
    settings = secured.settings(protocol, mechanism)
    await ensure_served(f"{protocol}-{mechanism}".lower(), tmp_path, settings)


async def test_a_client_certificate_is_enough(secured: Secured, tmp_path: Path) -> None:
    """The broker knows the service by it."""
    pair = secured.authority.vouch("service")
    settings = secured.settings("SSL", kafka_tls_cert=pair.cert, kafka_tls_key=pair.key)
    await ensure_served("certificate", tmp_path, settings)


async def ensure_served(topic: str, folder: Path, settings: Mapping[str, Any]) -> None:
    """Create a topic, append a record and read it."""
    async with running(folder, **settings) as api:
        await api.create(topic)
        path = RECORDS.replace("events", topic)
        await api.append("stored", path=path)
        records = (await api.client.get(f"{path}?offset=0")).json()["records"]
        assert [record["value"] for record in records] == ["stored"]


REFUSALS: Final = {
    "password of PLAIN": (
        ("SASL_SSL", "PLAIN", {"kafka_sasl_password": "wrong-one"}),
        "the broker refuses the PLAIN credentials",
    ),
    "password of SCRAM": (
        ("SASL_PLAINTEXT", "SCRAM-SHA-512", {"kafka_sasl_password": "wrong-one"}),
        "the broker refuses the SCRAM-SHA-512 credentials",
    ),
    "token": (
        ("SASL_PLAINTEXT", "OAUTHBEARER", {"kafka_oauth_token_file": "expired"}),
        "the broker refuses the OAUTHBEARER credentials",
    ),
    "authority": (
        ("SASL_SSL", "PLAIN", {"kafka_tls_ca": "other"}),
        "the broker's certificate is not accepted",
    ),
    "host name": (
        ("SASL_SSL", "PLAIN", {"host": "localhost"}),
        "certificate is not valid for 'localhost'",
    ),
    "no client certificate": (("SSL", "PLAIN", {"kafka_start_timeout_ms": 3_000}), "127.0.0.1"),
    "other protocol": (
        ("SASL_PLAINTEXT", "PLAIN", {
            "kafka_security_protocol": "PLAINTEXT", "kafka_start_timeout_ms": 3_000,
        }),
        "kafka_security_protocol",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wanted", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_what_the_broker_or_the_service_refuses_ends_the_start(
    secured: Secured, tmp_path: Path, wanted: tuple[str, str, dict[str, Any]], sentence: str
) -> None:
    """At once, with one sentence; nothing that it prints has a secret, at any log level."""
    protocol, mechanism, changed = wanted
    expired = tmp_path / "token"
    expired.write_text(token_of(seconds=-5))
    files = {"expired": expired, "other": secured.other_authority.path}
    changed = {name: files.get(str(value), value) for name, value in changed.items()}
    settings = secured.settings(protocol, mechanism, **changed)
    environment = {f"TIDELOG_{name.upper()}": str(value) for name, value in settings.items()}
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "serve", "--port", "0"],
        env={**os.environ, **environment, "TIDELOG_LOG_LEVEL": "debug"},
        cwd=Path(__file__).parents[2],
        timeout=EXIT_TIMEOUT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1, done.stderr
    assert last.startswith("tidelog: the Kafka cluster cannot be used: "), done.stderr
    assert sentence in last
    assert "Traceback" not in done.stderr
    for secret in (PASSWORD, "wrong-one", expired.read_text(), secured.token.read_text()):
        assert secret not in done.stderr + done.stdout


async def test_credentials_that_expire_are_503(secured: Secured, tmp_path: Path) -> None:
    """The service continues with the token that another program writes."""
    token = tmp_path / "token"
    token.write_text(secured.token.read_text())
    settings = secured.settings(
        "SASL_PLAINTEXT", "OAUTHBEARER", kafka_oauth_token_file=token,
        commit_timeout_ms=500, kafka_read_timeout_ms=500,
    )  # fmt: skip
    async with running(tmp_path / "data", **settings) as api:
        await api.create()
        for text in (token_of(seconds=-5), "not a token"):
            token.write_text(text)
            appended = await api.client.post(RECORDS, content=b'{"value":1}', headers=NDJSON)
            found = await api.client.get(OFFSETS)
            for answer in (appended, found):
                problem = answer.json()
                assert (answer.status_code, problem["code"]) == (503, "backend_unavailable")
                assert "OAUTHBEARER" in problem["detail"]
                assert text not in answer.text
        token.write_text(secured.token.read_text())
        await api.append("stored")
        assert (await api.client.get(OFFSETS)).json()["high_watermark"] == 1
