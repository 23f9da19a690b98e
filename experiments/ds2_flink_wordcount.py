"""Section 5.3 of DS2 (figure 7): DS2 drives the word count on Flink through a rise and a fall of its load.

The paper does not say what an instance can do, but its own trajectory does. DS2 answers π to a target rate r at
parallelism p where r / (c/p) rounds up to π, c being the capacity that it measured; so c lies about at
r · p / (π − ½). Each operator's capacity is the power law α·n^β that comes nearest, in least squares of the
logarithms, to all six answers of the paper. Nothing else is fitted, and nothing to what our DS2 makes of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elastream.arrivals.load import Constant, Load, Steps
from elastream.commands import plots
from elastream.engines.simulated.capacity import PowerLaw
from elastream.engines.simulated.engine import SimulatedEngine
from elastream.engines.simulated.engine_model import EngineModel, SourceModel
from elastream.engines.simulated.simulation import Simulation, simulate
from elastream.manager.knobs import Knobs
from elastream.policies.ds2 import AS_PUBLISHED
from elastream.showing import colours
from experiments.frame import Check, Progress, Report, experiment
from experiments.wordcount import (
    COUNT,
    FLATMAP,
    WORDS_PER_SENTENCE,
    Pair,
    actions_as_json,
    finish,
    path,
    path_text,
    sentences_per_s,
    settled_s,
    word_count,
)


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What the paper's DS2 made of a plan; the same plan again where it left it alone."""

    sentences_per_s: float
    plan: Pair
    answer: Pair


# The paper, §5.3
HIGH_PER_S, LOW_PER_S = 2_000_000.0, 1_000_000.0
START = (10, 5)
_PHASE_S = 600.0  # each phase, the first counted from when it had settled
DOWNTIME_S = (30.0, 50.0)
KNOBS = Knobs(
    interval_s=10.0, warm_up_intervals=3, activation_intervals=1, target_rate_ratio=1.0, scale_down_delay_s=0.0
)
_ANSWERS = (
    _Answer(sentences_per_s=HIGH_PER_S, plan=(10, 5), answer=(14, 7)),
    _Answer(sentences_per_s=HIGH_PER_S, plan=(14, 7), answer=(19, 11)),
    _Answer(sentences_per_s=HIGH_PER_S, plan=(19, 11), answer=(19, 11)),
    _Answer(sentences_per_s=LOW_PER_S, plan=(19, 11), answer=(7, 4)),
    _Answer(sentences_per_s=LOW_PER_S, plan=(7, 4), answer=(7, 5)),
    _Answer(sentences_per_s=LOW_PER_S, plan=(7, 5), answer=(7, 5)),
)
_PAPER_IN_FORCE: tuple[tuple[float, Pair], ...] = (
    (0, (10, 5)),
    (70, (14, 7)),
    (200, (19, 11)),
    (845, (7, 4)),
    (930, (7, 5)),
)
_PAPER_SECOND_PHASE_S = 800.0

_MOST_ACTIONS = 2
SMALL_QUEUE = 1.0  # Flink's buffers hold less than the records of a second, which is the least that is simulated
_WATCHED_S = 300
_CURVE_EVERY_S = 5

_DIFFERS = (
    "The first phase ends lower than in the paper (19/11), because no capacity that depends on the number of "
    "instances alone explains all of it: by DS2's answers, one of the same 19 FlatMap instances did 105K to 111K "
    "sentences a second under 2M/s, and 143K to 167K under 1M/s. Something that is not in the model, perhaps "
    "cores shared with the sources, cost more at the higher load. Our law lies between the two.",
    "For the same reason the paper's first step down is larger (19/11 to 7/4, one Count too few), while ours "
    "stops above its goal first: an operator that scales sub-linearly does more per instance once it is smaller, "
    "which DS2 sees only then (property 2).",
    "The second phase begins 600 s after the last action of the first, as in the paper, and so at the end of an "
    "interval. The paper's DS2 reacts 3 s after the change, so it was told the new rate at once. Ours measures "
    "the rate over its interval: were the change in the middle of one, the mean of both rates would lead to a "
    "third action on the way down.",
    "Our source is durable: what arrives while Flink restarts is kept, and is worked off with the little that is "
    "to spare. That is why the rate taken in stays above the target. DS2 does not plan for it.",
    "Other capacities may need a third action, as plain DS2 creeps up to the need of an operator that scales "
    "badly. The experiment ds2-sublinear is about those.",
)


