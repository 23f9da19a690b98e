"""The locks: explored completely while small, and what they refuse."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.locks import GroupLock, LockPosition, LockSite, Ra1, Ra2, TwoFgme, ra1, ra2, two_fgme
from elastream.errors import InvalidInput
from experiments.as_published.two_fgme import Mend, TwoFgmeAsPublished
from experiments.checking.explorer import Exploration, explore
from experiments.checking.lock_model import LockModel, MakeLock

LOCKS: tuple[MakeLock, ...] = (TwoFgme, Ra1, Ra2)
SITE = LockSite(me="a1", siblings=frozenset({"a2"}), competitors=frozenset({"b1"}))


def explored(make: MakeLock, sizes: tuple[int, int], entries: int) -> Exploration:
    return explore(LockModel(make, sizes=sizes, entries=entries), most_worlds=200_000)


@pytest.mark.parametrize("make", LOCKS)
@pytest.mark.parametrize(("sizes", "entries"), [((1, 1), 3), ((2, 1), 1), ((1, 2), 1)])
def test_never_two_groups_inside_and_everyone_gets_in(
    make: MakeLock, sizes: tuple[int, int], entries: int
) -> None:
    exploration = explored(make, sizes, entries)
    assert exploration.violation is None
    assert exploration.complete


def test_two_fgme_with_two_groups_of_two_and_with_second_entries() -> None:
    for sizes, entries in (((2, 2), 1), ((2, 1), 2)):
        exploration = explored(TwoFgme, sizes, entries)
        assert exploration.violation is None
        assert exploration.complete


@pytest.mark.long
def test_two_fgme_with_two_groups_of_two_that_all_enter_twice() -> None:
    """Some minutes, and 6 GB."""
    model = LockModel(TwoFgme, sizes=(2, 2), entries=2)
    exploration = explore(model, most_worlds=20_000_000)
    assert exploration.violation is None
    assert exploration.complete
    assert exploration.worlds == 18_962_680, "as the documentation says"


# The pseudo-code of the thesis, and what is left of it after each obvious mend


def failure(sizes: tuple[int, int], entries: int, *mends: Mend) -> str:
    make = partial(TwoFgmeAsPublished, mends=frozenset(mends))
    violation = explored(make, sizes, entries).violation
    return violation.what if violation else ""


def test_as_published_an_ignored_acknowledgement_is_waited_for_forever() -> None:
    assert failure((2, 1), 1) == "deadlock: b1 never got in"


def test_as_published_two_single_members_are_all_that_works() -> None:
    assert failure((1, 1), 3) == ""


def test_subtracting_first_lets_one_in_that_does_not_ask() -> None:
    assert failure((2, 1), 1, Mend.SUBTRACT_FIRST) == "b1 is let in although it does not ask"


def test_letting_in_only_who_asks_leaves_two_groups_inside() -> None:
    assert failure((2, 1), 2, Mend.SUBTRACT_FIRST, Mend.ONLY_ASKING) == "two groups are inside: a2, b1"


# Refusals: an event that cannot be raises, and the state is a value that nobody has touched


@pytest.mark.parametrize("make", LOCKS)
def test_only_the_idle_ask_and_only_who_is_inside_leaves(make: MakeLock) -> None:
    lock = make(SITE)
    asking = lock.request(lock.initial()).state
    with pytest.raises(IllegalEvent, match="a request is for a member that is idle, and this one is asking"):
        lock.request(asking)
    with pytest.raises(IllegalEvent, match="an exit is for a member that is inside, and this one is asking"):
        lock.exit(asking)


@pytest.mark.parametrize(
    ("make", "first", "ack"),
    [
        (TwoFgme, two_fgme.TwoFgmeReq(1), two_fgme.TwoFgmeAck()),
        (Ra1, ra1.Ra1Req(1), ra1.Ra1Ack()),
        (Ra2, ra2.Ra2Req(1, 1), ra2.Ra2Ack(number=1, done=0, begun=())),
    ],
)
def test_strangers_and_unexpected_acknowledgements_are_refused(make: MakeLock, first: Any, ack: Any) -> None:
    lock: GroupLock[Any, Any] = make(SITE)
    idle = lock.initial()
    with pytest.raises(IllegalEvent, match="'c1', who is no member"):
        lock.receive(idle, "c1", first)
    with pytest.raises(IllegalEvent, match="acknowledge"):
        lock.receive(idle, "b1", ack)
    assert idle == lock.initial()


@pytest.mark.parametrize(
    ("make", "first"), [(TwoFgme, two_fgme.TwoFgmeReq(9)), (Ra1, ra1.Ra1Req(9)), (Ra2, ra2.Ra2Req(9, 1))]
)
def test_a_second_request_before_the_answer_is_refused(make: MakeLock, first: Any) -> None:
    lock: GroupLock[Any, Any] = make(SITE)
    asking = lock.request(lock.initial()).state
    waiting = lock.receive(asking, "b1", first)
    assert waiting.sends == ()
    with pytest.raises(IllegalEvent, match=r"asks a second time|request 1 of 'b1' after its request 1"):
        lock.receive(waiting.state, "b1", first)


def test_ra2_refuses_a_capture_by_a_competitor_and_ignores_one_that_comes_too_late() -> None:
    lock = Ra2(SITE)
    asking = lock.request(lock.initial()).state
    with pytest.raises(IllegalEvent, match="'b1' captures request 1, which it cannot"):
        lock.receive(asking, "b1", ra2.Ra2Start(1))
    inside = lock.receive(asking, "a2", ra2.Ra2Start(1)).state
    assert inside.position is LockPosition.INSIDE
    idle = lock.exit(inside).state
    assert lock.receive(idle, "a2", ra2.Ra2Start(1)).state == idle


@pytest.mark.parametrize("make", [TwoFgme])
def test_without_competitors_one_enters_at_once(make: MakeLock) -> None:
    lock = make(LockSite(me="a1"))
    assert lock.request(lock.initial()).state.position is LockPosition.INSIDE


def test_groups_must_not_overlap() -> None:
    with pytest.raises(InvalidInput, match="'a1': 'b1' is named twice"):
        LockSite(me="a1", siblings=frozenset({"b1"}), competitors=frozenset({"b1"}))


# Concurrent entry is the point of a group lock


def test_who_yields_to_one_yields_to_its_group() -> None:
    lock = TwoFgme(LockSite(me="b1", competitors=frozenset({"a1", "a2"})))
    asking = lock.request(lock.initial()).state
    deferring = lock.receive(asking, "a2", two_fgme.TwoFgmeReq(5)).state
    assert deferring.deferred == {"a2"}
    step = lock.receive(deferring, "a1", two_fgme.TwoFgmeReq(1))
    assert {to for to, _ in step.sends} == {"a1", "a2"}
    assert step.state.yields
    assert step.state.asked == {"a1"}
