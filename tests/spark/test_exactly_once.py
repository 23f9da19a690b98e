"""A short run of `make exactly-once`, and the crashes whose recovery is the most delicate."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from exactly_once import (
    Story,
    assert_each_once,
    crash_in,
    faults,
    kill_in_a_repartition,
    state_partitions,
    tell,
)
from exactly_once_driver import kept

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kinds import Files
from elastream.engines.spark.crash_points import CrashPoint


def test_what_is_lost_repeated_or_wrong_is_seen(tmp_path: Path) -> None:
    """The check itself, on sinks that were written by hand."""
    rows = {
        "marked": [(0, 0), (2, 2), (2, 2)],
        "pairs": [(0, 0), (1, 1), (2, 5)],
        "counts": [(0, 1), (1, 2), (1, 1), (2, 1)],
    }
    for operator, found in rows.items():
        sink = FileChannel(kept(tmp_path, operator))
        sink.create()
        sink.append(pa.table({"key": [row[0] for row in found], "value": [row[1] for row in found]}))
    assert faults(tmp_path, 3) == [
        "the stateless operator lost 1 of 3 records: [1]",
        "the stateless operator repeated 1 of 3 records: [2]",
        "the join put out what it should not have: [(2, 5)]",
        "the count of key 1 goes from 2 to 1",
    ]
    assert faults(tmp_path, 4)[-1] == "the counts are {0: 1, 1: 1, 2: 1}, they should be {0: 1, 1: 1, 2: 1, 3: 1}"


def test_kills_and_rescales_lose_and_repeat_nothing(tmp_path: Path) -> None:
    ending = tell(tmp_path, Story(kills=1, rescales=4, batches=4), Files())
    assert_each_once(ending)
    assert min(ending.batches.values()) >= 8, "four in each of two lives"


@pytest.mark.parametrize(
    "point",
    [CrashPoint.IN_THE_PUBLICATION, pytest.param(CrashPoint.AFTER_THE_PUBLICATION, marks=pytest.mark.long)],
)
def test_a_crash_around_a_publication_loses_and_repeats_nothing(tmp_path: Path, point: CrashPoint) -> None:
    assert_each_once(crash_in(tmp_path, point, "counts", Files()))


def test_a_kill_while_state_is_moved_loses_and_repeats_nothing(tmp_path: Path) -> None:
    assert_each_once(kill_in_a_repartition(tmp_path, "counts", Files()))
    assert state_partitions(tmp_path, "counts") == 4, "the move was finished"
