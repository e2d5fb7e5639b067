"""The service's address, timeouts, retries and credentials.

No `repr` and no error shows a secret. Spark prints the options of SQL statements, except those
whose names match `spark.redaction.regex`; so the option is `token`, and there is no option
`apiKey`.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.option_values import integer, seconds

DEFAULT_TIMEOUT_S: Final = 60.0
DEFAULT_RETRIES: Final = 10

ENDPOINT_OPTIONS: Final = (
    "url",
    "token",
    "tokenFile",
    "caFile",
    "clientCert",
    "clientKey",
    "timeout",
    "retries",
    "executorUrl",
)

# The environment variables of the command line; the options take precedence.
_ENVIRONMENT: Final = (
    ("token", "TIDELOG_API_KEY"),
    ("caFile", "TIDELOG_CA_FILE"),
    ("clientCert", "TIDELOG_CLIENT_CERT"),
    ("clientKey", "TIDELOG_CLIENT_KEY"),
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One service, as driver and executors connect to it."""

    url: str
    token: str | None = field(default=None, repr=False)
    """An API key, or a JWT of an issuer that the service trusts; sent to the executors."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """For connecting, and for each read."""
    retries: int = DEFAULT_RETRIES
    """Attempts after the first. Ten take twenty seconds, enough for a restart of the service."""
    token_file: str | None = None
    """A file with the API key, on every machine; read for each task, so it can be changed."""
    ca_file: str | None = None
    """CA certificates to trust instead of the system's."""
    client_cert: str | None = None
    client_key: str | None = None
    """None if the key is in the certificate's file."""
    executor_url: str | None = None
    """None if executors use the same address as the driver."""

    def for_executor(self) -> Endpoint:
        """Return the endpoint for executors."""
        return self if self.executor_url is None else replace(self, url=self.executor_url)

    def authorization(self) -> str | None:
        """Return the Authorization header; raise OptionError for an unreadable token file."""
        if self.token_file is None:
            return f"Bearer {self.token}" if self.token else None
        try:
            token = Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not ASCII"
            raise OptionError(
                f"option tokenFile: {self.token_file} cannot be read here: {reason}"
            ) from None
        return f"Bearer {_ensured('tokenFile', token)}"

    def trust(self) -> ssl.SSLContext:
        """Return the TLS context; raise OptionError for files that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise OptionError(
                f"option caFile: no certificates can be read from {self.ca_file}: "
                f"{error.strerror or error}"
            ) from error
        if self.client_cert is not None:
            try:
                # Without a password, OpenSSL would ask for one on the worker's terminal.
                context.load_cert_chain(self.client_cert, self.client_key, password="")
            except OSError as error:
                raise OptionError(
                    f"option clientCert: no certificate with its unencrypted key can be read from "
                    f"{self.client_cert}: {error.strerror or error}"
                ) from error
        return context


def parse_endpoint(given: Mapping[str, str]) -> Endpoint:
    """Parse the endpoint's options; missing ones are taken from the environment."""
    url = _url(given, "url")
    if given.get("token") and given.get("tokenfile"):
        raise OptionError("options token and tokenFile exclude each other: give one of them")
    held = dict(given)
    for option, variable in _ENVIRONMENT:
        is_in_file = option == "token" and given.get("tokenfile")
        if not given.get(option.lower()) and os.environ.get(variable) and not is_in_file:
            held[option.lower()] = os.environ[variable]
    token = (held.get("token") or "").strip()
    if held.get("clientkey") and not held.get("clientcert"):
        raise OptionError("option clientKey needs the certificate it belongs to: set clientCert")
    retries = integer(given, "retries", at_least=0, at_most=1000)
    return Endpoint(
        url=url,
        token=_ensured("token", token) if token else None,
        timeout_s=seconds(given, "timeout", default=DEFAULT_TIMEOUT_S),
        retries=DEFAULT_RETRIES if retries is None else retries,
        token_file=held.get("tokenfile") or None,
        ca_file=held.get("cafile") or None,
        client_cert=held.get("clientcert") or None,
        client_key=held.get("clientkey") or None,
        executor_url=_url(given, "executorUrl") if given.get("executorurl") else None,
    )


def _url(given: Mapping[str, str], option: str) -> str:
    url = (given.get(option.lower()) or "").strip().rstrip("/")
    if not url:
        raise OptionError(f"option {option} is required, for example http://127.0.0.1:8080")
    if "@" in url or "?" in url or "#" in url:  # the error omits it: it may hold a password
        raise OptionError(
            f"option {option} must be only an address: put credentials into the option token"
        )
    parts = urlsplit(url) if url.isprintable() else urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_valid_port(url):
        raise OptionError(
            f"option {option} must be http://host:port or https://host:port, not {url!r}"
        )
    return url


def _has_valid_port(url: str) -> bool:
    try:
        port = urlsplit(url).port
    except ValueError:
        return False
    return port is None or port > 0


def _ensured(option: str, token: str) -> str:
    """Return a token that is valid in a header; the error does not contain it."""
    if not re.fullmatch(r"[!-~]+", token):
        raise OptionError(f"option {option}: a key is one word of visible ASCII characters")
    return token
