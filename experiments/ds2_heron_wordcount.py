"""Section 5.2 of DS2 (figures 1 and 6): DS2 and Dhalion take the same starved word count on Heron to its size.

The paper gives the rates, the queues' 100 MiB and DS2's settings. It does not say how large a record is, how fast
the source replays what it could not emit, or how long Heron stands still; those are the assumptions below. None
was fitted to the result: the report shows what other paces of replay, the one that matters, would have given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from elastream.arrivals.load import Constant
from elastream.commands import plots
from elastream.engines.simulated.capacity import PowerLaw
from elastream.engines.simulated.engine_model import EngineModel, SourceModel
from elastream.engines.simulated.simulation import Simulation, simulate
from elastream.manager.knobs import Knobs
from elastream.policies.dhalion import Dhalion
from elastream.policies.ds2 import AS_PUBLISHED
from elastream.showing import colours
from experiments.frame import Check, Progress, Report, experiment
from experiments.wordcount import (
    COUNT,
    COUNT_PER_S,
    FLATMAP,
    FLATMAP_PER_S,
    LOAD_PER_S,
    WORDS_PER_SENTENCE,
    actions_as_json,
    finish,
    pair_of,
    path,
    path_text,
    sentences_per_s,
    settled_s,
    word_count,
)

# The paper, §5.2
_QUEUE_BYTES = 100 * 2**20
_INTERVAL_S = 60.0
_NEEDED = (10, 20)  # DS2's answer, and the least that sustains the load
_PAPER_DHALION = (22, 30)
_PAPER_DHALION_ACTIONS = 6
_PAPER_DHALION_SETTLED_S = 2000

# Dhalion in Heron: DynamicResourceAllocationPolicy looks every 60 s, and again 180 s after an action
_LOOK_S = 60.0
_LOOK_AFTER_ACTION_S = 180.0

# Assumed: a word has five letters, a space comes with it in a sentence, and Heron adds about 30 bytes to a tuple
_TUPLE_BYTES = 30
_WORD_BYTES = 5 + _TUPLE_BYTES
_SENTENCE_BYTES = round(WORDS_PER_SENTENCE) * (5 + 1) + _TUPLE_BYTES
# Assumed: Heron's UpdateTopologyManager pauses the topology, sleeps for 10 s and then asks every 10 s whether the
# new plan is up; with the start of containers in between, 30 s
_DOWNTIME_S = 30.0
# Assumed: the source is durable, and to be able to catch up it can emit twice what arrives
_REPLAY_PACE = 2.0
_OTHER_PACES = (1.0, 1.5, 4.0, math.inf)

_DURATION_S = 2700.0
_LEAST_DHALION_ACTIONS = 4
_CURVE_EVERY_S = 20

_DS2_KNOBS = Knobs(
    interval_s=_INTERVAL_S,
    warm_up_intervals=0,
    activation_intervals=1,
    target_rate_ratio=1.0,
    scale_down_delay_s=0.0,
)
_DHALION_KNOBS = Knobs(
    interval_s=_LOOK_S,
    warm_up_intervals=round(_LOOK_AFTER_ACTION_S / _LOOK_S) - 1,
    activation_intervals=1,
    scale_down_delay_s=0.0,
    target_rate_ratio=0.0,  # Heron knows neither of these two
    rollback_drop=None,
)

_DIFFERS = (
    "Dhalion sizes each operator for the pace at which the source replays, not for the load. A source with a "
    f"backlog pushes as fast as it can ({_REPLAY_PACE:g} times the load, assumed), and backpressure tells no more "
    "than that it has to wait. The paper does not give its source's pace. At the pace of the load Dhalion ends "
    "where DS2 does; the faster the replay, the further it overshoots, and it never shrinks.",
    "FlatMap and Count end in the ratio of their needs, 1 to 2, where the paper has 22 and 30; which backpressure "
    "it measured is not told. Ours is the exact share of time that a full queue costs. Heron stops all sources at "
    "a high-water mark of 100 MiB and lets them go at a lower one, so that what it measures in a minute depends "
    "on where in this cycle the minute falls.",
    "Five actions where the paper has six, and 18 minutes where it has 33. Our manager waits after the start as "
    "it does after an action, so the queues are full when Dhalion first looks, and its first step is the largest "
    f"that it allows itself. Downtime ({_DOWNTIME_S:g} s, assumed) and the size of a tuple ({_SENTENCE_BYTES} "
    f"bytes for a sentence, {_WORD_BYTES} for a word, assumed) move the times, too.",
    "10/20 sustains the load and not one sentence more, so what came in while DS2 measured and Heron restarted "
    "stays in the source. The paper's DS2 leaves it there, too; our option catch_up_s would work it off.",
)


@experiment(
    "ds2-heron-wordcount",
    paper="DS2, section 5.2, figures 1 and 6",
    question="How many actions, and how long, until a starved word count keeps up: DS2 beside Heron's Dhalion?",
)
def run(progress: Progress) -> Report:
    progress("DS2", 0.0)
    ds2 = simulate(_model(_REPLAY_PACE), AS_PUBLISHED, _DS2_KNOBS, duration_s=_DURATION_S)
    dhalion: dict[float, Simulation] = {}
    for number, pace in enumerate((_REPLAY_PACE, *_OTHER_PACES), start=1):
        progress(f"Dhalion, replay at {_pace_text(pace)}", number / (len(_OTHER_PACES) + 2))
        dhalion[pace] = simulate(_model(pace), Dhalion(), _DHALION_KNOBS, duration_s=_DURATION_S)
    shown = {"DS2": ds2, "Dhalion": dhalion[_REPLAY_PACE]}
    progress("done", 1.0)
    return Report(
        checks=(*_ds2_checks(ds2), *_dhalion_checks(dhalion[_REPLAY_PACE], ds2), _any_pace(dhalion)),
        differs=_DIFFERS,
        data={
            "runs": {label: _as_json(run) for label, run in shown.items()},
            "dhalion_by_replay_pace": {_pace_text(pace): path(run) for pace, run in sorted(dhalion.items())},
        },
        plot=partial(_plot, shown),
    )


def _model(replay_pace: float) -> EngineModel:
    return word_count(
        source=SourceModel(load=Constant(records_per_s=LOAD_PER_S), max_rate_per_s=replay_pace * LOAD_PER_S),
        flatmap=PowerLaw(per_instance_per_s=FLATMAP_PER_S),
        count=PowerLaw(per_instance_per_s=COUNT_PER_S),
        start=(1, 1),
        sentences_queued=_QUEUE_BYTES / _SENTENCE_BYTES,
        words_queued=_QUEUE_BYTES / _WORD_BYTES,
        downtime_s=_DOWNTIME_S,
    )


def _ds2_checks(run: Simulation) -> tuple[Check, ...]:
    decided = [decision.at_s for decision in run.decisions]
    return (
        Check(what="DS2: actions", ours=str(run.actions), paper="1", bound="exactly 1", holds=run.actions == 1),
        Check(
            what="DS2: decides after",
            ours=", ".join(f"{at_s:g} s" for at_s in decided),
            paper="60 s",
            bound="one interval of 60 s",
            holds=decided == [_INTERVAL_S],
        ),
        Check(
            what="DS2: FlatMap/Count",
            ours=path_text(path(run)),
            paper=path_text([(1, 1), _NEEDED]),
            bound="ends at 10/20",
            holds=pair_of(run.final_plan) == _NEEDED,
        ),
        Check(what="DS2: stable from", ours=f"{settled_s(run):,.0f} s"),
        Check(what="DS2: sentences left in the source", ours=f"{_left_in_source(run):,.0f}"),
    )


def _dhalion_checks(run: Simulation, ds2: Simulation) -> tuple[Check, ...]:
    largest = max(len(decision.changes) for decision in run.decisions)
    needed, found, papers = sum(_NEEDED), run.final_plan.total, sum(_PAPER_DHALION)
    return (
        Check(
            what="Dhalion: actions",
            ours=str(run.actions),
            paper=str(_PAPER_DHALION_ACTIONS),
            bound=f"at least {_LEAST_DHALION_ACTIONS}",
            holds=run.actions >= _LEAST_DHALION_ACTIONS,
        ),
        Check(what="Dhalion: operators in an action", ours=str(largest), paper="1", bound="1", holds=largest == 1),
        Check(
            what="Dhalion: FlatMap/Count",
            ours=path_text(path(run)),
            paper=f"{path_text([(1, 1)])} → … → {path_text([_PAPER_DHALION])}",
            bound=f"ends at {needed} instances or more",
            holds=found >= needed,
        ),
        Check(
            what="Dhalion: instances beyond the need",
            ours=f"{found - needed} ({found / needed - 1:.0%})",
            paper=f"{papers - needed} ({papers / needed - 1:.0%})",
        ),
        Check(
            what="Dhalion: stable from",
            ours=f"{settled_s(run):,.0f} s",
            paper=f"{_PAPER_DHALION_SETTLED_S:,} s",
            bound="later than DS2",
            holds=settled_s(run) > settled_s(ds2),
        ),
        Check(what="Dhalion: sentences left in the source", ours=f"{_left_in_source(run):,.0f}"),
    )


def _any_pace(dhalion: Mapping[float, Simulation]) -> Check:
    """That the bounds do not hang on the assumption which decides where Dhalion ends."""
    ends = [
        f"{_pace_text(pace)}: {path_text([pair_of(run.final_plan)])} in {run.actions}"
        for pace, run in sorted(dhalion.items())
    ]
    return Check(
        what="Dhalion, with another pace of the replay",
        ours="; ".join(ends),
        bound="the same two bounds at every pace",
        holds=all(
            run.actions >= _LEAST_DHALION_ACTIONS and run.final_plan.total >= sum(_NEEDED)
            for run in dhalion.values()
        ),
    )


def _pace_text(pace: float) -> str:
    return "any pace" if math.isinf(pace) else f"{pace:g} × the load"


def _left_in_source(run: Simulation) -> float:
    """Sentences, when the load ends; the history goes on until everything is through."""
    last = sum(t <= run.duration_s for t in run.history.times_s) - 1
    return run.history.source_backlog[last]


def _as_json(run: Simulation) -> dict[str, Any]:
    minutes, rates = sentences_per_s(run, every_s=_CURVE_EVERY_S)
    return {
        "actions": actions_as_json(run),
        "stable_from_s": settled_s(run),
        "curve": {"minutes": minutes, "sentences_per_s": rates},
    }


def _plot(runs: Mapping[str, Simulation], file: Path) -> None:
    title = "Word count on Heron: DS2 and Dhalion from 1/1 (DS2, section 5.2)"
    figure, axes = plots.new_figure(3, title=title)
    rates, *operators = axes
    rates.axhline(LOAD_PER_S * 60 / 1e6, color="0.4", linestyle="--", linewidth=1.2, zorder=1.5, label="target")
    for (label, run), colour in zip(runs.items(), colours.COLOURS, strict=False):
        minutes, per_s = sentences_per_s(run, every_s=_CURVE_EVERY_S)
        rates.plot(minutes, [rate * 60 / 1e6 for rate in per_s], color=colour, linewidth=1.4, label=label)
        for axis, name in zip(operators, (FLATMAP, COUNT), strict=True):
            axis.step(*plots.steps(run, (name,)), where="post", color=colour, linewidth=1.6, label=label)
    for axis, needed, papers in zip(operators, _NEEDED, _PAPER_DHALION, strict=True):
        axis.axhline(needed, color="0.4", linestyle="--", linewidth=1.2, zorder=1.5, label="needed")
        axis.axhline(papers, color=colours.COLOURS[1], linestyle=":", linewidth=1.2, label="Dhalion in the paper")
    rates.set_ylabel("million sentences\ntaken in per minute")
    operators[0].set_ylabel("FlatMap instances")
    operators[1].set_ylabel("Count instances")
    finish(axes, runs["DS2"])
    plots.save(figure, file)
