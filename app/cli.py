"""The program `tidelog`: `serve` and `openapi`; the other commands are in `app.client`."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from engine.errors import EngineError, InvalidConfig
from engine.fs.posix import PosixFileSystem

if TYPE_CHECKING:
    from typer._click import Command, Context

    from app.settings import Settings

# Commands import what they need when they run, so that `serve` starts without the others' imports.

_MODULES: Final[Mapping[str, str]] = {
    "topics": "client.commands.topics",
    "create": "client.commands.topics",
    "append": "client.commands.append",
    "read": "client.commands.read",
    "tail": "client.commands.read",
    "work": "client.commands.work",
    "directories": "client.commands.move",
    "move": "client.commands.move",
    "dump": "client.commands.dump",
    "verify": "client.commands.verify",
    "repair": "client.commands.verify",
    "kafka-bootstrap": "client.commands.outgrow",
    "ingest": "client.commands.ingest",
    "ingest-profile": "client.commands.senders",
    "ingest-token": "client.commands.senders",
    "lake": "client.commands.lake",
    "keys": "server.key_commands",
    "groups": "client.commands.groups",
    "delete": "client.commands.maintain",
    "config": "client.commands.maintain",
    "compact": "client.commands.maintain",
    "retention": "client.commands.maintain",
    "truncate": "client.commands.maintain",
    "delete-records": "client.commands.maintain",
    "producers": "client.commands.maintain",
    "archive": "client.commands.archive",
    "restore": "client.commands.archive",
}
"""The modules of all other commands."""


class _Program(TyperGroup):
    """The commands of this module, and those of other modules, which it imports on demand."""

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        if cmd_name not in self.commands:
            # It may be a typo: typer compares it with all commands.
            self._load([cmd_name] if cmd_name in _MODULES else _MODULES)
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Context) -> list[str]:
        self._load(_MODULES)
        return super().list_commands(ctx)

    def _load(self, names: Iterable[str]) -> None:
        for name in names:
            found = getattr(
                import_module(f"{__package__}.{_MODULES[name]}"), name.replace("-", "_")
            )
            if not isinstance(found, typer.Typer):
                one = typer.Typer(add_completion=False)
                one.command(name)(found)
                found = one
            self.commands[name] = get_command(found)


app = typer.Typer(
    cls=_Program,
    name="tidelog",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="TIDELOG_CONFIG",
        help="File with settings (TOML); tidelog.toml, if the working directory has one.",
    ),
]


def _print_version(is_asked: bool) -> None:  # noqa: FBT001  # typer's callback
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"tidelog {version('tidelog')}")
        raise typer.Exit


@app.callback()
def tidelog(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A durable commit log that speaks plain HTTP; on disk it is Apache Kafka's log."""


@app.command()
def serve(
    data_dir: Annotated[
        list[Path] | None,
        typer.Option(help="Data directory, created if missing. Repeat the option for more disks."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 127.0.0.1 if no setting says another.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port; 8080 if no setting says another. 0: a free one."
        ),
    ] = None,
    *,
    metrics_listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Second address with /metrics and /readyz alone, without TLS and credentials.",
        ),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,HOST:PORT…]",
            help="Brokers of a Kafka cluster that stores the logs. The data directory then has "
            "only the API keys.",
        ),
    ] = None,
    gone: Annotated[
        list[Path] | None,
        typer.Option(help="A data directory that is lost for good, with its partitions."),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(help="Certificate and chain (PEM); the service then speaks https only."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The certificate's private key (PEM).")
    ] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="Ask clients for certificates signed by these CAs (PEM).")
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Object store that gets a copy of everything committed: s3://bucket/folder, "
            "gs://…, az://… or file:///folder.",
        ),
    ] = None,
    archive_take_over: Annotated[
        bool,
        typer.Option(
            "--archive-take-over",
            help="Continue the archive of another directory: after a restore.",
        ),
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond loopback without credentials.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Run the service in the foreground.

    Options come before variables (TIDELOG_MAX_TAILS=100), and these before the
    file with settings. `tidelog settings` prints what is in force.
    """
    with _uncollected():
        from app.security.authority import has_credentials
        from app.security.sites import is_loopback
        from app.server.logging_setup import configure_logging
        from app.server.process import CannotListen, run

    directories = data_dir or []
    given = {
        "data_directory": next(iter(directories), None),
        "more_data_directories": tuple(directories[1:]) or None,
        "gone_directories": tuple(gone or ()) or None,
        "listen_host": host,
        "listen_port": port,
        "insecure": insecure or None,
        "metrics_listen": metrics_listen,
        "kafka": kafka,
        "archive": archive,
        "archive_take_over": archive_take_over or None,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
    }
    settings = _settings({name: one for name, one in given.items() if one is not None}, config)
    listens_beyond = not is_loopback(settings.listen_host)
    if listens_beyond and not (settings.insecure or has_credentials(settings, PosixFileSystem())):
        _refuse(
            f"{settings.listen_host} can be reached from other machines and no credentials are "
            "configured: create a key with `tidelog keys create`, listen on 127.0.0.1, or pass "
            "--insecure (or TIDELOG_INSECURE=1) if something in front of the service restricts "
            "access"
        )
    configure_logging(settings.log_level)
    try:
        failure = run(settings)
    except EngineError as error:
        _refuse(f"the settings are not valid: {error}")
    except CannotListen as error:
        _refuse(str(error))
    if failure is not None:
        where = (
            "Kafka cluster cannot be used" if settings.kafka else "data directory cannot be opened"
        )
        what = "settings are not valid" if isinstance(failure, InvalidConfig) else where
        _refuse(f"the {what}: {failure}")


@app.command()
def settings(
    *,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Print the settings that a service started here would have, and where each is from.

    tidelog settings | grep -v default
    """
    import json

    from app.settings_sources import in_force

    for name, one in in_force(_settings({}, config)).items():
        if as_json:
            typer.echo(json.dumps({"name": name, **one._asdict()}, ensure_ascii=False))
        else:
            typer.echo(f"{one.source:<12} {name} = {one.value}")


@app.command()
def openapi() -> None:
    """Print the OpenAPI document."""
    from app.api.application import document_text

    typer.echo(document_text(), nl=False)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Turn the garbage collector off: imported modules stay, and would be scanned repeatedly."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _settings(given: Mapping[str, object], config: Path | None) -> Settings:
    from app.settings_sources import WrongSettings, read_settings

    try:
        return read_settings(given, config)
    except WrongSettings as error:
        _refuse(f"the settings are not valid: {error}")


def _refuse(sentence: str) -> NoReturn:
    typer.echo(f"tidelog: {sentence}", err=True)
    raise typer.Exit(1)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
