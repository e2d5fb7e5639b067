"""Bearer tokens: what is taken, and the ways in which others are not."""

import base64
import hmac
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.security.principal import InvalidToken, Meters, Principal, Quota
from app.security.rules import Action
from app.security.tokens import IssuerKeys, Tokens
from app.settings import Settings
from tests.support.issuer import AUDIENCE, ISSUER, Wanted, jwk, jwks, token
from tests.support.time import START_MS, ManualClock

pytestmark = pytest.mark.anyio

NOW_S = START_MS / 1000


def signed(wanted: Wanted | None = None, /, **claims: Any) -> bytes:
    return token(wanted, now_s=NOW_S, **claims).encode()


class Issuer:
    """An issuer whose key set a test changes, and the verifier of its tokens."""

    def __init__(self, *keys: dict[str, Any], **settings: Any) -> None:
        self.keys = keys
        self.clock = ManualClock()
        wanted = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, **settings}
        self.settings = Settings(jwks="unused", **wanted)
        self.known = IssuerKeys(self._publish, self.settings, self.clock)
        self.tokens = Tokens(self.known, self.settings, Meters(Quota(), self.clock))

    async def _publish(self) -> bytes:
        return jwks(*self.keys)

    def identify(self, some: bytes) -> Principal:
        return self.tokens.identify(some, self.clock.now_ms())


@pytest.fixture
async def issuer() -> Issuer:
    """An issuer of one key of each kind, known under the kind's name."""
    kinds = ("RSA", "P-256", "P-384", "Ed25519")
    made = Issuer(*(jwk(kind, kind) for kind in kinds), jwk("P-256", "k"))
    await made.known.refresh()
    return made


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        ("RSA", "RS256"),
        ("RSA", "PS512"),
        ("P-256", "ES256"),
        ("P-384", "ES384"),
        ("Ed25519", "EdDSA"),
    ],
)
async def test_a_token_says_who_and_what(issuer: Issuer, kind: str, algorithm: str) -> None:
    """Whatever asymmetric algorithm signed it, subject and scopes are those of the token."""
    wanted = Wanted(kind=kind, key_id=kind, algorithm=algorithm)
    principal = issuer.identify(signed(wanted, scope="openid read:clicks append:x*"))
    assert principal.name == "jwt:ada"
    assert principal.grants.allow(Action.READ, "clicks")
    assert principal.grants.allow(Action.APPEND, "x1")
    assert not principal.grants.allow(Action.ADMIN, "clicks")


async def test_scopes_may_be_a_list_under_another_name() -> None:
    """Issuers use different claims for scopes; entries that are not text are ignored."""
    issuer = Issuer(jwk("P-256", "k"), jwt_scope_claim="scp")
    await issuer.known.refresh()
    principal = issuer.identify(signed(scp=["read:a", 7, "metrics"], scope="read:b"))
    assert principal.grants.allow(Action.READ, "a")
    assert not principal.grants.allow(Action.READ, "b")
    assert principal.grants.metrics


def encoded(piece: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(piece).encode()).rstrip(b"=")


def unsigned(**claims: Any) -> bytes:
    """A token whose header says that it is not signed."""
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": NOW_S + 600, **claims}
    return b".".join([encoded({"alg": "none", "kid": "k"}), encoded(content), b""])


def signed_with_the_public_key() -> bytes:
    """The classic confusion: what is published for checking is taken for a shared secret."""
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": NOW_S + 600}
    secret = json.dumps(jwk("RSA", "RSA")).encode()
    signing_input = b".".join(map(encoded, ({"alg": "HS256", "kid": "RSA"}, content)))
    signature = hmac.digest(secret, signing_input, "sha256")
    return signing_input + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")


