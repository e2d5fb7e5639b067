"""The settings of a Kafka cluster that stores the logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings

MIB: Final = 1024 * 1024

Positive = Annotated[int, Field(ge=1)]


class KafkaSettings(BaseSettings):
    """Where the cluster is, and how the service connects to it."""

    kafka: str = ""
    """Brokers of a Kafka cluster, HOST:PORT[,HOST:PORT…]: it stores the logs, no data directory."""

    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How the service connects to the brokers; Kafka's security.protocol."""

    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = (
        "PLAIN"
    )
    """How the service authenticates to the brokers, with SASL."""

    kafka_sasl_username: str = ""
    """User of PLAIN and SCRAM."""

    kafka_sasl_password: SecretStr = SecretStr("")
    """Password of PLAIN and SCRAM."""

    kafka_oauth_token_file: Path | None = None
    """File with the token of OAUTHBEARER; read for each connection, so that it can be renewed."""

    kafka_tls_ca: Path | None = None
    """CAs of the brokers' certificates, PEM; without it the system's."""

    kafka_tls_cert: Path | None = None
    """Certificate of the service for the brokers, PEM."""

    kafka_tls_key: Path | None = None
    """Private key of that certificate, PEM, not encrypted."""

    kafka_replication_factor: Annotated[int, Field(ge=-1, le=32_767)] = -1
    """Replicas of a topic that is created here; -1: the cluster's default.replication.factor."""

    kafka_documents_topic: Annotated[str, Field(pattern=r"^__tidelog[a-zA-Z0-9._-]{1,200}$")] = (
        "__tidelog_documents"
    )
    """Compacted topic with the ingest profiles and tokens; created at the first start. Services
    with the same topic share them. Clients see no topic whose name begins with __tidelog."""

    kafka_start_timeout_ms: Positive = 60_000
    """Longest wait at a start for a broker that answers; then the start fails."""

    kafka_request_timeout_ms: Positive = 30_000
    """Longest wait for a broker's response; then the connection is closed."""

    kafka_read_timeout_ms: Positive = 10_000
    """Longest time in which a read is repeated that no broker answers; then 503. Electing a new
    leader for a broker that died takes about 9 s (broker.session.timeout.ms)."""

    kafka_metadata_interval_ms: Positive = 5_000
    """Interval at which topics and leaders are read; changes made elsewhere are seen by then."""

    kafka_config_interval_ms: Positive = 60_000
    """Interval at which topic configurations are read; changes made elsewhere are seen by then."""

    max_kafka_produce_bytes: Positive = 64 * MIB
    """Bytes of appends that are sent to the brokers and not answered; beyond it 503."""

    max_kafka_fetch_bytes: Positive = 64 * MIB
    """Bytes of reads that are asked of the brokers and not answered, an equal share of each;
    further reads wait for their turn."""

    @model_validator(mode="after")
    def _ensure_kafka_can_be_reached(self) -> Self:
        if self.kafka:
            _ = self.kafka_addresses
        if self.kafka_tls_key is not None and self.kafka_tls_cert is None:
            raise ValueError("kafka_tls_key needs kafka_tls_cert")
        if self.kafka_security_protocol.startswith("SASL"):
            if self.kafka_sasl_mechanism == "OAUTHBEARER":
                if self.kafka_oauth_token_file is None:
                    raise ValueError("OAUTHBEARER needs kafka_oauth_token_file")
            elif not self.kafka_sasl_username:
                raise ValueError(f"{self.kafka_sasl_mechanism} needs kafka_sasl_username")
        return self

    @property
    def kafka_addresses(self) -> tuple[tuple[str, int], ...]:
        """The brokers' hosts and ports; raises ValueError."""
        return tuple(map(_address, self.kafka.split(",")))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text.strip()!r} is not the address of a broker: HOST:PORT")
    return host, int(port)
