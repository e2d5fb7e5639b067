"""The consequences of one failure of the disk."""

import errno
from pathlib import Path

import pytest

from engine.errors import Overloaded, StorageFull, StorageOffline
from engine.fs.health import DirectoryHealth
from engine.metrics import NullRecorder

DIRECTORY = Path("/data")


class CountingRecorder(NullRecorder):
    def __init__(self) -> None:
        self.offline: list[str] = []

    def directory_offline(self, directory: str) -> None:
        self.offline.append(directory)


@pytest.fixture
def health() -> DirectoryHealth:
    return DirectoryHealth(DIRECTORY)


def os_error(number: int) -> OSError:
    return OSError(number, "the disk said no")


def test_healthy_directory_lets_everything_through(health: DirectoryHealth) -> None:
    """Without a failure the guards do nothing, and other errors pass through them unchanged."""
    for guard in (health.writing, health.appending, health.reading):
        with guard:
            health.ensure_online()
            health.ensure_readable()
        with pytest.raises(KeyError), guard:
            raise KeyError
    assert (health.is_offline, health.cause) == (False, None)


def test_failed_write_takes_the_directory_offline_for_good(health: DirectoryHealth) -> None:
    """After the first failed write every further one is refused before it reaches the disk."""
    failure = os_error(errno.EIO)
    with pytest.raises(StorageOffline, match="the disk said no"), health.writing:
        raise failure
    assert health.cause is failure
    for guard in (health.writing, health.appending):
        with pytest.raises(StorageOffline, match="offline until restart"), guard:
            pytest.fail("the block must not run")
    with pytest.raises(StorageOffline) as refused:
        health.ensure_online()
    assert refused.value.facts() == {"directory": "/data"}


def test_a_sync_beside_a_failed_one_commits_nothing(health: DirectoryHealth) -> None:
    """It succeeds after the kernel has dropped the other's pages, which may be its own too."""
    with pytest.raises(StorageOffline, match="the disk said no"), health.syncing:
        health.fail(os_error(errno.EIO))


def test_reads_go_on_until_one_fails(health: DirectoryHealth) -> None:
    """A failed write does not stop reads; a failed read stops both."""
    with pytest.raises(StorageOffline), health.writing:
        raise os_error(errno.EIO)
    with health.reading:
        health.ensure_readable()
    with pytest.raises(StorageOffline), health.reading:
        raise os_error(errno.EIO)
    with pytest.raises(StorageOffline), health.reading:
        pytest.fail("the block must not run")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_refuses_an_append_and_stays_online(health: DirectoryHealth, number: int) -> None:
    """An append without space wrote nothing, so the next one may try again."""
    with pytest.raises(StorageFull, match="no space left") as refused, health.appending:
        raise os_error(number)
    assert refused.value.facts() == {"directory": "/data"}
    assert not health.is_offline


def test_a_file_at_its_largest_size_is_not_a_failed_disk(health: DirectoryHealth) -> None:
    """`ulimit -f` refuses the appends of one log; the others go on."""
    with pytest.raises(StorageFull, match=r"ulimit -f.*lower segment\.bytes"), health.appending:
        raise OSError(errno.EFBIG, "File too large", "/data/events-0/x.log")
    assert not health.is_offline


@pytest.mark.parametrize(
    ("number", "limit"),
    [
        (errno.EMFILE, "open_files"),
        (errno.ENFILE, "open_files"),
        (errno.ENOMEM, "memory"),
        (errno.EAGAIN, "system_calls"),
        (errno.EINTR, "system_calls"),
    ],
)
def test_what_passes_is_no_fault_of_the_disk(
    health: DirectoryHealth, number: int, limit: str
) -> None:
    """A roll or a read that finds no file or memory is refused; the directory stays online."""
    for guard in (health.appending, health.trying, health.reading):
        with pytest.raises(Overloaded) as refused, guard:
            raise os_error(number)
        assert refused.value.facts() == {"limit": limit}
    assert not health.is_offline
    health.ensure_readable()