@experiment(
    "ds2-flink-wordcount",
    paper="DS2, section 5.3, figure 7",
    question="Does DS2 find the least parallelism when the load rises and when it falls, without overshooting?",
)
def run(progress: Progress) -> Report:
    progress("first phase", 0.0)
    first = simulate(
        flink_word_count(Constant(records_per_s=HIGH_PER_S)), AS_PUBLISHED, KNOBS, duration_s=_PHASE_S
    )
    change_s = settled_s(first) + _PHASE_S
    progress("both phases", 0.2)
    load = Steps(steps=((0.0, HIGH_PER_S), (change_s, LOW_PER_S)))
    both = simulate(flink_word_count(load), AS_PUBLISHED, KNOBS, duration_s=change_s + _PHASE_S)
    progress("one instance fewer", 0.6)
    high, low = path(both, to_s=change_s), path(both, from_s=change_s)
    checks = (
        *_capacity_checks(),
        *_first_phase_checks(both, high, change_s),
        *_least_checks("phase 1", high[-1], HIGH_PER_S),
        *_second_phase_checks(both, low, change_s),
        *_least_checks("phase 2", low[-1], LOW_PER_S),
    )
    progress("done", 1.0)
    return Report(
        checks=checks,
        differs=_DIFFERS,
        data=_as_json(both, change_s),
        plot=partial(_plot, both, change_s),
    )


# The model


def flink_word_count(load: Load, *, start: Pair = START, hot_share: float | None = None) -> EngineModel:
    """The word count with the capacities that the paper's run on Flink shows."""
    words = _fitted(COUNT)
    return word_count(
        source=SourceModel(load=load),
        flatmap=_fitted(FLATMAP),
        count=replace(words, per_instance_per_s=words.per_instance_per_s * WORDS_PER_SENTENCE),
        start=start,
        sentences_queued=SMALL_QUEUE,
        words_queued=SMALL_QUEUE,
        downtime_s=DOWNTIME_S,
        hot_share=hot_share,
    )


def _fitted(operator: str) -> PowerLaw:
    """The capacity, in sentences per second, that explains the paper's answers best."""
    points = _implied_capacities(operator)
    exponent, log_alone = np.polyfit([math.log(n) for n, _ in points], [math.log(c) for _, c in points], 1)
    return PowerLaw(per_instance_per_s=math.exp(log_alone), exponent=float(exponent))


def _implied_capacities(operator: str) -> list[tuple[int, float]]:
    """Instances, and the sentences per second that they can do together by each of the paper's answers."""
    index = (FLATMAP, COUNT).index(operator)
    return [
        (given.plan[index], given.sentences_per_s * given.plan[index] / (given.answer[index] - 0.5))
        for given in _ANSWERS
    ]


def _falls_behind_per_s(plan: Pair, sentences_per_s: float) -> float:
    """By how many records a second the backlog of a plan grows, when it is left alone."""
    engine = SimulatedEngine(flink_word_count(Constant(records_per_s=sentences_per_s), start=plan))
    engine.wait(_WATCHED_S)
    backlog = engine.history.source_backlog
    begin = _WATCHED_S // 2  # the queues have filled by then
    return (backlog[-1] - backlog[begin - 1]) / (_WATCHED_S - begin)


# The checks


def _capacity_checks() -> tuple[Check, ...]:
    found = {name: _fitted(name) for name in (FLATMAP, COUNT)}
    return tuple(
        Check(
            what=f"capacity of n {label} instances",
            ours=f"{found[name].per_instance_per_s / 1e3:.0f}K · n^{found[name].exponent:.2f} sentences/s",
            paper="not given",
        )
        for name, label in ((FLATMAP, "FlatMap"), (COUNT, "Count"))
    )


def _first_phase_checks(both: Simulation, plans: list[Pair], change_s: float) -> tuple[Check, ...]:
    first_s = both.decisions[0].at_s
    expected_s = (KNOBS.warm_up_intervals + KNOBS.activation_intervals) * KNOBS.interval_s
    return (
        _path_check("phase 1, 2M/s", plans, [_ANSWERS[0].plan, _ANSWERS[0].answer, _ANSWERS[1].answer]),
        Check(
            what="phase 1: no overshoot",
            ours=f"at most {max(f for f, _ in plans)}/{max(c for _, c in plans)}",
            paper="19/11",
            bound="never more instances than at its end",
            holds=all(plan[i] <= plans[-1][i] for plan in plans for i in (0, 1)),
        ),
        Check(
            what="phase 1: first decision",
            ours=f"{first_s:g} s",
            paper="40 s",
            bound="30 s of warm-up and one interval",
            holds=first_s == expected_s,
        ),
        Check(what="phase 1: settled after", ours=f"{change_s - _PHASE_S:.0f} s", paper="200 s"),
    )


def _second_phase_checks(both: Simulation, plans: list[Pair], change_s: float) -> tuple[Check, ...]:
    first_s = next(decision.at_s for decision in both.decisions if decision.at_s > change_s)
    return (
        _path_check("phase 2, 1M/s", plans, [_ANSWERS[3].plan, _ANSWERS[3].answer, _ANSWERS[4].answer]),
        Check(
            what="phase 2: no undershoot",
            ours=f"at least {min(f for f, _ in plans)}/{min(c for _, c in plans)}",
            paper="7/4",
            bound="never fewer instances than at its end",
            holds=all(plan[i] >= plans[-1][i] for plan in plans for i in (0, 1)),
        ),
        Check(what="phase 2: first decision", ours=f"after {first_s - change_s:.0f} s", paper="after 3 s"),
        Check(what="phase 2: settled after", ours=f"{settled_s(both) - change_s:.0f} s", paper="130 s"),
    )


