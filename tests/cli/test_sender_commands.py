"""`tidelog ingest-profile` and `tidelog ingest-token` against a real service."""

import hashlib
import hmac
import re
from pathlib import Path

import httpx
import msgspec
import pytest

from demo.children import Server
from tests.cli.conftest import Run, objects

SECRET = "a long random text of GitHub"


@pytest.fixture
def topic(run: Run, request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test."""
    name = re.sub(r"\W+", "-", request.node.name)
    assert run("create", name, "-c", "retention.ms=-1").exit_code == 0
    return name


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "github.txt"
    path.write_text(SECRET + "\n")
    return str(path)


def profile_of(run: Run, topic: str) -> dict[str, object]:
    (profile,) = objects(run("ingest-profile", "get", topic, "--json").stdout)
    return profile


def test_a_profile_is_set_shown_and_deleted(run: Run, topic: str, secret_file: str) -> None:
    """What is printed has no secret, and can be read by people and programs."""
    command = ("ingest-profile", "set", topic, "--signature", "github", "--key", "/ref")
    done = run(*command, "--secret-file", secret_file, "--header", "X-One", "--header", "X-Two")
    assert done.exit_code == 0, done.output
    shown = run("ingest-profile", "get", topic)
    assert SECRET not in done.output + shown.output
    assert msgspec.json.decode(shown.stdout) == msgspec.json.decode(done.stdout)
    assert profile_of(run, topic) == {
        "split": "none",
        "key": {"pointer": "/ref"},
        "headers": ["X-One", "X-Two"],
        "window_ms": 345_600_000,
        "window_deliveries": 100_000,
        "signature": {"scheme": "github", "tolerance_ms": 300_000, "secrets_count": 1},
    }
    assert run("ingest-profile", "set", topic, "--split", "lines").exit_code == 0
    assert "signature" not in profile_of(run, topic)
    assert "has no ingest profile" in run("ingest-profile", "delete", topic).stdout
    missing = run("ingest-profile", "get", topic)
    assert missing.exit_code == 1
    assert "404 ingest_profile_not_found" in missing.stderr
    assert "tidelog ingest-profile set" in missing.stderr


def test_every_member_has_its_option(run: Run, topic: str, secret_file: str) -> None:
    """Places that begin with a slash are pointers, others headers."""
    options = {
        "--split": "lines",
        "--key": "X-Key",
        "--delivery-id": "/id",
        "--window-ms": "60000",
        "--window-deliveries": "10",
        "--signature": "hmac",
        "--tolerance-ms": "1000",
        "--hmac-header": "X-Sign",
        "--hmac-algorithm": "sha512",
        "--hmac-encoding": "base64",
        "--hmac-prefix": "v1=",
        "--secret-file": secret_file,
    }
    flat = [text for option in options.items() for text in option]
    assert run("ingest-profile", "set", topic, *flat).exit_code == 0
    assert profile_of(run, topic) == {
        "split": "lines",
        "key": {"header": "X-Key"},
        "headers": [],
        "delivery_id": {"pointer": "/id"},
        "window_ms": 60_000,
        "window_deliveries": 10,
        "signature": {
            "scheme": "hmac",
            "tolerance_ms": 1000,
            "header": "X-Sign",
            "algorithm": "sha512",
            "encoding": "base64",
            "prefix": "v1=",
            "secrets_count": 1,
        },
    }


def test_secrets_come_from_files_the_environment_and_standard_input(
    run: Run, topic: str, secret_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of them at once; the end of a file's line is not a part of its secret."""
    monkeypatch.setenv("HOOK_SECRET", SECRET + " too")
    command = ("ingest-profile", "set", topic, "--signature", "github", "--secret-file")
    done = run(*command, "-", "--secret-file", secret_file, "--secret-env", "HOOK_SECRET",
               stdin=SECRET.encode() + b" three\r\n")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert msgspec.json.decode(done.stdout)["signature"]["secrets_count"] == 3
    no_variable = run("ingest-profile", "set", topic, "--signature", "github",
                      "--secret-env", "NO_SUCH")  # fmt: skip
    assert no_variable.exit_code == 1
    assert "there is no environment variable NO_SUCH" in no_variable.stderr


def test_a_profile_can_be_edited_as_a_document(run: Run, topic: str, secret_file: str) -> None:
    """What `get` prints goes back in with its secrets kept; options come on top."""
    command = ("ingest-profile", "set", topic)
    run(*command, "--signature", "github", "--secret-file", secret_file)
    document = run("ingest-profile", "get", topic).stdout.encode()
    done = run(*command, "--document", "-", "--split", "array", stdin=document)
    assert done.exit_code == 0, done.output
    profile = profile_of(run, topic)
    assert (profile["split"], profile["signature"]) == (
        "array",
        {"scheme": "github", "tolerance_ms": 300_000, "secrets_count": 1},
    )
    one_more = run(*command, "--document", "-", "--secret-file", secret_file, stdin=document)
    assert one_more.exit_code == 0, one_more.output
    other = run(*command, "--document", "-", "--signature", "slack", stdin=document)
    assert "send secrets: the topic has none for the scheme slack" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (("--document", "-"), b"{", "- is not JSON"),
        (("--document", "-"), b"[]", "- is not a JSON object"),
        (("--document", "/no/such/file"), b"", "/no/such/file cannot be read"),
        (("--signature", "github", "--secret-file", "-"), b"\xff", "- is not text in UTF-8"),
        (("--secret-file", "-"), b"secret", "name the scheme of the signature"),
        (("--signature", "github"), b"", "422 invalid_request"),
    ],
)
def test_what_cannot_be_set_is_refused_with_a_sentence(
    run: Run, topic: str, arguments: tuple[str, ...], stdin: bytes, words: str
) -> None:
    """Nothing is changed, and the exit code says that it failed."""
    refused = run("ingest-profile", "set", topic, *arguments, stdin=stdin)
    assert refused.exit_code in {1, 2}
    assert words in refused.stderr
    assert run("ingest-profile", "get", topic).exit_code == 1


