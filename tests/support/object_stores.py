"""S3 servers that this project did not write, each for the length of a block."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import boto3
from moto.server import ThreadedMotoServer

SECRET: Final = "secret-of-the-bucket"
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
        self._client().create_bucket(Bucket=self.bucket)
        return self

    def _client(self) -> boto3.client:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id="tester",
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )


@contextmanager
def moto() -> Iterator[str]:
    """Run moto's server in this process, and yield its address."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def bucket_at(endpoint: str) -> ObjectStore:
    """Make a bucket of its own."""
    return ObjectStore(endpoint, f"lake-{next(_numbers)}").make_bucket()
