"""The one line of Spark's many."""

from __future__ import annotations

import pytest

from pyspark_tidelog.ingest.runner import RootCause, root_cause

OURS = (
    "[STREAM_FAILED] Query terminated\n"
    "  File reader.py\n"
    "pyspark_tidelog.errors.DataLossError: first\n"
    "Caused by: org.apache.spark.SparkException: x\n"
    "pyspark_tidelog.errors.DataLossError: topic t was deleted\n SQLSTATE: 38000"
)
OF_PYTHON = (
    "Traceback (most recent call last):\n  x\nOSError: first\n"
    "Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    "  File x\nbuiltins.ValueError: the last\n"
)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (OURS, RootCause("topic t was deleted", is_permanent=True)),
        (
            "pyspark_tidelog.errors.ServiceError: no answer from http://x",
            RootCause("no answer from http://x", is_permanent=False),
        ),
        (
            "job aborted\nCaused by: a.B: x\nCaused by: java.io.IOException: broken\n\tat x",
            RootCause("java.io.IOException: broken", is_permanent=False),
        ),
        (OF_PYTHON, RootCause("the last", is_permanent=False)),
        (
            "Traceback\npy4j.Py4JJavaError: An error occurred\n",
            RootCause("An error occurred", is_permanent=False),
        ),
        (
            "py4j.protocol.Py4JJavaError: An error occurred\n: a.b.NotThereException: c d\n\tat x",
            RootCause("a.b.NotThereException: c d", is_permanent=False),
        ),
        ("\n  plain words \n", RootCause("plain words", is_permanent=False)),
        ("", RootCause("Spark gave no reason", is_permanent=False)),
    ],
)
def test_the_best_line_is_told(message: str, cause: RootCause) -> None:
    """Ours if we spoke, else the deepest cause; and whether another try can help."""
    assert root_cause(message) == cause


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        ("No space left on device", "there is no space left for the lake: free some"),
        ("Disk quota exceeded", "the disk quota of the lake is used up"),
        ("Read-only file system", "a read-only file system"),
        ("Parent path is not a directory: file:/lake/_writing", "a file where the lake needs"),
        (
            "Mkdirs failed to create file:/lake/_writing",
            "the lake's folders cannot be created: let",
        ),
        ("/lake/_writing/0 (Permission denied)", "the job's user may not write there: change"),
    ],
)
def test_a_disk_that_refuses_is_told_with_what_to_do(cause: str, advice: str) -> None:
    """Java's message follows ours."""
    words = root_cause(f"x\nCaused by: java.io.IOException: {cause}\n\tat y")
    assert advice in words.sentence
    assert words.sentence.endswith(f"(java.io.IOException: {cause})")
    assert not words.is_permanent


def test_spark_in_a_hurry_is_told_from_other_failures() -> None:
    """Ten seconds for a Python process are Spark's own idea, and nothing is wrong."""
    message = "x\norg.apache.spark.SparkException: Python worker failed to connect back.\n"
    assert root_cause(message).is_worker_timeout
    assert not root_cause("x\nCaused by: a.B: c\n").is_worker_timeout
