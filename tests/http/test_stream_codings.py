"""Compressed bodies, whole ones and those of any length: protocol rules A11 and S5."""

import gzip
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from engine.records.codecs.zstd import zstd
from tests.support.service import NDJSON, RECORDS, Api, running
from tests.support.streams import lines, pieces, send, stored

pytestmark = pytest.mark.anyio

CHECKED: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
SKIPPABLE_FRAME = b"\x50\x2a\x4d\x18\x01\x00\x00\x00x"
UNENDING_FRAME = b"\x28\xb5\x2f\xfd\x00\x00" + (100_000 << 3).to_bytes(3, "little")
"""A frame of zstd whose first block claims more than comes."""
WIDE_FRAME = b"\x28\xb5\x2f\xfd\x00\x69\x01\x00\x00"
"""An empty zstd frame that declares a window of 9 MiB."""


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service whose parts are small and whose requests are not much larger."""
    limits = {"max_stream_part_bytes": 1_000, "max_request_bytes": 10_000}
    async with running(tmp_path, **limits) as api:
        await api.create()
        yield api


@pytest.mark.parametrize(
    ("encoding", "encoded"),
    [
        ("gzip", [gzip.compress(lines(3_000))]),
        ("gzip", [gzip.compress(lines(1_500)), gzip.compress(lines(1_500, start=1_500))]),
        ("zstd", [zstd.compress(lines(100, start=n)) for n in range(0, 3_000, 100)]),
        ("zstd", [SKIPPABLE_FRAME, zstd.compress(lines(3_000))]),
        ("Identity", [lines(3_000)]),
    ],
)  # fmt: skip
async def test_compressed_bodies_are_decoded_while_they_arrive(
    tmp_path: Path, encoding: str, encoded: list[bytes]
) -> None:
    """Members and frames follow each other; parts are cut from what they hold (S5, A11)."""
    limits = {"max_stream_part_bytes": 1_000, "max_request_bytes": 100_000}
    async with running(tmp_path, **limits) as api:
        await api.create()
        answer = await send(api, pieces(b"".join(encoded), 101), content_encoding=encoding)
        assert (answer.status_code, answer.json()["lines"]) == (201, 3_000)
        assert await stored(api) == list(range(3_000))
        headers = NDJSON | {"content-encoding": encoding}
        whole = await api.client.post(RECORDS, content=b"".join(encoded), headers=headers)
        assert (whole.status_code, whole.json()["count"]) == (201, 3_000)


@pytest.mark.parametrize(
    ("encoding", "body", "status", "code"),
    [
        ("br", lines(1), 415, "unsupported_media_type"),
        ("gzip", b"not gzip", 400, "malformed_request"),
        ("gzip", gzip.compress(lines(1))[:-1], 400, "malformed_request"),
        ("gzip", gzip.compress(lines(1)) + b"tail", 400, "malformed_request"),
        ("zstd", b"not zstd at all", 400, "malformed_request"),
        ("zstd", zstd.compress(lines(1))[:-1], 400, "malformed_request"),
        ("zstd", zstd.compress(lines(1))[:5], 400, "malformed_request"),
        ("zstd", zstd.compress(lines(1)) + b"tail", 400, "malformed_request"),
        ("zstd", UNENDING_FRAME + bytes(5_000), 400, "malformed_request"),
        ("zstd", SKIPPABLE_FRAME[:-1], 400, "malformed_request"),
        ("zstd", UNENDING_FRAME[:6] + b"\x1d\x00\x00\xff\xff\xff", 400, "malformed_request"),
        ("zstd", WIDE_FRAME, 400, "malformed_request"),
    ],
    ids=[
        "br",
        "no-gzip",
        "cut-gzip",
        "gzip-tail",
        "no-zstd",
        "cut-zstd",
        "cut-zstd-head",
        "zstd-tail",
        "cut-block",
        "cut-skippable",
        "damaged-block",
        "wide-window",
    ],
)
async def test_a_body_that_cannot_be_decoded_is_explained(
    api: Api, encoding: str, body: bytes, status: int, code: str
) -> None:
    """415 lists the encodings; 400 names damage, or a limit of decoding (S5, A11)."""
    headers = NDJSON | {"content-encoding": encoding}
    for answer in (
        await send(api, pieces(body), content_encoding=encoding),
        await api.client.post(RECORDS, content=body, headers=headers),
    ):
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("zstd", zstd.compress)]
)
async def test_a_bomb_is_held_in_pieces(
    api: Api, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    """A few KB that hold 50 MB without a line break end at the limit of a line: nothing swells."""
    bomb = compress(bytes(50_000_000))
    tracemalloc.start()
    answer = await send(api, pieces(bomb), content_encoding=encoding)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (answer.status_code, answer.json()["limit"]) == (413, "max_request_bytes")
    assert peak_bytes < 5_000_000


async def test_one_frame_beyond_any_limit_streams(tmp_path: Path) -> None:
    """A file as `zstd` makes it is one frame: it is never held as a whole (S5)."""
    blank = b"\n" * 8_000_000
    body = zstd.compress(lines(10) + blank + lines(10), options=CHECKED)
    limits = {"max_stream_part_bytes": 100_000, "max_request_bytes": 200_000}
    async with running(tmp_path, **limits) as api:
        await api.create()
        tracemalloc.start()
        answer = await send(api, pieces(body), content_encoding="zstd")
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (answer.status_code, answer.json()["lines"]) == (201, 8_000_020), answer.text
        assert await stored(api) == [*range(10), *range(10)]
    assert peak_bytes < 5_000_000
