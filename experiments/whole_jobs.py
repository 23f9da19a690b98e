"""Rules for the executors of a whole Structured Streaming job, on recorded load: ours beside those of others.

The load is real: the traces of `elastream.arrivals`, each scaled so that its peak needs the same executors. The
job is made up and simulated (`simulated_job.py`): a batch every ten seconds, two stages of 32 tasks, executors of
two cores. All rules meet the same job, the same cluster and the same time for an executor to come.

elastream's own is the one of `elastream.attach`: it learns what a batch costs, and keeps the fewest executors with
which the next ends within its interval. The others have their published defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from elastream.arrivals.load import Load, bundled_trace, bundled_traces
from elastream.attached.attaching import AttachOptions
from elastream.attached.policy import EXECUTORS, BatchSchedule, JobSnapshot
from elastream.attached.watch import Arrival, QueryWatch
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.manager.decision import Decision
from elastream.manager.engine import RescaleOutcome
from elastream.manager.loop import Manager
from elastream.measurement import Reading
from elastream.policies.catalog import create
from elastream.policies.elastic_scaling import ElasticScaling
from elastream.policies.executors_memory import AllocationMemory, SmoothedLoad
from elastream.policies.spark_dra import SparkDynamicAllocation
from experiments.frame import Check, Progress, Report, experiment
from experiments.simulated_job import JobMeasures, JobModel, SimulatedJob, StageModel, run_with

OURS = "batch-schedule"
_STATIC = "static peak"
_PEERS = ("spark-dra", "spark-24815", "elastic-scaling")
_PEAK_PER_S = 12_000.0
_INTERVAL_S = 10.0
_STAGES = (
    StageModel(tasks=32, per_row_s=0.0006, per_task_s=0.02),
    StageModel(tasks=32, per_row_s=0.0004, per_task_s=0.02),
)
_CORES, _MOST, _INITIAL = 2, 16, 4
_START_S = 8.0  # for an executor to come, as measured on a standalone cluster
_SPEED = {"nyc_taxi": 7.0}  # its week is played in a day, as the others are days
_HOURS = 6.0  # of each trace: there are thousands of batches in them
_GO_S = 20.0  # for which a shrinking waits for a batch to end


@experiment(
    "whole-jobs",
    paper="none (the rules' own documentation)",
    question="How many executors does each rule give a whole Structured Streaming job, and how often is it late?",
    minutes=8,
)
def run(progress: Progress) -> Report:
    return compare(bundled_traces(), progress)


def compare(traces: Sequence[str], progress: Progress, *, hours: float = _HOURS) -> Report:
    labels = (OURS, *_PEERS, _STATIC)
    found: dict[str, dict[str, JobMeasures]] = {trace: {} for trace in traces}
    for number, trace in enumerate(traces):
        for index, label in enumerate(labels):
            progress(f"{trace}: {label}", (number + index / len(labels)) / len(traces))
            found[trace][label] = simulated(trace, label, duration_s=hours * 3600)
    progress("done", 1.0)
    return Report(
        checks=(
            *(check for trace in traces for check in _bounds(trace, found[trace])),
            Check(what="all measures", ours=_HEADER),
            *(
                Check(what=f"{trace}: {label}", ours=_row(one))
                for trace in traces
                for label, one in found[trace].items()
            ),
        ),
        differs=_notes(found, hours),
        data={trace: {label: asdict(one) for label, one in runs.items()} for trace, runs in found.items()},
        plot=partial(_plot, found),
    )


def simulated(trace: str, label: str, *, duration_s: float) -> JobMeasures:
    model = job_model(_load(trace))
    if label == _STATIC:
        job = SimulatedJob(replace(model, initial=_fewest(_PEAK_PER_S)))
        job.run(duration_s)
        return job.measures()
    if label == OURS:
        return keep_in_time(SimulatedJob(model), duration_s)
    job = SimulatedJob(model)
    policy = create(label)
    if isinstance(policy, SparkDynamicAllocation):
        return run_with(job, Allocating(policy=policy), duration_s)
    assert isinstance(policy, ElasticScaling)
    return run_with(job, Smoothing(policy=policy), duration_s)


def job_model(load: Load, **changed: Any) -> JobModel:
    model = JobModel(
        load=load,
        interval_s=_INTERVAL_S,
        stages=_STAGES,
        driver_s=0.4,
        cores=_CORES,
        most=_MOST,
        initial=_INITIAL,
        start_s=_START_S,
    )
    return replace(model, **changed)


def _load(trace: str) -> Load:
    recorded = bundled_trace(trace)
    return replace(recorded, speed=_SPEED.get(trace, 1.0), scale=_PEAK_PER_S / max(recorded.records_per_s))


def _fewest(rows_per_s: float) -> int:
    """The fewest executors whose batch, in whole waves of even tasks, takes no more than the interval."""
    for executors in range(1, _MOST + 1):
        waves_s = (
            math.ceil(stage.tasks / (executors * _CORES))
            * (stage.per_task_s + stage.per_row_s * rows_per_s * _INTERVAL_S / stage.tasks)
            for stage in _STAGES
        )
        if 0.4 + sum(waves_s) <= _INTERVAL_S:
            return executors
    return _MOST


# Who decides


@dataclass
class Allocating:
    """Dynamic allocation; it looks every 200 ms and not every 100, which is as good as the same."""

    policy: SparkDynamicAllocation
    every_s: float = 0.2
    _memory: AllocationMemory = field(default_factory=AllocationMemory)

    def look(self, job: SimulatedJob) -> None:
        before = job.asked_for
        self._memory, wanted = self.policy.look(self._memory, job.tasks(), now_s=job.now_s, executors=before)
        if wanted != before:
            job.ask_for(wanted, idle_for_s=self.policy.executor_idle_timeout_s)


@dataclass
class Smoothing:
    """Elastic-Scaling, which is called after every batch."""

    policy: ElasticScaling
    every_s: float = 0.2
    _load: SmoothedLoad = field(default_factory=SmoothedLoad)

    def look(self, job: SimulatedJob) -> None:
        for batch in job.take_ended():
            self._load = self.policy.taken_in(self._load, batch.duration_s / job.model.interval_s)
            wanted = self.policy.wanted(job.asked_for, self._load.mean)
            if job.up == job.asked_for and wanted != job.up:  # nothing while a resize is pending
                job.ask_for(wanted)


class AttachedJob:
    """The job as an engine of the manager, as an attached one is."""

    def __init__(self, job: SimulatedJob) -> None:
        self._job = job
        self._watch = QueryWatch(name="job", run="run", interval_s=job.model.interval_s)
        self._measured_s = 0.0

    def now(self) -> float:
        return self._job.now_s

    steady = now

    def wait(self, seconds: float) -> None:
        self._job.run(self._job.now_s + seconds)

    def wake(self) -> None:
        pass

    def graph(self) -> Dataflow:
        shared = Operator(name=EXECUTORS, max_parallelism=self._job.model.most)
        return Dataflow.of([Operator(name="job", source=True), shared], [("job", EXECUTORS)])

    def plan(self) -> Plan:
        return Plan({EXECUTORS: max(1, self._job.up)})

    def measure(self) -> JobSnapshot:
        for batch in self._job.take_ended():
            self._watch.arrivals.append(Arrival(started_s=batch.started_s, rows=batch.rows, left=0.0))
            if batch.cores:
                self._watch.learn(batch)
        window_s, self._measured_s = max(0.001, self.now() - self._measured_s), self.now()
        taken = self._watch.taken_per_s() * window_s
        reading = Reading(
            operator=EXECUTORS,
            instances=max(1, self._job.up),
            window_s=window_s,
            useful_s=0.0,
            records_in=taken,
            records_out=taken,
            backlog=0.0,
        )
        return JobSnapshot(
            dataflow=self.graph(),
            plan=self.plan(),
            source_rates={"job": self._watch.arriving_per_s()},
            readings=(reading,),
            at_s=self.now(),
            loads=(self._watch.load(),),
            cores=self._job.model.cores,
        )

    def rescale(self, decision: Decision) -> RescaleOutcome:
        began_s, wanted = self.now(), decision.after[EXECUTORS]
        if wanted < self._job.up:
            self._job.run(began_s + _GO_S, stop=lambda: not self._job.works)
        self._job.ask_for(wanted)
        self._job.run(self.now() + 60, stop=lambda: self._job.up == wanted)
        self._measured_s = self.now()
        return RescaleOutcome(plan=self.plan(), succeeded=True, took_s=self.now() - began_s)


def keep_in_time(job: SimulatedJob, duration_s: float) -> JobMeasures:
    engine, knobs = AttachedJob(job), AttachOptions().settled()
    Manager(engine=engine, policy=BatchSchedule(), knobs=knobs, clock=engine).run(until_s=duration_s)
    return job.measures()


# The report


def _bounds(trace: str, runs: Mapping[str, JobMeasures]) -> tuple[Check, ...]:
    ours, dra = runs[OURS], runs["spark-dra"]
    return (
        Check(
            what=f"{trace}: executor hours",
            ours=f"{ours.executor_s / 3600:.1f}, spark-dra {dra.executor_s / 3600:.1f}",
            bound="fewer",
            holds=ours.executor_s < dra.executor_s,
        ),
    )


_HEADER = "executor hours  of peak   late  late time  came and went"


def _row(found: JobMeasures) -> str:
    of_peak = found.executor_s / (_fewest(_PEAK_PER_S) * found.duration_s)
    late = f"{found.late / max(1, found.batches):6.2%}"
    return (
        f"{found.executor_s / 3600:14.1f} {of_peak:8.0%} {late} {found.late_share:10.2%} {found.came_and_went:14,}"
    )


def _notes(found: Mapping[str, Mapping[str, JobMeasures]], hours: float) -> tuple[str, ...]:
    pairs = [(trace, label, runs[label], runs[OURS]) for trace, runs in found.items() for label in _PEERS]
    worse = [
        f"Where {OURS} is later: {trace}, for {ours.late_share:.2%} of the time, {label} for {one.late_share:.2%}."
        for trace, label, one, ours in pairs
        if one.late_share < ours.late_share
    ]
    cheaper = [
        f"Where {OURS} has more: {trace}, {ours.executor_s / 3600:.1f} h, {label} {one.executor_s / 3600:.1f} h."
        for trace, label, one, ours in pairs
        if one.executor_s < ours.executor_s
    ]
    return (
        "The columns: hours of executors from when they were asked for, and as a share of what the peak needs all "
        "the time; the share of the batches, and of the time, in batches that took longer than the interval; "
        "executors that came or went.",
        f"The first {hours:g} hours of each trace. The job and the cluster are a model: at most {_MOST} executors "
        f"of {_CORES} cores, {_INITIAL} at the beginning, {_START_S:g} s for one to come.",
        f"{OURS} has elastream's default settings; spark-dra and spark-24815 those of Spark and of the pull "
        "request, where only the cluster limits them; elastic-scaling its own, with at most "
        f"{ElasticScaling().max_executors}.",
        *worse,
        *cheaper,
    )


def _plot(found: Mapping[str, Mapping[str, JobMeasures]], file: Path) -> None:
    from matplotlib.figure import Figure

    from elastream.commands import plots
    from elastream.showing import colours

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_title("Executors of a whole job: each mark is a trace")
    labels = list(next(iter(found.values())))
    for index, label in enumerate(labels):
        marks = [runs[label] for runs in found.values()]
        axes.scatter(
            [one.executor_s / one.duration_s for one in marks],
            [100 * one.late_share for one in marks],
            color=colours.COLOURS[index],
            label=label,
        )
    axes.set_xlabel("executors, on the mean")
    axes.set_ylabel("% of the time in late batches")
    axes.grid(alpha=0.3)
    axes.legend()
    plots.save(figure, file)
