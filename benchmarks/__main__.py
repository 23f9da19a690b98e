"""Runs the benchmarks. The exit status is 1 if a bound does not hold."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks import decision_time, node_choice, rescale_pause, simulated_day
from benchmarks.measure import Benchmark, Measure

BENCHMARKS = (
    Benchmark(
        name="decision-time",
        question="How does the time for a DS2 decision grow with the pipeline?",
        run=decision_time.run,
    ),
    Benchmark(
        name="node-choice",
        question="How long does it take to choose nodes from a pool of 1,000, and how does that grow?",
        run=node_choice.run,
    ),
    Benchmark(
        name="simulated-day",
        question="How long does a day on the simulated engine take?",
        run=simulated_day.run,
    ),
    Benchmark(
        name="rescale-pause",
        question="How long does an operator on Spark stand still when it is rescaled?",
        run=rescale_pause.run,
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("name", nargs="?", choices=names, help="only this one; all if not given")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args(arguments)
    found: dict[str, tuple[Measure, ...]] = {}
    for benchmark in BENCHMARKS:
        if given.name in (None, benchmark.name):
            found[benchmark.name] = benchmark.run()
            if not given.json:
                print("\n".join((f"{benchmark.name}: {benchmark.question}", *_lines(found[benchmark.name]), "")))
    if given.json:
        print(json.dumps(_as_json(found), indent=1))
    return 0 if all(measure.holds for measures in found.values() for measure in measures) else 1


def _lines(measures: Sequence[Measure]) -> list[str]:
    widest = max(len(measure.what) for measure in measures)
    return [
        f"  {measure.what:<{widest}}  {measure.value:10,.3f} {measure.unit:<5}  {_verdict(measure)}".rstrip()
        for measure in measures
    ]


def _verdict(measure: Measure) -> str:
    if measure.at_most is None:
        return ""
    return f"at most {measure.at_most:g}: {'holds' if measure.holds else 'DOES NOT HOLD'}"


def _as_json(found: dict[str, tuple[Measure, ...]]) -> dict[str, object]:
    return {
        name: [{**asdict(measure), "holds": measure.holds} for measure in measures]
        for name, measures in found.items()
    }


if __name__ == "__main__":
    sys.exit(main())
