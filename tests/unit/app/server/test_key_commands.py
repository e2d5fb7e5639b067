"""`tidelog keys`, and what a key changes for `tidelog serve`."""

import json
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import app
from app.security.keys import changing_keys, read_keys
from app.settings import Settings
from engine.fs.posix import PosixFileSystem

FS = PosixFileSystem()


def run(directory: Path, *arguments: str, code: int = 0) -> str:
    """Run `tidelog keys …` on a directory and return what it prints."""
    result = CliRunner().invoke(app, ["keys", *arguments, "--data-dir", str(directory)])
    assert result.exit_code == code, result.output
    return result.output


def create(directory: Path, name: str, *more: str) -> dict[str, str]:
    created: dict[str, str] = json.loads(
        run(directory, "create", name, "--scope", "read:*", *more, "--json")
    )
    return created


def test_a_key_is_shown_once(tmp_path: Path) -> None:
    """The key is the one line of standard output, and no later command prints it."""
    result = CliRunner().invoke(
        app, ["keys", "create", "spark", "-s", "read:*", "--data-dir", str(tmp_path)]
    )
    assert result.stdout.startswith("tlk_")
    assert len(result.stdout.splitlines()) == 1
    assert "is not shown again" in result.stderr
    assert result.stdout.strip() not in run(tmp_path, "list")
    assert result.stdout.split("_", 2)[2].strip() not in run(tmp_path, "list", "--json")


def test_keys_are_listed_with_what_they_may(tmp_path: Path) -> None:
    """For people a table, for programs an object a line."""
    assert "no keys yet" in run(tmp_path, "list")
    create(tmp_path, "spark", "-s", "metrics", "--expires", "2h", "--quota-requests", "5")
    create(tmp_path, "curl")
    table = run(tmp_path, "list")
    assert table.index("curl") < table.index("spark")
    assert "read:* metrics" in table
    assert "never" in table
    first = json.loads(run(tmp_path, "list", "--json").splitlines()[0])
    assert (first["name"], first["scopes"]) == ("spark", ["read:*", "metrics"])
    assert first["quota"] == {"requests": 5}
    assert first["expires_ms"] - first["created_ms"] == 7_200_000


def test_a_key_is_revoked_by_name_or_id(tmp_path: Path) -> None:
    """The last one leaves the door shut, and that is said."""
    made = create(tmp_path, "one")
    create(tmp_path, "two")
    assert "one is revoked" in run(tmp_path, "revoke", made["id"])
    assert "every request is refused" in run(tmp_path, "revoke", "two")
    assert read_keys(FS, tmp_path) == {}
    told = json.loads(run(tmp_path, "revoke", "two", "--json", code=1))
    assert told["error"] == "key 'two' does not exist"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("create", "a", "-s", "all"), 1, "is not a scope"),
        (("create", "a b", "-s", "read:*"), 1, "is not a valid name"),
        (("create", "a", "-s", "read:*", "--expires", "soon"), 2, "12h or 90d"),
        (("create", "a", "-s", "read:*", "--expires", "0d"), 2, "12h or 90d"),
        (("create", "a", "-s", "read:*", "--quota-requests", "-1"), 2, "x>=0"),
        (("create", "a"), 2, "--scope"),
    ],
)
def test_what_is_wrong_is_told_and_changes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    """A sentence, an exit code, and no key."""
    assert sentence in run(tmp_path, *arguments, code=code)
    assert not read_keys(FS, tmp_path)


def test_two_at_once_are_one_too_many(tmp_path: Path) -> None:
    """The second one gets an error, so that neither undoes the other's change."""
    with changing_keys(FS, tmp_path):
        output = run(tmp_path, "create", "a", "-s", "read:*", code=1)
    assert "being changed by another process" in output.replace("\n", " ")


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    """It is not overwritten: it may have keys that are still needed."""
    path = tmp_path / "tidelog-api-keys.json"
    path.write_text("{")
    assert "tidelog-api-keys.json" in run(tmp_path, "list", code=1).replace("\n", "")
    run(tmp_path, "create", "a", "-s", "read:*", code=1)
    assert path.read_text() == "{"


def test_with_a_key_every_address_may_be_listened_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root_logger: logging.Logger
) -> None:
    """Credentials are what the refusal of open addresses asks for; TLS is passed on."""
    seen: list[Settings] = []
    monkeypatch.setattr("app.server.process.run", lambda settings, **_: seen.append(settings))
    command = ["serve", "--host", "0.0.0.0", "--data-dir", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, "tidelog keys create" in result.output) == (1, True)
    create(tmp_path, "root")
    tls = ["--tls-cert", "c.pem", "--tls-key", "k.pem", "--tls-client-ca", "ca.pem"]
    assert CliRunner().invoke(app, [*command, *tls]).exit_code == 0
    (settings,) = seen
    assert settings.tls_cert == Path("c.pem")
    assert settings.tls_key == Path("k.pem")
    assert settings.tls_client_ca == Path("ca.pem")
