"""Output of commands: tables and progress for people, one JSON object per line for programs.

Results go to standard output, everything else (progress, notices, errors) to standard error, so
that a pipe gets only the results. Progress bars need a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from app.client.failures import Failure


class Terminal:
    """The output of one command; with `as_json` it is JSON, line by line, on both streams."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._out = Console(highlight=False, soft_wrap=True)
        self._err = Console(stderr=True, highlight=False, soft_wrap=True)

    def result(self, value: dict[str, Any], sentence: str) -> None:
        """Print the outcome: the object for a program, the sentence for a person."""
        if self.as_json:
            self.json(value)
        else:
            self._out.print(_shown(sentence))

    def json(self, value: object) -> None:
        self.raw(_json_line(value))

    def raw(self, data: bytes) -> None:
        """Write bytes unchanged and flush."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print rows under headings; a heading that begins with `>` is of a column of numbers."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in headings:
            table.add_column(
                heading.removeprefix(">"), justify="right" if heading.startswith(">") else "left"
            )
        for row in rows:
            table.add_row(*(escape(printable(cell)) for cell in row))
        self._out.print(table)

    def notice(self, sentence: str) -> None:
        """Print a notice; with `as_json` standard error is JSON lines too."""
        if self.as_json:
            self._report({"notice": sentence})
        else:
            self._err.print(_shown(sentence), style="yellow")

    def plain(self, sentence: str) -> None:
        """Print progress where no bar can be drawn: a line in a log."""
        if not self.as_json and not self._err.is_terminal:
            self._err.print(_shown(sentence))

    def ensure_meant(self, what: str, name: str, *, yes: bool) -> None:
        """Return if what cannot be undone is meant: `yes`, or a person types the name.

        Raises Failure otherwise.
        """
        if yes:
            return
        if self.as_json or not sys.stdin.isatty():
            raise Failure(f"{what}: add --yes if that is meant", exit_code=3)
        self._err.print(_shown(f"{what}. Type {name} to go on: "), style="bold", end="")
        if sys.stdin.readline().strip() != name:
            raise Failure("nothing was changed", exit_code=3)

    def failure(self, failure: Failure) -> None:
        """Print an error and its advice."""
        if self.as_json:
            self._report(failure.for_programs())
            return
        self._err.print(f"[bold red]error:[/] {_shown(str(failure))}")
        if failure.advice:
            self._err.print(_shown(failure.advice))

    def _report(self, value: dict[str, Any]) -> None:
        sys.stderr.write(_json_line(value).decode())

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Iterator[Meter]:
        """Show a bar while the block runs, a running count without a `total`."""
        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            console=self._err,
            transient=True,
            disable=self.as_json or not self._err.is_terminal,
        )
        with bar:
            yield Meter(bar, bar.add_task(what, total=total, rate=""))


class Meter:
    """A count that grows during long work."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task

    def advance(self, count: int) -> None:
        speed = self._bar.tasks[0].speed
        self._bar.update(
            self._task, advance=count, rate=f"{speed:,.0f}/s" if speed is not None else ""
        )

    def say(self, what: str) -> None:
        """Replace the text before the bar."""
        self._bar.update(self._task, description=escape(printable(what)))


def printable(text: str) -> str:
    """Return the text with everything made visible that would steer a terminal or a reader.

    Control characters of both sets (ESC begins a sequence, as U+009B does), line ends, lone
    surrogates, and the marks that turn the direction of text around.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\u3000" else c.encode("unicode_escape").decode() for c in text
    )


def _shown(sentence: str) -> str:
    """Return a sentence of our own, which may have several lines, as markup."""
    return escape("\n".join(map(printable, sentence.split("\n"))))


def _json_line(value: object) -> bytes:
    """Return JSON that is the same to a program, with what is not printable escaped."""
    text = msgspec.json.encode(value).decode()
    if not text.isprintable():
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    return text.encode() + b"\n"
