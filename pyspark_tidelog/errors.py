"""The errors of this package.

A message is one sentence that says what is wrong and what to do, because PySpark shows it as the
last line of a long Java exception. Errors are pickled to the driver, so each is created from its
message alone.
"""


class TidelogError(Exception):
    """The base of all errors here."""


class OptionError(TidelogError, ValueError):
    """An option is unknown, missing, malformed or contradicts another."""


class ServiceError(TidelogError):
    """The service cannot be reached, refuses a request, or sends an unexpected answer."""


class RefusedError(ServiceError):
    """The service refuses the request, and would again: credentials, a certificate, a limit."""


class DataLossError(TidelogError):
    """Records that the query still needs were deleted, truncated or replaced."""


class DamagedBatchError(TidelogError):
    """An answer is not a sequence of record batches; names topic, partition and offset."""


class JobError(TidelogError):
    """The job cannot run here: no Java, a checkpoint of another log, another job's lake."""


class JobFailed(JobError):
    """The streaming query failed; the message is the root cause."""

    def __init__(self, message: str, *, is_permanent: bool = False) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent
        """Whether the same job would fail in the same way again."""
