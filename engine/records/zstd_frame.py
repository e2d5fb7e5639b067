"""The frames of zstd (RFC 8878), as far as their headers tell: what they hold, and where they end.

    magic (4)  descriptor (1)  window (0 or 1)  dictionary (0 to 4)  content size (0 to 8)
    blocks: header (3: last, type, size), then as many bytes as it says, or one that is repeated
    checksum (0 or 4)

A frame to be passed over is a magic of its own, a length and so many bytes. All is little-endian.
Nothing is decoded here.
"""

from __future__ import annotations

from typing import Final

from engine.errors import CorruptBatch
from engine.records.budget import CHECK_EVERY, DecodeBudget
from engine.types import Buffer

MAGIC: Final = 0xFD2FB528
SKIPPABLE_MAGIC: Final = 0x184D2A50  # to ...5F
BLOCK_MAX_BYTES: Final = 128 * 1024

_SIZE_WIDTHS: Final = (0, 2, 4, 8)
_DICTIONARY_WIDTHS: Final = (0, 1, 2, 4)
_RAW, _RLE, _COMPRESSED = range(3)  # how a block is stored


def content_bound(view: memoryview, budget: DecodeBudget | None = None) -> int:
    """Return how many bytes the frames hold at most, from their frame and block headers alone."""
    bound = position = frames = 0
    try:
        while position < len(view):
            if budget is not None and not frames % CHECK_EVERY:
                budget.check()
            frame_bound, position = _frame_bound(view, position, budget)
            bound += frame_bound
            frames += 1
    except IndexError:
        position = len(view) + 1
    if position != len(view) or not position:
        raise CorruptBatch("zstd payload ends early")
    return bound


class FramePieces:
    """One frame whose bytes are still coming, in pieces of bounded content.

    For a decoder that is to hold no more of it than the window its blocks refer to.
    """

    def __init__(self) -> None:
        self.window_bytes = 0
        """What decoding has to hold of the content; known with the first piece."""
        self.is_skippable = False
        """Whether it is a frame to be passed over; known with the first piece."""
        self.is_over = False
        """Whether the pieces so far are all of it."""
        self.has_begun = False
        """Whether its head, or the length of what is passed over, was there."""
        self._is_last = False  # the latest block
        self._rest_bytes = 0  # behind the last block; of a frame to be passed over, all of it

    def next_in(self, data: Buffer, position: int, content_bytes: int) -> int:
        """Return where in `data` the piece at `position` ends: there, if more has to come first.

        A piece is whole blocks that hold at most `content_bytes`, or one block; or the frame's
        head. Raises `CorruptBatch` if no frame begins there.
        """
        view = memoryview(data)
        try:
            if not self.has_begun:
                position = self._begin(view, position)
        except IndexError:
            return position
        if self.is_skippable:
            end = min(position + self._rest_bytes, len(view))
            self._rest_bytes -= end - position
            self.is_over = not self._rest_bytes
            return end
        end = self._blocks_end(view, position, content_bytes)
        if self._is_last and end + self._rest_bytes <= len(view):
            self.is_over = True
            end += self._rest_bytes
        return end

    def _begin(self, view: memoryview, position: int) -> int:
        """Read the frame's head; return where it ends."""
        end = _skippable_end(view, position)
        if end is not None:
            self._rest_bytes, self.is_skippable = end - position, True
            end = position
        else:
            content_size, end, self._rest_bytes = _blocks_start(view, position)
            self.window_bytes = _window_bytes(view, position, content_size)
        self.has_begun = True
        return end

    def _blocks_end(self, view: memoryview, position: int, content_bytes: int) -> int:
        content = 0
        while not self._is_last:
            try:
                bound, end, is_last = _block(view, position)
            except IndexError:
                break
            if end > len(view) or (content and content + bound > content_bytes):
                break
            content += bound
            position, self._is_last = end, is_last
        return position


def _frame_bound(view: memoryview, position: int, budget: DecodeBudget | None) -> tuple[int, int]:
    """Return the most that the frame at `position` can hold, and where it ends."""
    end = _skippable_end(view, position)
    if end is not None:
        return 0, end
    content_size, start, checksum_bytes = _blocks_start(view, position)
    bound, end = _blocks_bound(view, start, budget)
    return bound if content_size is None else content_size, end + checksum_bytes


def _skippable_end(view: memoryview, position: int) -> int | None:
    """Return where the frame ends if it is one to be passed over."""
    if _little_endian(view, position, 4) & ~0xF != SKIPPABLE_MAGIC:
        return None
    return position + 8 + _little_endian(view, position + 4, 4)


def _blocks_start(view: memoryview, position: int) -> tuple[int | None, int, int]:
    """Return the content size if the frame tells, where its blocks start, and what follows them."""
    magic = _little_endian(view, position, 4)
    position += 4
    if magic != MAGIC:
        raise CorruptBatch(f"zstd frame starts with {magic:#010x}")
    descriptor = view[position]  # an IndexError beyond the end, too
    is_single_segment = descriptor & 0x20
    position += 1 if is_single_segment else 2  # the window descriptor follows, or not
    position += _DICTIONARY_WIDTHS[descriptor & 3]
    width = _SIZE_WIDTHS[descriptor >> 6] or (1 if is_single_segment else 0)
    content_size = _little_endian(view, position, width) + (256 if width == 2 else 0)
    return content_size if width else None, position + width, 4 if descriptor & 4 else 0


def _window_bytes(view: memoryview, position: int, content_size: int | None) -> int:
    """Return the window of the frame at `position`: as its head tells, or all of its content."""
    if view[position + 4] & 0x20:
        assert content_size is not None, "a single segment tells its size, whatever its width"
        return content_size
    window = view[position + 5]
    base = 1 << (10 + (window >> 3))
    return base + (base >> 3) * (window & 7)


def _blocks_bound(view: memoryview, position: int, budget: DecodeBudget | None) -> tuple[int, int]:
    """Return the most that the blocks from `position` on can hold, and where the last one ends."""
    bound = blocks = 0
    is_last = False
    while not is_last:
        block_bound, position, is_last = _block(view, position)
        bound += block_bound
        blocks += 1
        if budget is not None and not blocks % CHECK_EVERY:
            budget.check()
    return bound, position


def _block(view: memoryview, position: int) -> tuple[int, int, bool]:
    """Return the most that a block holds, where it ends, and whether it is the frame's last."""
    header = _little_endian(view, position, 3)
    is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
    if kind > _COMPRESSED:
        raise CorruptBatch("zstd block has a reserved type")
    if size > BLOCK_MAX_BYTES:
        raise CorruptBatch(f"zstd block of {size} bytes is larger than any may be")
    end = position + 3 + (1 if kind == _RLE else size)
    return BLOCK_MAX_BYTES if kind == _COMPRESSED else size, end, is_last


def _little_endian(view: memoryview, position: int, width: int) -> int:
    """Return an unsigned number; raise `IndexError` where the bytes end before it does."""
    if position + width > len(view):
        raise IndexError(position)
    return int.from_bytes(view[position : position + width], "little")
