"""S3 servers that this project did not write, each for the length of a block."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

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
    """What goes wrong at a server: every so many-th request, in turn."""

    every: int = 0
    """0 lets all of them pass."""
    counted: int = 0
    unavailable: int = 0
    torn: int = 0

    def next(self) -> str | None:
        """Return what happens to the next request."""
        self.counted += 1
        if not self.every or self.counted % self.every:
            return None
        return "torn" if self.counted // self.every % 2 else "unavailable"


def _failing(application: Application, faults: Faults) -> Application:
    """Answer some requests with 503, and cut the connection in the middle of others."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        fault = faults.next()
        if fault == "unavailable":
            faults.unavailable += 1
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"]
        if fault == "torn":
            faults.torn += 1
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0) // 2)
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        return application(environ, start_response)

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
        yield f"http://{place}"
    finally:
        process.terminate()
        process.wait()


def bucket_at(endpoint: str) -> ObjectStore:
    """Make a bucket of its own."""
    return ObjectStore(endpoint, f"lake-{next(_numbers)}").make_bucket()
