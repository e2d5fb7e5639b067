"""`tidelog keys`: create, list and revoke the API keys of a data directory.

The commands change the file in the directory, whether or not a service runs on it; the service
reads the file every `api_keys_check_interval_ms`. The first key turns credentials on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from app.client.commands.session import JsonOption, terminal_session
from app.client.failures import Failure
from app.client.terminal import Terminal
from app.security.keys import add_key, changing_keys, read_keys, revoke_key
from engine.errors import EngineError
from engine.fs.posix import PosixFileSystem

DirectoryOption: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--data-dir", envvar="TIDELOG_DATA_DIRECTORY", help="The service's (first) data directory."
    ),
]
DATA: Final = Path("data")

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

keys = typer.Typer(
    name="keys",
    help="Create, list and revoke API keys.",
    no_args_is_help=True,
    add_completion=False,
)


@keys.command()
def create(
    *,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the key's owner, for lists and logs.")
    ],
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope", "-s", help="read:PATTERN, append:PATTERN, admin:PATTERN or metrics; repeat."
        ),
    ],
    expires: Annotated[
        str | None, typer.Option(help="Lifetime, such as 12h or 90d; default: unlimited.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option("--quota-requests", min=0, help="Requests/s; 0: unlimited.")
    ] = None,
    bytes_in: Annotated[
        int | None, typer.Option("--quota-bytes-in", min=0, help="Bytes/s of request bodies.")
    ] = None,
    bytes_out: Annotated[
        int | None, typer.Option("--quota-bytes-out", min=0, help="Bytes/s of responses.")
    ] = None,
    data_dir: DirectoryOption = DATA,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it. It is not stored, so it cannot be shown again.

    tidelog keys create spark --scope 'read:clicks.*' --expires 90d

    In a PATTERN of topic names, * stands for any characters.
    """
    rates = {"requests": requests, "bytes_in": bytes_in, "bytes_out": bytes_out}
    now_ms = time.time_ns() // 1_000_000
    expires_ms = None if expires is None else now_ms + _duration_ms(expires)
    with _session(as_json=as_json) as terminal:
        with changing_keys(PosixFileSystem(), data_dir) as stored:
            key_id, key = add_key(
                stored,
                name,
                tuple(scope),
                now_ms=now_ms,
                expires_ms=expires_ms,
                quota={name: rate for name, rate in rates.items() if rate is not None},
            )
        terminal.result({"id": key_id, "name": name, "key": key}, key)
        if not as_json:
            terminal.notice(f"store the key of {name} now: it is not shown again")


@keys.command("list")
def list_keys(*, data_dir: DirectoryOption = DATA, as_json: JsonOption = False) -> None:
    """List the keys with their scopes and times."""
    with _session(as_json=as_json) as terminal:
        stored = read_keys(PosixFileSystem(), data_dir) or {}
        if as_json:
            for key_id, key in stored.items():
                shown = {"id": key_id, "name": key.name, "scopes": key.scopes, "quota": key.quota}
                times = {"created_ms": key.created_ms, "expires_ms": key.expires_ms}
                terminal.json(shown | times)
        elif stored:
            terminal.table(
                ("name", "id", "scopes", "created", "expires"),
                (
                    (
                        key.name,
                        key_id,
                        " ".join(key.scopes),
                        _shown(key.created_ms),
                        "never" if key.expires_ms is None else _shown(key.expires_ms),
                    )
                    for key_id, key in sorted(stored.items(), key=lambda one: one[1].name)
                ),
            )
        else:
            terminal.notice("no keys yet: create one with `tidelog keys create NAME --scope …`")


@keys.command()
def revoke(
    *,
    key: Annotated[str, typer.Argument(metavar="NAME", help="Its name, or its id.")],
    data_dir: DirectoryOption = DATA,
    as_json: JsonOption = False,
) -> None:
    """Revoke a key. A running service refuses it within a second."""
    with _session(as_json=as_json) as terminal:
        with changing_keys(PosixFileSystem(), data_dir) as stored:
            key_id, revoked = revoke_key(stored, key)
        terminal.result({"id": key_id, "name": revoked.name}, f"{revoked.name} is revoked")
        if not stored:
            terminal.notice("no key is left: every request is refused until you create one")


@contextmanager
def _session(*, as_json: bool) -> Iterator[Terminal]:
    """Yield the terminal; errors of the engine and the disk are printed as one sentence."""
    with terminal_session(as_json=as_json) as terminal:
        try:
            yield terminal
        except (EngineError, OSError) as error:
            raise Failure(str(error)) from error


def _duration_ms(text: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a time such as 30m, 12h or 90d")
    return int(match[1]) * _UNITS_MS[match[2]]


def _shown(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
