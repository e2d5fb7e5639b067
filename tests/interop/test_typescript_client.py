"""Tools from npm accept the committed document: a linter, and a generator of TypeScript clients."""

import shutil
from pathlib import Path

import pytest

from tests.support.generators import DOCUMENT, fresh, generate, run
from tests.support.server import serving

PROGRAM = Path(__file__).parent / "typescript"

pytestmark = [pytest.mark.long, pytest.mark.needs("npm", "node")]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program and what it needs from npm."""
    directory = tmp_path_factory.mktemp("typescript") / "program"
    shutil.copytree(PROGRAM, directory)
    run(directory, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock")
    return directory


def test_spectral_finds_nothing_to_complain_about(installed: Path) -> None:
    """The rules of spectral:oas, warnings included, but for the contact that there is not."""
    spectral = installed / "node_modules" / ".bin" / "spectral"
    rules = installed / "spectral.yaml"
    told = run(installed, spectral, "lint", DOCUMENT, "--ruleset", rules, "--fail-severity=hint")
    assert "No results" in told


def test_types_of_the_document_need_no_narrowing(tmp_path: Path) -> None:
    """A page is a page for a generator that makes a union of all media types."""
    directory = tmp_path / "program"
    directory.mkdir()
    (directory / "package.json").write_text('{"private": true, "type": "module"}')
    shutil.copy(PROGRAM / "paths.ts", directory)
    packages = ("openapi-typescript@7.9.1", "openapi-fetch@0.14.0", "typescript@5.9.3")
    run(directory, "npm", "install", "--no-audit", "--no-fund", *packages)
    run(
        directory,
        "npx",
        "openapi-typescript",
        DOCUMENT,
        "-o",
        "document.ts",
        "--default-non-nullable=false",
    )
    options = ("--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck")
    run(directory, "npx", "tsc", *options, "paths.ts")
    with serving(tmp_path / "data") as served:
        printed = run(directory, "node", "paths.js", served.url)
    assert printed.splitlines() == ["read 0 1", "topic 2", "fetched read"]


def test_a_generated_typescript_client_appends_reads_and_follows(tmp_path: Path) -> None:
    """Generated, compiled under `strict`, and run by Node against the service."""
    directory = fresh("hey-api")
    for name in ("main.ts", "tsconfig.json"):
        shutil.copy(PROGRAM / name, directory)
    (directory / "package.json").write_text('{"private": true, "type": "module"}')
    generate(directory, "hey-api")
    run(directory, "npx", "tsc", "-p", ".")
    with serving(tmp_path) as served:
        printed = run(directory, "node", "js/main.js", served.url)
    assert printed.splitlines() == [
        "created 201",
        "appended 0 1",
        "read 0 1",
        "error partition_not_found",
        "followed 1",
    ]
