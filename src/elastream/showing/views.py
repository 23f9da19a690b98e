"""What is shown of a run: the contract between the manager's process and whatever looks at it.

Plain values that JSON can hold. `as_views.py` makes them of what the manager produces, `history.py` keeps them.
What nobody measured is null, never a made-up zero. Times (`at_s`) are those of the run: seconds since 1970 for a
run on Spark, simulated seconds since the start for a simulated one. Names of operators are whatever the pipeline's
author wrote: data, to be shown as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from elastream.measurement.executor import EXECUTOR_QUANTITIES, ExecutorReading
from elastream.measurement.quantity import Combine
from elastream.measurement.shown import OPERATOR_QUANTITIES
from elastream.policies.outlook import OUTLOOK_QUANTITIES, Outlook


class View(BaseModel):
    # infinity has no word in JSON: it is null there, like everything that is not known
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


# The graph


class OperatorKind(StrEnum):
    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


class OperatorView(View):
    name: str
    kind: OperatorKind
    inputs: tuple[str, ...]
    least: int = Field(description="the least parallelism that is allowed")
    most: int | None = Field(description="the most that is of use; null where nothing limits it")
    fixed: bool = Field(description="it cannot be parallel, so nobody changes its parallelism")
    state_partitions: int | None


class EdgeView(View):
    producer: str
    consumer: str


class AboutView(View):
    """What is run. A recording says it where a run begins, so it may change."""

    pipeline: str
    policy: str | None = Field(description="by its name in the catalog; null where nobody says")
    engine: str | None = Field(description="spark or simulated; null where nobody says")


class GraphView(View):
    pipeline: str
    operators: tuple[OperatorView, ...] = Field(description="every one after those that it reads from")
    edges: tuple[EdgeView, ...]


# One window


class Health(StrEnum):
    OK = "ok"
    STRAINED = "strained"
    BEHIND = "behind"
    UNKNOWN = "unknown"


class BatchView(View):
    """Where the time of a batch goes, by the fitted costs, for all that comes in during the longest batch."""

    driver_s: float = Field(description="planning and committing, whatever the batch holds")
    fixed_s: float = Field(description="starting tasks and committing state, shared by the instances")
    records_s: float = Field(description="the work on the records, shared by the instances")
    longest_s: float = Field(description="how long a batch may take; beyond it the operator falls behind")
    per_record_s: float = Field(description="busy seconds of one slot for one record")


def _made_of(name: str, fields: Mapping[str, Any]) -> Any:
    """A view whose fields follow from a declaration elsewhere; a type checker knows nothing of them."""
    return create_model(name, __base__=View, **dict(fields))


_Measured: Any = _made_of(
    "_Measured",
    {name: (float | None, Field(description=found.meaning)) for name, found in OPERATOR_QUANTITIES.items()},
)


class OperatorWindow(_Measured):  # type: ignore[misc]
    """The quantities of an operator (`measurement/shown.py`), and how it does."""

    name: str
    parallelism: int | None = Field(description="null for a source, which is not scaled")
    health: Health
    why: str = Field(description="the reason for its health")
    batch: BatchView | None = None


class SourceWindow(View):
    name: str
    offered_per_s: float = Field(description="records per second that arrived at the source")
    achieved_per_s: float | None = Field(description="how many of them the pipeline took in")
    processed_per_s: float | None = Field(
        description="how many went through all of the pipeline; more than arrive while a backlog is worked off"
    )

    expected_per_s: float | None = Field(
        default=None, description="what had been expected of this window; null where nobody forecast it"
    )
    prepared_per_s: float | None = Field(
        default=None, description="what had been prepared for, as more was to be rare enough"
    )
    forecast_error: float | None = Field(
        default=None, description="the mean error of such forecasts until then, as a share of the rate"
    )


class NodeWindow(View):
    """A place where instances run."""

    name: str
    slots: int
    instances: int
    available: bool


_Executor: Any = _made_of(
    "_Executor",
    {
        name: (hint, Field(description=EXECUTOR_QUANTITIES[name].meaning) if name in EXECUTOR_QUANTITIES else ...)
        for name, hint in get_type_hints(ExecutorReading).items()
    },
)


class ExecutorWindow(_Executor):  # type: ignore[misc]
    """A process that runs tasks of any operator."""


class WindowView(View):
    at_s: float = Field(description="when the window ended")
    window_s: float
    achieved_share: float | None = Field(description="the share of the required rate that was achieved, at most 1")
    latency_s: float | None = Field(default=None, description="from end to end, on the slowest path")
    latency_target_s: float | None = Field(default=None, description="what it is to be at most")
    sources: tuple[SourceWindow, ...]
    operators: tuple[OperatorWindow, ...] = Field(description="sources too, in the order of the graph")
    nodes: tuple[NodeWindow, ...] = Field(default=(), description="where the engine knows of nodes")
    executors: tuple[ExecutorWindow, ...] = Field(default=(), description="where the engine tells of them")
    missing: tuple[str, ...] = Field(default=(), description="what could not be measured")
    notes: tuple[str, ...] = Field(
        default=(),
        description="what should be known though it spoils no measurement, such as records dropped as late",
    )


# What the policy says, what was decided, what became of it


class ReasonView(View):
    kind: str
    text: str
    operator: str | None = Field(default=None, description="null for a reason about the pipeline as a whole")


class AdviceView(View):
    operator: str
    need: float | None = Field(description="instances, before rounding and bounds")
    parallelism: int | None = Field(description="null: no data, so no opinion")


_Outlook: Any = _made_of(
    "_Outlook",
    {
        name: (get_type_hints(Outlook)[name], Field(description=found.meaning))
        for name, found in OUTLOOK_QUANTITIES.items()
    },
)


class OutlookView(_Outlook):  # type: ignore[misc]
    """What is expected of a source (`policies/outlook.py`)."""

    source: str


class ProposalView(View):
    at_s: float
    policy: str
    advice: tuple[AdviceView, ...]
    reasons: tuple[ReasonView, ...]
    expected_share: float | None
    outlook: tuple[OutlookView, ...] = Field(default=(), description="where the policy forecasts its sources")


class DecisionOutcome(StrEnum):
    UNDER_WAY = "under way"
    DONE = "done"
    FAILED = "failed"
    REHEARSED = "rehearsed"
    """Of a dry run: told, not carried out."""


class DecisionView(View):
    id: int = Field(description="unique within the run; rehearsals may share a number")
    number: int
    at_s: float
    kind: str = Field(description="rescale, rollback, or by hand")
    before: Mapping[str, int]
    after: Mapping[str, int]
    reasons: tuple[ReasonView, ...]
    share_before: float | None
    expected_share: float | None = Field(description="the share of the required rate that it should achieve")
    outcome: DecisionOutcome
    in_force: Mapping[str, int] | None = Field(default=None, description="the parallelism once it had ended")
    took_s: float | None = None
    detail: str = ""
    achieved_share: float | None = None
    verdict: str | None = Field(default=None, description="effective, useless, harmful or unclear")
    judged_at_s: float | None = None


class EventView(View):
    id: int
    at_s: float
    kind: str
    text: str
    decision: int | None = Field(default=None, description="the id of the decision that it is about")


# The run


class CostView(View):
    """What the run has used, beside the same time at the largest parallelism that each operator has had; and for
    how long it has kept the latency that was asked for."""

    span_s: float = Field(description="the time that was measured")
    instance_s: float
    static_peak_instance_s: float
    peak: Mapping[str, int]
    saved_share: float | None = Field(description="of the static peak; null before there is anything to compare")
    latency_asked_s: float = Field(default=0.0, description="the time for which a latency was asked for and known")
    latency_kept_s: float = Field(default=0.0, description="how much of that it was kept")


class BoundsView(View):
    least: int | None
    most: int | None


class ManagerView(View):
    phase: str | None = Field(description="null before the manager told of it")
    deciding: str = Field(default="", description="whether it decides, and if not, or not for all operators, why")
    paused: bool
    dry_run: bool
    bounds: Mapping[str, BoundsView] = Field(
        description="those that were set while it ran, within the graph's own"
    )


class SourceColumns(View):
    offered_per_s: tuple[float | None, ...]
    achieved_per_s: tuple[float | None, ...]
    processed_per_s: tuple[float | None, ...]
    expected_per_s: tuple[float | None, ...]
    prepared_per_s: tuple[float | None, ...]
    forecast_error: tuple[float | None, ...]


CHARTED: Final = {name: found.windows for name, found in OPERATOR_QUANTITIES.items() if found.windows is not None}
"""What charts show of an operator, and how two windows become one point of them."""

_Columns: Any = _made_of("_Columns", dict.fromkeys(CHARTED, (tuple[float | None, ...], ...)))


class OperatorColumns(_Columns):  # type: ignore[misc]
    parallelism: tuple[int | None, ...]
    health: tuple[Health | None, ...]


class HistoryView(View):
    """The windows so far as columns of one length, oldest first. Old windows are merged, so that it stays small:
    as `merged_by` says for the quantities of operators; rates of sources are then their mean, health the worst."""

    at_s: tuple[float, ...]
    span_s: tuple[float, ...] = Field(description="how much time each point stands for")
    achieved_share: tuple[float | None, ...]
    sources: Mapping[str, SourceColumns]
    operators: Mapping[str, OperatorColumns] = Field(description="those that are scaled, without the sources")
    merged_by: Mapping[str, Combine] = Field(
        default=CHARTED, description="for each quantity of an operator: how two windows become one"
    )


class RunView(View):
    """Everything that a page needs to begin with; `Update`s go on from there."""

    id: str = Field(description="of the newest update in it: what a stream is to go on after")
    live: bool = Field(description="whether more may come")
    about: AboutView
    graph: GraphView | None = Field(description="null until something was measured")
    window: WindowView | None
    history: HistoryView
    proposal: ProposalView | None
    decisions: tuple[DecisionView, ...] = Field(description="oldest first")
    events: tuple[EventView, ...] = Field(description="oldest first")
    cost: CostView
    manager: ManagerView


class Update(View):
    """What came since the update before it; a part that is null or not there has not changed."""

    id: str
    about: AboutView | None = None
    graph: GraphView | None = None
    window: WindowView | None = None
    cost: CostView | None = None
    proposal: ProposalView | None = None
    event: EventView | None = None
    decision: DecisionView | None = Field(default=None, description="new, or with more known of it: replace by id")
    manager: ManagerView | None = None
    live: bool | None = None


# What was set before it began


class OptionView(View):
    name: str
    value: Any
    unit: str
    meaning: str


class ConfigurationView(View):
    pipeline: str
    shown: Literal["run", "simulation", "recording"]
    policy: str | None = Field(description="null for a recording that does not say")
    options: tuple[OptionView, ...] = Field(description="of the policy")
    knobs: tuple[OptionView, ...] = Field(description="of the manager")
    rules_file: str | None = None
    acts: bool = Field(description="whether actions are possible at all; they need the token, too")
