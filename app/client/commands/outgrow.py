"""`tidelog kafka-bootstrap`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.client.commands.session import JsonOption, terminal_session
from app.client.commands.verify import DefaultsOption, DirectoriesArgument


def kafka_bootstrap(
    *,
    directories: DirectoriesArgument,
    checkpoint: Annotated[
        Path,
        typer.Option(
            "--checkpoint", metavar="FILE", help="bootstrap.checkpoint of the formatted node."
        ),
    ],
    replicas: Annotated[
        str,
        typer.Option(
            "--replicas", metavar="ID,…", help="Node ids of the brokers that get the partitions."
        ),
    ],
    topic_defaults: DefaultsOption = "{}",
    as_json: JsonOption = False,
) -> None:
    """Add all topics to the first metadata of a new Kafka cluster.

    kafka-storage.sh format -t CLUSTER_ID -c server.properties
    tidelog kafka-bootstrap data --checkpoint data/bootstrap.checkpoint --replicas 1,2,3

    The directories are the log.dirs of one node, formatted and not started yet.
    Stop the service first. Copy the checkpoint to all controllers, and start
    the nodes: docs/outgrow.md.
    """
    from app.client.outgrow import (  # noqa: PLC0415 - it loads the engine
        Subject,
        export_to_cluster,
    )

    with terminal_session(as_json=as_json) as terminal:
        subject = Subject(tuple(directories), topic_defaults=topic_defaults)
        export_to_cluster(terminal, subject, checkpoint, replicas)
