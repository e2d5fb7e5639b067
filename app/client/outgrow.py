"""`tidelog kafka-bootstrap`: the command imports this when it runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from app.client.checking import Subject, readable
from app.client.failures import Failure
from app.client.terminal import Terminal
from engine.fs.posix import PosixFileSystem
from engine.tools.cluster_bootstrap import export_topics

__all__ = ["Subject", "export_to_cluster"]


def export_to_cluster(
    terminal: Terminal, subject: Subject, checkpoint: Path, replicas: str
) -> None:
    """Add the topics to the checkpoint, and report how many; Failure if it is refused."""
    try:
        nodes = [int(node) for node in replicas.split(",")]
    except ValueError as error:
        raise Failure(f"--replicas takes node ids, 1,2,3; not {replicas!r}", 3) from error
    with readable(subject):
        exported = export_topics(
            PosixFileSystem(), subject.directories, checkpoint, nodes, subject.config
        )
    told = {"kind": "exported", "checkpoint": str(checkpoint), **asdict(exported)}
    terminal.result(
        told,
        f"{exported.topics} topics with {exported.partitions} partitions added to {checkpoint}; "
        f"producer ids go on from {exported.next_producer_id}",
    )
