"""What was measured of an executor: a process that runs tasks of any operator, as Spark has them.

It is shown and recorded; no policy looks at it. What an engine cannot measure is `None`, never a made-up zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from elastream.errors import InvalidInput
from elastream.measurement.amounts import check_amount
from elastream.measurement.quantity import Quantity, declared_in
from elastream.texts import check_name


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorReading:
    id: str
    host: str
    """As the executor itself tells it."""
    node: str | None = None
    """The name of its node, where nodes have names."""
    cores: Annotated[int, Quantity("slots: tasks that it runs at once", gauge="cores")]
    processors: Annotated[
        int | None, Quantity("cores that its machine lets it use, where that is known", gauge="processors")
    ] = None
    """May be fewer than its slots: `local[32]` on two cores."""
    active_tasks: Annotated[
        int, Quantity("tasks that it ran when the window ended, maybe between two batches", gauge="active_tasks")
    ]
    busy_cores: Annotated[
        float | None,
        Quantity("slots that were busy, on the mean of the window, by the tasks that ended", gauge="busy_cores"),
    ] = None
    memory_used_bytes: Annotated[
        float | None, Quantity("used of what is set aside for blocks", gauge="memory_used_bytes")
    ] = None
    """Cached ones, broadcasts, shuffles on their way."""
    memory_bytes: Annotated[float | None, Quantity("set aside for blocks", gauge="memory_bytes")] = None
    peak_heap_bytes: Annotated[
        float | None, Quantity("the most that its heap has held since it began", gauge="peak_heap_bytes")
    ] = None
    leaving: Annotated[
        bool, Quantity("it is being decommissioned: finishes its tasks and takes no more", gauge="leaving")
    ] = False

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidInput("an executor needs an id, found an empty one")
        for field in ("id", "host", "node"):
            check_name(getattr(self, field) or "", f"an executor's {field}")
        if self.cores < 1:
            raise InvalidInput(f"executor {self.id!r}: cores must be at least 1, found {self.cores}")
        for field in EXECUTOR_QUANTITIES:
            if (value := getattr(self, field)) is not None:
                check_amount(f"executor {self.id!r}: {field}", value)


EXECUTOR_QUANTITIES = declared_in(ExecutorReading)
