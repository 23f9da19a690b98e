"""Runs the benchmarks. The exit status is 1 if a bound does not hold."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from benchmarks import (
    attached_overhead,
    channel_throughput,
    cpu_bound,
    decentralized_steps,
    decision_time,
    event_time_backlog,
    fixed_cost,
    hostile_connections,
    measuring_overhead,
    monitoring_election,
    monitoring_master,
    mutated_inputs,
    nexmark,
    nexmark_events,
    node_choice,
    page,
    publication,
    rescale_pause,
    serving_memory,
    serving_viewers,
    simulated_day,
    soak,
    syncing,
    wire_fuzz,
)
from benchmarks.measure import Benchmark, Measure, Report
from elastream.manager.knobs import Knobs

_LONG_MINUTES = 7.0  # what takes longer is run only when it is asked for

BENCHMARKS = (
    Benchmark(
        name="decision-time",
        question="How does the time for a DS2 decision grow with the pipeline?",
        run=decision_time.run,
        quick=partial(decision_time.run, operators=100, repeats=2),
    ),
    Benchmark(
        name="node-choice",
        question="How long does it take to choose nodes from a pool of 1,000, and how does that grow?",
        run=node_choice.run,
        quick=partial(node_choice.run, nodes=30, repeats=2),
    ),
    Benchmark(
        name="simulated-day",
        question="How long does a day on the simulated engine take?",
        run=simulated_day.run,
        quick=partial(simulated_day.run, duration_s=3600.0, repeats=1),
    ),
    Benchmark(
        name="syncing",
        question="What does it cost to wait for the disk, so that a power loss loses nothing?",
        run=syncing.run,
        quick=partial(syncing.run, batches=3),
    ),
    Benchmark(
        name="nexmark-events",
        question="How many events of Nexmark does one core make and write?",
        run=nexmark_events.run,
        quick=partial(nexmark_events.run, events=50_000, repeats=1),
    ),
    Benchmark(
        name="decentralized-steps",
        question="How fast are 1,000 instances that scale themselves simulated?",
        run=decentralized_steps.run,
        quick=partial(decentralized_steps.run, few=25, many=100, steps=10, repeats=1),
    ),
    Benchmark(
        name="monitoring-master",
        question="What does a monitoring master with 200 agents cost, and how late does it evaluate?",
        run=monitoring_master.run,
        quick=partial(monitoring_master.run, agents=20, duration_s=3.0, short_s=1.0),
        minutes=2,
    ),
    Benchmark(
        name="monitoring-election",
        question="What becomes of readings and rules when masters die, all of them and one after the other?",
        run=monitoring_election.run,
        quick=partial(monitoring_election.run, agents=6, operators=2, outage_s=10.0, kills=1, interval_s=1.0),
        minutes=18,
    ),
    Benchmark(
        name="wire-fuzz",
        question="Do a million random frames crash a monitoring master's decoder, or grow its memory?",
        run=wire_fuzz.run,
        quick=partial(wire_fuzz.run, frames=10_000),
    ),
    Benchmark(
        name="mutated-inputs",
        question="Does one of a million mutated files, frames, requests cost a second, 200 MB, an error?",
        run=mutated_inputs.run,
        quick=partial(mutated_inputs.run, inputs=5_000, kept=None),
        minutes=30,
    ),
    Benchmark(
        name="page",
        question="How fast does the page of a run open, and does it grow while it is open?",
        run=page.run,
        quick=partial(page.run, opened=2, hours=2, duration_s=600.0),
        minutes=4,
    ),
    Benchmark(
        name="serving-memory",
        question="How large is what is shown of an hour of ten operators, and does it grow with more hours?",
        run=serving_memory.run,
        quick=partial(serving_memory.run, hour_s=300.0, more_hours=1),
        minutes=2,
    ),
    Benchmark(
        name="rescale-pause",
        question="How long does an operator on Spark stand still when it is rescaled, and why?",
        run=rescale_pause.run,
        quick=partial(rescale_pause.run, rescales=3, stateless=2, moves=1, kills=1, keys=20_000, more_keys=40_000),
        minutes=15,
    ),
    Benchmark(
        name="fixed-cost",
        question="What does a batch on Spark cost beside its records, and what do our settings save?",
        run=fixed_cost.run,
        quick=partial(fixed_cost.run, pairs=1, warm_up=5, batches=5),
        minutes=6,
    ),
    Benchmark(
        name="publication",
        question="What does it cost to be sure that a batch is published whole, and that all see one folder?",
        run=publication.run,
        quick=partial(publication.run, batches=3, sizes=(2_000,)),
        minutes=2,
    ),
    Benchmark(
        name="channel-throughput",
        question="How fast is a pipeline beside the same queries written by hand?",
        run=channel_throughput.run,
        quick=partial(channel_throughput.run, pairs=1, files=8),
        minutes=15,
    ),
    Benchmark(
        name="event-time-backlog",
        question="What does it cost that a backlog is read in the order of event time, so that nothing is late?",
        run=event_time_backlog.run,
        quick=partial(event_time_backlog.run, pairs=1, records=60_000),
        minutes=10,
    ),
    Benchmark(
        name="nexmark",
        question="How many actions and instance-seconds do policies take for Nexmark, how long are they behind?",
        run=nexmark.run,
        quick=nexmark.quick,
        minutes=300,
    ),
    Benchmark(
        name="measuring-overhead",
        question="What does measuring cost a pipeline on Spark?",
        run=measuring_overhead.run,
        quick=partial(measuring_overhead.run, pairs=1, often_pairs=1, window_s=10.0),
        minutes=30,
    ),
    Benchmark(
        name="hostile-connections",
        question="What do 10,000 connections, idle, slow and hostile, cost a pipeline and a master?",
        run=hostile_connections.run,
        quick=partial(hostile_connections.run, connections=300, pairs=1, window_s=40.0),
        minutes=8,
    ),
    Benchmark(
        name="attached-overhead",
        question="What does being attached to cost a job of somebody else?",
        run=attached_overhead.run,
        quick=partial(attached_overhead.run, pairs=1, window_s=5.0),
        minutes=13,
    ),
    Benchmark(
        name="serving-viewers",
        question="What do ten viewers of its page cost a pipeline on Spark?",
        run=serving_viewers.run,
        quick=partial(serving_viewers.run, pairs=1, window_s=40.0),
        minutes=12,
    ),
    Benchmark(
        name="soak",
        question="Does a pipeline that runs for long need more and more disk, memory, descriptors, threads, time?",
        run=soak.run,
        quick=partial(soak.run, early_s=70.0, late_s=180.0),
        minutes=16,
    ),
    Benchmark(
        name="soak-two-hours",
        question="The same, after two hours by after half an hour",
        run=partial(soak.run, early_s=1_800.0, late_s=7_200.0),
        quick=partial(soak.run, early_s=70.0, late_s=180.0),
        minutes=121,
    ),
    Benchmark(
        name="cpu-bound",
        question="Where does the manager stop when all cores are in use?",
        run=cpu_bound.run,
        quick=partial(cpu_bound.run, duration_s=200.0, knobs=Knobs(interval_s=10.0)),
        minutes=21,
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [benchmark.name for benchmark in BENCHMARKS]
    long = ", ".join(benchmark.name for benchmark in BENCHMARKS if benchmark.minutes > _LONG_MINUTES)
    only = f"only this one; if not given, all but the long ones ({long or 'none'})"
    parser.add_argument("name", nargs="?", choices=names, help=only)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quick", action="store_true", help="over less, to see it work: the numbers mean little")
    given = parser.parse_args(arguments)
    found: dict[str, Report] = {}
    for benchmark in BENCHMARKS:
        if benchmark.name == given.name or (given.name is None and benchmark.minutes <= _LONG_MINUTES):
            found[benchmark.name] = benchmark.quick() if given.quick else benchmark.run()
            if not given.json:
                print("\n".join((f"{benchmark.name}: {benchmark.question}", *_lines(found[benchmark.name]), "")))
    if given.json:
        print(json.dumps({name: _as_json(report) for name, report in found.items()}, indent=1))
    return 0 if all(measure.holds for report in found.values() for measure in report.measures) else 1


def _lines(report: Report) -> list[str]:
    widest = max(len(measure.what) for measure in report.measures)
    rows = [
        f"  {m.what:<{widest}}  {m.value:10,.3f} {m.unit:<5}  {_between(m)}{_verdict(m)}".rstrip()
        for m in report.measures
    ]
    return [*rows, *(f"  {note}" for note in report.notes)]


def _between(measure: Measure) -> str:
    if measure.between is None:
        return ""
    low, high = measure.between
    return f"({low:,.3f} to {high:,.3f})  "


def _verdict(measure: Measure) -> str:
    if measure.at_most is None and measure.at_least is None:
        return ""
    bounds = [f"at least {measure.at_least:g}"] if measure.at_least is not None else []
    bounds += [f"at most {measure.at_most:g}"] if measure.at_most is not None else []
    return f"{', '.join(bounds)}: {'holds' if measure.holds else 'DOES NOT HOLD'}"


def _as_json(report: Report) -> dict[str, object]:
    measures = [{**asdict(measure), "holds": measure.holds} for measure in report.measures]
    return {"measures": measures, "notes": list(report.notes)}


if __name__ == "__main__":
    sys.exit(main())
