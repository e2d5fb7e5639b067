"""Commands against a service that asks who they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.client.access import Access
from app.client.connection import Connection
from app.client.failures import Failure
from tests.support.certificates import Authority
from tests.support.credentials import create_key
from tests.support.server import Served, serving


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A key for everything, in the directory of the service below."""
    return create_key(tmp_path_factory.mktemp("guarded"), "root", "read:*", "append:*", "admin:*")


@pytest.fixture(scope="module")
def guarded(key: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that asks for keys."""
    folder = tmp_path_factory.getbasetemp() / "guarded0"
    with serving(folder) as served:
        yield served


def run(url: str, *arguments: str, stdin: bytes = b"", **environment: str) -> Result:
    variables = {"TIDELOG_SERVER": url, "COLUMNS": "200", **environment}
    return CliRunner(env=variables).invoke(app, arguments, input=stdin)


def test_a_key_is_taken_from_the_environment_or_the_command_line(guarded: Served, key: str) -> None:
    """Every command that talks to the service carries it."""
    record = b'{"value": 1}\n'
    for name, options, environment in (
        ("one", ("--api-key", key), {}),
        ("two", (), {"TIDELOG_API_KEY": f"{key}\n"}),  # as a file read by a shell has it
    ):
        for arguments in (("create", name), ("append", name), ("read", name), ("topics",)):
            result = run(guarded.url, *arguments, *options, stdin=record, **environment)
            assert result.exit_code == 0, result.output


def test_without_a_key_the_command_says_what_helps(guarded: Served) -> None:
    """A sentence and the next step, not a stack."""
    result = run(guarded.url, "topics")
    assert result.exit_code == 1
    assert "TIDELOG_API_KEY" in result.output


def test_a_key_is_never_printed(guarded: Served, key: str) -> None:
    """Not if it is wrong, not if it is not a key at all, and not by --help."""
    for wrong in (f"{key}x", f"{key}\nx", f"{key}é", f"a {key}"):
        result = run(guarded.url, "topics", TIDELOG_API_KEY=wrong)
        assert result.exit_code == 1
        assert key[20:] not in result.output
    assert key not in run(guarded.url, "topics", "--help", TIDELOG_API_KEY=key).output
    assert key not in repr(Access(api_key=key))


def test_certificates_are_trusted_and_shown(tmp_path: Path) -> None:
    """An authority of one's own is named by a file, and so is who one is."""
    authority = Authority(tmp_path)
    server, spark = authority.vouch("server"), authority.vouch("spark")
    with serving(
        tmp_path / "data",
        trusted=Access(ca_file=authority.path).verification(),
        tls_cert=server.cert,
        tls_key=server.key,
        tls_client_ca=authority.path,
        client_certificates={"CN=spark": ["read:*", "admin:*"]},
    ) as served:
        trusting = ("--ca-file", str(authority.path))
        unknown = run(served.url, "topics")
        assert (unknown.exit_code, "--ca-file" in unknown.output) == (1, True)
        assert run(served.url, "topics", *trusting).exit_code == 1
        shown = ("--client-cert", str(spark.cert), "--client-key", str(spark.key))
        assert run(served.url, "create", "t", *trusting, *shown).exit_code == 0


def test_files_that_cannot_be_used_are_told() -> None:
    """A file that is not a certificate is reported in one sentence."""
    for access in (Access(ca_file=Path(__file__)), Access(client_cert=Path("nowhere.pem"))):
        with pytest.raises(Failure, match="certificates cannot be used"):
            access.verification()


def test_a_key_on_an_open_road_is_worth_a_word() -> None:
    """Beyond this machine, anyone on the network path can read a key sent over plain HTTP."""
    notices: list[str] = []
    transport = httpx.MockTransport(lambda _: httpx.Response(200))
    for url, api_key in (
        ("http://example.org", "tlk_1_secret"),
        ("https://example.org", "tlk_1_secret"),
        ("http://127.0.0.1", "tlk_1_secret"),
        ("http://example.org", None),
    ):
        access = Access(api_key=api_key)
        Connection(url, access=access, notice=notices.append, transport=transport).close()
    assert notices == ["the API key goes to http://example.org unencrypted: use https"]
