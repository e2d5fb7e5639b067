"""The file of API keys, and the keys in force."""

import json
import logging
from pathlib import Path

import pytest

from app.errors import CredentialsUnavailable
from app.security.authority import KeyRing
from app.security.keys import (
    MAX_KEYS,
    ApiKey,
    add_key,
    api_keys_path,
    changing_keys,
    read_keys,
    revoke_key,
)
from app.security.principal import Meters, Principal, Quota
from app.security.rules import Action
from engine.errors import CorruptCheckpoint, DirectoryLocked, InvalidRequestValue
from engine.fs.posix import PosixFileSystem
from tests.support.time import START_MS, ManualClock

FS = PosixFileSystem()


def created(
    directory: Path, name: str = "spark", *scopes: str, expires_ms: int | None = None
) -> str:
    """A new key of the directory."""
    with changing_keys(FS, directory) as keys:
        scopes = scopes or ("read:*",)
        return add_key(keys, name, scopes, now_ms=START_MS, expires_ms=expires_ms)[1]


def revoked(directory: Path, name: str) -> None:
    with changing_keys(FS, directory) as keys:
        revoke_key(keys, name)


def ring_of(directory: Path) -> KeyRing:
    """A ring that has read the directory's file."""
    ring = KeyRing(FS, directory, Meters(Quota(), ManualClock()))
    reading = ring.read()
    if reading is not None:
        ring.take(reading, at_start=True)
    return ring


def refresh(ring: KeyRing) -> None:
    reading = ring.read()
    if reading is not None:
        ring.take(reading)


def known(ring: KeyRing, key: str) -> Principal:
    principal = ring.identify(key.encode())
    assert principal is not None
    return principal


def test_the_file_does_not_have_the_key(tmp_path: Path) -> None:
    """What is stored is a hash: who reads the file cannot make a request."""
    key = created(tmp_path)
    secret = key.split("_", 2)[2]
    assert len(secret) >= 43  # 256 bits
    assert secret not in api_keys_path(tmp_path).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tidelog-api-keys.json"]


def test_a_key_opens_what_its_scopes_say(tmp_path: Path) -> None:
    """A key that was made is known with its name and its scopes."""
    key = created(tmp_path, "spark", "read:clicks")
    principal = known(ring_of(tmp_path), key)
    assert principal.name == "key:spark"
    assert principal.grants.allow(Action.READ, "clicks")
    assert not principal.grants.allow(Action.APPEND, "clicks")


def test_no_other_text_is_a_key(tmp_path: Path) -> None:
    """A wrong secret, an unknown id, a part of a key and a key with a suffix are refused."""
    key = created(tmp_path)
    ring = ring_of(tmp_path)
    _, key_id, secret = key.split("_", 2)
    for wrong in (
        f"tlk_{key_id}_{secret[:-1]}",
        f"tlk_{key_id}_{secret}x",
        f"tlk_{key_id}_",
        f"tlk_{key_id}",
        f"tlk__{secret}",
        f"tlk_000000000000_{secret}",
        "tlk_",
        f"tlk_{key_id}_" + "\xff",
    ):
        assert ring.identify(wrong.encode("latin-1")) is None, wrong


def test_a_directory_is_made_for_its_first_key(tmp_path: Path) -> None:
    """Keys can be made before the service has ever run."""
    key = created(tmp_path / "new" / "data")
    assert known(ring_of(tmp_path / "new" / "data"), key).name == "key:spark"


def test_a_revoked_key_is_nobody_from_the_next_look_on(tmp_path: Path) -> None:
    """The others stay the same principals, and the one that went knows it."""
    spark, curl = created(tmp_path, "spark"), created(tmp_path, "curl")
    ring = ring_of(tmp_path)
    before_spark, before_curl = known(ring, spark), known(ring, curl)
    revoked(tmp_path, "spark")
    refresh(ring)
    assert ring.identify(spark.encode()) is None
    assert known(ring, curl) is before_curl
    assert not before_spark.is_valid(START_MS)
    assert before_curl.is_valid(START_MS)


def test_keys_that_are_new_are_known_from_the_next_look_on(tmp_path: Path) -> None:
    """A look at a file that did not change finds nothing to do."""
    ring = ring_of(tmp_path)
    assert (ring.is_used, ring.read()) == (False, None)
    key = created(tmp_path)
    refresh(ring)
    assert (ring.is_used, ring.read()) == (True, None)
    assert known(ring, key).name == "key:spark"


def test_without_the_last_key_nobody_is_let_in(tmp_path: Path) -> None:
    """An empty file, and one that is gone, leave the door shut."""
    key = created(tmp_path)
    ring = ring_of(tmp_path)
    revoked(tmp_path, "spark")
    refresh(ring)
    assert (ring.is_used, ring.identify(key.encode())) == (True, None)
    created(tmp_path)
    refresh(ring)
    api_keys_path(tmp_path).unlink()
    refresh(ring)
    assert (ring.is_used, ring.read()) == (True, None)


