"""Gesscale against its three baselines live: the same rides, on the same Spark cluster, one after the other.

Each is run as in `gesscale_taxi_spark.py`, with a cluster of its own, and asked at the same times of the replay.
Costs and delays are emulated, and an action stops nothing, so it is not the paper's table III; it shows that all
four run, what each makes of the same hours, and that no ride is lost under any of them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from elastream.commands import plots
from elastream.measurement import Snapshot
from elastream.showing import colours
from examples.paper_workloads.taxi_replay import RideReplay, read_rides
from experiments.frame import Check, Progress, Report, experiment
from experiments.gesscale_taxi_spark import NODES, OPERATOR, RECORD_MS, REPLAY, Found, judged, replayed
from experiments.panels import new_panels

POLICIES = ("thr-nlunaware", "thr-nlaware", "mdl-nlunaware", "gesscale")
_SHORT = 0.95  # of what arrived: a window in which less was processed was short


@dataclass(frozen=True, kw_only=True)
class Live:
    """What a policy made of the rides."""

    policy: str
    actions: int
    node_minutes: float
    short: float
    """The share of the windows in which less was processed than arrived."""
    most_waiting: float
    waited_s: float
    """By a record, on the mean: those that wait on the mean, by those that arrive."""
    delay_s: float
    """The largest between the nodes in use, on average."""
    missing: int
    doubled: int
    wrong: int

    @staticmethod
    def of(policy: str, found: Found, replay: RideReplay) -> Live:
        missing, doubled, wrong = judged(list(replay.due(read_rides())), found.kept)
        windows = found.snapshots
        return Live(
            policy=policy,
            actions=sum(bool(outcome["succeeded"]) for outcome in found.acted),
            node_minutes=sum(one.plan[OPERATOR] * one.window_s for one in windows) / 60,
            short=fmean(_is_short(one) for one in windows),
            most_waiting=max(_waiting(one) for one in windows),
            waited_s=_waited_s(windows),
            delay_s=fmean(one.delay_s(OPERATOR) for one in windows),
            missing=missing,
            doubled=doubled,
            wrong=wrong,
        )


@experiment(
    "gesscale-live-spark",
    paper="Gesscale, section V, live and shortened, with its baselines",
    question="On a Spark cluster, what do Gesscale and its three baselines make of the same rides?",
    minutes=32,
)
def run(progress: Progress) -> Report:
    return report_of(progress, REPLAY)


def report_of(progress: Progress, replay: RideReplay, policies: Sequence[str] = POLICIES) -> Report:
    began_s, found = time.monotonic(), dict[str, Found]()
    for number, policy in enumerate(policies):

        def told(what: str, share: float, *, number: int = number, policy: str = policy) -> None:
            progress(f"{policy}: {what}", (number + share) / len(policies))

        with tempfile.TemporaryDirectory(prefix="gesscale-live-") as folder:
            found[policy] = Found.of(replayed(Path(folder), told, policy=policy, replay=replay))
    progress("done", 1.0)
    return compared(found, replay, took_s=time.monotonic() - began_s)


def compared(found: Mapping[str, Found], replay: RideReplay, *, took_s: float) -> Report:
    """The same of runs that were made before."""
    lives = [Live.of(policy, one, replay) for policy, one in found.items()]
    return Report(
        checks=tuple(check for live in lives for check in checks_of(live)),
        differs=_notes(replay, took_s),
        data={policy: one.as_json() for policy, one in found.items()},
        plot=partial(_plot, {policy: one.snapshots for policy, one in found.items()}),
    )


def checks_of(live: Live) -> tuple[Check, ...]:
    delay_ms = 1000 * live.delay_s
    return (
        Check(
            what=f"{live.policy}: rides that are missing, came twice, have a wrong hotspot",
            ours=f"{live.missing}, {live.doubled}, {live.wrong}",
            bound="none",
            holds=live.missing == live.doubled == live.wrong == 0,
        ),
        Check(what=f"{live.policy}: actions", ours=str(live.actions)),
        Check(what=f"{live.policy}: node minutes", ours=f"{live.node_minutes:.1f}"),
        Check(what=f"{live.policy}: windows with less processed than arrived", ours=f"{live.short:.0%}"),
        Check(what=f"{live.policy}: records that waited, at the most", ours=f"{live.most_waiting:,.0f}"),
        Check(what=f"{live.policy}: how long a record waited, on the mean", ours=f"{live.waited_s:.1f} s"),
        Check(what=f"{live.policy}: the largest delay between its nodes, on average", ours=f"{delay_ms:.0f} ms"),
    )


def _is_short(snapshot: Snapshot) -> float:
    rates = snapshot.measurements.get(OPERATOR)
    done = 0.0 if rates is None else rates.observed_per_s
    return float(done < _SHORT * sum(snapshot.source_rates.values()))


def _waiting(snapshot: Snapshot) -> float:
    rates = snapshot.measurements.get(OPERATOR)
    return 0.0 if rates is None else rates.totals.backlog or 0.0


def _waited_s(windows: Sequence[Snapshot]) -> float:
    """By Little's law."""
    waiting = sum(_waiting(one) * one.window_s for one in windows)
    arrived = sum(sum(one.source_rates.values()) * one.window_s for one in windows)
    return waiting / arrived if arrived else 0.0


def _notes(replay: RideReplay, took_s: float) -> tuple[str, ...]:
    return (
        f"Emulated: {RECORD_MS} ms of waiting for each record, and a round trip to the farthest node in use for "
        f"every {NODES['records_per_fetch']} records. All workers are on this machine.",
        f"{replay.hours:g} hours of rides, played {replay.speed:g} times as fast; an action stops nothing here.",
        "A node that only waits is not busy by its CPU: the threshold rules see the useful share of the window.",
        f"It took {took_s / 60:.0f} minutes. What is bound is that no ride is lost; one run of each says too "
        "little about who is cheaper by how much.",
    )


def _plot(runs: Mapping[str, Sequence[Snapshot]], file: Path) -> None:
    title = "The same taxi rides under four policies (Spark; cost and delays emulated)"
    figure, axes = new_panels(2, len(runs), title=title, width=3.2, height=2.2, sharex=True, sharey="row")
    for column, (policy, snapshots) in enumerate(runs.items()):
        rates, nodes = axes[:, column]
        minutes = [(one.at_s - snapshots[0].at_s) / 60 for one in snapshots]
        arriving = [sum(one.source_rates.values()) for one in snapshots]
        rates.plot(minutes, arriving, color="0.5", linestyle="--", linewidth=1.0)
        done = [
            one.measurements[OPERATOR].observed_per_s if OPERATOR in one.measurements else 0 for one in snapshots
        ]
        rates.plot(minutes, done, color=colours.COLOURS[column], linewidth=1.2)
        sizes = [one.plan[OPERATOR] for one in snapshots]
        nodes.step(minutes, sizes, where="post", color=colours.COLOURS[column], linewidth=1.4)
        rates.set_title(policy, fontsize="medium")
        nodes.set_xlabel("minutes")
    for axis, text in zip(axes[:, 0], ("records/s: in (grey), out", "nodes"), strict=True):
        axis.set_ylabel(text, fontsize="small")
    plots.save(figure, file)
