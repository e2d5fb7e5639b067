"""The demo, step by step. Each step says what it does, does it, and says what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table as Sheet

from app.client.appender import Appender
from app.client.connection import Connection, JsonObject, Request, topic_path
from app.client.terminal import Terminal
from demo.children import ChildFailed, Server, serve_arguments
from demo.data import Table, a_day_in_2014, load_flights, load_weather
from demo.jobs import Job
from demo.lake import Digest, Lake, digest
from demo.workspace import Workspace

FLIGHTS_TOPIC: Final = "flights"
WEATHER_TOPIC: Final = "weather"
_PARTITIONS: Final = {FLIGHTS_TOPIC: 4, WEATHER_TOPIC: 1}
# The rows are of 2013. Retention goes by record time, as in Kafka, and would drop them at once;
# segments roll by it too, and a year would become fifty of them.
_CONFIG: Final = {"retention.ms": "-1", "segment.ms": "315360000000"}
_PATIENCE_S: Final = 120.0


@dataclass(slots=True)
class Sent:
    """What went into a topic, by the sender's own book-keeping."""

    tables: list[Table] = field(default_factory=list)
    acknowledged: int = 0

    def digest(self) -> Digest:
        return digest(value for table in self.tables for value in table.values())


class Story:
    """One telling: the processes it runs, what was sent, where it prints."""

    def __init__(self, workspace: Workspace, console: Console) -> None:
        self._workspace = workspace
        self._console = console
        self._terminal = Terminal()
        self._sent = {topic: Sent() for topic in _PARTITIONS}
        self._started = time.monotonic()

    def tell(self) -> bool:
        """Run every step; return whether all that was sent is in the log and in the lake, once."""
        flights = load_flights()
        weather = load_weather()
        with self._service() as service, Connection(service.url) as connection:
            self._say(f"the service listens on {service.url}, its log is {self._workspace.data}")
            self._say(f"watch it in a browser: {service.url}/console/")
            for topic, partitions in _PARTITIONS.items():
                self._create(connection, topic, partitions)
            self._append(connection, FLIGHTS_TOPIC, flights)
            self._ingest(service, len(flights))
            self._ingest_what_comes_in(service, connection, weather, a_day_in_2014(flights))
            in_log = sum(_records_in_log(connection, topic) for topic in _PARTITIONS)
        self._show_delays()
        return self._compare(in_log)

    def _service(self) -> Server:
        return Server(
            serve_arguments(self._workspace.data),
            self._workspace.service_output,
            keep_open=(self._workspace.lock,),
        )

    def _create(self, connection: Connection, topic: str, partitions: int) -> None:
        connection.json(
            Request(
                "PUT",
                topic_path(topic),
                headers={"Content-Type": "application/json"},
                content=msgspec.json.encode({"partitions": partitions, "config": _CONFIG}),
            )
        )
        self._say(f"topic {topic} with {partitions} partition(s)")

    def _append(self, connection: Connection, topic: str, table: Table) -> None:
        started = time.monotonic()
        with (
            self._terminal.progress(f"appending to {topic}", len(table)) as meter,
            Appender(connection, topic, on_appended=meter.advance) as appender,
        ):
            for record in table.records():
                appender.add(record)
        seconds = time.monotonic() - started
        sent = self._sent[topic]
        sent.tables.append(table)
        sent.acknowledged += appender.report.records
        self._say(
            f"{len(table):,} records appended to {topic}, flushed to disk before each answer: "
            f"{seconds:.1f} s, {len(table) / seconds:,.0f}/s"
        )

    def _ingest(self, service: Server, expected: int) -> None:
        started = time.monotonic()
        with (
            Job(self._workspace, service.url, _PARTITIONS) as job,
            self._terminal.progress("Spark: the log into Delta", expected) as meter,
        ):
            rows = job.finish(meter.advance, timeout_s=_PATIENCE_S)
        self._say(
            f"Spark put {rows:,} rows into {self._workspace.lake}, its own start included: "
            f"{time.monotonic() - started:.1f} s"
        )

    def _ingest_what_comes_in(
        self, service: Server, connection: Connection, weather: Table, new: Table
    ) -> None:
        """Let the job follow the log, and append while it does."""
        first, second = new.halves()
        with Job(self._workspace, service.url, _PARTITIONS, follow=True) as job:
            self._say("Spark starts again from its checkpoint, to follow the log; meanwhile")
            self._append(connection, WEATHER_TOPIC, weather)
            self._append(connection, FLIGHTS_TOPIC, first)
            rows = job.read_rows(len(weather) + len(first), timeout_s=_PATIENCE_S)
            self._append(connection, FLIGHTS_TOPIC, second)
            appended = time.monotonic()
            rows += job.read_rows(len(second), timeout_s=_PATIENCE_S)
            delay_s = time.monotonic() - appended
        expected = len(weather) + len(new)
        if rows != expected:
            raise ChildFailed(f"{rows:,} rows came in where {expected:,} were new")
        self._say(
            f"{rows:,} rows came in, exactly the new ones: the weather, and the {len(new)} flights "
            f"of 1 January 2013 once more, dated 2014; the last {delay_s:.1f} s after their append"
        )

    def _show_delays(self) -> None:
        sheet = Sheet(title="\nFrom the lake: flights and mean arrival delay", box=None)
        sheet.add_column("carrier")
        sheet.add_column("flights", justify="right")
        sheet.add_column("minutes late", justify="right")
        for delay in self._lake(FLIGHTS_TOPIC).delays_by_carrier():
            minutes = "-" if delay.mean_minutes is None else f"{delay.mean_minutes:.1f}"
            sheet.add_row(delay.carrier, f"{delay.flights:,}", minutes)
        self._console.print(sheet)

    def _compare(self, in_log: int) -> bool:
        """Print the closing line."""
        sent = sum(each.acknowledged for each in self._sent.values())
        coverage = [self._lake(topic).coverage() for topic in self._sent]
        in_lake = sum(each.rows for each in coverage)
        duplicates = sum(each.duplicates for each in coverage)
        is_same = all(
            digest(self._lake(topic).values()) == each.digest()
            for topic, each in self._sent.items()
        )
        is_exact = sent == in_log == in_lake and duplicates == 0 and is_same
        verdict = "[bold green]exactly once[/]" if is_exact else "[bold red]NOT EQUAL[/]"
        self._console.print(
            f"\n{verdict}: rows sent {sent:,}, in the log {in_log:,}, in the lake {in_lake:,}; "
            f"duplicates {duplicates:,}; values {'identical' if is_same else 'DIFFERENT'}"
        )
        return is_exact

    def _lake(self, topic: str) -> Lake:
        return Lake(self._workspace.lake, topic)

    def _say(self, sentence: str) -> None:
        elapsed = time.monotonic() - self._started
        self._console.print(f"[dim]{elapsed:5.1f} s[/]  {sentence}")


def _records_in_log(connection: Connection, topic: str) -> int:
    offsets = connection.json(Request("GET", topic_path(topic, operation="offsets")))
    partitions: list[JsonObject] = offsets["partitions"]
    return sum(int(p["high_watermark"]) - int(p["log_start_offset"]) for p in partitions)
