"""The task events of a Google cluster: what is read and left out, when it is due, and every statistic."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from elastream.errors import InvalidInput
from examples.paper_workloads.google_statistics import (
    INTERVAL_S,
    NOW,
    STATISTICS,
    ClusterState,
    Event,
    MachineReport,
    MachineState,
    Sums,
)
from examples.paper_workloads.google_trace import EXTRACT, TaskEventsReader, TraceReplay, needed, read_task_events
from experiments.workloads.google_with_pandas import differing, expected_results, read_with_pandas

# --- reading ----------------------------------------------------------------------------------------------------


def test_the_bundled_extract_is_what_its_readme_says() -> None:
    events = read_task_events(EXTRACT)
    assert events.num_rows == 12_656
    kept = needed(events).to_pandas()
    assert len(kept) == 8_944
    assert kept["machine"].nunique() == 467
    before = kept["at_us"][kept["at_us"] < 600e6]
    assert len(before) == 4_850, "of time 0"
    assert set((before // 60e6).value_counts()) == {485}, "evenly over the ten minutes before the trace's period"
    assert kept["at_us"].is_monotonic_increasing


def test_what_no_statistic_needs_is_dropped_and_the_rest_is_numbered() -> None:
    kept = needed(read_task_events(EXTRACT)).to_pandas()
    expected = read_with_pandas(EXTRACT)
    assert kept["number"].tolist() == list(range(len(expected)))
    assert kept["runs"].tolist() == expected["event_type"].isin([1, 8]).tolist()
    for column in ("machine", "job", "task", "cpu", "memory", "disk"):
        assert kept[column].tolist() == expected[column].tolist()


def write_events(path: Path, *rows: str) -> Path:
    with gzip.open(path, "wt") as file:
        file.write("".join(f"{row}\n" for row in rows))
    return path


def test_a_request_that_is_missing_is_nothing(tmp_path: Path) -> None:
    path = write_events(tmp_path / "events.csv.gz", "5,2,10,0,7,1,,3,9,,,,")
    assert needed(read_task_events(path)).select(["cpu", "memory", "disk"]).to_pylist() == [
        {"cpu": 0.0, "memory": 0.0, "disk": 0.0}
    ]


def test_files_that_are_none_of_the_trace_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such file"):
        read_task_events(tmp_path / "none.csv.gz")
    with pytest.raises(InvalidInput, match="not task events of the 2011 trace"):
        read_task_events(write_events(tmp_path / "other.csv.gz", "time,machine", "0,1"))


# --- replaying --------------------------------------------------------------------------------------------------


def replay(*at_s: float, speed: float = 1.0) -> TraceReplay:
    return TraceReplay(at_us=np.array([round(at * 1e6) for at in at_s], dtype=np.int64), speed=speed)


@pytest.mark.parametrize(
    ("speed", "elapsed_s", "due"),
    [(1, 0, 2), (1, 9.9, 2), (1, 10, 3), (1, 100, 5), (100, 0.1, 3), (1000, 0.099, 4), (float("inf"), 0, 5)],
)
def test_an_event_is_due_when_its_time_has_come_at_the_speed(speed: float, elapsed_s: float, due: int) -> None:
    assert replay(600, 600, 610, 690, 700, speed=speed).due(0, elapsed_s) == due


def test_a_replay_that_is_begun_in_the_middle_goes_on_from_there() -> None:
    found = replay(600, 610, 690, 700)
    assert found.due(2, 0) == 3
    assert found.due(2, 10) == 4
    assert found.due(4, 0) == 4, "nothing is left"
    assert found.lasts_s == 100


def test_a_speed_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be above 0, found 0"):
        replay(0, speed=0)


def test_the_reader_gives_every_event_once_in_parts_of_bounded_size() -> None:
    reader = TaskEventsReader(EXTRACT, float("inf"), 3_000)
    at, found = reader.initialOffset(), []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        assert end["event"] - at["event"] <= 3_000
        for part in reader.partitions(at, end):
            found += [number for batch in reader.read(part) for number in batch["number"].to_pylist()]
        at = end
    assert found == list(range(8_944))
    assert reader.partitions(at, at) == []


# --- statistics -------------------------------------------------------------------------------------------------


def events_by_machine(path: Path = EXTRACT) -> list[tuple[int, Event]]:
    columns = ["machine", *Event._fields]
    rows = needed(read_task_events(path)).to_pandas()[columns].itertuples(index=False, name=None)
    return [(machine, Event(*values)) for machine, *values in rows]


def told_in_batches(events: list[tuple[int, Event]], sizes: list[int]) -> list[list[MachineReport]]:
    """What machines tell, batch by batch, when the events come in batches of these sizes."""
    machines: dict[int, MachineState] = {}
    found = []
    for size in sizes:
        batch, events = events[:size], events[size:]
        by_machine: dict[int, list[Event]] = {}
        for machine, event in batch:
            by_machine.setdefault(machine, []).append(event)
        told: list[MachineReport] = []
        for machine, its in by_machine.items():
            state = MachineState.from_text(machines.get(machine, MachineState()).to_text())
            told += state.take(machine, its, INTERVAL_S)
            machines[machine] = state
        found.append(told)
    return found


def test_every_statistic_equals_an_independent_computation() -> None:
    cluster, found = ClusterState(), []
    for told in told_in_batches(events_by_machine(), [4_000, 3_000, 1_500, 444]):
        found += list(cluster.take(told, INTERVAL_S))
    expected = expected_results(EXTRACT, INTERVAL_S)
    assert len(expected) == sum(len(STATISTICS) + count for count in machines_known(expected))
    rows = [(*one[:-1], *one.sums) for one in found]
    assert differing(pd.DataFrame(rows, columns=expected.columns), expected) == []


def test_a_statistic_that_is_off_or_missing_is_found() -> None:
    expected = expected_results(EXTRACT, 2700)
    off = expected.copy()
    off.loc[3, "cpu"] *= 1.001
    (found,) = differing(off, expected)
    assert found.startswith("at 2700 s, cluster, p75, cpu: found ")
    assert differing(expected.iloc[1:], expected) == ["at 2700 s, cluster, total: missing"]
    assert differing(pd.concat([expected, expected.iloc[:1]]), expected) == [
        "at 2700 s, cluster, total: found twice"
    ]


def machines_known(expected: pd.DataFrame) -> list[int]:
    counts = expected[expected["statistic"] == NOW].groupby("at_s").size()
    assert counts.index.tolist() == [900, 1800, 2700, 3600, 4500, 5400]
    return [int(count) for count in counts]


def some_events(rng: random.Random, count: int) -> list[tuple[int, Event]]:
    """Of a few machines, over about four intervals."""
    found, at_us = [], 0
    for number in range(count):
        at_us += rng.randint(0, 2 * 4 * 900_000_000 // count)
        asked = [rng.random() for _ in range(3)]
        found.append((rng.randint(1, 5), Event(number, at_us, rng.randint(1, 4), 0, rng.random() < 0.6, *asked)))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_results_depend_on_neither_batches_nor_order(seed: int) -> None:
    """Batches of any size, told in any order, cut anywhere on the way to the cluster, kept as text in between."""
    rng = random.Random(seed)
    events = some_events(rng, 60)
    whole = list(ClusterState().take(told_in_batches(events, [60])[0]))
    assert len({result.at_s for result in whole}) == events[-1][1].at_us // 900_000_000

    told = [one for batch in told_in_batches(events, [rng.randint(1, 9) for _ in range(60)]) for one in batch]
    rng.shuffle(told)
    cluster, found = ClusterState(), []
    while told:
        cut = rng.randint(1, 8)
        found += list(cluster.take(told[:cut]))
        told, cluster = told[cut:], ClusterState.from_text(cluster.to_text())
    assert sorted(found, key=str) == sorted(whole, key=str)


def test_an_interval_is_not_over_while_an_event_is_missing() -> None:
    cluster, none = ClusterState(), Sums(0, 0, 0, 0)
    assert list(cluster.take([MachineReport(1, 0, 0, 0, 1, none), MachineReport(2, 1, 2, 2, 1, none)])) == [], (
        "number 1 may be of 0"
    )
    found = list(cluster.take([MachineReport(3, 0, 1, 1, 1, none)]))
    assert {one.at_s for one in found} == {900}


def test_intervals_without_events_have_the_results_of_the_one_before() -> None:
    machine, cluster = MachineState(), ClusterState()
    events = [Event(0, 5_000_000, 1, 0, True, 0.5, 0.25, 0.125), Event(1, 2_000_000_000, 1, 0, False, 0, 0, 0)]
    found = list(cluster.take(machine.take(7, events)))
    assert [(one.at_s, one.sums) for one in found if one.machine == 7] == [
        (900, Sums(1, 0.5, 0.25, 0.125)),
        (1800, Sums(1, 0.5, 0.25, 0.125)),
    ]


def test_a_task_that_asks_for_something_else_counts_once_and_one_that_nobody_saw_begin_not_at_all() -> None:
    machine = MachineState()
    told = list(
        machine.take(
            7,
            [
                Event(2, 30, 1, 0, True, 0.75, 0.5, 0.0),
                Event(0, 10, 1, 0, True, 0.5, 0.25, 0.0),
                Event(1, 20, 9, 9, False, 1.0, 1.0, 1.0),
            ],
        )
    )
    assert told == [MachineReport(7, 0, 0, 2, 3, Sums(1, 0.75, 0.5, 0.0))]
