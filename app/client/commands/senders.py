"""`tidelog ingest-profile` and `tidelog ingest-token`: who may send to a topic, and how it is read.

A secret is never an argument: other users can see the command line, and shells keep it.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import typer

from app.client.access import with_access
from app.client.commands.session import JsonOption, ServerOption, TopicArgument, session
from app.client.connection import DEFAULT_SERVER, Connection, JsonObject, Request, topic_path
from app.client.failures import Failure
from app.client.terminal import Terminal

_STANDARD_INPUT: Final = Path("-")

DocumentOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--document",
        metavar="FILE",
        help="Begin with this JSON document, as `get` prints it; - is standard input.",
    ),
]
SplitOption: TypeAlias = Annotated[
    str | None, typer.Option(help="none, array, lines or values: how a body becomes records.")
]
KeyOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="PLACE", help="The records' key: a JSON Pointer (/id) or a header."),
]
HeaderOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A request header to store with each record; repeat."),
]
DeliveryIdOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE", help="A delivery's id: a JSON Pointer, a header, or several: A,B."
    ),
]
WindowOption: TypeAlias = Annotated[
    int | None, typer.Option(help="How long a delivery is remembered.")
]
WindowDeliveriesOption: TypeAlias = Annotated[
    int | None, typer.Option(help="How many deliveries are remembered.")
]
SchemeOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="SCHEME", help="Scheme: that of a sender, hmac, or token-header."),
]
HandshakeOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="What the sender asks before it sends, such as hub."),
]
SecretFileOption: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A file with a secret; - is standard input; repeat."),
]
SecretEnvOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="An environment variable with a secret; repeat."),
]
ToleranceOption: TypeAlias = Annotated[
    int | None, typer.Option(help="How far a signed time may be from the service's clock.")
]
HmacHeaderOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="hmac, token-header: the header with the signature or secret."
    ),
]
HmacAlgorithmOption: TypeAlias = Annotated[str | None, typer.Option(help="hmac: sha256 or sha512.")]
HmacEncodingOption: TypeAlias = Annotated[str | None, typer.Option(help="hmac: hex or base64.")]
HmacPrefixOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TEXT", help="hmac: what stands before the signature.")
]

ingest_profile = typer.Typer(
    name="ingest-profile",
    help="Show, replace and delete the ingest profile of a topic.",
    no_args_is_help=True,
    add_completion=False,
)
ingest_token = typer.Typer(
    name="ingest-token",
    help="Create, list and revoke the ingest tokens of a topic.",
    no_args_is_help=True,
    add_completion=False,
)


@ingest_profile.command("get")
@with_access
def get_profile(
    *, topic: TopicArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False
) -> None:
    """Print the profile of a topic; of its secrets only how many there are.

    tidelog ingest-profile get pushes > profile.json
    """
    with session(server, as_json=as_json) as (connection, terminal):
        _print(terminal, connection.json(Request("GET", _profile_of(topic))))


@ingest_profile.command("set")
@with_access
def set_profile(
    *,
    topic: TopicArgument,
    document: DocumentOption = None,
    split: SplitOption = None,
    key: KeyOption = None,
    header: HeaderOption = None,
    delivery_id: DeliveryIdOption = None,
    window_ms: WindowOption = None,
    window_deliveries: WindowDeliveriesOption = None,
    handshake: HandshakeOption = None,
    signature: SchemeOption = None,
    secret_file: SecretFileOption = None,
    secret_env: SecretEnvOption = None,
    tolerance_ms: ToleranceOption = None,
    hmac_header: HmacHeaderOption = None,
    hmac_algorithm: HmacAlgorithmOption = None,
    hmac_encoding: HmacEncodingOption = None,
    hmac_prefix: HmacPrefixOption = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Replace the profile of a topic; what is not given has its default.

    tidelog ingest-profile set pushes --signature github --secret-file github.txt
    tidelog ingest-profile set orders --signature stripe --secret-env STRIPE_SECRET

    Give two secrets while one replaces the other. Without any, the profile
    keeps those that it has for the same scheme.
    """
    with session(server, as_json=as_json) as (connection, terminal):
        wanted = {} if document is None else _document_in(document)
        given = {
            "split": split,
            "key": _place(key),
            "headers": header or None,
            "delivery_id": _place(delivery_id),
            "handshake": handshake,
            "window_ms": window_ms,
            "window_deliveries": window_deliveries,
        }
        wanted |= {name: value for name, value in given.items() if value is not None}
        signed = {
            "scheme": signature,
            "secrets": _secrets(secret_file or [], secret_env or []) or None,
            "tolerance_ms": tolerance_ms,
            "header": hmac_header,
            "algorithm": hmac_algorithm,
            "encoding": hmac_encoding,
            "prefix": hmac_prefix,
        }
        _sign(wanted, {name: value for name, value in signed.items() if value is not None})
        _put(connection, terminal, topic, wanted)


