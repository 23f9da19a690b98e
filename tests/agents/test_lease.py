"""The lease by which one of several masters leads: taken, renewed, lost, and what is written without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from elastream.agents.lease import HeldLease, Lease, LeaseError
from elastream.agents.sqlite_lease import SqliteLease
from elastream.manager.state import ManagerState
from elastream.manager.store import Store, StoreError
from tests.patience import wait_until

LONG_S = 600.0
SHORT_S = 10.0
OFTEN_S = 0.2  # its holder renews it every 50 ms, by the wall clock


class Clock:
    """The host's clock since boot, which passes when a test lets it."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def another(tmp_path: Path, clock: Clock) -> Iterator[Callable[[], SqliteLease]]:
    """One more process's view of the lease; locks on files exclude each other within a process, too."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(SqliteLease(tmp_path / "master.db", clock)))


def test_one_holds_it_and_the_others_wait(another: Callable[[], SqliteLease]) -> None:
    first, second = another(), another()
    assert first.take("first", lasts_s=LONG_S) == Lease(term=1, holder="first")
    assert second.take("second", lasts_s=LONG_S) is None
    assert second.holder() == "first"


def test_whoever_gives_it_back_need_not_be_waited_for(another: Callable[[], SqliteLease]) -> None:
    first, second = another(), another()
    lease = first.take("first", lasts_s=LONG_S)
    assert lease is not None
    first.release(lease)
    assert second.holder() == ""
    assert second.take("second", lasts_s=LONG_S) == Lease(term=2, holder="second")


def test_nor_need_one_that_died(tmp_path: Path, clock: Clock, another: Callable[[], SqliteLease]) -> None:
    with closing(SqliteLease(tmp_path / "master.db", clock)) as dies:
        assert dies.take("dies", lasts_s=LONG_S) is not None
    assert another().take("next", lasts_s=LONG_S) == Lease(term=2, holder="next")


def test_one_that_hangs_loses_it_when_it_ends(another: Callable[[], SqliteLease], clock: Clock) -> None:
    hangs, second, third = another(), another(), another()
    lease = hangs.take("hangs", lasts_s=SHORT_S)
    assert lease is not None
    clock.now_s += SHORT_S - 0.1
    assert second.take("second", lasts_s=LONG_S) is None, "it has not ended yet"
    clock.now_s += 0.1
    assert second.take("second", lasts_s=LONG_S) == Lease(term=2, holder="second")
    assert not hangs.renew(lease, lasts_s=LONG_S)
    assert third.take("third", lasts_s=LONG_S) is None
    hangs.stand_back()
    assert third.take("third", lasts_s=LONG_S) is None, "that the hung one let go says nothing of the second"


def test_a_lease_of_before_the_machine_was_started_is_over_and_of_another_host_it_is_not(
    tmp_path: Path, clock: Clock, another: Callable[[], SqliteLease]
) -> None:
    """Masters of two hosts with one folder took the lease from each other with every look."""
    second = another()
    with closing(SqliteLease(tmp_path / "master.db", clock)) as first:
        first.boot = "another one"
        assert first.take("first", lasts_s=LONG_S) is not None
        assert second.take("second", lasts_s=LONG_S) is None, "it is there, whatever its clock says"
    assert second.take("second", lasts_s=LONG_S) is not None


def test_what_is_written_without_the_lease_is_refused(
    tmp_path: Path, another: Callable[[], SqliteLease], clock: Clock
) -> None:
    old, new = another(), another()
    lease = old.take("old", lasts_s=SHORT_S)
    assert lease is not None
    with Store(tmp_path / "master.db", fence=lambda db: old.fence(db, lease)) as store:
        store.save(ManagerState(decisions=1))
        clock.now_s += SHORT_S + 1
        store.save(ManagerState(decisions=2))  # late, but nobody else has taken it
        assert new.take("new", lasts_s=LONG_S) is not None
        with pytest.raises(StoreError, match="fenced: this master has term 1 of the lease, and the term is 2 now"):
            store.save(ManagerState(decisions=3))
        assert store.load() == ManagerState(decisions=2)


def test_a_store_that_goes_away_ends_the_lease_and_says_so(
    tmp_path: Path, another: Callable[[], SqliteLease], clock: Clock
) -> None:
    leases = another()
    lease = leases.take("one", lasts_s=OFTEN_S)
    assert lease is not None
    with HeldLease(leases, lease, lasts_s=OFTEN_S, steady=clock) as held:
        (tmp_path / "master.db").rename(tmp_path / "elsewhere.db")
        wait_until(lambda: "gone" in held.why_not, "what is wrong")
        assert held.is_held, "it may come back before the lease ends"
        clock.now_s += OFTEN_S
        assert not held.is_held
        with pytest.raises(LeaseError, match=r"leads no longer \(term 1\): .*the lease is gone: No such file"):
            held.check()
        with pytest.raises(LeaseError, match="the lease is gone"):
            leases.take("one", lasts_s=OFTEN_S)
    assert not (tmp_path / "master.db").exists(), "nobody made a new one in its place"


def test_so_does_one_that_was_replaced_by_another_file(
    tmp_path: Path, another: Callable[[], SqliteLease], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Who has the old file open would lead beside whoever takes the new one; then it may take it, too."""
    old = another()
    lease = old.take("old", lasts_s=LONG_S)
    assert lease is not None
    (tmp_path / "master.db").rename(tmp_path / "elsewhere.db")
    with closing(SqliteLease(tmp_path / "master.db", clock)) as new:
        with pytest.raises(LeaseError, match="the lease was replaced by another file"):
            old.renew(lease, lasts_s=LONG_S)
        old.stand_back()
        assert new.take("new", lasts_s=LONG_S) == Lease(term=1, holder="new")
        assert old.take("old", lasts_s=LONG_S) is None
    assert old.take("old", lasts_s=LONG_S) == Lease(term=2, holder="old"), "the new one has died"
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "is another file than before, and so is what is remembered there"
    ]


