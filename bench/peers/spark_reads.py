"""One Spark session that reads the same records again and again, and says what that took.

Runs in a process of its own, in an environment that has PySpark and not this project's: whatever
the source, session, sink and stopwatch are the same. The last line of its output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.memory import tree_seconds
from pyspark_tidelog.session import local_conf, local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CORES: Final = 2


@dataclass(frozen=True, slots=True)
class Taken:
    """What one query took."""

    wall_s: float
    spark_s: float
    """On a processor: JVM, Python workers and this process."""
    server_s: float
    """On a processor: the log that was read."""


def main() -> None:
    """Read once cold; then, unless `--runs 0`, once to warm up and as often as asked per sink."""
    arguments = _arguments()
    conf = local_conf(cores=_CORES)
    if arguments.jars:
        jars = sorted(str(jar) for jar in arguments.jars.glob("*.jar"))
        conf["spark.driver.extraClassPath"] = os.pathsep.join(jars)
    options = dict(option.split("=", 1) for option in arguments.option)
    with local_session(conf) as session:

        def load() -> DataFrame:
            return session.read.format(arguments.format).options(**options).load()

        def to_parquet() -> None:
            load().write.mode("overwrite").parquet(str(arguments.lake))

        def to_nowhere() -> None:
            load().write.format("noop").mode("overwrite").save()

        server = arguments.server_pid
        first = _taken(to_nowhere, server)
        if arguments.runs:
            _taken(to_parquet, server)  # the JVM compiles what is hot
            _taken(to_nowhere, server)
        noop = [_taken(to_nowhere, server) for _ in range(arguments.runs)]
        parquet = [_taken(to_parquet, server) for _ in range(arguments.runs)]
    report = {"first": [first], "noop": noop, "parquet": parquet}
    print(json.dumps({name: [asdict(one) for one in runs] for name, runs in report.items()}))


def _taken(query: Callable[[], None], server_pid: int) -> Taken:
    before = (time.perf_counter(), tree_seconds(os.getpid()), tree_seconds(server_pid))
    query()
    after = (time.perf_counter(), tree_seconds(os.getpid()), tree_seconds(server_pid))
    return Taken(*(end - start for start, end in zip(before, after, strict=True)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("format", help="of the source")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--jars", type=Path, help="a folder")
    parser.add_argument("--server-pid", type=int, required=True)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