def test_what_changes_is_audited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Keys that are created and revoked at run time are audited, without the secret."""
    ring = ring_of(tmp_path)
    with caplog.at_level(logging.INFO, "tidelog.audit"):
        created(tmp_path, "spark")
        refresh(ring)
        key = created(tmp_path, "curl")
        refresh(ring)
        revoked(tmp_path, "spark")
        refresh(ring)
    told = [(vars(record)["action"], vars(record)["key"]) for record in caplog.records]
    assert told == [("created", "spark"), ("created", "curl"), ("revoked", "spark")]
    assert key not in caplog.text


def test_a_damaged_file_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once for each kind of damage, not at every look; and what changed meanwhile is audited."""
    caplog.set_level(logging.INFO)
    key = created(tmp_path)
    created(tmp_path, "other")
    ring = ring_of(tmp_path)
    whole = api_keys_path(tmp_path).read_bytes()
    api_keys_path(tmp_path).write_text("{")
    for _ in range(3):
        with pytest.raises(CorruptCheckpoint) as caught:
            ring.read()
        ring.complain(caught.value)
        ring.close()
    with pytest.raises(CredentialsUnavailable):
        ring.identify(key.encode())
    assert caplog.text.count("the API keys cannot be read") == 1
    assert caplog.text.count("no API key is accepted") == 1
    api_keys_path(tmp_path).write_bytes(whole)
    revoked(tmp_path, "other")
    refresh(ring)
    assert known(ring, key).name == "key:spark"
    audited = [vars(one)["key"] for one in caplog.records if one.name == "tidelog.audit"]
    assert audited == ["other"]


@pytest.mark.parametrize(
    "keys",
    [
        None,
        [],
        {"a": {}},
        {"a": {"name": "n", "sha256": "xyz", "scopes": [], "created_ms": 0}},
        {"a": {"name": "n", "sha256": "00", "scopes": [], "created_ms": 0, "more": 1}},
        {"a": {"name": "n", "sha256": "00", "scopes": "read:*", "created_ms": 0}},
    ],
)
def test_a_file_of_another_shape_is_damaged(tmp_path: Path, keys: object) -> None:
    """What a later or foreign program wrote is refused, never half understood."""
    api_keys_path(tmp_path).write_text(json.dumps({"version": 1, "keys": keys}))
    with pytest.raises(CorruptCheckpoint, match=r"tidelog-api-keys\.json"):
        read_keys(FS, tmp_path)


def test_only_one_process_changes_the_keys_at_a_time(tmp_path: Path) -> None:
    """Otherwise the later one would take back what the earlier one did, a revocation even."""
    with changing_keys(FS, tmp_path), pytest.raises(DirectoryLocked, match="another process"):
        created(tmp_path)
    assert created(tmp_path)


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    """The file is replaced when the whole change is right."""
    created(tmp_path)
    before = api_keys_path(tmp_path).read_bytes()
    with pytest.raises(InvalidRequestValue, match="revoke it first"):
        created(tmp_path)
    assert api_keys_path(tmp_path).read_bytes() == before


@pytest.mark.parametrize(
    ("name", "scopes", "sentence"),
    [
        ("", ("read:*",), "is not a valid name"),
        ("two words", ("read:*",), "is not a valid name"),
        ("-x", ("read:*",), "is not a valid name"),
        ("x" * 65, ("read:*",), "is not a valid name"),
        ("taken", ("read:*",), "revoke it first"),
        ("new", (), "is not a scope"),
        ("new", ("read:*", "write:*"), "'write:\\*' is not a scope"),
    ],
)
def test_a_wrong_key_is_refused_with_a_sentence(
    name: str, scopes: tuple[str, ...], sentence: str
) -> None:
    """Names are for people, scopes have a grammar, and both are looked at before anything is."""
    keys = {"0": ApiKey("taken", "00", ("read:*",), START_MS)}
    with pytest.raises(InvalidRequestValue, match=sentence):
        add_key(keys, name, scopes, now_ms=START_MS)
    assert len(keys) == 1


def test_there_is_a_most_of_keys() -> None:
    """A file that grows without limit would be read again at every change."""
    keys = {str(number): ApiKey(f"k{number}", "00", (), 0) for number in range(MAX_KEYS)}
    with pytest.raises(InvalidRequestValue, match="the maximum"):
        add_key(keys, "new", ("read:*",), now_ms=START_MS)


def test_a_key_is_revoked_by_its_id_as_well() -> None:
    """Revoking an unknown key is an error, so that it does not look revoked."""
    keys: dict[str, ApiKey] = {}
    key_id, _ = add_key(keys, "spark", ("read:*",), now_ms=START_MS)
    with pytest.raises(InvalidRequestValue, match="key 'other' does not exist"):
        revoke_key(keys, "other")
    assert revoke_key(keys, key_id)[1].name == "spark"
    assert keys == {}
