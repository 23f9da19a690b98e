"""Table III and figure 7 of Gesscale: its autoscalers, ours and the ideal one on two days of taxi rides.

Everything is simulated: the testbed of `fog_testbed.py`, whose unpublished parameters are chosen by argument
there, under the load of `workloads/taxi_rides.py`, which has both of the paper's strong falls. All algorithms meet
the same load, nodes and downtimes; the seed draws the noise of the load, where the nodes are, and what the unaware
ones choose. They are run as the paper says: asked every minute, also in the one after an action, and nothing is
taken back.

A backlog is replayed in two ways: at the pace at which it came, as the paper's excess times suggest, and as fast
as can be, as a consumer of Kafka does.

The threshold on DT of Algorithm 2 is not published either. It is the share of the capacity that a scale-down
leaves unused: a fifth, so that the noise of the load does not ask for the instance again; a tenth for ours, which
has another guard, that a removal must pay for its action.

The bounds are of ours against the paper's three baselines, for each kind of replay, and such that the ideal
autoscaler would hold them. What the paper claims of Gesscale as published is shown beside what came of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from elastream.commands import plots
from elastream.engines.simulated.ideal import Ideal
from elastream.engines.simulated.simulation import Simulation, simulate, simulate_ideal
from elastream.manager.knobs import Knobs
from elastream.measurement.elasticity import Elasticity
from elastream.options import build
from elastream.policies.catalog import create, info
from elastream.showing import colours
from experiments.fog_testbed import OPERATOR, SOURCE, FogTestbed
from experiments.frame import Check, Progress, Report, experiment
from experiments.panels import new_panels

SEEDS = 10
SEEDS_WHEN_CHANGED = 2
_EVERY_MINUTE = {"warm_up_intervals": 0}

_THR_UNAWARE, _THR_AWARE, _MDL, _GESSCALE = "THR-NLUnaware", "THR-NLAware", "MDL-NLUnaware", "Gesscale"
_OURS, _IDEAL = "ours", "ideal"
_POLICIES = {
    _THR_UNAWARE: "thr-nlunaware",
    _THR_AWARE: "thr-nlaware",
    _MDL: "mdl-nlunaware",
    _GESSCALE: "gesscale-paper",
    _OURS: "gesscale",
}
_BASELINES = (_THR_UNAWARE, _THR_AWARE, _MDL)
_PUBLISHED = (*_BASELINES, _GESSCALE)
_SPARE = {_MDL: 0.2, _GESSCALE: 0.2, _OURS: 0.1}
"""The threshold on DT."""
_WITH_SEED = _BASELINES
PACED, FULL_SPEED = "paced", "full speed"
REPLAYS = {PACED: 1.0, FULL_SPEED: math.inf}

_FEWER = 1 / 3
_BEST_IN = 6
_NEAR_IDEAL = 0.03


@dataclass(frozen=True, kw_only=True)
class _Measure:
    name: str
    of: Callable[[Elasticity], float]
    digits: int
    paper: tuple[float, float, float, float]
    """In the order of the compared algorithms."""

    def text(self, values: Sequence[float]) -> str:
        spread = f" ± {stdev(values):,.{self.digits}f}" if len(values) > 1 else ""
        return f"{fmean(values):,.{self.digits}f}{spread}"


_MEASURES = (
    _Measure(name="accuracy over", of=lambda e: e.accuracy_over, digits=3, paper=(1.636, 1.517, 1.713, 0.838)),
    _Measure(name="accuracy under", of=lambda e: e.accuracy_under, digits=3, paper=(0.742, 0.640, 0.622, 0.499)),
    _Measure(
        name="time over, %", of=lambda e: 100 * e.timeshare_over, digits=1, paper=(51.11, 46.67, 60.42, 49.31)
    ),
    _Measure(
        name="time under, %", of=lambda e: 100 * e.timeshare_under, digits=1, paper=(30.28, 22.99, 25.00, 21.74)
    ),
    _Measure(name="excess time", of=lambda e: e.excess_time, digits=3, paper=(0.163, 0.115, 0.126, 0.042)),
    _Measure(name="reconfigurations", of=lambda e: e.reconfigurations, digits=1, paper=(25, 19, 16, 12)),
    _Measure(name="cost", of=lambda e: e.cost, digits=0, paper=(1199.5, 1193.75, 1270.5, 999.5)),
)
_TIME_UNDER, _RECONFIGURATIONS, _COST = _MEASURES[3], _MEASURES[5], _MEASURES[6]

Change = tuple[FogTestbed, float]
"""A testbed, and how many times larger the threshold on DT is."""
_CHANGES: Mapping[str, Change] = {
    "an instance does half": (FogTestbed(alpha_per_s=40.0), 1.0),
    "an instance does half more": (FogTestbed(alpha_per_s=120.0), 1.0),
    "half the loss with more instances (β 0.95)": (FogTestbed(beta=0.95), 1.0),
    "half more of it (β 0.85)": (FogTestbed(beta=0.85), 1.0),
    "delays cost half": (FogTestbed(largest_delay_costs=0.5), 1.0),
    "delays cost half more": (FogTestbed(largest_delay_costs=1.5), 1.0),
    "actions take 60 s": (FogTestbed(downtime_s=60.0), 1.0),
    "actions take 180 s": (FogTestbed(downtime_s=180.0), 1.0),
    "half the threshold on DT": (FogTestbed(), 0.5),
    "half more of it": (FogTestbed(), 1.5),
}

_Runs = Mapping[str, Sequence[Elasticity]]
"""By algorithm, one for each seed."""


@experiment(
    "gesscale-table3",
    paper="Gesscale, table III and figure 7",
    question="Do a learned model and the right nodes save instances and actions under two days of taxi rides?",
    minutes=15,
)
def run(progress: Progress) -> Report:
    return report(progress, seeds=SEEDS, seeds_when_changed=SEEDS_WHEN_CHANGED, changes=_CHANGES)


def report(
    progress: Progress, *, seeds: int, seeds_when_changed: int, changes: Mapping[str, Change] = _CHANGES
) -> Report:
    every, compared = (*_POLICIES, _IDEAL), (*_BASELINES, _OURS, _IDEAL)
    total = len(REPLAYS) * (len(every) * seeds + len(changes) * len(compared) * seeds_when_changed)
    done = 0

    def several(what: str, labels: Sequence[str], testbed: FogTestbed, times: float, count: int) -> _Runs:
        nonlocal done
        found: dict[str, list[Elasticity]] = {label: [] for label in labels}
        for label in labels:
            for seed in range(count):
                progress(f"{what}: {label}", done / total)
                found[label].append(simulate_one(label, seed, testbed=testbed, times_spare=times).elasticity)
                done += 1
        return found

    runs = {
        replay: several(replay, every, FogTestbed(replay_speed=speed), 1.0, seeds)
        for replay, speed in REPLAYS.items()
    }
    changed = {
        f"{what}, {replay}": several(
            f"{what}, {replay}",
            compared,
            dataclasses.replace(testbed, replay_speed=speed),
            times,
            seeds_when_changed,
        )
        for what, (testbed, times) in changes.items()
        for replay, speed in REPLAYS.items()
    }
    drawn = {label: simulate_one(label, 0) for label in every}
    progress("done", 1.0)
    return Report(
        checks=(
            *(check for replay, found in runs.items() for check in _bounds(replay, found)),
            *_published(runs[PACED]),
            *(check for replay, found in runs.items() for check in _table(replay, found)),
            *_changes(runs, changed, seeds_when_changed),
        ),
        differs=_notes(runs[PACED]),
        data={
            "testbed": {name: value for name, value in asdict(FogTestbed()).items() if name != "rides"},
            "runs": {replay: _as_json(found) for replay, found in runs.items()},
            "changed": {what: _as_json(found) for what, found in changed.items()},
        },
        plot=partial(_plot, drawn),
    )


def simulate_one(
    label: str, seed: int, *, testbed: FogTestbed | None = None, times_spare: float = 1.0
) -> Simulation:
    testbed = testbed or FogTestbed()
    model, duration_s = testbed.model(seed), testbed.rides.duration_s
    if label == _IDEAL:
        return simulate_ideal(model, duration_s=duration_s)
    name = _POLICIES[label]
    options: dict[str, Any] = {"seed": seed} if label in _WITH_SEED else {}
    if label in _SPARE:
        options["spare"] = times_spare * _SPARE[label]
    knobs = build(Knobs, {**info(name).knobs, **_EVERY_MINUTE}, place=name)
    return simulate(model, create(name, options), knobs, duration_s=duration_s)


# The checks


def _mean(runs: _Runs, label: str, measure: _Measure) -> float:
    return fmean(measure.of(found) for found in runs[label])


def _lost(runs: _Runs, label: str) -> list[str]:
    """The measures in which a baseline is better."""
    return [
        measure.name
        for measure in _MEASURES
        if min(_mean(runs, other, measure) for other in _BASELINES) < _mean(runs, label, measure)
    ]


def _saved(runs: _Runs, label: str, measure: _Measure, *, by: str) -> float:
    return 1 - _mean(runs, by, measure) / _mean(runs, label, measure)


def _bounds(replay: str, runs: _Runs) -> tuple[Check, ...]:
    fewer = {label: _saved(runs, label, _RECONFIGURATIONS, by=_OURS) for label in _BASELINES}
    lost = _lost(runs, _OURS)
    above = _mean(runs, _OURS, _COST) / _mean(runs, _IDEAL, _COST) - 1
    short, best = _mean(runs, _OURS, _TIME_UNDER), min(_mean(runs, label, _TIME_UNDER) for label in _BASELINES)
    return (
        Check(
            what=f"{replay}: ours takes fewer actions than each baseline",
            ours=", ".join(f"{share:.0%} than {label}" for label, share in fewer.items()),
            bound="a third at least",
            holds=min(fewer.values()) >= _FEWER,
        ),
        Check(
            what=f"{replay}: ours is best or equal beside the baselines in",
            ours=f"{len(_MEASURES) - len(lost)} of 7 measures" + (f"; not in {', '.join(lost)}" if lost else ""),
            paper="6 of 7; not in time over",
            bound=f"at least {_BEST_IN}",
            holds=len(_MEASURES) - len(lost) >= _BEST_IN,
        ),
        Check(
            what=f"{replay}: the cost of ours beside the ideal's",
            ours=f"{above:+.1%}",
            bound=f"within {_NEAR_IDEAL:.0%}",
            holds=above <= _NEAR_IDEAL,
        ),
        Check(
            what=f"{replay}: ours is short for",
            ours=f"{short:.1f} % of the time; the best baseline {best:.1f} %",
            bound="no longer than the best baseline",
            holds=short <= best,
        ),
    )


def _published(runs: _Runs) -> tuple[Check, ...]:
    """What the paper claims, of Gesscale as published: shown, and bound to nothing."""
    lost = _lost(runs, _GESSCALE)
    aware, unaware = (_saved(runs, label, _RECONFIGURATIONS, by=_GESSCALE) for label in (_THR_AWARE, _THR_UNAWARE))
    cheaper = min(_saved(runs, label, _COST, by=_GESSCALE) for label in (_THR_AWARE, _THR_UNAWARE))
    best = f"{len(_MEASURES) - len(lost)} of 7 measures" + (f"; not in {', '.join(lost)}" if lost else "")
    return (
        Check(what="as published: best of the four in", ours=best, paper="6 of 7; not in time over"),
        Check(what="as published: fewer reconfigurations than THR-NLAware", ours=f"{aware:.0%}", paper="37%"),
        Check(what="as published: fewer reconfigurations than THR-NLUnaware", ours=f"{unaware:.0%}", paper="52%"),
        Check(what="as published: lower cost than either threshold variant", ours=f"{cheaper:.1%}", paper="16.3%"),
    )


def _table(replay: str, runs: _Runs) -> list[Check]:
    rows = []
    for measure in _MEASURES:
        papers = dict(zip(_PUBLISHED, measure.paper, strict=True)) if replay == PACED else {}
        for label, found in runs.items():
            paper = f"{papers[label]:,.{measure.digits}f}" if label in papers else "—"
            ours = measure.text([measure.of(one) for one in found])
            rows.append(Check(what=f"{replay}: {measure.name}: {label}", ours=ours, paper=paper))
    return rows


def _changes(runs: Mapping[str, _Runs], changed: Mapping[str, _Runs], seeds: int) -> list[Check]:
    first = {
        f"nothing ({seeds} seeds), {replay}": {label: several[:seeds] for label, several in found.items()}
        for replay, found in runs.items()
    }
    return [
        Check(what=f"changed: {what}", ours=_moved_text(found)) for what, found in {**first, **changed}.items()
    ]


def _moved_text(runs: _Runs) -> str:
    """Which of the four bounds break, and the numbers that they are about."""
    bounds = _bounds("", runs)
    names = ("actions", "measures", "cost", "time short")
    broken = [name for name, bound in zip(names, bounds, strict=True) if not bound.holds]
    numbers = "; ".join(bound.ours for bound in bounds)
    return f"{'breaks ' + ', '.join(broken) if broken else 'all hold'}: {numbers}"


def _notes(runs: _Runs) -> tuple[str, ...]:
    ideal = fmean(found.cost for found in runs[_IDEAL]) / (FogTestbed().rides.duration_s / 60)
    return (
        "The columns of table III: instances too many and too few on average, the shares of the time with too "
        "many and with too few, the time left to do at the end as a share of the run, actions, instance minutes. "
        "Ours are the mean and the standard deviation over the seeds; the paper has one run.",
        f"Chosen by argument, as the paper does not publish it: an instance does {FogTestbed().alpha_per_s:g} "
        f"records/s, so that the ideal autoscaler has {ideal:.1f} on average (table III implies 3.1 to 3.3); β = "
        f"{FogTestbed().beta:g}; 300 ms cost what one instance does alone; nodes at random in a square; the "
        "threshold on DT is a fifth, for ours a tenth; the rides begin at four in the morning.",
        "Paced: in table III the excess time is near to the actions times 120 s, so the paper's runs hardly made "
        "up for them. At full speed every action leaves two minutes of records that keep CPU and back pressure "
        "high; the baselines, and Gesscale as published, then grow on until they are gone.",
        "Gesscale as published waits for back pressure, which is there only once the load is above what it "
        "sustains, where a threshold rule acts at 90 % of it; so it is short for longer. Its cost below that of "
        "the threshold rules is in part that of having too few.",
        "The changed rows: which of the four bounds break when a parameter that the paper does not publish "
        "changes by half. Delays enter only as a product with their cost, so half the delays is half the cost.",
    )


def _as_json(runs: _Runs) -> dict[str, list[dict[str, Any]]]:
    return {label: [asdict(found) for found in several] for label, several in runs.items()}


# Figure 7: three panels for each algorithm


def _plot(drawn: Mapping[str, Simulation], file: Path) -> None:
    title = "Two days of taxi rides on ten nodes (simulated), seed 0"
    figure, axes = new_panels(3, len(drawn), title=title, width=3.2, height=2.0, sharex=True, sharey="row")
    for column, (label, simulation) in enumerate(drawn.items()):
        rates, replicas, accuracy = axes[:, column]
        colour = colours.COLOURS[column % len(colours.COLOURS)]
        minutes, arriving, processed = _rates(simulation)
        rates.plot(minutes, arriving, color="0.5", linestyle="--", linewidth=1.0)
        rates.plot(minutes, processed, color=colour, linewidth=1.0)
        replicas.step(*plots.steps(simulation, (OPERATOR,)), where="post", color=colour, linewidth=1.4)
        accuracy.axhline(0, color="0.5", linewidth=0.8)
        accuracy.step(*_difference(simulation), where="post", color=colour, linewidth=1.0)
        rates.set_title(label, fontsize="medium")
        accuracy.set_xlabel("minutes")
    for axis, text in zip(axes[:, 0], ("records/s: in (grey), out", "instances", "beside the ideal"), strict=True):
        axis.set_ylabel(text, fontsize="small")
    plots.save(figure, file)


def _rates(simulation: Simulation) -> tuple[list[float], list[float], list[float]]:
    """For each minute: what came in, and what the operator was given."""
    history = simulation.history
    every = round(60 / simulation.model.step_s)
    within = int(simulation.duration_s / simulation.model.step_s)
    begins = range(0, within, every)
    arriving, emitted = history.arriving_per_s[SOURCE], history.emitted_per_s[SOURCE]
    return (
        [history.times_s[begin] / 60 for begin in begins],
        [fmean(arriving[begin : begin + every]) for begin in begins],
        [fmean(emitted[begin : begin + every]) for begin in begins],
    )


def _difference(simulation: Simulation) -> tuple[list[float], list[int]]:
    """For each minute: instances more than the ideal autoscaler has."""
    ideal, load = Ideal(simulation.model), simulation.model.sources[SOURCE].load
    minutes = [float(minute) for minute in range(round(simulation.duration_s / 60))]
    return minutes, [
        simulation.plan_at(60 * minute)[OPERATOR] - ideal.least_plan({SOURCE: load.rate_at(60 * minute)})[OPERATOR]
        for minute in minutes
    ]
