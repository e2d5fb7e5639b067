"""Finds the root cause in the text of a Spark exception, and whether a restart can help."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# Best first: an error of this package, the deepest cause in Java, the error that Java passed to
# Python, the last error in Python.
_CAUSES: Final = (
    r"^pyspark_tidelog\.errors\.(\w+): (.+)$",
    r"^Caused by: ()(.+)$",
    r"^: ()([\w.$]+: .+)$",
    r"^()[\w.]*(?:Error|Exception): (.+)$",
)

# The same offsets would fail again.
_PERMANENT: Final = frozenset({"OptionError", "DataLossError", "DamagedBatchError", "JobError"})

_TOO_LONG: Final = "File name too long"
_ADVICE: Final = (
    (
        _TOO_LONG,
        (
            "a value of a partition column is too long for the name of a folder: partition by "
            "another column or by an expression, such as NAME=substr(COLUMN, 1, 20), in a new table"
        ),
    ),
    (
        "No space left on device",
        "there is no space left for the lake: free some and run the job again",
    ),
    (
        "Disk quota exceeded",
        "the disk quota of the lake is used up: free some space and run the job again",
    ),
    (
        "Read-only file system",
        "the lake is on a read-only file system: make it writable and run the job again",
    ),
    (
        "Parent path is not a directory",
        "there is a file where the lake needs a folder: move it and run the job again",
    ),
    (
        "Mkdirs failed to create",
        "the lake's folders cannot be created: let the job's user write there and run it again",
    ),
    (
        "Permission denied",
        "the job's user may not write there: change the permissions and run the job again",
    ),
)


class RootCause(NamedTuple):
    """The cause of a failed query."""

    sentence: str
    is_permanent: bool
    """Whether the same job would fail in the same way again."""

    @property
    def is_worker_timeout(self) -> bool:
        """Whether a Python process took more than ten seconds to start.

        No setting of Spark changes that limit, which a busy machine can exceed.
        """
        return "Python worker failed to connect back" in self.sentence


def root_cause(message: str) -> RootCause:
    """Return the root cause in the text of a Spark exception."""
    sentence, kind = _last_error(message)
    for sign, advice in _ADVICE:
        if sign in sentence:
            return RootCause(f"{advice} ({sentence})", is_permanent=sign == _TOO_LONG)
    return RootCause(sentence, is_permanent=kind in _PERMANENT)


def _last_error(message: str) -> tuple[str, str]:
    for pattern in _CAUSES:
        found = [
            error
            for error in re.findall(pattern, message, re.MULTILINE)
            if not error[1].endswith("Traceback (most recent call last):")  # continued below
        ]
        if found:
            kind, sentence = found[-1]
            return sentence.strip(), kind
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return first or "Spark gave no reason", ""
