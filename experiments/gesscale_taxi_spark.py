"""Gesscale's evaluation live, shortened: a day of taxi rides in five minutes, on a Spark cluster of six workers.

`elastream run` itself is run, with Gesscale as it is by default: it starts the cluster and, on the nodes that it
chooses, the workers. What came of it is in its recording and in what its sink kept, and is checked against plain
Python: which nodes should have joined and left by the table of delays, and which hotspot belongs to each ride.

The replay is five and a half minutes, with one and a quarter after it; starting the cluster comes on top.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from elastream.commands import plots
from elastream.errors import ElastreamError
from elastream.measurement import Snapshot
from elastream.measurement.recording import read_recording
from elastream.showing import colours
from examples.paper_workloads.taxi_hotspots import nearest_hotspot
from examples.paper_workloads.taxi_replay import Due, RideReplay, read_rides
from experiments.frame import Check, Progress, Report, experiment

OPERATOR = "hotspots"
RECORD_MS = 25
NODES: dict[str, Any] = {
    "names": ["paris", "lyon", "geneva", "turin", "berlin", "lisbon"],
    "delays": [
        [0, 0.010, 0.015, 0.040, 0.090, 0.160],
        [0.010, 0, 0.012, 0.035, 0.095, 0.150],
        [0.015, 0.012, 0, 0.030, 0.085, 0.170],
        [0.040, 0.035, 0.030, 0, 0.100, 0.180],
        [0.090, 0.095, 0.085, 0.100, 0, 0.240],
        [0.160, 0.150, 0.170, 0.180, 0.240, 0],
    ],
    "records_per_fetch": 20,
}
REPLAY = RideReplay(speed=288, replication=3, begin_h=4, hours=27)
_AFTERWARDS_S = 75.0  # for the last scale-downs, and what is still to do
_INTERVAL_S = 15.0
_MOST_RUNS = 5
_LEAST_AT_THE_PEAK = 3
_KM = 1e-9  # that the two ways to compute a distance may differ by
_PIPELINE = """
from pathlib import Path
from examples.paper_workloads.taxi_hotspots import taxi_hotspots

