"""Q5 and Q11 with windows longer than the interval keep their size: the short form of the experiment."""

from __future__ import annotations

from experiments.nexmark_windows import Sizes, windows


def test_a_turn_is_a_step_back() -> None:
    assert Sizes(need=2.5, sizes=(1, 4, 6, 3)).turns == 1
    assert Sizes(need=2.5, sizes=(1, 6, 3, 4)).turns == 2
    assert str(Sizes(need=2.5, sizes=(1, 3))) == "1→3 of 2.5"


def test_windows_longer_than_the_interval_are_not_followed() -> None:
    found = windows(lambda what, share: None, windows_s=(60.0,), seeds=1)
    assert [check.ours for check in found.checks if not check.holds] == []
    assert len(found.checks) == 4
