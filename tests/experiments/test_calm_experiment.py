"""The short form: two seeds, three hours, one window."""

from __future__ import annotations

from experiments import frame
from experiments.calm import calm, needs_of


def test_it_is_calm_by_default() -> None:
    report = calm(lambda what, share: None, seeds=1, hours=2.5, windows_s=(60.0,))
    late = [check for check in report.checks if "short" not in check.what and "too few" not in check.what]
    assert [check for check in late if not check.holds] == []
    assert len(report.data["days"]) == 3


def test_it_is_in_the_list() -> None:
    assert frame.find("calm").minutes > 0


def test_needs_are_drawn_from_the_seed() -> None:
    assert needs_of(1) == needs_of(1) != needs_of(2)
