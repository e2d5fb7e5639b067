"""Clients generated from the committed document, as `docs/clients/generated.md` says, at work.

Each is compiled and does the same against a service: a round trip, a long poll, a 404, a 412, a
fetch of which one partition fails, and one call of nearly every other operation.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest

from app.api.openapi.earlier import as_openapi_3_0
from tests.support.generators import DOCUMENT, GENERATOR, PROGRAMS, fresh, generate, round_trip, run
from tests.support.server import serving

pytestmark = [pytest.mark.long, pytest.mark.needs("java", "mvn")]

SAID = [
    "created events -1",
    "appended 0 1 false",
    "read 0 ada json 2",
    "polling",
    "polled 2 3",
    "refused 404 partition_not_found 1 false",
    "refused 412 precondition_failed 7 3",
    "fetched 1 404 partition_not_found",
    "tolerated 1 404",
    "decoded 28",
]


def test_a_java_client_decodes_every_answer(tmp_path: Path) -> None:
    """With OkHttp and Gson, the generator's default."""
    directory = fresh("java")
    generate(directory, GENERATOR, "Java")
    project = directory / "java"
    shutil.copy(PROGRAMS / "java" / "Main.java", project / "src" / "main" / "java")
    goal = ("dependency:build-classpath", "-Dmdep.outputFile=classpath")
    run(project, "mvn", "-q", "-B", "compile", *goal)
    classes = f"target/classes:{(project / 'classpath').read_text()}"
    with serving(tmp_path) as served:
        assert round_trip(served, project, "java", "-cp", classes, "Main") == SAID


@pytest.mark.needs("go")
def test_a_go_client_decodes_every_answer(tmp_path: Path) -> None:
    """As a module, with a program of the same module."""
    directory = fresh("go")
    generate(directory, GENERATOR, "Go")
    module = directory / "go"
    shutil.copytree(PROGRAMS / "go", module / "example")
    run(module, "go", "build", "-o", "round-trip", "./example")
    with serving(tmp_path) as served:
        assert round_trip(served, module, module / "round-trip") == SAID


@pytest.mark.needs("node", "npm")
def test_a_typescript_client_decodes_every_answer(tmp_path: Path) -> None:
    """With `fetch`, compiled under `strict`, run by Node."""
    directory = fresh("typescript")
    generate(directory, GENERATOR, "TypeScript")
    shutil.copytree(PROGRAMS / "typescript_fetch", directory, dirs_exist_ok=True)
    run(directory, "npx", "tsc", "-p", ".")
    with serving(tmp_path) as served:
        assert round_trip(served, directory, "node", "js/main.js") == SAID


@pytest.mark.needs("cargo")
def test_a_rust_client_decodes_every_answer(tmp_path: Path) -> None:
    """With reqwest, as a crate that a program's crate uses."""
    directory = fresh("rust")
    generate(directory, GENERATOR, "Rust")
    shutil.copytree(PROGRAMS / "rust", directory / "rust")
    run(directory / "rust", "cargo", "build", "--quiet", "--target-dir", "../client/target")
    program = directory / "client" / "target" / "debug" / "round-trip"
    with serving(tmp_path) as served:
        assert round_trip(served, directory, program) == SAID


def test_a_python_client_decodes_every_answer(tmp_path: Path) -> None:
    """With urllib3 and pydantic, whose models judge what they decode."""
    directory = fresh("python")
    generate(directory, GENERATOR, "Python")
    shutil.copy(PROGRAMS / "python" / "round_trip.py", directory / "python")
    with serving(tmp_path) as served:
        program = directory / "python" / "round_trip.py"
        assert round_trip(served, directory, sys.executable, program) == SAID


@pytest.mark.needs("node", "npm")
def test_what_orval_makes_compiles() -> None:
    """Types and functions for `fetch`, under `strict`."""
    generate(fresh("orval"), "orval")


@pytest.mark.needs("go")
def test_what_oapi_codegen_makes_compiles() -> None:
    """Types and a client in Go, vetted."""
    generate(fresh("oapi-codegen"), "oapi-codegen")


def test_a_client_of_openapi_3_0_reads_answers(tmp_path: Path) -> None:
    """Of swagger-codegen, which reads nothing later."""
    directory = fresh("swagger")
    earlier = as_openapi_3_0(json.loads(DOCUMENT.read_text(encoding="utf-8")))
    (directory / "openapi-3.0.json").write_text(json.dumps(earlier))
    generate(directory, "swagger-codegen")
    program = shutil.copy(PROGRAMS / "swagger" / "round_trip.py", directory / "python")
    with serving(tmp_path) as served:
        assert run(directory, sys.executable, program, served.url).splitlines() == [
            "created events -1",
            "listed ['events'] None",
            "partition 1 0",
            "refused 404",
        ]
