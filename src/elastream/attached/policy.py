"""The sizing as a policy of the manager: the plan has one operator, the executors, which all queries share."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastream.attached.bounds import Bound, BoundKind, bound_of
from elastream.attached.load import QueryLoad
from elastream.attached.sizing import Size, Wanted, fewest, planned
from elastream.durations import text
from elastream.errors import InvalidInput
from elastream.measurement import Snapshot
from elastream.options import check_bounds, option
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Advice, Proposal, Reason, ReasonKind

EXECUTORS = "executors"
"""The one operator of an attached job; its parallelism is their number."""
NAME = "batch-schedule"

_KINDS = {
    BoundKind.SKEW: ReasonKind.SKEW,
    BoundKind.PARTITIONS: ReasonKind.NOT_PARALLEL,
    BoundKind.DRIVER: ReasonKind.BOTTLENECK,
    BoundKind.SINK: ReasonKind.BOTTLENECK,
    BoundKind.LIMIT: ReasonKind.BOTTLENECK,
}


@dataclass(frozen=True, kw_only=True)
class JobSnapshot(Snapshot):
    """A window of an attached job, with what was learned of its queries."""

    loads: tuple[QueryLoad, ...] = ()
    cores: int = 1
    """Of an executor."""
    left_alone: dict[str, str] = field(default_factory=dict)
    """Queries that are not sized, each with the reason."""


@dataclass(frozen=True, kw_only=True)
class BatchSchedule:
    """The fewest executors with which the batches of all queries end within their latency."""

    target_utilization: float = option(
        0.8, "the share of the latency that a batch is meant to use", least=0.1, most=1
    )
    catch_up_s: float = option(60.0, "within which what waits is to be gone", unit="s", least=1)

    def __post_init__(self) -> None:
        check_bounds(self)

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        if not isinstance(snapshot, JobSnapshot):
            raise InvalidInput(f"policy {NAME}: is for attached jobs, and this is a window of a pipeline")
        lacking = [load.name for load in snapshot.loads if load.model is None]
        if lacking or not snapshot.loads:
            what = f"too few batches of {', '.join(lacking)}" if lacking else "no query runs that can be sized"
            return self._proposal(snapshot, None, None, (Reason(kind=ReasonKind.NO_DATA, text=what),))
        wanted = Wanted(
            target_utilization=self.target_utilization,
            catch_up_s=self.catch_up_s,
            ahead_s=knowledge.action_s,
            more={load.name: knowledge.correction(load.name) for load in snapshot.loads},
        )
        size, steady = self._sizes(snapshot, wanted)
        return self._proposal(snapshot, size, steady, reasons(snapshot, size, wanted))

    def _sizes(self, snapshot: JobSnapshot, wanted: Wanted) -> tuple[Size, Size]:
        operator = snapshot.dataflow[EXECUTORS]
        most = int(operator.most) if operator.max_parallelism is not None else snapshot.plan[EXECUTORS]

        def size(*, steady: bool) -> Size:
            least = min(operator.min_parallelism, most)
            return fewest(snapshot.loads, wanted, cores=snapshot.cores, least=least, most=most, steady=steady)

        return size(steady=False), size(steady=True)

    def _proposal(
        self, snapshot: JobSnapshot, size: Size | None, steady: Size | None, why: tuple[Reason, ...]
    ) -> Proposal:
        measured = snapshot.measurements.get(EXECUTORS)
        advice = Advice(
            operator=EXECUTORS,
            current=snapshot.plan[EXECUTORS],
            parallelism=None if size is None else size.executors,
            steady=None if steady is None else steady.executors,
            target_per_s=sum(load.rows_per_s for load in snapshot.loads),
            observed_per_s=None if measured is None else measured.observed_per_s,
            utilization=None if measured is None else measured.utilization,
            backlog=None if measured is None else measured.totals.backlog,
            reasons=why,
        )
        keeps = size is not None and not size.late
        return Proposal(policy=NAME, advice={EXECUTORS: advice}, expected_share=1.0 if keeps else None)


def reasons(snapshot: JobSnapshot, size: Size, wanted: Wanted) -> tuple[Reason, ...]:
    found = [_reason(load, size, wanted) for load in snapshot.loads]
    held = [Reason(kind=_KINDS[bound.kind], text=str(bound)) for bound in bounds(snapshot.loads, size, wanted)]
    return (*found, *held)


def bounds(loads: tuple[QueryLoad, ...], size: Size, wanted: Wanted) -> list[Bound]:
    """Of the queries that do not keep their latency even so; each may have another reason."""
    late = [load for load in loads if load.name in size.late]
    found = [bound_of(load, planned(load, wanted)) for load in late]
    return [bound for bound in found if bound is not None]


def _reason(load: QueryLoad, size: Size, wanted: Wanted) -> Reason:
    plan = planned(load, wanted)
    takes = f"a batch of {plan.rows:,.0f} rows takes {text(size.predicted_s[load.name])} of {text(plan.allowed_s)}"
    known = "" if load.model is None else f" (± {load.model.scatter:.0%}, from {load.model.batches} batches)"
    waits = f", with {load.waiting:,.0f} rows that wait" if load.waiting else ""
    kind = ReasonKind.CATCH_UP if load.waiting else ReasonKind.FORMULA
    return Reason(kind=kind, text=f"{load.name}: {takes} on {size.executors}{known}{waits}")
