"""Lines of standard input as they arrive, also from a pipe that stays open."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from typing import Final

from app.client.failures import BadInput

LINGER_S: Final = 0.1
"""How long a line waits for others before it is sent."""

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024


def arriving_lines(descriptor: int, *, on_linger: Callable[[], object]) -> Iterator[bytes]:
    """Yield lines without their line feed; the last one may lack it.

    `on_linger` is called every `LINGER_S`, whether input arrives or not.
    """
    lines_count = unfinished_bytes = 0
    unfinished: list[bytes] = []
    for chunk in _chunks(descriptor, on_linger):
        end = chunk.rfind(b"\n")
        if end >= 0:
            lines = b"".join([*unfinished, chunk[:end]]).split(b"\n")
            yield from lines
            lines_count, unfinished, unfinished_bytes = lines_count + len(lines), [], 0
        unfinished.append(chunk[end + 1 :])
        unfinished_bytes += len(unfinished[-1])
        if unfinished_bytes > MAX_LINE_BYTES:
            raise BadInput(lines_count + 1, f"it is longer than {MAX_LINE_BYTES} bytes")
    if unfinished_bytes:
        yield b"".join(unfinished)


def _chunks(descriptor: int, on_linger: Callable[[], object]) -> Iterator[bytes]:
    due = time.monotonic() + LINGER_S
    while True:
        wait_s = due - time.monotonic()
        if wait_s <= 0 or not select.select([descriptor], [], [], wait_s)[0]:
            on_linger()
            due = time.monotonic() + LINGER_S
        elif chunk := os.read(descriptor, _READ_BYTES):
            yield chunk
        else:
            return
