"""What a start does before it is ready: modules are counted, and models that are built."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from fastapi.routing import APIRoute

from app.api.application import create_api
from app.operations.service import Service
from app.settings import Settings

TELLING = """
import atexit, json, sys
from app.cli import main

def tell():
    base = sys.modules.get("schemas.base")
    models = base.Model.__subclasses__() if base else []
    built = [model.__name__ for model in models if model.__pydantic_complete__]
    print(json.dumps({"modules": [*sys.modules], "built": built}))

atexit.register(tell)
main()
"""

MOST_MODULES = 1_090
"""A start loads 1,050 here, 350 of them our own; a library more is a hundred, and a tenth of a
second."""

UNUSED = {
    "app.client.connection": "a service is no client",
    "cryptography": "without an issuer, and without clients' certificates",
    "httpx": "it fetches an issuer's keys",
    "jwt": "without an issuer",
    "numpy": "it belongs to the Spark source",
    "opentelemetry.sdk": "without tracing",
    "nanoarrow": "until somebody asks for Arrow",
    "pyarrow": "ever: it is what readers of Arrow use",
    "rich": "a service prints no tables",
}


def told(*arguments: str) -> subprocess.Popen[str]:
    """Start a command that tells at its end, in its last line, what it has loaded."""
    return subprocess.Popen(
        [sys.executable, "-c", TELLING, *arguments], stdout=subprocess.PIPE, text=True
    )


def loaded(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a command to end; return its output."""
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def test_a_start_loads_what_it_needs_and_no_more(tmp_path: Path) -> None:
    """Libraries for what is seldom asked for are loaded then, and models built where first used."""
    with told("serve", "--port", "0", "--data-dir", str(tmp_path)) as process:
        assert process.stdout is not None
        url = re.findall(r"http://\S+", process.stdout.readline())[0]
        while httpx.get(f"{url}/readyz").is_error:
            pass
        process.send_signal(signal.SIGTERM)
        found = loaded(process)
    assert len(found["modules"]) < MOST_MODULES
    assert UNUSED.keys() & set(found["modules"]) == set()
    assert found["built"] == ["Parameters"]


def test_a_command_loads_what_it_needs(tmp_path: Path) -> None:
    """What works on files needs neither a service nor an HTTP client."""
    with told("keys", "list", "--data-dir", str(tmp_path)) as process:
        modules = loaded(process)["modules"]
    assert {"app.server.process", "fastapi", "httpx", "pydantic_settings"} & set(modules) == set()


def test_each_route_is_built_once(tmp_path: Path) -> None:
    """FastAPI builds those of an included router again, at the first request that passes it."""
    api = create_api(Service(Settings(data_directory=tmp_path)))
    routes = [route for route in api.router.routes if isinstance(route, APIRoute)]
    shown = {route.operation_id for route in routes if route.include_in_schema}
    paths = api.openapi()["paths"].values()
    assert shown == {operation["operationId"] for path in paths for operation in path.values()}
