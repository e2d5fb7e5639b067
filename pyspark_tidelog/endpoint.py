"""Where the service is, how patiently it is asked, and with which credentials.

A secret is in a plan, a log or an event only if somebody prints it, so nothing here does: not the
`repr` of an endpoint, not an error about it. Spark itself prints the options of SQL statements, but
what its `spark.redaction.regex` finds in their names: hence `token`, and no option `apiKey`.
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

# Those of the command line, with the option that goes before each.
_ENVIRONMENT: Final = (
    ("token", "TIDELOG_API_KEY"),
    ("caFile", "TIDELOG_CA_FILE"),
    ("clientCert", "TIDELOG_CLIENT_CERT"),
    ("clientKey", "TIDELOG_CLIENT_KEY"),
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One service, as driver and executors reach it."""

    url: str
    token: str | None = field(default=None, repr=False)
    """An API key, or a token of an issuer that the service trusts; it travels with the tasks."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Of one attempt: to connect, and of each wait for bytes."""
    retries: int = DEFAULT_RETRIES
    """Attempts after the first; ten, with growing pauses, last twenty seconds: a restart's time."""
    token_file: str | None = None
    """A file with the API key, on every machine; read for each task, so that it may change."""
    ca_file: str | None = None
    """Certificates to trust instead of the system's."""
    client_cert: str | None = None
    client_key: str | None = None
    """None where the key is in the file of the certificate."""
    executor_url: str | None = None
    """None where executors reach the service by the driver's address."""

    def for_executor(self) -> Endpoint:
        """Return the service as an executor reaches it."""
        return self if self.executor_url is None else replace(self, url=self.executor_url)

    def authorization(self) -> str | None:
        """Return the header that says who asks; raises OptionError for a file that is no key."""
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
        """Return what a connection over TLS trusts and shows; raises OptionError for bad files."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise OptionError(
                f"option caFile: no certificates can be read from {self.ca_file}: "
                f"{error.strerror or error}"
            ) from error
        if self.client_cert is not None:
            try:
                # An encrypted key would ask on the terminal of whoever runs the worker.
                context.load_cert_chain(self.client_cert, self.client_key, password="")
            except OSError as error:
                raise OptionError(
                    f"option clientCert: no certificate with its unencrypted key can be read from "
                    f"{self.client_cert}: {error.strerror or error}"
                ) from error
        return context


def parse_endpoint(given: Mapping[str, str]) -> Endpoint:
    """Read the endpoint's options, by lower-case name; what is not given, from the environment."""
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
    if "@" in url or "?" in url or "#" in url:  # not repeated: there may be a password in it
        raise OptionError(
            f"option {option} must be an address alone: credentials go into the option token"
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
    """Return a token that fits into a header; the error that says it does not never repeats it."""
    if not re.fullmatch(r"[!-~]+", token):
        raise OptionError(f"option {option}: a key is one word of visible ASCII characters")
    return token
