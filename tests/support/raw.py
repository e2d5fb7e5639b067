"""Bytes to a served port as they are, and what comes back until the service hangs up."""

import re
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple

import msgspec

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class Reply(NamedTuple):
    """All that came over one connection."""

    statuses: list[int]
    problems: list[dict[str, object]]
    raw: bytes


def connect(url: str) -> socket.socket:
    """A connection that gives up a read after 20 s, which is a failure of the test."""
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def rest_of(wire: socket.socket) -> bytes:
    """All that still comes, until the service hangs up."""
    pieces = []
    while piece := wire.recv(65_536):
        pieces.append(piece)
    return b"".join(pieces)


def tell(url: str, data: bytes) -> Reply:
    """Send bytes, and return what came until the service hung up; it has to."""
    with connect(url) as wire:
        wire.sendall(data)
        return read(rest_of(wire))


def read(raw: bytes) -> Reply:
    """Take what came apart: each status, and each problem document."""
    statuses = [int(status) for status in _STATUS.findall(raw)]
    problems = [
        msgspec.json.decode(body)
        for body in re.findall(rb"problem\+json\r\n(?:[^\r]+\r\n)*\r\n(\{.*?\})(?=HTTP/1|$)", raw)
    ]
    return Reply(statuses, problems, raw)


def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; pytest's own timeout is the bound."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.005)
