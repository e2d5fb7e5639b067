"""A lease of a folder in an object store: held by one process, and lost by one that was paused."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue

import pytest

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.tables.leases import HOLDER_NAME, Holder, Lease, LeaseTimes, leased
from pyspark_tidelog.tables.storage import Storage
from tests.support.object_stores import FAULTS, Faults, ObjectStore, bucket_at, moto

SHORT = LeaseTimes(expiry_s=0.2, renewal_s=0.05, look_s=0.01)
NEVER_RENEWED = LeaseTimes(expiry_s=0.05, renewal_s=3600, look_s=0.01)


@pytest.fixture
def storage(bucket: ObjectStore) -> Storage:
    return Storage.at(f"{bucket.url}/checkpoint")


def holder_in(storage: Storage) -> Holder:
    data = storage.load(HOLDER_NAME)
    assert data is not None
    return Holder.parse(data, "")


def test_a_second_process_is_refused_and_the_next_run_has_a_higher_number(
    storage: Storage,
) -> None:
    """As soon as it sees a renewal; the sentence names host, process and time."""
    with leased(storage, SHORT) as lease:
        assert lease.run == 1
        with pytest.raises(
            JobError, match=r"running on s3://.*/checkpoint: process \d+ on .*, since .* UTC"
        ):
            Lease(storage, replace(SHORT, expiry_s=60))
        lease.ensure_held()
    assert holder_in(storage).is_released
    with leased(storage) as after:
        assert after.run == 2


def test_of_many_that_start_at_once_one_gets_the_lease(storage: Storage) -> None:
    """All have found it free; the store takes one put."""
    results: SimpleQueue[int | str] = SimpleQueue()
    ready = threading.Barrier(6)

    def start() -> None:
        ready.wait()
        try:
            results.put(Lease(storage, SHORT).run)
        except JobError as error:
            results.put(str(error))

    # Those that are late find a lease without renewals, and may take it in their turn: each
    # number of a run is given once.
    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs = [found for found in (results.get() for _ in range(6)) if isinstance(found, int)]
    assert sorted(runs) == [*range(1, len(runs) + 1)]


def test_a_process_that_was_paused_learns_that_it_was_replaced(storage: Storage) -> None:
    """It renews before it writes on, and finds another holder; it does not take the lease back."""
    paused = Lease(storage, NEVER_RENEWED)
    with leased(storage, SHORT) as other:
        assert other.run == 2
        for _ in range(2):
            with pytest.raises(JobError, match=r"0\.05 seconds, and s3://.* taken over by process"):
                paused.ensure_held()
        paused.release()
        other.ensure_held()
        assert holder_in(storage).token == other.token


def test_a_process_that_was_paused_and_not_replaced_goes_on(storage: Storage) -> None:
    """It renews its lease first."""
    paused = Lease(storage, NEVER_RENEWED)
    threading.Event().wait(0.1)
    paused.ensure_held()
    assert holder_in(storage).renewals == 1


def test_a_dead_process_of_this_machine_is_replaced_at_once(storage: Storage) -> None:
    """A job that was killed starts again without a wait; one of another machine may live."""
    dead = replace(Holder.after(None), pid=4194305, run=7)
    storage.replace(HOLDER_NAME, dead.encode())
    assert Lease(storage, LeaseTimes(expiry_s=3600)).run == 8
    elsewhere = replace(dead, machine="elsewhere")
    assert (dead.is_gone, elsewhere.is_gone) == (True, False)
    assert not replace(Holder.after(None), pid=1).is_gone


def test_who_is_waited_for_is_told(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the longest that it may take."""
    with leased(storage, NEVER_RENEWED):
        Lease(storage, SHORT)
    (said,) = [one for one in caplog.messages if "held by" in one]
    assert re.search(r"/checkpoint is held by process \d+ on .*: waiting up to 0.2 s", said)


def test_a_holder_that_ends_while_another_waits_is_followed(storage: Storage) -> None:
    """A restart overlaps with the end of the old process."""
    first = Lease(storage, NEVER_RENEWED)
    timer = threading.Timer(0.05, first.release)
    timer.start()
    assert Lease(storage, replace(SHORT, expiry_s=3600)).run == 2
    timer.join()


def test_a_renewal_whose_answer_was_lost_is_the_holders_own(storage: Storage) -> None:
    """The document in the store has its token; the lease goes on from there."""
    lease = Lease(storage, NEVER_RENEWED)
    storage.replace(HOLDER_NAME, replace(holder_in(storage), renewals=1).encode())
    threading.Event().wait(0.1)
    lease.ensure_held()
    assert not holder_in(storage).is_released
    lease.release()
    assert holder_in(storage).is_released


def test_a_store_in_trouble_keeps_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third request is refused, cut, not answered, or loses its answer; then all are."""
    faults = Faults()
    with moto(faults) as endpoint:
        bucket = bucket_at(endpoint)
        for name, value in {**bucket.environment, "AWS_TIMEOUT": "500ms"}.items():
            monkeypatch.setenv(name, value)
        storage = Storage.at(f"{bucket.url}/checkpoint")
        faults.every = 3
        runs = [0]
        while min(faults.happened[fault] for fault in FAULTS) < 2:
            with suppress(JobFailed):
                lease = Lease(storage, NEVER_RENEWED)
                runs.append(lease.run)
                threading.Event().wait(0.06)
                lease.ensure_held()
                lease.release()
        assert runs == sorted({*runs})
    lease._storage = replace(  # noqa: SLF001 -- as if the store were gone now
        storage, environment={**storage.environment, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    )
    threading.Event().wait(0.06)
    with pytest.raises(JobFailed, match=r"s3://.*/checkpoint cannot be"):
        lease.ensure_held()
