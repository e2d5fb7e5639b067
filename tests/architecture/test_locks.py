"""What is installed is what the locks name: complete, by hash, from no particular index."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).parents[2]
LOCK = CHECKOUT / "requirements.lock"
SUBSETS = sorted((CHECKOUT / "deploy" / "locks").glob("*.txt"))

Pins = dict[str, frozenset[str]]


def pins(lock: Path) -> Pins:
    """Read a lock: the pinned requirement with its marker, and the hashes it may have."""
    text = re.sub(r"\\\n", " ", lock.read_text(encoding="utf-8"))
    entries = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    return {
        line.partition(" --hash")[0].strip(): frozenset(re.findall(r"--hash=(\S+)", line))
        for line in entries
    }


def declared() -> list[Requirement]:
    """Collect every requirement of pyproject.toml: dependencies, extras, groups, build backend."""
    tables = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    lists = [
        tables["build-system"]["requires"],
        tables["project"]["dependencies"],
        *tables["project"]["optional-dependencies"].values(),
        *tables["dependency-groups"].values(),
    ]
    entries = {entry for entries in lists for entry in entries if isinstance(entry, str)}
    return [Requirement(entry) for entry in sorted(entries)]


@pytest.mark.parametrize("lock", [LOCK, *SUBSETS], ids=lambda lock: lock.name)
def test_everything_is_pinned_by_hash(lock: Path) -> None:
    """Each entry of a lock names one version and at least one hash."""
    entries = pins(lock)
    assert entries
    for requirement, hashes in entries.items():
        assert re.match(r"[a-z0-9-]+==\S+", requirement), requirement
        assert hashes, requirement


@pytest.mark.parametrize("lock", [LOCK, *SUBSETS], ids=lambda lock: lock.name)
def test_no_index_is_named(lock: Path) -> None:
    """A lock leaves it to the machine where packages come from."""
    text = lock.read_text(encoding="utf-8")
    assert not re.search(r"https?://|--index-url|--extra-index-url|--find-links|file:", text)


@pytest.mark.parametrize("subset", SUBSETS, ids=lambda lock: lock.name)
def test_an_image_holds_nothing_that_was_not_tested(subset: Path) -> None:
    """Every version in an image's lock, with its hashes, stands in the lock the tests ran with."""
    everything = {key.partition(" ")[0]: hashes for key, hashes in pins(LOCK).items()}
    for requirement, hashes in pins(subset).items():
        assert everything.get(requirement.partition(" ")[0]) == hashes, requirement


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_the_lock_satisfies_what_is_declared(requirement: Requirement) -> None:
    """Whoever changes a requirement has resolved the lock again."""
    name = canonicalize_name(requirement.name)
    versions = [
        match["version"]
        for entry in pins(LOCK)
        if (match := re.match(rf"{re.escape(name)}==(?P<version>\S+)", entry))
    ]
    assert versions, f"{name} is not in the lock"
    assert all(requirement.specifier.contains(version) for version in versions)


def test_the_image_is_built_from_every_package() -> None:
    """The Dockerfile copies exactly the packages that the wheel is made of."""
    tables = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = tables["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    dockerfile = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (\w+) \1$", dockerfile, flags=re.MULTILINE)
    assert sorted(copied) == sorted(packages)


def test_ci_runs_what_a_developer_runs() -> None:
    """The CI script has one command, and it is make test."""
    script = (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert commands == ['cd "$(dirname "$0")/.." && exec make test']