WRONG: dict[str, bytes] = {
    "nobody signed it": unsigned(),
    "a public key is no secret": signed_with_the_public_key(),
    "of another key": signed(Wanted(number=1)),
    "of a key of another kind": signed(Wanted(kind="Ed25519", key_id="P-256")),
    "of another curve": signed(Wanted(kind="P-256", key_id="P-384")),
    "of a key that is not known": signed(Wanted(key_id="other")),
    "of no key, and several would fit": signed(Wanted(key_id=None)),
    "for somebody else": signed(aud="elsewhere"),
    "of somebody else": signed(iss="https://elsewhere"),
    "without an end": signed(Wanted(without=("exp",))),
    "without an audience": signed(Wanted(without=("aud",))),
    "without an issuer": signed(Wanted(without=("iss",))),
    "of nobody": signed(Wanted(without=("sub",))),
    "its end is no time": signed(exp="soon"),
    "its end is a truth": signed(exp=True),
    "its begin is no time": signed(nbf=[]),
    "not valid yet": signed(nbf=NOW_S + 31),
    "scopes of no kind": signed(scope={"read": "*"}),
    "a critical extension": signed(Wanted(head={"crit": ["x"], "x": 1})),
    "its body was changed": signed()[:-90] + b"A" + signed()[-89:],
    "cut off": signed()[:-1],
    "no token": b"nothing",
    "two dots": b"..",
    "no text": b"\xff.\xfe.\xfd",
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_a_token_that_is_not_right_is_nobody(issuer: Issuer, wrong: bytes) -> None:
    """It is refused for its fault, whatever that is."""
    with pytest.raises(InvalidToken):
        issuer.identify(wrong)


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits")  # of the signing party
async def test_a_short_key_signs_nothing() -> None:
    """A key that can be broken is as good as none, even if the issuer publishes it."""
    issuer = Issuer(jwk("RSA-short", "k"))
    await issuer.known.refresh()
    with pytest.raises(InvalidToken, match="bits"):
        issuer.identify(signed(Wanted(kind="RSA-short")))


async def test_an_algorithm_can_be_excluded() -> None:
    """The settings say which are taken; the token has no say."""
    issuer = Issuer(jwk("RSA", "RSA"), jwt_algorithms=("ES256",))
    await issuer.known.refresh()
    with pytest.raises(InvalidToken, match="algorithm"):
        issuer.identify(signed(Wanted(kind="RSA", key_id="RSA")))


async def test_a_key_is_used_only_for_what_it_is_published_for() -> None:
    """A key for encryption signs nothing, and one for another algorithm not this."""
    keys = jwk("P-256", "k", use="enc"), jwk("RSA", "RSA", alg="RS512")
    issuer = Issuer(*keys)
    await issuer.known.refresh()
    for wrong in (signed(), signed(Wanted(kind="RSA", key_id="RSA"))):
        with pytest.raises(InvalidToken, match="no such key"):
            issuer.identify(wrong)


async def test_a_token_ends_with_its_time_and_a_little_leeway(issuer: Issuer) -> None:
    """Clocks may be apart as far as the settings say, on both ends."""
    principal = issuer.identify(signed(exp=NOW_S + 10, nbf=NOW_S + 29))
    assert principal.is_valid(START_MS + 39_999)
    assert not principal.is_valid(START_MS + 40_000)


async def test_a_token_without_a_key_id_needs_no_choice() -> None:
    """An issuer of a single key need not name it."""
    issuer = Issuer(jwk("P-256", None))
    await issuer.known.refresh()
    assert issuer.identify(signed(Wanted(key_id=None))).name == "jwt:ada"


async def test_a_token_is_verified_once(issuer: Issuer) -> None:
    """The second time it is known, until the issuer's keys change."""
    some = signed()
    first = issuer.identify(some)
    await issuer.known.refresh()
    assert issuer.identify(some) is first
    issuer.keys = (jwk("P-256", "k", number=1),)
    await issuer.known.refresh()
    with pytest.raises(InvalidToken):  # what a withdrawn key signed counts no more
        issuer.identify(some)


async def test_the_memory_for_tokens_is_bounded(issuer: Issuer) -> None:
    """Beyond the limit the oldest is dropped, and verified again on its next use."""
    tokens = Tokens(issuer.known, issuer.settings, Meters(Quota(), issuer.clock), max_known=2)
    ada, bob, eve = (signed(sub=name) for name in ("ada", "bob", "eve"))
    first, second = (tokens.identify(some, START_MS) for some in (ada, bob))
    tokens.identify(eve, START_MS)
    assert tokens.identify(bob, START_MS) is second
    assert tokens.identify(ada, START_MS) is not first


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 255))
async def test_no_bytes_do_anything_but_be_refused(
    issuer: Issuer, noise: bytes, position: int, byte: int
) -> None:
    """Noise, and a right token with one byte changed, are refused and nothing else."""
    right = bytearray(signed())
    right[position % len(right)] ^= byte or 1
    for wrong in (noise, noise + b"." + noise + b".", bytes(right)):
        with pytest.raises(InvalidToken):
            issuer.identify(wrong)