pipeline = taxi_hotspots(kept=Path({kept!r}), record_ms={record_ms}, max_parallelism={most})
generator = {generator!r}
"""
_COMMAND = "from elastream.cli import main; main()"


@dataclass(frozen=True, kw_only=True)
class Moved:
    """Nodes that joined or left between two windows, and whether the table of delays says the same."""

    joined: tuple[str, ...]
    left: tuple[str, ...]
    as_the_delays_say: bool

    def __str__(self) -> str:
        return " ".join([*(f"+{name}" for name in self.joined), *(f"−{name}" for name in self.left)])


@experiment(
    "gesscale-taxi-spark",
    paper="Gesscale, section V, live and shortened",
    question="On a Spark cluster, do the right nodes join and leave under a day of taxi rides, and is none lost?",
    minutes=8,
)
def run(progress: Progress) -> Report:
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gesscale-taxi-") as folder:
        found = Found.of(replayed(Path(folder), progress))
    return report(found, took_s=time.monotonic() - began_s)


def report(found: Found, *, took_s: float) -> Report:
    return Report(
        checks=(*_load_checks(found.snapshots), *_node_checks(found), *_ride_checks(found)),
        differs=_notes(took_s),
        data=found.as_json(),
        plot=partial(_plot, found.snapshots),
    )


def _notes(took_s: float) -> tuple[str, ...]:
    return (
        "The delays between nodes are emulated: a task waits a round trip to the farthest node in use for every "
        f"{NODES['records_per_fetch']} records. All workers are on this machine, where no packet is delayed.",
        f"What a record costs is emulated, too: {RECORD_MS} ms of waiting, which needs no core.",
        f"Shortened: the rides are a fiftieth of a day's, played {REPLAY.speed:g} times as fast instead of ten; "
        f"asked every {_INTERVAL_S:g} s instead of every minute.",
        "An action stops nothing here, where the paper's stops the job for two minutes; so actions are cheap, and "
        "their number is not compared.",
        f"It took {took_s / 60:.0f} minutes.",
    )


# Running


def replayed(folder: Path, progress: Progress, *, policy: str = "gesscale", replay: RideReplay = REPLAY) -> Path:
    """Until every ride has come out; the folder that the run has left."""
    given = _PIPELINE.format(
        kept=str(folder / "kept"), record_ms=RECORD_MS, most=len(NODES["names"]), generator=replay.command
    )
    (folder / "taxi.py").write_text(given, encoding="utf-8")
    (folder / "nodes.yaml").write_text(json.dumps(NODES), encoding="utf-8")  # JSON is YAML
    wanted = sum(1 for _ in replay.due(read_rides()))
    length_s = replay.duration_s + _AFTERWARDS_S
    for number in range(_MOST_RUNS):
        share = min(0.95, 0.9 + number / 50)
        _run_once(folder, policy, length_s if number == 0 else _AFTERWARDS_S, progress, share=share)
        if len(list(_kept(folder))) >= wanted:
            break
    progress("done", 1.0)
    return folder


def _run_once(folder: Path, policy: str, length_s: float, progress: Progress, *, share: float) -> None:
    command = [sys.executable, "-c", _COMMAND, "run", str(folder / "taxi.py"), "--policy", policy]
    command += ["--nodes", str(folder / "nodes.yaml"), "--folder", str(folder / "run")]
    command += ["--interval", f"{_INTERVAL_S} s", "--duration", f"{length_s} s", "--executor-memory", "512m"]
    command += ["--longest-batch", "2 s"]
    if policy == "gesscale":
        command += ["--set", "catch_up=60 s"]
    said: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        windows = 0
        for line in process.stdout:
            said = [*said, line.rstrip()][-30:]
            windows += OPERATOR in line and "×" in line
            progress(line.strip()[:60], share * min(1.0, windows * _INTERVAL_S / length_s))
    if process.returncode != 0:
        raise ElastreamError("elastream run has failed: " + " / ".join(said))


# What it left


@dataclass(frozen=True, kw_only=True)
class Found:
    snapshots: Sequence[Snapshot]
    acted: Sequence[Mapping[str, Any]]
    kept: Sequence[Mapping[str, Any]]

    @staticmethod
    def of(folder: Path) -> Found:
        recording = read_recording(folder / "run" / "recording.jsonl")
        acted = [event["outcome"] for event in recording.events if event["event"] == "acted"]
        return Found(snapshots=recording.snapshots, acted=acted, kept=list(_kept(folder)))

    def as_json(self) -> dict[str, Any]:
        return {
            "windows": [
                {
                    "at_s": snapshot.at_s,
                    "arriving_per_s": sum(snapshot.source_rates.values()),
                    "processed_per_s": processed_per_s(snapshot),
                    "nodes": list(snapshot.placement.get(OPERATOR, ())),
                }
                for snapshot in self.snapshots
            ],
            "actions": list(self.acted),
            "rides": len(self.kept),
        }


def _kept(folder: Path) -> list[Mapping[str, Any]]:
    from elastream.engines.spark.channels.files import FileChannel

    return [row for table in FileChannel(folder / "kept").tables() for row in table.to_pylist()]


def processed_per_s(snapshot: Snapshot) -> float:
    rates = snapshot.measurements.get(OPERATOR)
    return 0.0 if rates is None else rates.observed_per_s


# The checks


def _load_checks(snapshots: Sequence[Snapshot]) -> list[Check]:
    arriving = [sum(snapshot.source_rates.values()) for snapshot in snapshots]
    sizes = [snapshot.plan[OPERATOR] for snapshot in snapshots]
    most = max(sizes)
    return [
        Check(what="records that arrived, per second", ours=f"from {min(arriving):.0f} to {max(arriving):.0f}"),
        Check(
            what="nodes: at first, at the most, at the end",
            ours=f"{sizes[0]}, {most}, {sizes[-1]}",
            paper="1, 7, 1 (figure 7)",
            bound=f"at least {_LEAST_AT_THE_PEAK} at the most, and at the end at most half of that",
            holds=most >= _LEAST_AT_THE_PEAK and sizes[-1] <= most / 2,
        ),
    ]


def _node_checks(found: Found) -> list[Check]:
    moves = node_moves(found.snapshots)
    wrong = [move for move in moves if not move.as_the_delays_say]
    return [
        Check(
            what="nodes that joined (+) and left (−), in order",
            ours="; ".join(map(str, moves)) or "none",
            bound="those that the delays say",
            holds=bool(moves) and not wrong,
        ),
        Check(what="actions, and how many failed", ours=_actions_text(found.acted)),
        Check(what="executors after the last action, by Spark", ours=_last_detail(found.acted)),
    ]


def _actions_text(acted: Sequence[Mapping[str, Any]]) -> str:
    return f"{len(acted)}, {sum(not outcome['succeeded'] for outcome in acted)}"


def _last_detail(acted: Sequence[Mapping[str, Any]]) -> str:
    return str(acted[-1]["detail"]) if acted else "no action"


def _ride_checks(found: Found) -> list[Check]:
    wanted = list(REPLAY.due(read_rides()))
    missing, doubled, wrong = judged(wanted, found.kept)
    return [
        Check(
            what="rides that came out, of those replayed",
            ours=f"{len(found.kept):,} of {len(wanted):,}; missing {missing}, more than once {doubled}",
            bound="each once",
            holds=missing == doubled == 0,
        ),
        Check(
            what="rides with another hotspot or distance than plain Python finds",
            ours=str(wrong),
            bound="0",
            holds=wrong == 0,
        ),
    ]


def judged(wanted: Sequence[Due], kept: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
    """Records that are missing, that came more than once, and whose hotspot is wrong."""
    came = Counter((row["day"], row["ride"], row["copy"]) for row in kept)
    expected = {(due.day, due.ride.number, due.copy) for due in wanted}
    missing = sum(key not in came for key in expected)
    doubled = sum(came.values()) - len(expected & came.keys())
    return missing, doubled, sum(not _is_right(row) for row in kept)


def _is_right(row: Mapping[str, Any]) -> bool:
    name, km = nearest_hotspot(row["lon"], row["lat"])
    return bool(row["hotspot"] == name and abs(row["distance_km"] - km) <= _KM)


def node_moves(snapshots: Sequence[Snapshot]) -> list[Moved]:
    """Every change of the operator's nodes from one window to the next."""
    found = []
    for before, after in pairwise(snapshots):
        own, now = set(before.placement.get(OPERATOR, ())), set(after.placement.get(OPERATOR, ()))
        if own != now:
            joined, left = tuple(sorted(now - own)), tuple(sorted(own - now))
            right = _as_the_delays_say(before, own, now)
            found.append(Moved(joined=joined, left=left, as_the_delays_say=right))
    return found


