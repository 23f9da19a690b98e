"""What other policies would have done on the recorded load: simulated on the learned model, and called so.

Two checks stand beside it, so that a reader sees how far to trust it. The parallelism as it was recorded is
played on the model, which tests what was learned of the operators; and the recorded policy is let loose on it,
which tests all of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elastream.dataflow import Plan
from elastream.engines.simulated import EngineModel, SimulatedEngine
from elastream.engines.simulated.ideal import Ideal
from elastream.engines.simulated.simulation import Simulation, simulate, simulate_ideal
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.decision import Decision
from elastream.manager.events import Proposed
from elastream.manager.knobs import Knobs
from elastream.measurement import Snapshot
from elastream.measurement.elasticity import Elasticity, Moment, elasticity
from elastream.options import build, settings_of
from elastream.policies.catalog import Policy, create, info
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Proposal
from elastream.policies.whole_jobs import ONLY_WHOLE_JOBS
from elastream.report.learned_model import CannotSimulateError, LearnedModel, learn_model
from elastream.report.story import Story
from elastream.report.timeline import ChartSeries, Timeline

IDEAL, STATIC = "ideal", "static peak"
AGAINST = ("ds2", "flink", "threshold", "lag", "dhalion", STATIC, IDEAL)
_ROUNDING = 1e-9
_CLOSE, _ROUGH = 0.1, 0.25


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """How the recorded run was set: by its recording, or by whoever asks for the report."""

    policy: str | None
    options: Mapping[str, Any]
    knobs: Knobs
    known: bool
    """Whether the settings are known, not taken to be the defaults."""


@dataclass(frozen=True, kw_only=True)
class PolicyOutcome:
    """What a policy did, or would have done, with the load."""

    name: str
    simulated: bool
    elasticity: Elasticity
    instances: ChartSeries
    """Of all operators, from each of the times on."""
    waiting: ChartSeries
    """Records that waited anywhere, as windows ended."""

    @property
    def highest_waiting(self) -> float | None:
        return max(self.waiting.values, default=None)

    @property
    def last_waiting(self) -> float | None:
        return self.waiting.values[-1] if self.waiting.values else None

    @property
    def instance_s(self) -> float:
        return self.elasticity.cost * 60


@dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """The model beside what was recorded."""

    played_waiting: ChartSeries
    """What would have waited in the model with the parallelism as it was recorded."""
    waiting_off_s: Mapping[str, float]
    """How far that is from what was measured of each operator, on average: in seconds of what reaches it."""
    repeated: PolicyOutcome | None
    """The recorded policy on the model."""
    why_not: str
    """Why the recorded policy could not be simulated."""
    cost_off: float | None
    """By which share its instance-hours differ from the recorded ones."""
    instances_off: float | None
    """How many instances its parallelism is from the recorded one, on average, as a share of the mean."""

    @property
    def trust(self) -> str:
        if self.cost_off is None or self.instances_off is None:
            return "unknown"
        worst = max(abs(self.cost_off), self.instances_off)
        return "close" if worst <= _CLOSE else "rough" if worst <= _ROUGH else "poor"


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    model: LearnedModel
    setup: RunSetup
    recorded: PolicyOutcome
    others: tuple[PolicyOutcome, ...]
    failed: Mapping[str, str]
    """Policies that could not be simulated, and why."""
    check: ModelCheck
    demand: ChartSeries
    """The instances that the load needed at each moment, by the model."""


def setup_of(story: Story, settings: Mapping[str, Any], window_s: float) -> RunSetup:
    """What the recording says of its settings, and over it what the user says."""
    header = story.header
    knobs: dict[str, Any] = {"interval_s": window_s} if window_s else {}
    options: dict[str, Any] = {}
    if header is not None:
        knobs.update(header.knobs)
        # rules may be a Python file: which one is to be run is for the user to say, not for a recording
        options.update({name: value for name, value in header.options.items() if name != "file"})
    for_policy, for_manager = _split(settings)
    return RunSetup(
        policy=story.policy,
        options={**options, **for_policy},
        knobs=build(Knobs, {**knobs, **for_manager}, place="the manager's knobs in the recording"),
        known=header is not None or bool(settings),
    )


def what_if(
    story: Story,
    *,
    against: Sequence[str] = AGAINST,
    settings: Mapping[str, Any] | None = None,
    on_progress: Callable[[str, float], None] = lambda _, __: None,
) -> WhatIf:
    """Learn the model, check it, and ask it; raises CannotSimulateError where the recording tells too little."""
    if any(isinstance(e, Proposed) and e.proposal.workers is not None for e in story.events):
        raise CannotSimulateError("pipelines whose workers run every operator are not modelled")
    model = learn_model(story.timeline, story.events)
    setup = setup_of(story, settings or {}, model.window_s)
    recorded = _recorded(story, model)
    on_progress("the recorded run", 0.0)
    check = _check(story, model, setup, recorded)
    others: list[PolicyOutcome] = []
    failed: dict[str, str] = {}
    for number, name in enumerate(against):
        on_progress(name, (1 + number) / (1 + len(against)))
        try:
            others.append(_outcome(name, _simulated(name, story, model, setup), story.timeline))
        except ElastreamError as error:
            failed[name] = str(error)
    return WhatIf(
        model=model,
        setup=setup,
        recorded=recorded,
        others=tuple(others),
        failed=failed,
        check=check,
        demand=_demand(story.timeline, model.engine),
    )


def check_names(names: Sequence[str]) -> None:
    """Before anything is simulated: a mistake in the last name is better found now."""
    for name in names:
        if name not in (IDEAL, STATIC):
            create(name)


def _simulated(name: str, story: Story, model: LearnedModel, setup: RunSetup) -> Simulation:
    """Each policy with its own defaults and the knobs of its authors; the other knobs are those of the run."""
    knobs = replace(setup.knobs, dry_run=False)
    if name == IDEAL:
        return simulate_ideal(model.engine, duration_s=model.duration_s)
    if name != STATIC and info(name).whole_jobs:
        raise CannotSimulateError(f"it is {ONLY_WHOLE_JOBS}")
    if name == STATIC:
        engine = replace(model.engine, initial_plan=Plan(story.cost.peak))
        return simulate(engine, _Static(), knobs, duration_s=model.duration_s)
    return simulate(model.engine, create(name), replace(knobs, **info(name).knobs), duration_s=model.duration_s)


class _Static:
    """No policy: what is there stays."""

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        return Proposal(policy=STATIC, advice={})


def _outcome(name: str, run: Simulation, line: Timeline) -> PolicyOutcome:
    plans = [(t, float(plan.total)) for t, plan in run.history.plans if t <= run.duration_s]
    return PolicyOutcome(
        name=name,
        simulated=True,
        elasticity=run.elasticity,
        instances=ChartSeries(times_s=tuple(t for t, _ in plans), values=tuple(total for _, total in plans)),
        waiting=_sampled(run, line),
    )


def _sampled(run: Simulation, line: Timeline) -> ChartSeries:
    """What waits when windows end, its own or else the recorded ones: between them nobody looks, in a run neither.

    No window ends just after an action, so what comes and goes with one is not in it.
    """
    history = run.history
    ends_s = [snapshot.at_s for snapshot in run.snapshots] or [stretch.end_s for stretch in line.stretches]
    numbers = [max(0, bisect_right(history.times_s, end_s * (1 + _ROUNDING)) - 1) for end_s in ends_s]
    return ChartSeries(
        times_s=tuple(ends_s),
        values=tuple(history.source_backlog[number] + history.queued[number] for number in numbers),
    )


# What was recorded, by the same measures


def _recorded(story: Story, model: LearnedModel) -> PolicyOutcome:
    """Supply as it was recorded; demand by the model."""
    line, ideal = story.timeline, Ideal(model.engine)
    moments = [
        Moment(
            lasts_s=stretch.lasts_s,
            demand=ideal.least_plan(stretch.snapshot.source_rates),
            supply=stretch.snapshot.plan,
        )
        for stretch in line.stretches
    ]
    return PolicyOutcome(
        name=f"{story.policy or 'the manager'}, as recorded",
        simulated=False,
        elasticity=elasticity(moments, excess_s=_excess_s(line, model.engine), reconfigurations=len(story.acted)),
        instances=line.series(lambda stretch: stretch.snapshot.plan.total),
        waiting=line.series_at_ends(lambda stretch: stretch.waiting),
    )


def _excess_s(line: Timeline, engine: EngineModel) -> float:
    """What the slowest operator would still need for the records that waited for it when the recording ended."""
    last = line.stretches[-1].snapshot
    left_s = [
        (rates.totals.backlog or 0.0) / engine.instances(name, last.plan[name]).sustained_per_s
        for name, rates in last.measurements.items()
        if name in last.plan and engine.instances(name, last.plan[name]).sustained_per_s > 0
    ]
    return max(left_s, default=0.0)


def _demand(line: Timeline, engine: EngineModel) -> ChartSeries:
    ideal = Ideal(engine)
    return line.series(lambda stretch: ideal.least_plan(stretch.snapshot.source_rates).total)


# The checks


def _check(story: Story, model: LearnedModel, setup: RunSetup, recorded: PolicyOutcome) -> ModelCheck:
    line = story.timeline
    waiting = played(line, model.engine)
    repeated, why_not = None, ""
    try:
        repeated = _outcome(f"{story.policy}, simulated", _repeated(model, setup), line)
    except ElastreamError as error:
        why_not = str(error)
    return ModelCheck(
        played_waiting=ChartSeries(
            times_s=tuple(stretch.end_s for stretch in line.stretches),
            values=tuple(sum(found.values()) for found in waiting),
        ),
        waiting_off_s=_waiting_off_s(line, model.engine, waiting),
        repeated=repeated,
        why_not=why_not,
        cost_off=None if repeated is None else repeated.instance_s / recorded.instance_s - 1,
        instances_off=None if repeated is None else _apart(repeated.instances, line),
    )


def _repeated(model: LearnedModel, setup: RunSetup) -> Simulation:
    if setup.policy is None:
        raise CannotSimulateError("the recording does not say which policy was used")
    if setup.policy == "rules" and "file" not in setup.options:
        raise CannotSimulateError("the rules that were used are in a file: --rules FILE")
    policy: Policy = create(setup.policy, setup.options)
    return simulate(model.engine, policy, setup.knobs, duration_s=model.duration_s)


def played(line: Timeline, engine_model: EngineModel) -> tuple[Mapping[str, float], ...]:
    """The records that wait for each source and operator as each stretch ends, with the recorded plans."""
    engine = SimulatedEngine(engine_model)
    waiting = []
    for number, stretch in enumerate(line.stretches):
        before, after = engine.plan(), stretch.snapshot.plan
        if after != before:
            engine.rescale(Decision(number=number, at_s=stretch.begin_s, before=before, after=after))
        engine.wait(max(0.0, stretch.end_s - engine.now()))
        waiting.append(_waiting_in(engine))
    return tuple(waiting)


def _waiting_in(engine: SimulatedEngine) -> Mapping[str, float]:
    totals = engine.totals()
    found = {name: source.backlog for name, source in totals.sources.items()}
    for channel, counted in totals.channels.items():
        found[channel.consumer] = found.get(channel.consumer, 0.0) + counted.queued
    return found


def _waiting_off_s(
    line: Timeline, model: EngineModel, waiting: Sequence[Mapping[str, float]]
) -> Mapping[str, float]:
    ideal, off, reached = Ideal(model), dict[str, float](), dict[str, float]()
    for stretch, found in zip(line.stretches, waiting, strict=True):
        required = ideal.required_per_s(stretch.snapshot.source_rates)
        for name, rates in stretch.snapshot.measurements.items():
            if rates.totals.backlog is not None:
                off[name] = off.get(name, 0.0) + abs(found.get(name, 0.0) - rates.totals.backlog) * stretch.lasts_s
                reached[name] = reached.get(name, 0.0) + required[name] * stretch.lasts_s
    return {name: off[name] / reached[name] for name in off if reached[name] > 0}


def _apart(instances: ChartSeries, line: Timeline) -> float:
    """The mean difference of the parallelism of all operators, as a share of the recorded mean."""
    apart = total = 0.0
    for stretch in line.stretches:
        middle_s = stretch.begin_s + stretch.lasts_s / 2
        found = instances.values[max(0, bisect_right(instances.times_s, middle_s) - 1)]
        apart += abs(found - stretch.snapshot.plan.total) * stretch.lasts_s
        total += stretch.snapshot.plan.total * stretch.lasts_s
    return apart / total if total else 0.0


def check_settings(settings: Mapping[str, Any], policy: str | None) -> None:
    """Refuse settings that neither the recorded policy nor the manager has, and values that make no sense."""
    for_policy, for_manager = _split(settings)
    build(Knobs, for_manager, place="--set")
    if not for_policy:
        return  # the policy may be one that this version does not know: all but its simulation can be told
    if policy is None:
        unknown = next(iter(for_policy))
        raise InvalidInput(f"--set {unknown}: no knob, and the recording does not say which policy was used")
    create(policy, for_policy)


def _split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the policy, and the knobs of the manager by their full names."""
    knobs = settings_of(Knobs())
    for_policy, for_manager = {}, {}
    for name, value in settings.items():
        meant = f"{name}_s" if f"{name}_s" in knobs else name
        if meant in knobs:
            for_manager[meant] = value
        else:
            for_policy[name] = value
    return for_policy, for_manager
