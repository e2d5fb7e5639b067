"""`tidelog serve` and `tidelog openapi`."""

import gc
import json
import logging
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.cli import main as cli_main
from app.security.sites import is_loopback
from app.server.process import Server
from app.settings import Settings
from tests.support.credentials import create_key
from tests.support.server import serving


@pytest.fixture
def runner(root_logger: logging.Logger) -> CliRunner:
    """Runs commands in this process; what they do to logging is undone."""
    return CliRunner()


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("example.org", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, *, answer: bool) -> None:
    """Every other address needs credentials, or a word."""
    assert is_loopback(host) is answer


def test_an_open_address_is_refused_with_a_sentence(runner: CliRunner) -> None:
    """Without credentials the service only listens on loopback, unless --insecure is given."""
    result = runner.invoke(app, ["serve", "--host", "0.0.0.0"])
    assert result.exit_code == 1
    assert "--insecure" in result.output


def test_the_image_starts_only_with_credentials_or_a_word(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its command listens everywhere, and so is refused; the environment may say otherwise."""
    seen: list[str] = []
    monkeypatch.setattr(
        "app.server.process.run",
        lambda settings: seen.append(f"{settings.listen_host}:{settings.listen_port}"),
    )
    monkeypatch.setenv("TIDELOG_DATA_DIRECTORY", str(tmp_path))
    dockerfile = (Path(__file__).parents[3] / "Dockerfile").read_text(encoding="utf-8")
    command = json.loads(re.findall(r"^CMD (\[.*\])$", dockerfile, flags=re.MULTILINE)[-1])
    for word in ("", "0"):
        monkeypatch.setenv("TIDELOG_INSECURE", word)
        result = runner.invoke(app, command)
        assert (result.exit_code, "TIDELOG_INSECURE=1" in result.output) == (1, True)
    assert seen == []
    monkeypatch.setenv("TIDELOG_INSECURE", "1")
    assert runner.invoke(app, command).exit_code == 0
    monkeypatch.delenv("TIDELOG_INSECURE")
    create_key(tmp_path, "ops", "admin:*")
    assert runner.invoke(app, command).exit_code == 0
    assert seen == ["0.0.0.0:8080"] * 2


def test_settings_that_are_not_valid_are_refused_with_a_sentence(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An option without the other that it needs, and a wrong topic default."""
    result = runner.invoke(app, ["serve", "--tls-cert", "cert.pem"])
    assert (result.exit_code, "not valid: tls_cert needs tls_key" in result.output) == (1, True)
    monkeypatch.setenv("TIDELOG_DEFAULT_TOPIC_CONFIG", '{"segment.bytes": "no"}')
    result = runner.invoke(app, ["serve", "--data-dir", str(tmp_path)])
    assert (result.exit_code, "segment.bytes" in result.output) == (1, True)


def test_a_directory_in_use_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """The second process on a data directory ends, and says why."""
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--data-dir", str(tmp_path)]
    with serving(tmp_path):
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert "cannot be opened" in second.stderr


@pytest.mark.usefixtures("collector")
def test_the_second_process_ends_with_one(runner: CliRunner, tmp_path: Path) -> None:
    """The same in this process, for the exit code and the sentence."""
    with serving(tmp_path):
        result = runner.invoke(app, ["serve", "--port", "0", "--data-dir", str(tmp_path)])
    assert (result.exit_code, "cannot be opened" in result.output) == (1, True)


@pytest.mark.usefixtures("collector")
def test_a_port_in_use_is_told_with_a_sentence(runner: CliRunner, tmp_path: Path) -> None:
    """As every start that cannot be: exit code 1, and which address is wrong and why."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        result = runner.invoke(app, ["serve", "--port", port, "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert f"tidelog: 127.0.0.1:{port} cannot be used to listen" in result.output
    assert "already in use" in result.output


@pytest.mark.usefixtures("collector")
def test_a_clean_stop_ends_with_zero(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that is asked to stop says nothing more and exits with 0; it collected seldom."""
    start = Server.startup

    async def start_and_stop(self: Server, sockets: Any = None) -> None:
        await start(self, sockets)
        self.should_exit = True

    monkeypatch.setattr(Server, "startup", start_and_stop)
    result = runner.invoke(app, ["serve", "--port", "0", "--data-dir", str(tmp_path)])
    assert (result.exit_code, "listens on http://127.0.0.1:" in result.output) == (0, True)
    assert (gc.isenabled(), gc.get_threshold()[0]) == (True, 50_000)


def test_data_directories_may_be_repeated(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first is the preferred one, the others are more of it."""
    seen: list[Settings] = []
    monkeypatch.setattr("app.server.process.run", lambda settings, **_: seen.append(settings))
    paths = [tmp_path / "a", tmp_path / "b"]
    options = [part for path in paths for part in ("--data-dir", str(path))]
    assert runner.invoke(app, ["serve", *options]).exit_code == 0
    assert list(seen[0].data_directories) == paths


def test_a_directory_may_be_said_to_be_gone(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Several may; where the data is may still come from the environment."""
    seen: list[Settings] = []
    monkeypatch.setattr("app.server.process.run", lambda settings, **_: seen.append(settings))
    monkeypatch.setenv("TIDELOG_DATA_DIRECTORY", str(tmp_path))
    assert runner.invoke(app, ["serve", "--gone", "/b", "--gone", "/c"]).exit_code == 0
    assert seen[0].data_directories == (tmp_path,)
    assert seen[0].engine_config().gone_directories == (Path("/b"), Path("/c"))


def test_the_program_prints_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tidelog` is the program; without a command it says what there is."""
    monkeypatch.setattr(sys, "argv", ["tidelog", "--help"])
    with pytest.raises(SystemExit):
        cli_main()
    assert "serve" in capsys.readouterr().out


def test_a_slip_is_compared_with_every_command(runner: CliRunner) -> None:
    """Those that no one has loaded yet are among them; one that is there is found alone."""
    result = runner.invoke(app, ["topic"])
    assert (result.exit_code, "Did you mean 'topics'?" in result.output) == (2, True)
    assert runner.invoke(app, ["topics", "--help"]).exit_code == 0


def test_a_signal_ends_the_service_cleanly(tmp_path: Path) -> None:
    """SIGTERM drains, closes and leaves the marker that the next start believes."""
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        with httpx.Client(base_url=found[0]) as client:
            while client.get("/readyz").status_code != 200:
                pass
            client.put("/v1/topics/events", json={})
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_there_is_one_way_to_start(tmp_path: Path) -> None:
    """No factory serves without the checks of `tidelog serve` and its protocol."""
    command = [sys.executable, "-m", "uvicorn", "--factory", "app.main:create", "--port", "0"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert ran.returncode == 3
    assert b"Could not import module" in ran.stderr


def test_the_document_is_printed(runner: CliRunner) -> None:
    """`tidelog openapi` prints what is committed."""
    result = runner.invoke(app, ["openapi"])
    assert json.loads(result.output)["info"]["title"] == "tidelog"
