"""What Flink's autoscaler keeps between two looks: its window of metrics, wishes to shrink, and past scalings.

Times are in watched seconds (`Knowledge.watched_s`). A change of the plan, whoever made it, is a restart of the
job: the window of metrics begins anew, and wishes are forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class VertexSample:
    """One look at an operator or a source."""

    records_in: float
    records_out: Mapping[str, float] = field(default_factory=dict)
    """To each operator after it."""
    busy: float | None = None
    """The share of the time, of the busiest instance; None where nobody measured it."""
    held_back: float = 0.0
    """The share of the time that it waited for those after it: backpressure."""
    lag: float | None = None
    """Records that waited for it at the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FlinkSample:
    at_s: float
    lasts_s: float
    vertices: Mapping[str, VertexSample]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    at_s: float
    parallelism: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """To shrink, since when, and the recommendations that may still turn out to be the highest."""

    first_s: float
    recommendations: tuple[Recommendation, ...] = ()

    def again(self, parallelism: int, *, now_s: float, within_s: float) -> Wish:
        """One more, from which on no lower one before it matters; those that are too old are forgotten."""
        kept = tuple(
            one for one in self.recommendations if one.parallelism > parallelism and one.at_s >= now_s - within_s
        )
        latest = Recommendation(at_s=now_s, parallelism=parallelism)
        return Wish(first_s=self.first_s, recommendations=(*kept, latest))

    @property
    def highest(self) -> int:
        return self.recommendations[0].parallelism


@dataclass(frozen=True, kw_only=True, slots=True)
class PastScaling:
    at_s: float
    before: int
    after: int
    true_per_s: float
    """Before it."""

    @property
    def expected_per_s(self) -> float:
        """After it, were the operator to scale linearly."""
        return self.true_per_s * self.after / self.before


@dataclass(frozen=True, kw_only=True)
class FlinkMemory:
    now_s: float = 0.0
    restarted_s: float = 0.0
    """When the job began, or was last scaled."""
    plan: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[FlinkSample, ...] = ()
    """The window of metrics, oldest first."""
    wishes: Mapping[str, Wish] = field(default_factory=dict)
    true_per_s: Mapping[str, float] = field(default_factory=dict)
    """By the window so far: what a scaling that follows is compared with."""
    scalings: Mapping[str, tuple[PastScaling, ...]] = field(default_factory=dict)
    """Of each operator the last few, oldest first."""


NO_METRICS = FlinkMemory()
