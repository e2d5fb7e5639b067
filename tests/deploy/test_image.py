"""The container image: what it is built from, and, where an engine is at hand, how it runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from bench.peers.program import free_ports

CHECKOUT = Path(__file__).parents[2]
IMAGE = "tidelog:test"
BASE = os.environ.get("IMAGE_PYTHON", "")
"""A tag of `python` that is on this machine, where no registry of images can be reached."""
MOST_OWN_BYTES = 175_000_000
"""What the image adds to its base: the base of the Dockerfile has 125 MB, and 300 are the limit."""


def copied() -> set[str]:
    """The files and folders of the checkout that the Dockerfile copies."""
    text = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
    return {source for line in lines for source in line.split()[:-1]}


@pytest.mark.parametrize("source", sorted(copied()))
def test_what_is_copied_goes_to_the_builder(source: str) -> None:
    """It exists, and .dockerignore, which lets nothing else through, names it or its folder."""
    assert (CHECKOUT / source).exists()
    lines = (CHECKOUT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {line.removeprefix("!") for line in lines if line.startswith("!")}
    folders = {source, *map(str, Path(source).parents)}
    assert let_through & folders


def engine(*arguments: str) -> str:
    """Run podman; return what it prints."""
    ran = subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.strip()


@pytest.fixture(scope="module")
def image() -> str:
    """The image, built from this checkout."""
    base = ["--pull=never", "--build-arg", f"PYTHON={BASE}"] if BASE else []
    build = ["build", "--format", "docker", "--network", "host", *base]
    engine(*build, "--target", "service", "--tag", IMAGE, str(CHECKOUT))
    return IMAGE


class Container:
    """The service as compose runs it: a read-only root, no privileges, one volume."""

    def __init__(self, image: str, volume: str, *options: str) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.id = engine(
            *("run", "--detach", "--network", "host", "--no-healthcheck", "--read-only"),
            *("--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--volume", f"{volume}:/var/lib/tidelog", "--env", "TIDELOG_INSECURE=1", *options),
            *(image, "serve", "--port", str(port)),
        )
        while not self._answers():
            assert engine("inspect", "--format", "{{.State.Running}}", self.id) == "true"

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def is_healthy(self) -> bool:
        """Run the image's own health check in the container."""
        (found,) = json.loads(engine("image", "inspect", IMAGE))
        _, *command = found["Healthcheck"]["Test"]
        ran = subprocess.run(["podman", "exec", self.id, *command], check=False)
        return ran.returncode == 0


@pytest.fixture
def volume() -> Iterator[str]:
    name = f"tidelog-{uuid4().hex}"
    engine("volume", "create", name)
    yield name
    engine("volume", "rm", "--force", name)


@pytest.mark.long
@pytest.mark.needs("podman")
def test_the_image_is_small(image: str) -> None:
    """Below 300 MB with the base of the Dockerfile."""
    size = int(engine("image", "inspect", "--format", "{{.Size}}", image))
    base = f"docker.io/library/python:{BASE}" if BASE else "python:3.12-slim"
    own = size - int(engine("image", "inspect", "--format", "{{.Size}}", base))
    assert own <= MOST_OWN_BYTES


@pytest.mark.long
@pytest.mark.needs("podman")
@pytest.mark.parametrize("user", [(), ("--user", "1000730000:0")], ids=["its own", "any"])
def test_it_serves_is_healthy_and_keeps_what_it_has(
    image: str, volume: str, user: tuple[str, ...]
) -> None:
    """Without privileges, as any user of the group 0; after kill -9 everything is there."""
    first = Container(image, volume, *user)
    with httpx.Client(base_url=first.url) as client:
        client.put("/v1/topics/events", json={}).raise_for_status()
        client.post("/v1/topics/events/ingest", json={"n": 1}).raise_for_status()
        path = "/v1/topics/events/partitions/0/records"
        arrow = client.get(path, headers={"accept": "application/vnd.apache.arrow.stream"})
        assert arrow.status_code == 200
        assert client.get("/console/").status_code == 200
    while not first.is_healthy():
        pass  # the service looks at itself once a second
    engine("kill", "--signal", "KILL", first.id)
    engine("rm", "--force", first.id)
    second = Container(image, volume, *user)
    (record,) = httpx.get(f"{second.url}{path}").json()["records"]
    assert record["value"] == {"n": 1}
    began = time.monotonic()
    engine("stop", "--time", "30", second.id)
    assert time.monotonic() - began < 10
    assert engine("inspect", "--format", "{{.State.ExitCode}}", second.id) == "0"
    engine("rm", "--force", second.id)


@pytest.mark.long
@pytest.mark.needs("podman")
def test_it_starts_with_credentials_only(image: str) -> None:
    """Its port may be published anywhere: without a key it ends, and says how to make one."""
    ran = subprocess.run(
        ["podman", "run", "--rm", "--network", "host", "--no-healthcheck", image],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "tidelog keys create" in ran.stderr
