"""S3 servers that this project did not write, each for the length of a block."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.tables.table import Batch, Table

SECRET: Final = "secret-of-the-bucket"
Application: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_numbers = itertools.count()


@dataclass(frozen=True)
class ObjectStore:
    """A server, and the bucket that was made in it."""

    endpoint: str
    bucket: str

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What the libraries read to find it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        }

    def announced(self, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        """Set the environment, in which the libraries look for it."""
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        return self

    def through(self, endpoint: str) -> ObjectStore:
        """Return the same bucket at another address."""
        return ObjectStore(endpoint, self.bucket)

    def names(self, prefix: str = "") -> list[str]:
        found = self._client().list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [each["Key"] for each in found.get("Contents", [])]

    def read(self, name: str) -> bytes:
        body: bytes = self._client().get_object(Bucket=self.bucket, Key=name)["Body"].read()
        return body

    def make_bucket(self) -> ObjectStore:
        self._client().create_bucket(Bucket=self.bucket)  # retried while the server starts
        return self

    def _client(self) -> boto3.client:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id="tester",
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )


@dataclass
class Faults:
    """What goes wrong at a server: every so many-th request, one kind after the other."""

    every: int = 0
    """0 lets all of them pass."""
    counted: int = 0
    happened: Counter[str] = field(default_factory=Counter)

    def next(self) -> str | None:
        """Return what happens to the next request."""
        self.counted += 1
        if not self.every or self.counted % self.every:
            return None
        fault = FAULTS[self.counted // self.every % len(FAULTS)]
        self.happened[fault] += 1
        return fault

    def add_through(self, table: Table, add: Callable[[int], object]) -> int:
        """Add micro-batches as a job does that restarts, until every fault has happened twice.

        Returns how many were added.
        """
        self.every = 3
        for number in itertools.count():
            if min(self.happened[fault] for fault in FAULTS) > 1:
                self.every = 0
                return number
            for _ in range(50):
                with suppress(JobFailed, OSError):
                    if not table.has(Batch("job", number)):
                        add(number)
                    break
            else:
                raise AssertionError(f"micro-batch {number} was never added: {self.happened}")
        raise AssertionError


FAULTS: Final = ("unavailable", "torn", "silent", "lost")
"""A 503; a connection that is cut in the middle of an upload; a request that is never answered;
and one that is carried out, without an answer."""


def _failing(application: Application, faults: Faults) -> Application:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        fault = faults.next()
        if fault is None:
            return application(environ, start_response)
        sent_bytes = int(environ.get("CONTENT_LENGTH") or 0)
        connection: socket.socket = environ["werkzeug.socket"]
        if fault == "unavailable":
            environ["wsgi.input"].read(sent_bytes)
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"]
        if fault == "torn":
            environ["wsgi.input"].read(sent_bytes // 2)
        elif fault == "silent":
            environ["wsgi.input"].read(sent_bytes)
            while connection.recv(1):  # until the client gives up
                pass
        else:
            b"".join(application(environ, lambda *_more: lambda _written: None))
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError

    return answer


@contextmanager
def moto(faults: Faults | None = None) -> Iterator[str]:
    """Run moto's server in this process, and yield its address."""
    application = _failing(DomainDispatcherApplication(create_backend_app), faults or Faults())
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def versitygw(folder: Path, program: str) -> Iterator[str]:
    """Run the gateway over a folder, and yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{probe.getsockname()[1]}"
    folder.mkdir()
    keys = {"ROOT_ACCESS_KEY": "tester", "ROOT_SECRET_KEY": SECRET}
    with (folder.parent / "versitygw.txt").open("wb") as words:
        process = subprocess.Popen(
            [program, "--port", place, "posix", str(folder)],
            env=os.environ | keys,
            stdout=words,
            stderr=words,
        )
    try:
        host, _, port = place.partition(":")
        while process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    break
        yield f"http://{place}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def server_of(name: str, folder: Path) -> Iterator[str]:
    """Run a server by its name: moto, or versitygw, which keeps its files below the folder."""
    gateway = folder / "buckets"
    program = shutil.which("versitygw") or ""
    with moto() if name == "moto" else versitygw(gateway, program) as endpoint:
        yield endpoint


def bucket_at(endpoint: str) -> ObjectStore:
    """Make a bucket of its own."""
    return ObjectStore(endpoint, f"lake-{next(_numbers)}").make_bucket()