@ingest_profile.command("delete")
@with_access
def delete_profile(
    *, topic: TopicArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False
) -> None:
    """Delete the profile of a topic with its secrets; the defaults apply again."""
    with session(server, as_json=as_json) as (connection, terminal):
        connection.send(Request("DELETE", _profile_of(topic)))
        terminal.result({"topic": topic}, f"{topic} has no ingest profile any more")


@ingest_token.command("create")
@with_access
def create_token(
    *, topic: TopicArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False
) -> None:
    """Create a token and print the URL with it. It is not stored, so it cannot be shown again.

    tidelog ingest-token create alerts

    The URL allows to append to this topic and nothing else: keep it secret.
    """
    with session(server, as_json=as_json) as (connection, terminal):
        made = connection.json(Request("POST", _tokens_of(topic)))
        terminal.result(made, connection.url + made["url"])
        if not as_json:
            terminal.notice(f"store the URL of token {made['id']} now: it cannot be shown again")


@ingest_token.command("list")
@with_access
def list_tokens(
    *, topic: TopicArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False
) -> None:
    """List the tokens of a topic: ids and times."""
    with session(server, as_json=as_json) as (connection, terminal):
        tokens = connection.json(Request("GET", _tokens_of(topic)))["tokens"]
        if as_json:
            for token in tokens:
                terminal.json(token)
        elif tokens:
            rows = ((token["id"], _shown(token["created_timestamp"])) for token in tokens)
            terminal.table(("id", "created"), rows)
        else:
            terminal.notice(f"{topic} has no ingest tokens")


@ingest_token.command("delete")
@with_access
def delete_token(
    *,
    topic: TopicArgument,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="Its id, from `list`.")],
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Revoke a token: the service refuses its URL from then on."""
    with session(server, as_json=as_json) as (connection, terminal):
        connection.send(Request("DELETE", f"{_tokens_of(topic)}/{token_id}"))
        terminal.result({"id": token_id}, f"token {token_id} of {topic} is revoked")


def _put(connection: Connection, terminal: Terminal, topic: str, wanted: JsonObject) -> None:
    has_secrets = "secrets" in (wanted.get("signature") or {})
    if has_secrets and connection.uses_environment and connection.url.startswith("http:"):
        terminal.notice(f"the secrets go to {connection.url} unencrypted: use https")
    response = connection.send(
        Request(
            "PUT",
            _profile_of(topic),
            headers={"Content-Type": "application/json"},
            content=msgspec.json.encode(wanted),
        )
    )
    _print(terminal, msgspec.json.decode(response.content))


def _sign(wanted: JsonObject, given: JsonObject) -> None:
    """Put what was given about the signature into the document; another scheme keeps nothing."""
    before = wanted.get("signature") or {}
    if given.get("scheme", before.get("scheme")) != before.get("scheme"):
        before = {}
    if "secrets" in given:
        before = {name: value for name, value in before.items() if name != "secrets_count"}
    signed = before | given
    if signed and "scheme" not in signed:
        raise typer.BadParameter("name the scheme of the signature: --signature github")
    if signed:
        wanted["signature"] = signed


def _document_in(path: Path) -> JsonObject:
    try:
        found: Any = msgspec.json.decode(_bytes_in(path))
    except msgspec.DecodeError as error:
        raise Failure(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Failure(f"{path} is not a JSON object")
    return found


def _secrets(files: list[Path], variables: list[str]) -> list[str]:
    """Return the secrets from files and the environment, without the ends of their lines."""
    secrets = []
    for path in files:
        try:
            secrets.append(_bytes_in(path).decode().rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise Failure(f"{path} is not text in UTF-8") from error
    for name in variables:
        if name not in os.environ:
            raise Failure(f"there is no environment variable {name}")
        secrets.append(os.environ[name])
    return secrets


def _bytes_in(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == _STANDARD_INPUT else path.read_bytes()
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}") from error


def _place(text: str | None) -> JsonObject | None:
    if text is None:
        return None
    if text.startswith("/"):
        return {"pointer": text}
    names = [name.strip() for name in text.split(",")]
    return {"header": text} if len(names) == 1 else {"headers": names}


def _print(terminal: Terminal, profile: JsonObject) -> None:
    terminal.result(profile, msgspec.json.format(msgspec.json.encode(profile), indent=2).decode())


def _profile_of(topic: str) -> str:
    return topic_path(topic, operation="ingest-profile")


def _tokens_of(topic: str) -> str:
    return topic_path(topic, operation="ingest-tokens")


def _shown(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
