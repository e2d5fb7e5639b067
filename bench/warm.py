"""`python -m bench.warm COMMAND…`: run a command on a machine whose memory has been used before.

A host may give a virtual machine its memory at the first touch of each page, and take back what is
free: that has cost 11 µs for 4 KiB, where to copy them takes one. A log that grows takes ever new
pages for the page cache, so that appending 64 KiB to it took up to twice as long while memory was
free. Where a service has run for a while none is: the page cache has it all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

_PIECE_BYTES: Final = 1 << 20
_GIB: Final = 1 << 30


@contextmanager
def filled_page_cache(folder: Path, size_bytes: int) -> Iterator[int]:
    """Have the page cache take so much memory, and yield what it took.

    Whoever wants some has it back at once. What is read is a hole in a file, which costs no disk,
    and no limit of memory can be passed.
    """
    piece = bytearray(_PIECE_BYTES)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.truncate(size_bytes)
        taken = 0
        while count := file.readinto(piece):
            taken += count
        yield taken


def free_bytes() -> int:
    """Return how much memory nobody uses, 0 where the system does not tell."""
    if "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return 0
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Fill the page cache, say what that took, and run the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.warm", description=__doc__)
    parser.add_argument("--bytes", type=int, default=free_bytes(), help="instead of what is free")
    parser.add_argument("--folder", type=Path, default=Path(), help="where a hole can be made")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run meanwhile")
    arguments = parser.parse_args()
    began = time.perf_counter()
    console = Console(stderr=True)
    console.print("filling the page cache with a hole in a file ...")
    with filled_page_cache(arguments.folder, arguments.bytes) as taken:
        taken_us = (time.perf_counter() - began) * 1e6
        page_us = taken_us * os.sysconf("SC_PAGE_SIZE") / max(1, taken)
        console.print(f"{taken / _GIB:.1f} GiB are in use: {page_us:.1f} µs for a page")
        done = subprocess.run(arguments.command, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
