"""The one line of Spark's many that tells what went wrong, and whether trying again can help."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# Where in Spark's many words the telling ones are, the best first: an error of ours, the deepest
# cause on Java's side, the error Java gave to Python, the last one on Python's side.
_TELLING: Final = (
    r"^pyspark_tidelog\.errors\.(\w+): (.+)$",
    r"^Caused by: ()(.+)$",
    r"^: ()([\w.$]+: .+)$",
    r"^()[\w.]*(?:Error|Exception): (.+)$",
)

# The same offsets would meet the same obstacle again.
_LASTING: Final = frozenset({"OptionError", "DataLossError", "DamagedBatchError", "JobError"})

_IN_OTHER_WORDS: Final = (
    (
        "No space left on device",
        "there is no space left for the lake: make room and run the job again",
    ),
    (
        "Disk quota exceeded",
        "the quota of the lake's disk is used up: make room and run the job again",
    ),
    (
        "Read-only file system",
        "the lake lies on a file system that can only be read: mend that and run the job again",
    ),
    (
        "Parent path is not a directory",
        "a file lies where the lake needs a folder: move it away and run the job again",
    ),
    (
        "Mkdirs failed to create",
        "the lake's folders cannot be made: let the job's user write there and run the job again",
    ),
    (
        "Permission denied",
        "the job's user may not write there: change that and run the job again",
    ),
)


class Words(NamedTuple):
    """What to tell the user."""

    sentence: str
    is_lasting: bool
    """Whether running the same job again would end the same way."""

    @property
    def is_haste(self) -> bool:
        """Whether Spark did not wait: it gives a Python process ten seconds to start.

        No setting changes that, and on a machine that is busy they can be too few.
        """
        return "Python worker failed to connect back" in self.sentence


def telling_words(message: str) -> Words:
    """Return what matters of a Spark exception's text."""
    sentence, kind = _last_words(message)
    for sign, other in _IN_OTHER_WORDS:
        if sign in sentence:
            return Words(f"{other} ({sentence})", is_lasting=False)
    return Words(sentence, is_lasting=kind in _LASTING)


def _last_words(message: str) -> tuple[str, str]:
    for pattern in _TELLING:
        found = [
            words
            for words in re.findall(pattern, message, re.MULTILINE)
            if not words[1].endswith("Traceback (most recent call last):")  # it goes on below
        ]
        if found:
            kind, sentence = found[-1]
            return sentence.strip(), kind
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return first or "Spark gave up", ""