def test_secrets_that_would_travel_unencrypted_are_warned_about(run: Run, secret_file: str) -> None:
    """Before they are sent, whether or not anything answers."""
    refused = run("ingest-profile", "set", "events", "--signature", "github", "--secret-file",
                  secret_file, "--server", "http://tidelog.invalid:1")  # fmt: skip
    assert "the secrets go to http://tidelog.invalid:1 unencrypted: use https" in refused.stderr
    assert refused.exit_code == 1


def test_a_token_is_created_used_listed_and_revoked(run: Run, topic: str, service: Server) -> None:
    """The URL is printed whole, and once."""
    made = run("ingest-token", "create", topic)
    url = made.stdout.strip()
    assert url.startswith(f"{service.url}/v1/topics/{topic}/ingest/tli_")
    assert "it cannot be shown again" in made.stderr
    assert httpx.post(url, content=b"hello").json()["count"] == 1
    table = run("ingest-token", "list", topic).stdout
    (listed,) = objects(run("ingest-token", "list", topic, "--json").stdout)
    assert str(listed["id"]) in table
    assert url[-43:] not in table
    gone = run("ingest-token", "delete", topic, str(listed["id"]))
    assert "is revoked" in gone.stdout
    assert httpx.post(url, content=b"hello").status_code == 401
    assert "has no ingest tokens" in run("ingest-token", "list", topic).stderr
    again = run("ingest-token", "delete", topic, str(listed["id"]))
    assert "404 ingest_token_not_found" in again.stderr
    (for_programs,) = objects(run("ingest-token", "create", topic, "--json").stdout)
    assert for_programs.keys() == {"id", "token", "url"}


def test_a_profile_that_was_set_is_what_the_service_verifies(
    run: Run, topic: str, service: Server, secret_file: str
) -> None:
    """A request that GitHub could have sent is taken, another is not."""
    run("ingest-profile", "set", topic, "--signature", "github", "--secret-file", secret_file)
    body = b'{"ref": "refs/heads/main"}'
    mac = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    url = f"{service.url}/v1/topics/{topic}/ingest"
    signed = {"x-hub-signature-256": f"sha256={mac}", "content-type": "application/json"}
    assert httpx.post(url, content=body, headers=signed).status_code == 200
    assert httpx.post(url, content=body + b" ", headers=signed).status_code == 401
