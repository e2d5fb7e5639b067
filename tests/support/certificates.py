"""Certificates of the tests' own making: an authority, and whom it vouches for."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """Where a certificate and its key are."""

    cert: Path
    key: Path


class Authority:
    """An authority that signs in a directory; `path` is its own certificate."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        is_ca = x509.BasicConstraints(ca=True, path_length=0)
        certificate = self._signed(self._name, self._key, is_ca)
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def vouch(self, name: str, organization: str | None = None, hours: int = 1) -> Pair:
        """Sign a certificate of a name, for 127.0.0.1, that is valid for some hours."""
        key = ec.generate_private_key(ec.SECP256R1())
        named = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if organization is not None:
            named.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        alternative = x509.SubjectAlternativeName([address])
        certificate = self._signed(x509.Name(named), key, alternative, hours)
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extension: x509.BasicConstraints | x509.SubjectAlternativeName,
        hours: int = 1,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        public = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(hours=hours))
            .add_extension(extension, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), False)
            .sign(self._key, hashes.SHA256())
        )
