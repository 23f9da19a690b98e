"""What scaling costs in messages when the load only grows (the paper, 5.4 and Figure 6; the thesis, Figure 3.6).

A duplication of k instances by n takes 2·min(k, n)·(successors + predecessors) + k messages. The load grows by the
same share in every step, so that k grows with n; then messages grow with the square of the instances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np

from elastream.commands import plots
from elastream.showing import colours
from experiments.decentralized_setup import CAPACITY, OPERATORS, PAPER, five_operators
from experiments.decentralized_simulator import Round, ScalingHistory, simulate_steps
from experiments.frame import Check, Progress, Report, experiment

_INSTANCES = 7
_STEPS = 130
_PERIOD = 5  # steps in which every instance looks at its load once
_SEEDS = 3
_GROWTH = 0.02
_LINEAR_PER_STEP = 150.0
_LEAST_EXPONENT, _MOST_EXPONENT = 1.8, 2.2

_DIFFERS = (
    "The formula counts with neighbours that stand still. Here neighbours grow in the same steps, and an "
    "instance that begins before it has heard of a newcomer has one neighbour less than its sibling that has: "
    "the rounds that differ from the formula differ by that.",
    "Counted is over five steps, in which every instance looks once. Over single steps the exponent comes out "
    "lower (1.56 with 100 steps), since few instances make a step with no duplication at all, which a logarithm "
    "has no place for, or one with at least one.",
    "The thesis calls the growth quadratic without saying how its load grows. It is quadratic where the load "
    "grows by a share, as k then grows with n. Where it grows by a constant number of records, k does not, and "
    "the messages of a round grow linearly; their sum over time is then the quadratic one.",
)


@dataclass(frozen=True, slots=True)
class _Growing:
    """More in every step: by a share of itself, or by a number of records."""

    start: float
    share: float = 0.0
    per_step: float = 0.0

    def rate_at(self, t_s: float) -> float:
        return float(self.start * (1 + self.share) ** t_s + self.per_step * t_s)


@experiment(
    "decentralized-traffic",
    paper=f"{PAPER}, §5.4, Figure 6; Figure 3.6",
    question="How many messages does scaling take, and how do they grow with the number of instances?",
)
def run(tell: Progress) -> Report:
    start = _INSTANCES * CAPACITY * 0.7
    tell("growing by a share", 0.0)
    by_share = _histories(_Growing(start, share=_GROWTH))
    tell("growing by a number", 0.6)
    linear = _histories(_Growing(start, per_step=_LINEAR_PER_STEP))
    rounds = [found for history in by_share for found in history.rounds if _complete(found)]
    points = [_points(history) for history in by_share]
    return Report(
        checks=tuple(_checks(rounds, points, [_points(history) for history in linear])),
        differs=_DIFFERS,
        data={
            "rounds": [
                {
                    "instances": found.instances,
                    "added": found.added,
                    "neighbours": found.neighbours,
                    "messages": found.messages,
                    "formula": _formula(found),
                }
                for found in rounds[:200]
            ],
            "messages_by_instances": points[0],
        },
        plot=partial(_plot, rounds, points),
    )


def _histories(load: _Growing) -> list[ScalingHistory]:
    setup = five_operators(dict.fromkeys(OPERATORS, load), instances=_INSTANCES)
    return [simulate_steps(setup, steps=_STEPS, seed=seed) for seed in range(_SEEDS)]


def _complete(found: Round) -> bool:
    return found.step < _STEPS - 3


def _formula(found: Round) -> int:
    return 2 * min(found.added, found.instances) * found.neighbours + found.added


def _points(history: ScalingHistory) -> list[tuple[int, int]]:
    """All instances, and the messages of all rounds that began in a period, for periods with duplications."""
    messages: defaultdict[int, int] = defaultdict(int)
    for found in history.rounds:
        if _complete(found):
            messages[found.step // _PERIOD * _PERIOD] += found.messages
    return [(history.total(step), sent) for step, sent in sorted(messages.items())]


def exponent(points: Sequence[tuple[int, int]]) -> float:
    """The power of the instances that the messages grow with: the slope in logarithms."""
    nodes, sent = np.log(np.array(points, dtype=float)).T
    return float(np.polyfit(nodes, sent, 1)[0])


def _summed(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    total = np.cumsum([sent for _, sent in points])
    return [(nodes, int(sent)) for (nodes, _), sent in zip(points, total, strict=True)]


def _checks(
    rounds: Sequence[Round], points: Sequence[list[tuple[int, int]]], linear: Sequence[list[tuple[int, int]]]
) -> list[Check]:
    exact = sum(found.messages == _formula(found) for found in rounds) / len(rounds)
    ratio = sum(found.messages for found in rounds) / sum(map(_formula, rounds))
    grows = exponent([point for run in points for point in run])
    return [
        Check(
            what=f"messages of {len(rounds):,} rounds by the formula's",
            ours=f"{ratio:.3f}, the same in {exact:.0%} of the rounds",
            paper="1",
            bound="0.95 to 1.05",
            holds=0.95 <= ratio <= 1.05,
        ),
        Check(
            what=f"exponent of the growth, load +{_GROWTH:.0%} a step",
            ours=f"{grows:.2f}",
            paper="2 (quadratic)",
            bound=f"{_LEAST_EXPONENT} to {_MOST_EXPONENT}",
            holds=_LEAST_EXPONENT <= grows <= _MOST_EXPONENT,
        ),
        Check(
            what=f"the same, load +{_LINEAR_PER_STEP:g} records a step",
            ours=f"{exponent([point for run in linear for point in run]):.2f} for a period, "
            f"{mean(exponent(_summed(run)[len(run) // 3 :]) for run in linear):.2f} for all since the start",
        ),
    ]


def _plot(rounds: Sequence[Round], points: Sequence[list[tuple[int, int]]], file: Path) -> None:
    figure, (growth,) = plots.new_figure(
        1,
        title="Messages of the duplications of five steps (all operators) and of one round (one operator)",
        height=4.0,
    )
    nodes, sent = zip(*(point for run in points for point in run), strict=True)
    growth.loglog(nodes, sent, ".", color=colours.COLOURS[0], markersize=3, label="all five operators")
    single = [(found.instances, found.messages, _formula(found)) for found in rounds]
    growth.loglog(
        [n for n, _, _ in single], [m for _, m, _ in single], "x", color=colours.COLOURS[1], markersize=3
    )
    growth.loglog([], [], "x", color=colours.COLOURS[1], label="one operator")
    growth.set_xlabel("instances")
    growth.set_ylabel("messages")
    growth.legend(frameon=False, fontsize="small")
    plots.save(figure, file)
