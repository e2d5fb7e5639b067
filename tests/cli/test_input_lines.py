"""Standard input as lines: none is changed, and none waits for the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client.commands import append
from app.client.commands.append import arriving_lines
from app.client.failures import BadInput


@contextmanager
def pipe() -> Iterator[tuple[int, Callable[[bytes], object], Callable[[], None]]]:
    """Yield the end to read, and functions that write to the other end and close it."""
    reading, writing = os.pipe()

    def close() -> None:
        with suppress(OSError):
            os.close(writing)

    try:
        yield reading, lambda data: os.write(writing, data), close
    finally:
        close()
        os.close(reading)


def ignore() -> None:
    """Do nothing when a line has waited long enough."""


@given(st.lists(st.sampled_from([b"a", b"\n", b"bc\n", b"e\r\n"])), st.integers(1, 9))
def test_lines_do_not_depend_on_how_they_arrive(pieces: list[bytes], read_bytes: int) -> None:
    """Whatever the pipe delivers at once, the lines are those of the whole."""
    content = b"".join(pieces)
    with pipe() as (reading, write, close), pytest.MonkeyPatch.context() as patch:
        patch.setattr(append, "_READ_BYTES", read_bytes)
        write(content)
        close()
        lines = list(arriving_lines(reading, on_linger=ignore))
    whole = content.split(b"\n")
    assert lines == (whole if whole[-1] else whole[:-1])


def test_a_line_is_there_before_the_next_one_arrives() -> None:
    """A pipe that stays open holds nothing back, and the pause is reported."""
    with pipe() as (reading, write, close):
        pauses = []

        def on_linger() -> None:
            pauses.append("pause")
            write(b"second\nunfinished") if len(pauses) == 1 else close()

        write(b"first\n")
        lines = arriving_lines(reading, on_linger=on_linger)
        assert next(lines) == b"first"
        assert pauses == []
        assert next(lines) == b"second"
        assert list(lines) == [b"unfinished"]
        assert len(pauses) == 2


def test_input_without_a_pause_is_interrupted_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that never stop do not keep those of a quiet partition waiting."""
    monkeypatch.setattr(append, "LINGER_S", 0.0)
    with pipe() as (reading, write, _close):
        write(b"always readable\n")

        class Due(Exception):
            """Raised instead of sending."""

        def on_linger() -> None:
            raise Due

        with pytest.raises(Due):
            list(arriving_lines(reading, on_linger=on_linger))


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit counts the bytes of one line, and the error names it."""
    monkeypatch.setattr(append, "MAX_LINE_BYTES", 10)
    with pipe() as (reading, write, _close):
        write(b"ok\n0123456789a")
        lines = arriving_lines(reading, on_linger=ignore)
        assert next(lines) == b"ok"
        with pytest.raises(BadInput, match="line 2: it is longer than 10 bytes"):
            next(lines)