def test_full_disk_during_other_writes_takes_the_directory_offline(health: DirectoryHealth) -> None:
    """After a sync or rename without space the state is unknown, as after a failing append."""
    with pytest.raises(StorageOffline), health.writing:
        raise os_error(errno.ENOSPC)
    other = DirectoryHealth(DIRECTORY)
    with pytest.raises(StorageOffline), other.appending:
        raise os_error(errno.EIO)


def test_first_failure_is_the_cause_and_is_counted_once() -> None:
    """What fails later follows from the first failure, which is what gets reported."""
    recorder = CountingRecorder()
    health = DirectoryHealth(DIRECTORY, recorder)
    first = os_error(errno.EIO)
    assert "the disk said no" in str(health.fail(first))
    assert "the disk said no" in str(health.fail(OSError(errno.EBADF, "something else")))
    assert (health.cause, recorder.offline) == (first, ["/data"])


class Lock:
    """A lock of a directory that can be lost; counts how often it is looked at."""

    def __init__(self) -> None:
        self.is_lost = False
        self.looks = 0

    def ensure_held(self) -> None:
        self.looks += 1
        if self.is_lost:
            raise os_error(errno.ESTALE)

    def release(self) -> None:
        """Not used in these tests."""


def test_a_lost_lock_takes_the_directory_offline(health: DirectoryHealth) -> None:
    """It is checked before and after writes, and once lost stays lost."""
    lock = Lock()
    health.watch(lock)
    with health.writing:
        pass
    with health.appending:
        pass  # too hot for its own check: appends call `ensure_taking`
    assert lock.looks == 2
    with pytest.raises(StorageOffline, match="the disk said no"), health.writing:
        lock.is_lost = True
    for guard in (health.writing, health.appending):
        with pytest.raises(StorageOffline), guard:
            pytest.fail("the block must not run")
    other = DirectoryHealth(DIRECTORY)
    other.watch(lock)
    with pytest.raises(StorageOffline), other.writing:
        pytest.fail("the block must not run")


def test_what_may_stay_half_done_is_not_begun_without_the_lock(health: DirectoryHealth) -> None:
    """The lock is checked before, because the files may belong to another owner.

    Errors are raised.
    """
    lock = Lock()
    health.watch(lock)
    with pytest.raises(StorageFull), health.trying:
        raise os_error(errno.ENOSPC)
    assert (lock.looks, health.is_offline) == (1, False)
    lock.is_lost = True
    with pytest.raises(StorageOffline, match="the disk said no"), health.trying:
        pytest.fail("the block must not run")
    other = DirectoryHealth(DIRECTORY)
    with pytest.raises(StorageOffline), other.trying:
        raise os_error(errno.EIO)


def test_a_released_lock_is_none_that_could_be_lost(health: DirectoryHealth) -> None:
    """Afterwards nothing is looked at any more."""
    lock = Lock()
    lock.is_lost = True
    health.watch(lock)
    health.watch(None)
    with health.writing:
        health.ensure_held()
    assert lock.looks == 0


def test_each_sync_checks_the_lock_afterwards(health: DirectoryHealth) -> None:
    """Nothing counts as synced if it was lost by then; errors are raised as for writes."""
    lock = Lock()
    health.watch(lock)
    with health.syncing:
        assert lock.looks == 0
    assert lock.looks == 1
    with pytest.raises(StorageOffline, match="the disk said no"), health.syncing:
        lock.is_lost = True
    with pytest.raises(StorageOffline), health.syncing:
        pytest.fail("the block must not run")


def test_appends_check_the_lock_once_a_second(health: DirectoryHealth) -> None:
    """After a second without a look, or if the clock went back, it is looked at again."""
    lock = Lock()
    health.watch(lock)
    for now_ms in (10_000, 10_001, 10_999, 11_000, 11_500, 10_900):
        health.ensure_taking(now_ms)
    assert lock.looks == 3
    lock.is_lost = True
    for now_ms in (11_500, 11_800):
        health.ensure_taking(now_ms)
    for _ in range(2):
        with pytest.raises(StorageOffline):
            health.ensure_taking(12_000)
    assert lock.looks == 4
