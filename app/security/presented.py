"""The credentials in the headers of a request: `Authorization` (Bearer or Basic) or `X-API-Key`."""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Final, NamedTuple

from app.errors import MalformedRequest, Unauthenticated

Headers = Sequence[tuple[bytes, bytes]]

CREDENTIAL_HEADERS: Final = frozenset({b"authorization", b"x-api-key"})

CHALLENGE: Final = 'Bearer realm="tidelog"'
"""Basic is accepted, but no answer asks for it: a browser would prompt the user, and then send the
password with every request to this origin."""


class Presented(NamedTuple):
    """A request's credentials: an API key or, if sent as Bearer, possibly a token."""

    token: bytes
    is_bearer: bool


def presented_in(headers: Headers, max_bytes: int) -> Presented | None:
    """Return the credentials of a request; None if it has none.

    Raises MalformedRequest for several, for one that is too long and for one that cannot be parsed,
    Unauthenticated for a scheme other than Bearer and Basic.
    """
    given = [header for header in headers if header[0] in CREDENTIAL_HEADERS]
    if not given:
        return None
    if len(given) > 1:
        raise malformed("a request has one Authorization or one X-API-Key, not several")
    name, value = given[0]
    if len(value) > max_bytes:
        shown = "Authorization" if name == b"authorization" else "X-API-Key"
        raise malformed(f"{shown} is longer than max_credential_bytes ({max_bytes})", name)
    if name == b"x-api-key":
        return Presented(value.strip(), is_bearer=False)
    scheme, _, token = value.partition(b" ")
    token = token.strip()
    if scheme.lower() not in {b"bearer", b"basic"}:
        raise refused("only Bearer and Basic are supported")
    if not token or b" " in token:
        raise malformed("Authorization is not a scheme and one token")
    if scheme.lower() == b"bearer":
        return Presented(token, is_bearer=True)
    return Presented(password_of(token), is_bearer=False)


def is_canonical(header: tuple[bytes, bytes]) -> bool:
    """Whether the header has the canonical form of its credentials, which can be cached.

    A key has many other forms: any user name of Basic, any case of Bearer, extra white space.
    """
    name, value = header
    if name == b"x-api-key":
        return value == value.strip()
    return value == b"Bearer " + value[7:].strip()


def password_of(token: bytes) -> bytes:
    """Return Basic's password (RFC 7617); the user name is ignored: the key contains its id.

    Raises MalformedRequest.
    """
    try:
        decoded = binascii.a2b_base64(token, strict_mode=True)
    except binascii.Error:
        raise malformed("the credentials of Basic are not base64") from None
    _, colon, password = decoded.partition(b":")
    if not colon:
        raise malformed("the credentials of Basic are not a user name, a colon and a password")
    return password


def refused(detail: str) -> Unauthenticated:
    """Return the error for invalid credentials (RFC 6750, 3.1)."""
    return Unauthenticated(
        detail, headers={"www-authenticate": f'{CHALLENGE}, error="invalid_token"'}
    )


def malformed(detail: str, header: bytes = b"authorization") -> MalformedRequest:
    """Return the error for credentials that cannot be parsed (RFC 6750, 3.1)."""
    return MalformedRequest(
        detail,
        headers={"www-authenticate": f'{CHALLENGE}, error="invalid_request"'},
        header=header.decode(),
    )
