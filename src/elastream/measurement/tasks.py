"""How the work of a batch was spread over its tasks, for engines whose tasks are no lasting instances.

Spark summarizes the tasks of a stage by quantiles, so that skew (one task gets more of the records) and stragglers
(one task takes longer for as many) can be seen without a reading of each.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastream.errors import InvalidInput
from elastream.measurement.amounts import check_amount

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSpread:
    """The tasks of one stage of one batch: of several stages, the one whose records are the least even."""

    tasks: int
    records_total: float
    records: tuple[float, ...]
    """Of a task: the least, the quartiles and the most."""
    busy_s: tuple[float, ...]
    """The same of the time that a task ran."""

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise InvalidInput(f"tasks: there must be at least 1, found {self.tasks}")
        check_amount("tasks: records_total", self.records_total)
        for name in ("records", "busy_s"):
            values = getattr(self, name)
            if len(values) != len(QUANTILES) or list(values) != sorted(values):
                expected = f"{len(QUANTILES)} numbers that rise (least, quartiles, most)"
                raise InvalidInput(f"tasks: {name} must be {expected}, found {list(values)}")
            check_amount(f"tasks: {name}", values[0])
            check_amount(f"tasks: {name}", values[-1])

    @property
    def largest_share(self) -> float | None:
        """The share of the records that the largest task took."""
        return min(1.0, self.records[-1] / self.records_total) if self.records_total > 0 else None

    @property
    def skew(self) -> float | None:
        """The records of the largest task over the mean of all tasks: 1 is even."""
        return None if self.largest_share is None else self.largest_share * self.tasks
