"""The memory of a process with many threads."""

import asyncio
import itertools
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from app.server import process as heaps
from app.server.process import CALM_REQUESTS, CAN_GIVE_BACK, WORTH_BYTES, give_back, own_bytes

PROGRAM = """
import ctypes, threading
from app.server.process import share_heaps
share_heaps()
together = threading.Barrier(16)
def work():
    together.wait()
    held = [ctypes.create_string_buffer(10_000) for _ in range(100)]
    together.wait()
threads = [threading.Thread(target=work) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
if hasattr(library, "malloc_info"):
    out = ctypes.c_void_p(library.fopen(b"/dev/stdout", b"w"))
    library.malloc_info(0, out)
    library.fflush(out)
"""


def test_threads_share_two_heaps() -> None:
    """Sixteen threads that want memory at once get it from two heaps, where GNU's library tells."""
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    assert told.count("<heap nr=") <= 2


ANSWERS_IN_TURN = """
import resource
from app.server.process import share_heaps

def answer():
    block = bytes(bytearray(4 << 20)), bytearray(8 << 20)

share_heaps()
answer()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    answer()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize("most_faults", [2_000] if CAN_GIVE_BACK else [])
def test_the_memory_of_a_large_answer_serves_the_next(most_faults: int) -> None:
    """A read of 4 MiB has 3,000 pages as JSON: the system is not asked for them every time."""
    told = subprocess.run(
        [sys.executable, "-c", ANSWERS_IN_TURN], capture_output=True, text=True, check=True
    ).stdout
    assert int(told) < most_faults


AFTER_A_BURST = """
import asyncio, ctypes, itertools, sys
from app.server import process as heaps
heaps.share_heaps()
heaps.CALM_SECONDS = 0
asked = itertools.count(step=int(sys.argv[1]))
looks = 0

async def main():
    before = heaps.own_bytes()
    done = asyncio.Event()

    def requests():
        global looks
        looks += 1
        if looks == 40:
            done.set()
        return next(asked)

    watch = asyncio.create_task(heaps.give_back_when_calm(requests))
    while not looks:
        await asyncio.sleep(0)
    burst = [ctypes.create_string_buffer(100_000) for _ in range(800)]
    kept = burst[::40]
    del burst
    await done.wait()
    watch.cancel()
    print(heaps.own_bytes() - before)

asyncio.run(main())
"""


def test_memory_can_be_given_back_wherever_the_c_library_is_gnu_s() -> None:
    """On any other the two tests below have no cases, and pytest says that it skips them."""
    assert CAN_GIVE_BACK is (platform.libc_ver()[0] == "glibc")


@pytest.mark.parametrize("requests_meanwhile", [10, 11] if CAN_GIVE_BACK else [])
def test_what_a_burst_took_is_given_back_when_it_is_over(requests_meanwhile: int) -> None:
    """Of 80 MB the twentieth part that is in use stays; all of it where there are more requests."""
    told = subprocess.run(
        [sys.executable, "-c", AFTER_A_BURST, str(requests_meanwhile)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    is_calm = requests_meanwhile <= CALM_REQUESTS
    assert (int(told) < 20_000_000) is is_calm


@pytest.mark.parametrize("more_bytes", [WORTH_BYTES // 2] if CAN_GIVE_BACK else [])
def test_what_is_little_is_not_given_back(more_bytes: int) -> None:
    """It would be requested again soon, and the caller would wait for it."""
    floor_bytes = own_bytes() - more_bytes
    assert give_back(floor_bytes) == floor_bytes
    assert WORTH_BYTES < give_back(0) <= own_bytes() + WORTH_BYTES


@pytest.mark.anyio
@pytest.mark.parametrize("requests_meanwhile", [CALM_REQUESTS, CALM_REQUESTS + 1])
async def test_memory_is_given_back_only_after_a_calm_moment(
    requests_meanwhile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The C library trims its heaps once few requests came meanwhile, and never under load."""
    trimmed: list[int] = []
    trimmed_once, looked_often = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def malloc_trim(kept_bytes: int) -> None:
        trimmed.append(kept_bytes)
        loop.call_soon_threadsafe(trimmed_once.set)

    counts = itertools.count(step=requests_meanwhile)

    def requests() -> int:
        count = next(counts)
        if count >= 20 * requests_meanwhile:
            looked_often.set()
        return count

    monkeypatch.setattr(heaps, "CALM_SECONDS", 0)
    monkeypatch.setattr(heaps, "WORTH_BYTES", -(1 << 62))
    monkeypatch.setattr(heaps, "_LIBRARY", SimpleNamespace(malloc_trim=malloc_trim))
    is_calm = requests_meanwhile <= CALM_REQUESTS
    watch = asyncio.create_task(heaps.give_back_when_calm(requests))
    await asyncio.wait_for((trimmed_once if is_calm else looked_often).wait(), 60)
    watch.cancel()
    assert bool(trimmed) is is_calm