def _path_check(what: str, plans: list[Pair], papers: list[Pair]) -> Check:
    return Check(
        what=f"{what}: FlatMap/Count",
        ours=path_text(plans),
        paper=path_text(papers),
        bound=f"at most {_MOST_ACTIONS} actions",
        holds=len(plans) - 1 <= _MOST_ACTIONS,
    )


def _least_checks(phase: str, end: Pair, sentences_per_s: float) -> tuple[Check, ...]:
    """That the end of a phase sustains its rate, and that it does not with one instance fewer."""
    flatmaps, counts = end
    checks = []
    for plan, sustained in ((end, True), ((flatmaps - 1, counts), False), ((flatmaps, counts - 1), False)):
        growth = _falls_behind_per_s(plan, sentences_per_s)
        holds = growth < 1 if sustained else growth >= 1  # a fluid model rounds; one record a second is nothing
        checks.append(
            Check(
                what=f"{phase}: {path_text([plan])} left alone",
                ours="keeps up" if growth < 1 else f"falls behind by {growth / 1e3:,.0f}K/s",
                bound="keeps up" if sustained else "falls behind",
                holds=holds,
            )
        )
    return tuple(checks)


# What is left behind


def _as_json(both: Simulation, change_s: float) -> dict[str, Any]:
    minutes, rates = sentences_per_s(both, every_s=_CURVE_EVERY_S)
    return {
        "capacities": {
            name: {
                "sentences_per_s_alone": _fitted(name).per_instance_per_s,
                "exponent": _fitted(name).exponent,
                "implied_by_the_paper": _implied_capacities(name),
            }
            for name in (FLATMAP, COUNT)
        },
        "second_phase_from_s": change_s,
        "actions": actions_as_json(both),
        "downtimes_s": both.history.downtimes_s,
        "curve": {"minutes": minutes, "sentences_per_s": rates},
    }


def _plot(both: Simulation, change_s: float, file: Path) -> None:
    title = "Word count on Flink: DS2 through a rise and a fall (DS2, section 5.3)"
    figure, axes = plots.new_figure(2, title=title, height=3.0)
    _plot_rates(axes[0], both, change_s)
    _plot_instances(axes[1], both, change_s)
    for axis in axes:
        for number, (begin_s, end_s) in enumerate(both.history.downtimes_s):
            label = "" if number else "Flink restarts"
            axis.axvspan(begin_s / 60, end_s / 60, color="0.88", linewidth=0, zorder=0, label=label)
    finish(axes, both)
    plots.save(figure, file)


def _plot_rates(axis: Any, both: Simulation, change_s: float) -> None:
    times = [0.0, change_s / 60, both.duration_s / 60]
    target = [HIGH_PER_S / 1e6, LOW_PER_S / 1e6, LOW_PER_S / 1e6]
    axis.step(times, target, where="post", color="0.4", linestyle="--", linewidth=1.2, label="target")
    minutes, per_s = sentences_per_s(both, every_s=_CURVE_EVERY_S)
    axis.plot(minutes, [rate / 1e6 for rate in per_s], color=colours.COLOURS[0], linewidth=1.4, label="taken in")
    axis.set_ylabel("million sentences\nper second")


def _plot_instances(axis: Any, both: Simulation, change_s: float) -> None:
    """Ours and the paper's in two colours, FlatMap and Count in two line styles."""
    for index, (name, label, style) in enumerate(((FLATMAP, "FlatMap", "-"), (COUNT, "Count", "--"))):
        ours, papers = plots.steps(both, (name,)), _paper_steps(index, change_s, both.duration_s)
        axis.step(*ours, where="post", color=colours.COLOURS[0], linestyle=style, linewidth=1.8, label=label)
        label = f"{label} in the paper"
        axis.step(*papers, where="post", color=colours.COLOURS[1], linestyle=style, linewidth=1.2, label=label)
    axis.set_ylabel("instances")
    axis.yaxis.get_major_locator().set_params(integer=True)


def _paper_steps(index: int, change_s: float, end_s: float) -> tuple[list[float], list[int]]:
    """The paper's trajectory for a step plot, its second phase moved to where ours begins."""
    times, counts = [], []
    for in_force_s, plan in _PAPER_IN_FORCE:
        late_s = change_s - _PAPER_SECOND_PHASE_S if in_force_s > _PAPER_SECOND_PHASE_S else 0.0
        times.append((in_force_s + late_s) / 60)
        counts.append(plan[index])
    return [*times, end_s / 60], [*counts, counts[-1]]
