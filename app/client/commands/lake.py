"""`tidelog lake verify`, `tidelog lake compact` and `tidelog lake vacuum`."""

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
    help="Verify, compact and vacuum lakes that `ingest` has written.",
    no_args_is_help=True,
    add_completion=False,
)

LakeArgument: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="The value of --to, or the folder of a local table."),
]


@lake.command("verify")
def verify_lake(
    *,
    table: LakeArgument,
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
            verdict = Lake(table).verify({"url": server}, checkpoint=checkpoint)
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
    table: LakeArgument,
    target_mb: Annotated[int, typer.Option(min=1, help="Target size of a file.")] = 128,
    as_json: JsonOption = False,
) -> None:
    """Merge the small files of a lake.

    tidelog lake compact lake
    tidelog lake compact delta:s3://bucket/clicks

    Readers and the job can run meanwhile. In Parquet and JSON lakes the newest
    thousand micro-batches are merged only while no job runs.
    """
    require_spark_source(as_json=as_json)
    from pyspark_tidelog.errors import TidelogError  # noqa: PLC0415 - it loads Spark
    from pyspark_tidelog.lake.lake import Lake  # noqa: PLC0415 - the same

    with terminal_session(as_json=as_json) as terminal:
        try:
            done = Lake(table).compact(target_bytes=target_mb << 20)
        except TidelogError as error:
            raise Failure(str(error)) from error
        terminal.result(
            msgspec.to_builtins(done), f"{done.files_before} files became {done.files_after}"
        )


@lake.command("vacuum")
def vacuum_lake(
    *,
    table: LakeArgument,
    hours: Annotated[
        int, typer.Option(min=1, help="Delta: keep files that were in use in these hours.")
    ] = 168,
    as_json: JsonOption = False,
) -> None:
    """Remove files that no reader needs any more.

    tidelog lake vacuum delta:s3://bucket/clicks --hours 168

    In Delta tables these are the files that compactions replaced, and those
    of micro-batches that were killed. Readers of a version older than the
    hours fail. In Parquet and JSON lakes only what killed jobs and
    compactions left is removed.
    """
    require_spark_source(as_json=as_json)
    from pyspark_tidelog.errors import TidelogError  # noqa: PLC0415 - it loads Spark
    from pyspark_tidelog.lake.lake import Lake  # noqa: PLC0415 - the same

    with terminal_session(as_json=as_json) as terminal:
        try:
            removed = Lake(table).vacuum(hours=hours)
        except TidelogError as error:
            raise Failure(str(error)) from error
        terminal.result({"files_removed": removed}, f"{removed} unused files were removed")


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
