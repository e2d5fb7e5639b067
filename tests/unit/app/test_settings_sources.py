"""Settings: where they are from, and what is said of a wrong one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from typer.testing import CliRunner

from app.cli import app
from app.settings import VARIABLE_PREFIX, Settings
from app.settings_sources import CONFIG_FILE, WrongSettings, in_force, read_settings


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A working directory and an environment without settings."""
    for name in os.environ:
        if name.upper().startswith(VARIABLE_PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(options: dict[str, object] | None = None, config: Path | None = None) -> str:
    """What is said of settings that cannot be used."""
    with pytest.raises(WrongSettings) as told:
        read_settings(options or {}, config)
    return str(told.value)


def test_options_come_before_variables_before_the_file_before_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each setting is taken from the first that has it, and says from which."""
    CONFIG_FILE.write_text("max_tails = 1\nmax_topics = 2\nmax_groups = 3\n")
    monkeypatch.setenv("TIDELOG_MAX_TAILS", "10")
    monkeypatch.setenv("tidelog_max_topics", "20")
    settings = read_settings({"max_tails": 100})
    found = {
        name: (getattr(settings, name), settings.source_of(name))
        for name in ("max_tails", "max_topics", "max_groups", "max_wait_ms")
    }
    assert found == {
        "max_tails": (100, "command_line"),
        "max_topics": (20, "environment"),
        "max_groups": (3, "file"),
        "max_wait_ms": (60_000, "default"),
    }


def test_a_table_of_the_file_may_have_numbers_and_booleans() -> None:
    """As TOML writes them; topics keep text."""
    CONFIG_FILE.write_text('[default_topic_config]\n"retention.ms" = 5\npreallocate = true\n')
    assert read_settings({}).default_topic_config == {"retention.ms": "5", "preallocate": "true"}


def test_a_named_file_replaces_that_of_the_working_directory(alone: Path) -> None:
    """Only one file is read."""
    CONFIG_FILE.write_text("max_tails = 1\nmax_topics = 2\n")
    (alone / "other.toml").write_text("max_tails = 5\n")
    settings = read_settings({}, alone / "other.toml")
    assert (settings.max_tails, settings.source_of("max_topics")) == (5, "default")


def test_a_mistyped_variable_is_refused_with_the_closest_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the quota would silently not apply."""
    monkeypatch.setenv("TIDELOG_QUOTA_REQUEST_PER_SECOND", "5")
    monkeypatch.setenv("TIDELOG_ZZZ", "5")
    assert refused() == (
        "TIDELOG_QUOTA_REQUEST_PER_SECOND is not a setting: "
        "TIDELOG_QUOTA_REQUESTS_PER_SECOND is; TIDELOG_ZZZ is not a setting"
    )


@pytest.mark.parametrize(
    "name",
    [
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_HTTP",
        "PORT",
        "PORT_8080_TCP",
        "PORT_8080_TCP_ADDR",
        "HEADLESS_SERVICE_HOST",
        "HEADLESS_PORT_8080_TCP_PROTO",
        "API_KEY",
        "SERVER",
        "CONFIG",
    ],
)
def test_variables_of_orchestrators_and_commands_are_ignored(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Kubernetes and Docker set some for a service called tidelog; client commands have others."""
    monkeypatch.setenv(f"TIDELOG_{name}", "tcp://10.0.0.1:8080")
    assert read_settings({}).listen_port == 8080


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tidelog", ("tidelog",)),
        ("a.example, b.example", ("a.example", "b.example")),
        ('["a.example", "b.example"]', ("a.example", "b.example")),
        ("", ()),
    ],
)
def test_a_list_has_commas_or_is_json(
    monkeypatch: pytest.MonkeyPatch, text: str, names: tuple[str, ...]
) -> None:
    """Names, origins, directories and algorithms; an empty variable counts as none."""
    monkeypatch.setenv("TIDELOG_ALLOWED_HOSTS", text)
    monkeypatch.setenv("TIDELOG_MORE_DATA_DIRECTORIES", text)
    settings = read_settings({})
    assert settings.allowed_hosts == names
    assert settings.more_data_directories == tuple(map(Path, names))


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("retention.ms=5", {"retention.ms": "5"}),
        (
            "cleanup.policy=compact,delete, retention.ms = 5",
            {"cleanup.policy": "compact,delete", "retention.ms": "5"},
        ),
        ('{"retention.ms": "5"}', {"retention.ms": "5"}),
        ('{"retention.ms": 5, "preallocate": true}', {"retention.ms": "5", "preallocate": "true"}),
    ],
)
def test_a_topic_s_defaults_are_pairs_or_json(
    monkeypatch: pytest.MonkeyPatch, text: str, config: dict[str, str]
) -> None:
    """A piece without `=` belongs to the value before it."""
    monkeypatch.setenv("TIDELOG_DEFAULT_TOPIC_CONFIG", text)
    assert read_settings({}).default_topic_config == config


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("MAX_TAILS", "many", "TIDELOG_MAX_TAILS is 'many': Input should be a valid integer"),
        ("MAX_TAILS", "0", "TIDELOG_MAX_TAILS is '0': Input should be greater than or equal to 1"),
        ("LOG_LEVEL", "loud", "TIDELOG_LOG_LEVEL is 'loud': Input should be 'debug', 'info'"),
        ("ACCESS_LOG", "perhaps", "TIDELOG_ACCESS_LOG is 'perhaps': Input should be a valid bool"),
        ("ALLOWED_HOSTS", "[tidelog]", "TIDELOG_ALLOWED_HOSTS is '[tidelog]': it is not JSON"),
        ("JWT_ALGORITHMS", "HS256", "TIDELOG_JWT_ALGORITHMS is 'HS256': Input should be 'RS256'"),
        ("CLIENT_CERTIFICATES", "CN=a", "TIDELOG_CLIENT_CERTIFICATES is 'CN=a': it is not JSON"),
        ("DEFAULT_TOPIC_CONFIG", "5", "TIDELOG_DEFAULT_TOPIC_CONFIG is '5': '5' is neither key="),
        ("URL_PREFIX", "a", "TIDELOG_URL_PREFIX is 'a': String should match pattern"),
        ("KAFKA", "broker", "'broker' is not the address of a broker: HOST:PORT"),
        ("KAFKA_TLS_KEY", "k", "kafka_tls_key needs kafka_tls_cert"),
        ("MAX_DECODED_BYTES", "1", "max_decoded_bytes must be at least max_decompressed_batch"),
    ],
)
def test_an_invalid_value_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, told: str
) -> None:
    """Which variable, what it is, and what is expected."""
    monkeypatch.setenv(f"TIDELOG_{name}", text)
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 1
    assert result.output.startswith(f"tidelog: the settings are not valid: {told}")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("max_tail = 5", "max_tail in tidelog.toml is not a setting: max_tails is"),
        ("max_tails = 'many'", "max_tails in tidelog.toml is 'many': Input should be a valid"),
        ("max_tails", "tidelog.toml cannot be read: "),
        ("[tls]\ncert = 'a'", "tls in tidelog.toml is not a setting"),
    ],
)
def test_an_invalid_file_is_one_sentence(content: str, told: str) -> None:
    """A name that is no setting, a wrong value, and what is not TOML."""
    CONFIG_FILE.write_text(content)
    assert refused().startswith(told)


def test_a_file_that_is_named_must_be_there(alone: Path) -> None:
    """The one of the working directory need not."""
    missing = alone / "none.toml"
    assert refused(config=missing).startswith(f"{missing} cannot be read: ")
    assert read_settings({}).max_tails == 10_000


def test_a_password_appears_in_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not among the settings, and not when another one beside it is wrong."""
    monkeypatch.setenv("TIDELOG_KAFKA_SASL_PASSWORD", "geheim")
    settings = read_settings({})
    assert settings.kafka_sasl_password == SecretStr("geheim")
    assert "geheim" not in str(in_force(settings))
    assert "geheim" not in refused({"kafka_sasl_password": ["geheim"]})


def printed(*options: str) -> list[dict[str, Any]]:
    """The lines of `tidelog settings --json`."""
    result = CliRunner().invoke(app, ["settings", "--json", *options])
    assert result.exit_code == 0
    return [json.loads(line) for line in result.output.splitlines()]


def test_settings_prints_what_is_in_force_and_where_it_is_from(
    monkeypatch: pytest.MonkeyPatch, alone: Path
) -> None:
    """For programs a line of JSON each; for people the source first, so that grep can drop it."""
    monkeypatch.setenv("TIDELOG_MAX_TAILS", "10")
    (alone / "other.toml").write_text('url_prefix = "/log"\n')
    lines = printed("--config", str(alone / "other.toml"))
    assert len(lines) > 100
    changed = [one for one in lines if one["value"] != one["default"]]
    assert {one["name"]: (one["value"], one["source"]) for one in changed} == {
        "max_tails": ("10", "environment"),
        "url_prefix": ("/log", "file"),
    }
    shown = CliRunner().invoke(app, ["settings"]).output
    assert "environment  max_tails = 10\n" in shown
    assert "default      listen_port = 8080\n" in shown


def test_the_version_is_printed() -> None:
    """`tidelog --version`, for reports of faults and for scripts."""
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output.split()[0]) == (0, "tidelog")
    assert result.output.split()[1][0].isdigit()


def test_a_table_that_is_none_is_a_sentence() -> None:
    """A number where pairs are expected: which setting, and that it is no table."""
    with pytest.raises(ValidationError, match="default_topic_config"):
        Settings.model_validate({"default_topic_config": 5})