def test_nobody_is_taken_for_dead_whose_lock_was_deleted(
    tmp_path: Path, another: Callable[[], SqliteLease], clock: Clock
) -> None:
    """As by what tidies up old files: each of two masters then took the other for dead, again and again."""
    leads = another()
    lease = leads.take("leads", lasts_s=SHORT_S)
    assert lease is not None
    (tmp_path / "lock").unlink()
    second = another()
    assert second.take("second", lasts_s=SHORT_S) is None
    assert leads.renew(lease, lasts_s=SHORT_S)
    assert second.take("second", lasts_s=SHORT_S) is None
    with closing(SqliteLease(tmp_path / "master.db", clock)) as dies:
        leads.release(lease)
        assert dies.take("dies", lasts_s=LONG_S) is not None
    assert second.take("second", lasts_s=SHORT_S) is not None, "the new lock tells who died as the old one did"


def test_of_a_store_that_is_away_it_is_not_given_back(tmp_path: Path, another: Callable[[], SqliteLease]) -> None:
    """A master that was asked to end did so with an error, and left an empty file for the others."""
    leases = another()
    lease = leases.take("one", lasts_s=LONG_S)
    assert lease is not None
    with HeldLease(leases, lease, lasts_s=LONG_S) as held:
        (tmp_path / "master.db").rename(tmp_path / "elsewhere.db")
        assert held.is_held
    assert not (tmp_path / "master.db").exists()


FIRST = 5


class Renewed:
    """A store of leases; with each of the first renewals most of the time of a lease passes."""

    def __init__(self, leases: SqliteLease, clock: Clock) -> None:
        self._leases, self._clock = leases, clock
        self.take, self.release, self.holder = leases.take, leases.release, leases.holder
        self.count = 0

    def renew(self, lease: Lease, *, lasts_s: float) -> bool:
        if self.count < FIRST:
            self._clock.now_s += 0.8 * lasts_s
        renewed = self._leases.renew(lease, lasts_s=lasts_s)
        self.count += renewed
        return renewed


def test_it_is_renewed_while_it_is_held(another: Callable[[], SqliteLease], clock: Clock) -> None:
    leases, other = Renewed(another(), clock), another()
    lease = leases.take("one", lasts_s=OFTEN_S)
    assert lease is not None
    with HeldLease(leases, lease, lasts_s=OFTEN_S, steady=clock) as held:
        wait_until(lambda: leases.count > FIRST, "renewals for four times as long as the lease lasts")
        assert held.is_held
        assert other.take("other", lasts_s=LONG_S) is None
    assert other.take("other", lasts_s=LONG_S) is not None, "it was given back"
