"""What is installed is what the locks name: complete, by hash, from no particular index."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hatch_build import PACKAGES

CHECKOUT = Path(__file__).parents[2]
LOCK = CHECKOUT / "requirements.lock"
SUBSETS = sorted((CHECKOUT / "deploy" / "locks").glob("*.txt"))
RELEASE_TOOLS = CHECKOUT / "deploy" / "release" / "tools.txt"
NODE = CHECKOUT / "deploy" / "console" / "node.txt"

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


@pytest.mark.parametrize("lock", [LOCK, *SUBSETS, RELEASE_TOOLS, NODE], ids=lambda lock: lock.name)
def test_everything_is_pinned_by_hash(lock: Path) -> None:
    """Each entry of a lock names one version and at least one hash."""
    entries = pins(lock)
    assert entries
    for requirement, hashes in entries.items():
        assert re.match(r"[a-z0-9-]+==\S+", requirement), requirement
        assert hashes, requirement


@pytest.mark.parametrize("lock", [LOCK, *SUBSETS, RELEASE_TOOLS, NODE], ids=lambda lock: lock.name)
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
    """Every change of a requirement comes with a newly resolved lock file."""
    name = canonicalize_name(requirement.name)
    versions = [
        match["version"]
        for entry in pins(LOCK)
        if (match := re.match(rf"{re.escape(name)}==(?P<version>\S+)", entry))
    ]
    assert versions, f"{name} is not in the lock"
    assert all(requirement.specifier.contains(version) for version in versions)


def test_the_image_is_built_from_every_package() -> None:
    """The Dockerfile copies the packages of the two wheels, and what the console is built from."""
    dockerfile = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (\w+) \1$", dockerfile, flags=re.MULTILINE)
    assert sorted(copied) == sorted(
        [*PACKAGES, "tidelog", "console", "distributions", "openapi", "pyspark_tidelog"]
    )


def test_images_are_pinned_by_digest() -> None:
    """A tag can be moved to other content; only what this project builds has none but a tag."""
    dockerfile = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, flags=re.MULTILINE))
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", dockerfile, flags=re.MULTILINE))
    bases = set(re.findall(r"^FROM (\S+)", dockerfile, flags=re.MULTILINE)) - stages
    bases = {re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], base) for base in bases}
    compose = (CHECKOUT / "docker-compose.yml").read_text(encoding="utf-8")
    images = set(re.findall(r"^ +image: (\S+)$", compose, flags=re.MULTILINE))
    foreign = bases | {image for image in images if not image.startswith("tidelog")}
    assert len(foreign) == 2
    for image in foreign:
        assert re.fullmatch(r"[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}", image), image


def test_a_release_is_audited_and_has_its_bills_of_materials() -> None:
    """`make release` runs the tests, the audit of every lock and the bills, and cannot skip one."""
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^release: test audit sbom dist ##", makefile, flags=re.MULTILINE)
    tools = {entry.partition("==")[0] for entry in pins(RELEASE_TOOLS)}
    wanted = (RELEASE_TOOLS.with_name("tools.in")).read_text(encoding="utf-8").split()
    assert set(wanted) == {"cyclonedx-bom", "pip-audit"}
    assert set(wanted) <= tools
    assert "pip-audit --strict --require-hashes" in makefile  # without an answer it fails


def made(directory: Path, target: str, tool: str, program: str) -> subprocess.CompletedProcess[str]:
    """Make a target of a release in an empty directory, with this program as its tool."""
    tools = directory / "build" / "release" / "tools"
    (tools / "bin").mkdir(parents=True)
    (tools / "installed").touch()
    (tools / "bin" / tool).write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
    (tools / "bin" / tool).chmod(0o755)
    command = ["make", "-f", str(CHECKOUT / "Makefile"), "-C", str(directory)]
    command += ["-o", "build/release/tools/installed", target]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_audit_without_an_answer_fails_and_says_what_to_do(tmp_path: Path) -> None:
    """Where the advisories cannot be reached, nothing passes as checked."""
    ran = made(tmp_path, "audit", "pip-audit", "echo no answer >&2; exit 1")
    assert ran.returncode != 0
    assert "no answer" in ran.stderr
    assert "run make audit where they can be reached" in ran.stderr
    assert "make lock UPGRADE=1" in ran.stderr


def test_the_bills_of_materials_need_no_advisories(tmp_path: Path) -> None:
    """`make sbom` writes one document for each image, and asks no other tool."""
    write = 'while [ "$1" != --output-file ]; do shift; done; echo "{}" > "$2"'
    ran = made(tmp_path, "sbom", "python", write)
    assert ran.returncode == 0, ran.stderr
    written = sorted(path.name for path in (tmp_path / "build" / "release").glob("*.json"))
    assert written == ["service.cdx.json", "spark.cdx.json"]


def test_ci_runs_what_a_developer_runs() -> None:
    """The CI script runs make test, after installing a browser if it can."""
    script = (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert commands == [
        'cd "$(dirname "$0")/.." || exit 1',
        "sh scripts/install_browser.sh",
        "exec make test",
    ]
