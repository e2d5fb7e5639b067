"""`tidelog work`: a command for each batch of records, several workers of a group side by side."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer

from app.client.access import with_access
from app.client.commands.session import JsonOption, ServerOption, TopicArgument, session
from app.client.connection import DEFAULT_SERVER
from app.client.failures import Failure
from app.client.work import Batch, Plan, Report, Worker

EXIT_CANNOT_RUN: Final = 127
"""A shell's, for a command that it does not find."""

_GRACE_S: Final = 5.0
"""Between the two signals to a command that is to end: SIGTERM, then SIGKILL."""

_LOOK_S: Final = 0.2
"""How often a running command's partition is looked after."""


class Commands:
    """Runs a command for each batch, its records on standard input, one JSON object a line.

    A command has a session of its own, so that Ctrl-C does not reach it: what it began it finishes.
    """

    def __init__(self, command: Sequence[str], timeout_s: float) -> None:
        self._command = command
        self._timeout_s = timeout_s

    def __call__(self, batch: Batch) -> str | None:
        """Return None if the command ends with 0, else how it ended. For any thread.

        Raises Failure if it cannot be run at all.
        """
        environment = {
            **os.environ,
            "TIDELOG_TOPIC": batch.topic,
            "TIDELOG_GROUP": batch.group,
            "TIDELOG_PARTITION": str(batch.partition),
            "TIDELOG_FIRST_OFFSET": str(batch.first_offset),
            "TIDELOG_LAST_OFFSET": str(batch.last_offset),
            "TIDELOG_ATTEMPT": str(batch.attempt),
        }
        try:
            process = subprocess.Popen(  # noqa: S603  # it is what the caller wants to run
                self._command, stdin=subprocess.PIPE, env=environment, start_new_session=True
            )
        except OSError as error:
            raise Failure(
                f"{self._command[0]} cannot be run: {error.strerror}", EXIT_CANNOT_RUN
            ) from error
        # Its output is the worker's own: whatever it writes, nothing is kept of it here.
        threading.Thread(target=_feed, args=(process, batch.lines), daemon=True).start()
        return self._end_of(process, batch)

    def _end_of(self, process: subprocess.Popen[bytes], batch: Batch) -> str | None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                status = process.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                if not batch.is_wanted():
                    _end(process)
                    return "another worker has the partition"
                if time.monotonic() >= deadline:
                    _end(process)
                    return f"it ran longer than {self._timeout_s:g} s"
            else:
                return None if status == 0 else _described(status)


def _feed(process: subprocess.Popen[bytes], lines: Sequence[bytes]) -> None:
    """Write the lines; a command that does not read them all may be right."""
    assert process.stdin is not None, "it is a pipe"
    with contextlib.suppress(OSError), process.stdin:
        process.stdin.write(b"".join(line + b"\n" for line in lines))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and all that it has started."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what is left of it
    process.wait()


def _described(status: int) -> str:
    if status > 0:
        return f"exit code {status}"
    with contextlib.suppress(ValueError):
        return f"ended by {signal.Signals(-status).name}"
    return f"ended by signal {-status}"


@contextlib.contextmanager
def _stopped_by_signals(worker: Worker) -> Iterator[list[int]]:
    """Stop the worker at the first SIGTERM or SIGINT, and give up what runs at the second.

    Yields the signals that have come.
    """
    seen: list[int] = []

    def on_signal(number: int, _: object) -> None:
        seen.append(number)
        if len(seen) == 1:
            worker.stop()
        else:
            worker.abandon()

    before = {one: signal.signal(one, on_signal) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield seen
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _told(done: Report) -> str:
    records = "1 record" if done.records == 1 else f"{done.records:,} records"
    batches = "1 batch" if done.batches == 1 else f"{done.batches:,} batches"
    dead = f"; {done.dead_letters:,} in the dead-letter topic" if done.dead_letters else ""
    return f"{records} done in {batches}{dead}"


def _new_name() -> str:
    """Return a name that no other worker has: of the machine, the process and chance."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


@with_access
def work(
    *,
    topic: TopicArgument,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND…", help="Command and arguments, after --.")
    ],
    group: Annotated[str, typer.Option("--group", "-g", help="Group that shares the topic.")],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Name of this worker, unique in its group; a worker that is started again under "
            "its name goes on at once. Default: a new one.",
        ),
    ] = None,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, max=256, help="Commands at the same time.")
    ] = 1,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Most records for one command.")
    ] = 100,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds after which a command has failed.")
    ] = 300.0,
    attempts: Annotated[
        int | None,
        typer.Option(
            "--attempts",
            min=1,
            help="Attempts at a batch, and then at each of its records alone. Default: until it "
            "succeeds; 5 with --dead-letter.",
        ),
    ] = None,
    dead_letter: Annotated[
        str | None,
        typer.Option(
            "--dead-letter", help="Topic for records that have failed so often; else it ends."
        ),
    ] = None,
    ttl: Annotated[
        float,
        typer.Option(
            "--ttl", min=1, max=600, help="Seconds until others take over if this worker dies."
        ),
    ] = 30.0,
    once: Annotated[
        bool, typer.Option("--once", help="End when everything that is there is done.")
    ] = False,
    wanted: Annotated[
        str | None,
        typer.Option(
            "--filter",
            "-f",
            help='Only records that match, such as: header.tenant = "7". The others are passed '
            "over, and committed.",
        ),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Run a command for each batch of records, and commit what it has done.

    tidelog work orders --group billing -- ./charge.py
    tidelog work logs --group index --parallel 4 --batch 1000 -- sh -c 'jq .value | ./load'
    tidelog work orders --group billing --dead-letter orders-failed -- ./charge.py

    Workers of one group share the partitions of the topic: start as many as
    you like, on any machine. The records come on standard input, one JSON
    object a line; TIDELOG_PARTITION, TIDELOG_FIRST_OFFSET, TIDELOG_LAST_OFFSET
    and TIDELOG_ATTEMPT say which. When the command ends with 0 the group's
    offset is committed; otherwise the batch is tried again after a pause. Each
    record is handed on at least once, in the order of its partition.

    SIGTERM or Ctrl-C: what runs is finished and committed, then it ends with 0.
    A second one gives up what runs, and ends with 130 or 143.
    """
    plan = Plan(
        topic,
        group,
        _new_name() if name is None else name,
        ttl_ms=int(ttl * 1000),
        parallel=parallel,
        batch_records=batch,
        attempts=5 if attempts is None and dead_letter is not None else attempts,
        dead_letter_topic=dead_letter,
        filter=wanted,
        is_once=once,
    )
    with session(server, as_json=as_json) as (connection, terminal):
        worker = Worker(connection, plan, Commands(command, timeout), say=terminal.notice)
        with _stopped_by_signals(worker) as signals:
            try:
                worker.run()
            finally:
                terminal.notice(_told(worker.report))
        raise typer.Exit(128 + signals[-1] if len(signals) > 1 else 0)
