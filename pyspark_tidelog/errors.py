"""What can go wrong between Spark and the log, as one tree.

    TidelogError
    ├── OptionError         an option is unknown, missing, malformed or contradicts another
    ├── ServiceError        the service cannot be reached, refuses, or answers what nobody expects
    ├── DataLossError       records that the query still needed are gone
    ├── DamagedBatchError   bytes arrived that are no record batch of a log
    └── JobError            the job's own surroundings do not fit: Java, checkpoint, sink
        └── JobFailed       the streaming query ended with an error

A message is one sentence that says what is wrong and what to do: PySpark shows it to the user as
the last line of a long Java exception. Every error is made from its message alone, because errors
are pickled on their way to the driver.
"""


class TidelogError(Exception):
    """Anything this package refuses to do."""


class OptionError(TidelogError, ValueError):
    """An option is unknown, missing, malformed or contradicts another."""


class ServiceError(TidelogError):
    """The service cannot be reached, refuses, or answers what nobody expects."""


class DataLossError(TidelogError):
    """Records that the query still needed were deleted, truncated or replaced."""


class DamagedBatchError(TidelogError):
    """Bytes arrived that are no record batch of a log; topic, partition and offset are named."""


class JobError(TidelogError):
    """The job's surroundings do not fit: no Java, a checkpoint of another log, a foreign sink."""


class JobFailed(JobError):
    """The streaming query ended with an error; the message is its last and telling line."""

    def __init__(self, message: str, *, is_lasting: bool = False) -> None:
        super().__init__(message)
        self.is_lasting = is_lasting
        """Whether the same job would fail in the same way again."""
