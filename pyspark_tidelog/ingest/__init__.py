"""The ingestion job (`tidelog ingest`): copies topics into a lake, each offset exactly once."""

from pyspark_tidelog.ingest.runner import run

__all__ = ["run"]
