"""A short run of `make exactly-once`, and the three crashes whose recovery is the most delicate."""

from __future__ import annotations

from pathlib import Path

import pytest
from exactly_once import Story, crash_in, kill_in_a_repartition, tell

from elastream.engines.spark.crash_points import CrashPoint


def test_kills_and_rescales_lose_and_repeat_nothing(tmp_path: Path) -> None:
    tell(tmp_path, Story(kills=2, rescales=8, batches=5))


@pytest.mark.parametrize("point", [CrashPoint.IN_THE_PUBLICATION, CrashPoint.AFTER_THE_PUBLICATION])
def test_a_crash_around_a_publication_loses_and_repeats_nothing(tmp_path: Path, point: CrashPoint) -> None:
    crash_in(tmp_path, point, "counts")


def test_a_kill_while_state_is_moved_loses_and_repeats_nothing(tmp_path: Path) -> None:
    kill_in_a_repartition(tmp_path, "counts")
