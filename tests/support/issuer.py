"""An issuer of tokens: keys of its own making, their public halves as a JWK set, and tokens."""

import json
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

ISSUER = "https://issuer.example"
AUDIENCE = "tidelog"


@cache
def private_key(kind: str, number: int = 0) -> Any:
    """A key pair, made once a test run: RSA takes its time."""
    if kind == "RSA":
        return rsa.generate_private_key(65_537, 2_048)
    if kind == "RSA-short":
        return rsa.generate_private_key(65_537, 1_024)
    if kind == "Ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key({"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1()}[kind])


ALGORITHMS = {"RSA": "RS256", "RSA-short": "RS256", "Ed25519": "EdDSA", "P-256": "ES256"}
ALGORITHMS |= {"P-384": "ES384"}


def jwk(kind: str, key_id: str | None, number: int = 0, **more: object) -> dict[str, Any]:
    """The public half of a key as the issuer publishes it."""
    algorithm: Any = get_default_algorithms()[ALGORITHMS[kind]]
    public = json.loads(algorithm.to_jwk(private_key(kind, number).public_key()))
    return {**public, **({} if key_id is None else {"kid": key_id}), **more}


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


@dataclass
class Wanted:
    """A token that is valid unless a field says otherwise."""

    kind: str = "P-256"
    key_id: str | None = "k"
    number: int = 0
    algorithm: str | None = None
    head: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()


def token(wanted: Wanted | None = None, /, *, now_s: float | None = None, **claims: Any) -> str:
    """A signed token for `scope`, valid for ten minutes from `now_s`."""
    wanted = wanted or Wanted()
    now_s = time.time() if now_s is None else now_s
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now_s + 600} | claims
    for name in wanted.without:
        del content[name]
    head = {**({} if wanted.key_id is None else {"kid": wanted.key_id}), **wanted.head}
    algorithm = wanted.algorithm or ALGORITHMS[wanted.kind]
    return jwt.encode(content, private_key(wanted.kind, wanted.number), algorithm, headers=head)
