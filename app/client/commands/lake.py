"""`tidelog lake verify` and `tidelog lake compact`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
import typer

from app.client.commands.session import (
    EXIT_REFUSED,
    JsonOption,
    ServerOption,
    require_spark_source,
    terminal_session,
)
from app.client.connection import DEFAULT_SERVER
from app.client.failures import Failure

if TYPE_CHECKING:
    from pyspark_tidelog.lake.verifier import Verdict

lake = typer.Typer(
    name="lake",
    help="Verify and compact lakes that `ingest` has written.",
    no_args_is_help=True,
    add_completion=False,
)

LakeArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="PATH", help="The path of --to, without parquet: or the like.")
]


@lake.command("verify")
def verify_lake(
    *,
    path: LakeArgument,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="The job's checkpoint: all that it has committed must be there."),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Compare a lake with its log: each offset once, with the same contents.

    tidelog lake verify lake --checkpoint lake.state

    Without the checkpoint, every offset between the first and the last in the
    lake must be there. Rows that retention has deleted from the log are
    counted, not compared. The exit code is 0 if both agree, 3 if they differ,
    1 if they cannot be compared.
    """
    require_spark_source(as_json=as_json)
    from pyspark_tidelog.errors import TidelogError  # noqa: PLC0415 - it loads Spark
    from pyspark_tidelog.lake.lake import Lake  # noqa: PLC0415 - the same

    with terminal_session(as_json=as_json) as terminal:
        try:
            verdict = Lake(path).verify({"url": server}, checkpoint=checkpoint)
        except TidelogError as error:
            raise Failure(str(error)) from error
        found = msgspec.to_builtins(verdict)
        found["first"] = None if verdict.first is None else verdict.first.sentence
        terminal.result({"is_same": verdict.is_same, **found}, _sentence(verdict))
    if not verdict.is_same:
        raise typer.Exit(EXIT_REFUSED)


@lake.command("compact")
def compact_lake(
    *,
    path: LakeArgument,
    target_mb: Annotated[int, typer.Option(min=1, help="Target size of a file.")] = 128,
    vacuum_hours: Annotated[
        int | None,
        typer.Option(min=0, help="Delta: remove files that have been unused for this long."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Merge the small files of a lake.

    tidelog lake compact lake
    tidelog lake compact lake --vacuum-hours 168

    Readers and the job can run meanwhile. In Parquet and JSON lakes the newest
    thousand micro-batches are merged only while no job runs.
    """
    require_spark_source(as_json=as_json)
    from pyspark_tidelog.errors import TidelogError  # noqa: PLC0415 - it loads Spark
    from pyspark_tidelog.lake.lake import Lake  # noqa: PLC0415 - the same

    with terminal_session(as_json=as_json) as terminal:
        try:
            done = Lake(path).compact(target_bytes=target_mb << 20, vacuum_hours=vacuum_hours)
        except TidelogError as error:
            raise Failure(str(error)) from error
        terminal.result(
            msgspec.to_builtins(done), f"{done.files_before} files became {done.files_after}"
        )


def _sentence(verdict: Verdict) -> str:
    counts = [f"{verdict.rows:,} records in lake and log are equal"]
    for count, what in (
        (verdict.quarantined, "of these in quarantine"),
        (verdict.missing, "missing"),
        (verdict.repeated, "repeated"),
        (verdict.different, "different"),
        (verdict.unknown, "unknown to the log"),
        (verdict.behind, "not yet in the lake"),
        (verdict.gone, "gone from the log"),
    ):
        if count:
            counts.append(f"{count:,} {what}")
    first = "" if verdict.first is None else f"; the first: {verdict.first.sentence}"
    return ", ".join(counts) + first