def _as_the_delays_say(before: Snapshot, own: set[str], now: set[str]) -> bool:
    """Whether, one by one, each node was the best that could join, or leave, by the largest delay that results."""
    assert before.nodes is not None
    free = {node.name for node in before.nodes.nodes if node.available} - own
    if now > own:
        return now in _grown(frozenset(own), frozenset(free), len(now))
    return now < own and now in _shrunk(frozenset(own), len(now))


def _grown(own: frozenset[str], free: frozenset[str], size: int) -> set[frozenset[str]]:
    """Every set that joining the best node one by one can lead to; there may be equals."""
    if len(own) == size:
        return {own}
    best = min((_largest_s(own | {name}) for name in free), default=0.0)
    return {
        end
        for name in free
        if _largest_s(own | {name}) == best
        for end in _grown(own | {name}, free - {name}, size)
    }


def _shrunk(own: frozenset[str], size: int) -> set[frozenset[str]]:
    if len(own) == size:
        return {own}
    best = min(_largest_s(own - {name}) for name in own)
    return {end for name in own if _largest_s(own - {name}) == best for end in _shrunk(own - {name}, size)}


def _largest_s(names: frozenset[str]) -> float:
    """By the table itself."""
    places = [NODES["names"].index(name) for name in names]
    return max((NODES["delays"][one][other] for one in places for other in places), default=0.0)


# The plot


def _plot(snapshots: Sequence[Snapshot], file: Path) -> None:
    title = "A day of taxi rides in five minutes on six workers (Spark; cost and delays emulated)"
    figure, (rates, nodes) = plots.new_figure(2, title=title)
    minutes = [(snapshot.at_s - snapshots[0].at_s) / 60 for snapshot in snapshots]
    arriving = [sum(snapshot.source_rates.values()) for snapshot in snapshots]
    rates.plot(minutes, arriving, color="0.4", linestyle="--", linewidth=1.2, label="arriving")
    processed = [processed_per_s(snapshot) for snapshot in snapshots]
    rates.plot(minutes, processed, color=colours.COLOURS[0], linewidth=1.2, label="processed")
    rates.set_ylabel("records per second")
    rates.legend(frameon=False, fontsize="small")
    for place, name in enumerate(NODES["names"]):
        used = [place if name in snapshot.placement.get(OPERATOR, ()) else None for snapshot in snapshots]
        nodes.plot(minutes, used, color=colours.COLOURS[place], linewidth=6.0, solid_capstyle="butt", marker="s")
    nodes.set_yticks(range(len(NODES["names"])), NODES["names"])
    nodes.set_xlabel("minutes")
    plots.save(figure, file)
