"""The queries of Nexmark, sized by several policies: their actions, what they cost and how long they are behind.

    python -m benchmarks nexmark                                     all that is not done yet
    python -m benchmarks.nexmark --simulated q1 q5                   two queries, on the simulated engine only
    python -m benchmarks.nexmark --most-minutes 7 --policies ds2     as much as fits

Simulated: three hours of a query's shape at the rates of the DS2 paper, from one instance of everything, from 36
of everything, and under a load that moves. On Spark: the query itself, each record of its main operator a wait,
from one instance. Every piece leaves a file in `--folder`, so it is run in pieces and goes on where it stopped;
with another version of elastream take another folder.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Measure, Report
from elastream.arrivals.load import Constant, Load, bundled_trace
from elastream.commands import plots
from elastream.engines.simulated.engine_model import DowntimeScope, EngineModel
from elastream.engines.simulated.ideal import Ideal
from elastream.engines.simulated.simulation import simulate
from elastream.errors import InvalidInput, nearest
from elastream.extras import missing
from elastream.manager.events import Acted
from elastream.manager.knobs import Knobs
from elastream.options import build
from elastream.policies.catalog import create
from elastream.showing.colours import COLOURS
from experiments.nexmark import pipeline
from experiments.nexmark_runs import CASES, Piece, answer_of, on_spark, read_done, run_piece
from experiments.policies_compare import SETUPS, share_behind
from experiments.workloads.nexmark_shapes import AUCTIONS, BIDS, PERSONS, Q1, Q2, Q3, Q5, Q8, Q11, Shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path("out/nexmark-bench")
POLICIES = ("ds2", "flink", "dhalion", "threshold")
SIMULATED, SPARK = "simulated", "spark"
FROM_1, FROM_36, MOVING, ON_SPARK = "from 1", "from 36", "moving load", "from 1, on Spark"
SCENARIOS = {SIMULATED: (FROM_1, FROM_36, MOVING), SPARK: (ON_SPARK,)}
_SHAPES: Mapping[str, tuple[Shape, Mapping[str, float]]] = {
    "q1": (Q1, {BIDS: 4e6}),
    "q2": (Q2, {BIDS: 4e6}),
    "q3": (Q3, {AUCTIONS: 500e3, PERSONS: 100e3}),
    "q5": (Q5, {BIDS: 500e3}),
    "q8": (Q8, {AUCTIONS: 420e3, PERSONS: 120e3}),
    "q11": (Q11, {BIDS: 1e6}),
}
"""With the rates of the DS2 paper for Flink, table 3."""
_TRACE = "clarknet"  # of those that are bundled, that with the steepest hours
_MOST = 36  # the slots of the DS2 paper
_SIMULATED_S = 3 * 3600.0
_SPARK_S: Mapping[str, float] = {"flink": 1800.0}  # which acts for the first time after twenty minutes
_OTHERS_SPARK_S = 240.0
_NOISE, _DOWNTIME_S = 0.03, (2.0, 5.0)
_QUEUE_S = 20.0  # of what arrives: a window may put out ten seconds at once, and what waits is to be held back


@dataclass(frozen=True, kw_only=True)
class Part:
    """What is run at once, and leaves a file."""

    engine: str
    query: str
    policy: str
    scenario: str

    @property
    def name(self) -> str:
        return "-".join((self.engine, self.query, self.policy, self.scenario.replace(", ", "-").replace(" ", "-")))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    actions: int
    last_action_s: float
    instance_s: float
    least_s: float
    """The instance-seconds of the least that suffices."""
    behind: float
    """The share of the time with more waiting than arrives in ten seconds."""

    @property
    def times_least(self) -> float:
        return self.instance_s / self.least_s


Done = Mapping[Part, Outcome]


def run(*, queries: Sequence[str] = tuple(_SHAPES), engines: Sequence[str] = (SIMULATED, SPARK)) -> Report:
    return report(run_missing(parts(queries, POLICIES, engines), FOLDER))


def quick() -> Report:
    """Half an hour of one query, simulated, and nothing kept."""
    found = {part: simulated(part, duration_s=1800.0) for part in parts(["q1"], ("ds2", "flink"), (SIMULATED,))}
    return report(found, picture=None)


def parts(queries: Iterable[str], policies: Sequence[str], engines: Iterable[str]) -> list[Part]:
    return [
        Part(engine=engine, query=query, policy=policy, scenario=scenario)
        for engine in engines
        for query in queries
        for policy in policies
        for scenario in SCENARIOS[engine]
    ]


# Running


def run_missing(wanted: Sequence[Part], folder: Path, *, until_s: float = math.inf) -> Done:
    """What of it is done, once the time is over or nothing is left."""
    folder.mkdir(parents=True, exist_ok=True)
    for engine, start in ((SIMULATED, nullcontext), (SPARK, on_spark)):
        todo = [part for part in wanted if part.engine == engine and not _file(folder, part).exists()]
        if todo and time.time() < until_s:
            with start() as spark:
                for number, part in enumerate(todo, start=1):
                    if time.time() >= until_s:
                        break
                    print(
                        f"{engine}, {number} of {len(todo)}: {part.query}, {part.policy}, {part.scenario}",
                        flush=True,
                    )
                    outcome = simulated(part) if spark is None else _run_on_spark(spark, part)
                    _file(folder, part).write_text(json.dumps(asdict(outcome)) + "\n", encoding="utf-8")
    files = {part: _file(folder, part) for part in wanted}
    return {part: Outcome(**json.loads(file.read_text())) for part, file in files.items() if file.exists()}


def _file(folder: Path, part: Part) -> Path:
    return folder / f"{part.name}.json"


def simulated(part: Part, *, duration_s: float = _SIMULATED_S) -> Outcome:
    setup = SETUPS[part.policy]
    found = simulate(
        model_of(part.query, part.scenario),
        create(setup.policy, setup.options),
        build(Knobs, setup.knobs, place=part.policy),
        duration_s=duration_s,
    )
    acted_s = [event.at_s for event in found.events if isinstance(event, Acted) and event.outcome.succeeded]
    instance_s, measures = 60 * found.elasticity.cost, found.elasticity
    over_s, under_s = (area * duration_s for area in (measures.accuracy_over, measures.accuracy_under))
    return Outcome(
        actions=len(acted_s),
        last_action_s=max(acted_s, default=0.0),
        instance_s=instance_s,
        least_s=instance_s - over_s + under_s,
        behind=share_behind(found),
    )


def model_of(query: str, scenario: str) -> EngineModel:
    """What a record costs is drawn: so that the main operator needs 6 to 28 instances, each other one 0.3 to 3."""
    shape, rates = _SHAPES[query]
    drawn = random.Random(query)
    needs = {
        o.name: drawn.uniform(6, 28) if o.name == shape.main else drawn.uniform(0.3, 3) for o in shape.operators
    }
    moving = bundled_trace(_TRACE)
    loads: Mapping[str, Load] = {
        name: replace(moving, scale=rate / max(moving.records_per_s))
        if scenario == MOVING
        else Constant(records_per_s=rate)
        for name, rate in rates.items()
    }
    model = pipeline(
        shape,
        source_rates=rates,
        needs=needs,
        exponents=dict.fromkeys(needs, 1.0),
        start=1 if scenario == FROM_1 else _MOST,
        loads=loads,
        max_parallelism=_MOST,
    )
    if scenario == MOVING:  # not the beginning is asked about
        first = Ideal(model).least_plan({name: load.rate_at(0) for name, load in loads.items()})
        model = replace(model, initial_plan=first)
    required = shape.required_per_s(rates)
    operators = {n: replace(o, queue_records=_QUEUE_S * required[n]) for n, o in model.operators.items()}
    return replace(
        model,
        operators=operators,
        noise=_NOISE,
        downtime_s=_DOWNTIME_S,
        downtime_scope=DowntimeScope.OPERATOR,
    )


def _run_on_spark(spark: SparkSession, part: Part) -> Outcome:
    case, lasts_s = CASES[part.query], _SPARK_S.get(part.policy, _OTHERS_SPARK_S)
    found = run_piece(spark, Piece(case=case, kind="policy", start=1, policy=part.policy, lasts_s=lasts_s))
    sized = answer_of(case, read_done())
    least = (math.ceil(case.need) if sized is None else sized) + found["others"]
    return Outcome(
        actions=found["actions"],
        last_action_s=found["last_action_s"],
        instance_s=found["instance_s"],
        least_s=least * found["lasts_s"],
        behind=found["behind"],
    )


# What is told


def report(done: Done, picture: Path | None = FOLDER / "nexmark.png") -> Report:
    policies = [policy for policy in POLICIES if any(part.policy == policy for part in done)]
    measures = [
        Measure(what=f"{policy}, {scenario}: {what}", value=_mean(found, of), unit=unit)
        for policy in policies
        for scenario in (FROM_1, FROM_36, MOVING, ON_SPARK)
        if (found := [one for part, one in done.items() if (part.policy, part.scenario) == (policy, scenario)])
        for what, unit, of in (
            ("instance-seconds, times the least", "", lambda one: one.times_least),
            ("of the time behind", "%", lambda one: 100 * one.behind),
            ("actions", "", lambda one: one.actions),
        )
    ]
    notes = (*_table(done), *_not_better(done))
    if picture is not None and done and missing("plot") is None:
        _plot(done, picture)
        notes = (*notes, f"picture: {picture}")
    return Report(measures=tuple(measures), notes=notes)


def _mean(found: Sequence[Outcome], of: Callable[[Outcome], float]) -> float:
    return math.fsum(map(of, found)) / len(found)


_HEADER = f"{'':<36} {'actions':>7} {'the last':>9} {'instance-s':>13} {'× least':>7} {'behind':>7}"


def _table(done: Done) -> list[str]:
    rows = [
        f"{f'{part.query}, {part.scenario}: {part.policy}':<36} {one.actions:7} {one.last_action_s / 60:5.0f} min "
        f"{one.instance_s:13,.0f} {one.times_least:7.2f} {one.behind:7.2%}"
        for part, one in sorted(done.items(), key=lambda item: _order(item[0]))
    ]
    return [_HEADER, *rows]


def _order(part: Part) -> tuple[int, int, int]:
    scenarios = [scenario for engine in SCENARIOS.values() for scenario in engine]
    return list(_SHAPES).index(part.query), scenarios.index(part.scenario), POLICIES.index(part.policy)


def _not_better(done: Done) -> Iterator[str]:
    """Where ds2 needs more than another policy, or is behind for longer: a line each."""
    for part, ds2 in done.items():
        if part.policy != "ds2":
            continue
        other = done.get(replace(part, policy="flink"))
        if other is not None and (ds2.instance_s > other.instance_s or ds2.behind > other.behind):
            yield (
                f"ds2 is not better than flink: {part.query}, {part.scenario}: {ds2.times_least:.2f} and "
                f"{other.times_least:.2f} times the least, {ds2.behind:.2%} and {other.behind:.2%} behind"
            )


def _plot(done: Done, picture: Path) -> None:
    from matplotlib.figure import Figure  # slow to import

    scenarios = [s for s in (FROM_1, FROM_36, MOVING, ON_SPARK) if any(part.scenario == s for part in done)]
    figure = Figure(figsize=(3.2 * len(scenarios) + 0.4, 3.4), layout="constrained")
    figure.suptitle("Nexmark: each mark is a query")
    for axis, scenario in zip(
        figure.subplots(1, len(scenarios), squeeze=False, sharey=True)[0], scenarios, strict=True
    ):
        for policy, colour in zip(POLICIES, COLOURS, strict=False):
            found = [one for part, one in done.items() if (part.policy, part.scenario) == (policy, scenario)]
            axis.scatter(
                [o.times_least for o in found], [100 * o.behind for o in found], color=colour, label=policy
            )
        axis.set(title=scenario, xlabel="instance-seconds, times the least")
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("% of the time behind")
    figure.axes[0].legend()
    plots.save(figure, picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queries", nargs="*", help="all where none is named")
    parser.add_argument("--policies", default=",".join(POLICIES), help="separated by commas")
    parser.add_argument("--simulated", action="store_true", help="nothing on Spark")
    parser.add_argument("--most-minutes", type=float, default=math.inf, help="no piece begins after so long")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    policies = given.policies.split(",")
    for found, known in ((given.queries, _SHAPES), (policies, POLICIES)):
        for name in found:
            if name not in known:
                error = InvalidInput(f"{name!r} is not among {', '.join(known)}{nearest(name, known)}")
                sys.exit(f"error: {error}")
    wanted = parts(given.queries or _SHAPES, policies, (SIMULATED,) if given.simulated else (SIMULATED, SPARK))
    done = run_missing(wanted, given.folder, until_s=time.time() + 60 * given.most_minutes)
    print("\n".join(report(done, given.folder / "nexmark.png").notes))


if __name__ == "__main__":
    main()
