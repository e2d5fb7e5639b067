"""Strimzi's HTTP bridge for Kafka, where somebody has built it: its jars are not published.

Check out `strimzi/strimzi-kafka-bridge` at the tag 0.33.1, the last for Java 17. Remove the
dependencies on `io.strimzi` from its POM, which the bridge needs for OAuth only. Then build it:

    mvn -DskipTests package dependency:copy-dependencies -DoutputDirectory=target/jars

and copy `target/jars/*.jar` and `target/kafka-bridge-0.33.1.jar` into `build/peers/strimzi-bridge`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bench.peers.packages import CACHE, class_path
from bench.peers.program import Program, free_ports
from pyspark_tidelog.java import find_java

JARS: Final = CACHE / "strimzi-bridge"
NAME: Final = "Strimzi's HTTP bridge 0.33.1"
CONTENT_TYPE: Final = "application/vnd.kafka.json.v2+json"

_MAIN: Final = "io.strimzi.kafka.bridge.Application"
_PROPERTIES: Final = """\
bridge.id=bench
kafka.bootstrap.servers={bootstrap}
kafka.producer.acks=all
http.host=127.0.0.1
http.port={port}
http.consumer.enabled=false
"""
_LOGGING: Final = """\
appender.out.type=Console
appender.out.name=out
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
"""


def is_built() -> bool:
    """Whether the jars are where `bridge` looks for them."""
    return any(JARS.glob("kafka-bridge-*.jar"))


def bridge(bootstrap: str, folder: Path) -> Program:
    """Return the bridge before a cluster, not started; it logs warnings only, and acks=all."""
    (port,) = free_ports(1)
    properties, logging = folder / "bridge.properties", folder / "bridge.log4j2.properties"
    properties.write_text(_PROPERTIES.format(bootstrap=bootstrap, port=port))
    logging.write_text(_LOGGING)
    java = str(find_java(os.environ).path / "bin" / "java")
    options = ["-Xmx1g", f"-Dlog4j2.configurationFile={logging}"]
    command = [java, *options, "-cp", class_path(JARS.absolute()), _MAIN]
    command.append(f"--config-file={properties}")
    return Program(command, folder / "bridge.txt", f"http://127.0.0.1:{port}")
