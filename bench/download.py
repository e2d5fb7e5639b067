"""The reader, in a process of its own: one connection, the next read as soon as the last is there.

The bytes go into one buffer and are not looked at: what is measured is how fast they are served.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from typing import Final

import msgspec

_HEAD_END: Final = b"\r\n\r\n"
_BUFFER_BYTES: Final = 4 << 20


class Download(msgspec.Struct, frozen=True):
    """Which log to read, from its start to its end, over and over for `seconds`, and as what."""

    host: str
    port: int
    path: str
    seconds: float
    accept: str = "*/*"
    fetch_bytes: int = 16 << 20


class DownloadResult(msgspec.Struct, frozen=True):
    """How many bytes of bodies came, how many offsets they stand for, and in what time."""

    bytes: int
    offsets: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.bytes / self.seconds


def run_download(download: Download) -> DownloadResult:
    """Run the reader in another process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.download"],
        input=msgspec.msgpack.encode(download),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.msgpack.decode(done.stdout, type=DownloadResult)


class _Connection:
    def __init__(self, download: Download) -> None:
        self._download = download
        self._socket = socket.create_connection((download.host, download.port))
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    def fetch(self, offset: int) -> tuple[int, int]:
        """Read from the offset; return the bytes of the body and the next offset."""
        request = (
            f"GET {self._download.path}?offset={offset}&max_bytes={self._download.fetch_bytes}"
            f" HTTP/1.1\r\nHost: localhost\r\nAccept: {self._download.accept}\r\n\r\n"
        )
        self._socket.sendall(request.encode())
        head, received = self._head()
        if not head.startswith(b"http/1.1 200"):
            raise SystemExit(f"the read was refused: {head.decode()}")
        length = int(_header(head, b"content-length"))
        while received < length:
            received += self._socket.recv_into(self._buffer)
        return length, int(_header(head, b"log-next-offset"))

    def _head(self) -> tuple[bytes, int]:
        """Return the head of an answer, and how many bytes of its body came along."""
        data = b""
        while (end := data.find(_HEAD_END)) < 0:
            count = self._socket.recv_into(self._buffer)
            if count == 0:
                raise SystemExit("the connection was closed")
            data += bytes(self._buffer[:count])
        return data[:end].lower(), len(data) - end - len(_HEAD_END)


def _header(head: bytes, name: bytes) -> bytes:
    value = head.split(b"\r\n" + name + b":", 1)[1]
    return value.split(b"\r\n", 1)[0].strip()


def read_all(download: Download) -> DownloadResult:
    """Read the log from 0 to its end again and again until the time is over."""
    connection = _Connection(download)
    total = offset = offsets = 0
    started = time.perf_counter()
    while (seconds := time.perf_counter() - started) < download.seconds:
        length, next_offset = connection.fetch(offset)
        total += length
        offsets += next_offset - offset
        offset = next_offset if next_offset > offset else 0
    return DownloadResult(total, offsets, seconds)


def main() -> None:
    """Take a download on standard input, run it, and put the result on standard output."""
    download = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Download)
    sys.stdout.buffer.write(msgspec.msgpack.encode(read_all(download)))


if __name__ == "__main__":
    main()
