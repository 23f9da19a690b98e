"""Figure 3 of Gesscale: what an operator processes before, during and after an action.

Simulated, on the testbed of `fog_testbed.py`: one instance, a load below what it sustains, and from 650 s on one
above it. The policy is Gesscale as published, which is asked every minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from elastream.arrivals.load import Steps
from elastream.commands import plots
from elastream.engines.simulated.simulation import Simulation, simulate
from elastream.manager.knobs import Knobs
from elastream.options import build
from elastream.policies.catalog import create, info
from elastream.showing import colours
from experiments.fog_testbed import SOURCE, FogTestbed
from experiments.frame import Check, Progress, Report, experiment
from experiments.panels import new_panels

_POLICY = "gesscale-paper"
_RISES_S, _ENDS_S = 650.0, 1500.0
_BEFORE_PER_S, _AFTER_PER_S = 60.0, 110.0  # beside the 80 that an instance sustains
_TRIGGERED_WITHIN_S = 180.0  # three windows
_BIN_S = 10.0


@dataclass(frozen=True, kw_only=True)
class _Rates:
    at_s: Sequence[float]
    arriving_per_s: Sequence[float]
    processed_per_s: Sequence[float]

    def mean(self, begin_s: float, end_s: float) -> float:
        """What was processed, of all bins that lie within."""
        within = zip(self.at_s, self.processed_per_s, strict=True)
        return fmean(rate for at_s, rate in within if begin_s <= at_s and at_s + _BIN_S <= end_s)


@experiment(
    "gesscale-figure3",
    paper="Gesscale, figure 3",
    question="What does an action cost: for how long is nothing processed, and how much more is it afterwards?",
)
def run(progress: Progress) -> Report:
    progress("figure 3", 0.0)
    simulation = _simulated()
    rates = _rates(simulation)
    progress("done", 1.0)
    return Report(
        checks=_checks(simulation, rates),
        differs=(
            "The paper gives no numbers for figure 3 beside its times; the rates are those of our testbed.",
            "The downtime is a parameter of the model, and not a result.",
        ),
        data={
            "at_s": list(rates.at_s),
            "arriving_per_s": list(rates.arriving_per_s),
            "processed_per_s": list(rates.processed_per_s),
        },
        plot=partial(_plot, simulation, rates),
    )


def _simulated() -> Simulation:
    load = Steps(steps=((0.0, _BEFORE_PER_S), (_RISES_S, _AFTER_PER_S)))
    model = FogTestbed().model(0)
    model = replace(model, sources={SOURCE: replace(model.sources[SOURCE], load=load)})
    knobs = build(Knobs, {**info(_POLICY).knobs, "warm_up_intervals": 0}, place=_POLICY)
    return simulate(model, create(_POLICY), knobs, duration_s=_ENDS_S)


def _rates(simulation: Simulation) -> _Rates:
    history, every = simulation.history, round(_BIN_S / simulation.model.step_s)
    begins = range(0, int(simulation.duration_s / simulation.model.step_s), every)
    arriving, emitted = history.arriving_per_s[SOURCE], history.emitted_per_s[SOURCE]
    return _Rates(
        at_s=[number * _BIN_S for number in range(len(begins))],
        arriving_per_s=[fmean(arriving[begin : begin + every]) for begin in begins],
        processed_per_s=[fmean(emitted[begin : begin + every]) for begin in begins],
    )


def _checks(simulation: Simulation, rates: _Rates) -> tuple[Check, ...]:
    begin_s, end_s = simulation.history.downtimes_s[0]
    before, after = rates.mean(_RISES_S + 120, begin_s), rates.mean(end_s + _BIN_S, end_s + 120)
    during = rates.mean(begin_s, end_s)
    return (
        Check(
            what="the load rises, and the action begins, at",
            ours=f"{_RISES_S:.0f} s and {begin_s:.0f} s",
            paper="650 s and 800 s",
            bound=f"within {_TRIGGERED_WITHIN_S:.0f} s",
            holds=begin_s - _RISES_S <= _TRIGGERED_WITHIN_S,
        ),
        Check(
            what="nothing is processed for",
            ours=f"{end_s - begin_s:.0f} s ({during:.0f} records/s)",
            paper="about 120 s",
            bound="no record",
            holds=during == 0,
        ),
        Check(
            what="processed at its limit before, and after the action",
            ours=f"{before:.0f} and {after:.0f} records/s",
            paper="significantly greater",
            bound="a third more at least",
            holds=after >= before * 4 / 3,
        ),
    )


def _plot(simulation: Simulation, rates: _Rates, file: Path) -> None:
    figure, ((axis,),) = new_panels(1, 1, title="An action on the testbed (simulated)", width=6.0, height=3.2)
    axis.plot(rates.at_s, rates.arriving_per_s, color="0.5", linestyle="--", linewidth=1.0, label="arriving")
    axis.plot(
        rates.at_s,
        rates.processed_per_s,
        color=colours.COLOURS[0],
        linewidth=1.4,
        label="taken from the source; at first a queue fills",
    )
    for begin_s, end_s in simulation.history.downtimes_s:
        axis.axvspan(begin_s, end_s, color="0.9")
    axis.set_xlabel("seconds (grey: an action)")
    axis.set_ylabel("records/s")
    axis.legend(frameon=False, fontsize="small")
    plots.save(figure, file)
