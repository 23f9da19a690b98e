"""What the live experiments make of what they measured: which nodes should have moved, which rides are wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from elastream.measurement import Snapshot
from elastream.nodes.files import WorkersEntry
from elastream.policies.mst.mst_model import Sustained
from elastream.testing import alike, snapshot_of
from examples.paper_workloads.taxi_hotspots import nearest_hotspot
from examples.paper_workloads.taxi_replay import Due, RideReplay, read_rides
from experiments.gesscale_live_spark import Live, checks_of
from experiments.gesscale_model_spark import predictions, report, sustained_per_s
from experiments.gesscale_taxi_spark import NODES, OPERATOR, Found, judged, node_moves

POOL = WorkersEntry(**NODES).pool()


def on(*nodes: str, away: str | None = None) -> Snapshot:
    readings = alike(OPERATOR, instances=len(nodes))
    plain = snapshot_of(edges=[("rides", OPERATOR)], source_rates={"rides": 1}, readings=readings)
    pool = POOL if away is None else POOL.with_node(away, available=False)
    return replace(plain, nodes=pool, placement={OPERATOR: nodes})


@pytest.mark.parametrize(
    ("before", "after", "right"),
    [
        (on("geneva"), on("geneva", "lyon"), True),
        (on("geneva"), on("geneva", "paris"), False),  # 15 ms, where lyon has 12
        (on("geneva", away="lyon"), on("geneva", "paris"), True),
        (on("geneva"), on("geneva", "lyon", "paris", "turin"), True),
        (on("geneva"), on("geneva", "lyon", "paris", "berlin"), False),
        (on("geneva", "lyon", "berlin"), on("geneva", "lyon"), True),
        (on("geneva", "lyon", "berlin"), on("geneva", "berlin"), False),
        (on("paris", "berlin", "lisbon"), on("paris"), True),
        (on("paris", "berlin", "lisbon"), on("berlin"), True),  # of two nodes either may leave
        (on("paris", "berlin", "lisbon"), on("lisbon"), False),  # it is of the farthest pair both times
        (on("paris", "lyon"), on("geneva", "lyon"), False),  # neither grown nor shrunk
    ],
)
def test_a_move_is_right_if_each_node_was_the_best_by_the_delays(
    before: Snapshot, after: Snapshot, right: bool
) -> None:
    (move,) = node_moves([before, before, after])
    assert move.as_the_delays_say is right


def test_every_move_is_found_and_told() -> None:
    moves = node_moves([on("geneva"), on("geneva", "lyon"), on("lyon", "geneva"), on("geneva")])
    assert [str(move) for move in moves] == ["+lyon", "−lyon"]


def rows(due: Sequence[Due]) -> list[dict[str, Any]]:
    found = []
    for one in due:
        name, km = nearest_hotspot(one.ride.lon, one.ride.lat)
        found.append(
            {
                "day": one.day,
                "ride": one.ride.number,
                "copy": one.copy,
                "lon": one.ride.lon,
                "lat": one.ride.lat,
                "hotspot": name,
                "distance_km": km,
            }
        )
    return found


def test_rides_that_are_missing_or_doubled_or_wrong_are_counted() -> None:
    due = list(RideReplay(replication=2, hours=0.1).due(read_rides()))
    kept = rows(due)
    assert judged(due, kept) == (0, 0, 0)
    assert judged(due, kept[1:]) == (1, 0, 0)
    assert judged(due, [*kept, kept[0], kept[0]]) == (0, 2, 0)
    assert judged(due, [*kept[1:], kept[1]]) == (1, 1, 0)
    assert judged(due, [{**kept[0], "hotspot": "elsewhere"}, *kept[1:]]) == (0, 0, 1)
    assert judged(due, [{**kept[0], "distance_km": 0.0}, *kept[1:]]) == (0, 0, 1)


def batch(began: str, took_ms: int, records: int) -> Mapping[str, Any]:
    return {"timestamp": f"2026-01-01T00:00:{began}Z", "batchDuration": took_ms, "numInputRows": records}


def test_what_is_sustained_is_counted_from_the_end_of_the_first_batch_to_that_of_the_last() -> None:
    batches = [batch("01.000", 2000, 999), batch("03.100", 2900, 300), batch("06.000", 3000, 300)]
    assert sustained_per_s(batches) == pytest.approx(600 / 6)


def measured(*, exponent: float = 0.95, per_delay: float = 300.0) -> list[Sustained]:
    delays_s = {1: 0.0, 2: 0.012, 3: 0.015, 4: 0.04, 5: 0.1, 6: 0.24}
    return [
        Sustained(instances=n, delay_s=delay_s, records_per_s=40 * n**exponent - per_delay * delay_s)
        for n, delay_s in delays_s.items()
    ]


def test_more_measurements_predict_better_and_three_are_enough_where_the_form_is_right() -> None:
    errors = [max(map(abs, one.errors.values())) for one in predictions(measured())]
    assert errors[0] > errors[2]
    assert errors[2] < 0.01
    assert errors[3] < 0.01


@pytest.mark.parametrize(("spoilt", "holds"), [(1.0, True), (0.3, False)])
def test_the_bound_is_on_the_model_from_all_measurements(spoilt: float, holds: bool) -> None:
    points = measured()
    points[3] = replace(points[3], records_per_s=points[3].records_per_s * spoilt)
    found = report(points, took_s=60)
    assert found.holds is holds
    assert [check.what for check in found.checks if check.bound] == ["mean error from 6 measurements"]


def test_a_live_run_is_summed_up_and_held_to_its_rides() -> None:
    replay = RideReplay(replication=1, hours=0.1)
    kept = rows(list(replay.due(read_rides())))
    windows = [on("geneva"), on("geneva", "turin"), on("geneva", "turin")]
    acted = [{"succeeded": True}, {"succeeded": False}]
    live = Live.of("thr-nlaware", Found(snapshots=windows, acted=acted, kept=kept), replay)
    assert (live.actions, live.node_minutes, live.short) == (1, pytest.approx(5.0), 0.0)
    assert live.delay_s == pytest.approx(0.02)
    assert all(check.holds for check in checks_of(live))
    lost = Live.of("thr-nlaware", Found(snapshots=windows, acted=acted, kept=kept[1:]), replay)
    assert not all(check.holds for check in checks_of(lost))
