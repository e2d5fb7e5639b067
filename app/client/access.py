"""Credentials of a command: API key or token, trusted CAs, client certificate.

Every command that talks to a service has these options: `with_access` adds them and `session` reads
them. A key is never printed, not even in an error.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.client.failures import Failure

_PANEL: Final = "Credentials"


@dataclass(frozen=True, slots=True)
class Access:
    """The credentials of a command; by default none."""

    api_key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None

    def headers(self) -> Mapping[str, str]:
        """Return the headers of every request; Failure for an invalid key."""
        if not self.api_key:
            return {}
        key = self.api_key.strip()
        if not key.isascii() or not key.isprintable() or " " in key:
            raise Failure("the API key is invalid: it contains characters that keys do not have")
        return {"Authorization": f"Bearer {key}"}

    def verification(self) -> ssl.SSLContext | None:
        """Return the TLS context, None for the default.

        Failure for files that cannot be used.
        """
        if self.ca_file is None and self.client_cert is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.client_cert is not None:
                context.load_cert_chain(self.client_cert, self.client_key)
        except OSError as error:
            raise Failure(f"the certificates cannot be used: {error}") from error
        return context


EVERYBODY: Final = Access()

_GIVEN: Final[ContextVar[Access]] = ContextVar("access", default=EVERYBODY)


def given_access() -> Access:
    """Return the credentials of the running command."""
    return _GIVEN.get()


def _options(
    *,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            envvar="TIDELOG_API_KEY",
            help="API key or token. Prefer the variable: other users can see the command line.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file",
            envvar="TIDELOG_CA_FILE",
            help="CAs to trust instead of the system's (PEM).",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    client_cert: Annotated[
        Path | None,
        typer.Option(
            "--client-cert",
            envvar="TIDELOG_CLIENT_CERT",
            help="Client certificate (PEM).",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    client_key: Annotated[
        Path | None,
        typer.Option(
            "--client-key",
            envvar="TIDELOG_CLIENT_KEY",
            help="Its private key (PEM), if that is in another file.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
) -> Access:
    return Access(api_key, ca_file, client_cert, client_key)


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the credential options after its own."""
    added = inspect.signature(_options, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True)

    @wraps(command)
    def reached(**given: Any) -> None:  # noqa: ANN401  # whatever the command takes
        access = _options(**{name: given.pop(name) for name in added})
        before = _GIVEN.set(access)
        try:
            command(**given)
        finally:
            _GIVEN.reset(before)

    parameters = [*own.parameters.values(), *added.values()]
    vars(reached)["__signature__"] = own.replace(parameters=parameters)
    reached.__annotations__ = {one.name: one.annotation for one in parameters}
    return reached
