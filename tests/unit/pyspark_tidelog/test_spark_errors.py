"""The one line of Spark's many."""

from __future__ import annotations

import pytest

from pyspark_tidelog.spark_errors import Words, telling_words

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
    ("message", "words"),
    [
        (OURS, Words("topic t was deleted", is_lasting=True)),
        (
            "pyspark_tidelog.errors.ServiceError: no answer from http://x",
            Words("no answer from http://x", is_lasting=False),
        ),
        (
            "job aborted\nCaused by: a.B: x\nCaused by: java.io.IOException: broken\n\tat x",
            Words("java.io.IOException: broken", is_lasting=False),
        ),
        (OF_PYTHON, Words("the last", is_lasting=False)),
        (
            "Traceback\npy4j.Py4JJavaError: An error occurred\n",
            Words("An error occurred", is_lasting=False),
        ),
        (
            "py4j.protocol.Py4JJavaError: An error occurred\n: a.b.NotThereException: c d\n\tat x",
            Words("a.b.NotThereException: c d", is_lasting=False),
        ),
        ("\n  plain words \n", Words("plain words", is_lasting=False)),
        ("", Words("Spark gave up", is_lasting=False)),
    ],
)
def test_the_best_line_is_told(message: str, words: Words) -> None:
    """Ours if we spoke, else the deepest cause; and whether another try can help."""
    assert telling_words(message) == words


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        ("No space left on device", "there is no space left for the lake: make room"),
        ("Disk quota exceeded", "the quota of the lake's disk is used up"),
        ("Read-only file system", "a file system that can only be read"),
        ("Parent path is not a directory: file:/lake/_writing", "a file lies where the lake needs"),
        ("Mkdirs failed to create file:/lake/_writing", "the lake's folders cannot be made: let"),
        ("/lake/_writing/0 (Permission denied)", "the job's user may not write there: change"),
    ],
)
def test_a_disk_that_refuses_is_told_with_what_to_do(cause: str, advice: str) -> None:
    """Java's words stand behind ours."""
    words = telling_words(f"x\nCaused by: java.io.IOException: {cause}\n\tat y")
    assert words.sentence.startswith(advice) or advice in words.sentence
    assert words.sentence.endswith(f"(java.io.IOException: {cause})")
    assert not words.is_lasting


def test_spark_in_a_hurry_is_told_from_other_failures() -> None:
    """Ten seconds for a Python process are Spark's own idea, and nothing is wrong."""
    message = "x\norg.apache.spark.SparkException: Python worker failed to connect back.\n"
    assert telling_words(message).is_haste
    assert not telling_words("x\nCaused by: a.B: c\n").is_haste
