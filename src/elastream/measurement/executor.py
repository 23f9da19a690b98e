"""What was measured of an executor: a process that runs tasks of any operator, as Spark has them.

It is shown and recorded; no policy looks at it. What an engine cannot measure is `None`, never a made-up zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastream.errors import InvalidInput
from elastream.measurement.reading import check_amount

_AMOUNTS = ("active_tasks", "busy_cores", "memory_used_bytes", "memory_bytes", "peak_heap_bytes")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorReading:
    id: str
    host: str
    """As the executor itself tells it."""
    node: str | None = None
    """The name of its node, where nodes have names."""
    cores: int
    """So many tasks it runs at once."""
    active_tasks: int
    """At the moment of the look, when a batch may just have ended."""
    busy_cores: float | None = None
    """On the mean of the window, by the time of the tasks that ended."""
    memory_used_bytes: float | None = None
    """Of what is set aside for blocks: cached ones, broadcasts, shuffles on their way."""
    memory_bytes: float | None = None
    peak_heap_bytes: float | None = None
    """The most that its heap has held since it began."""
    leaving: bool = False
    """It is being decommissioned: finishes its tasks and takes no more."""

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidInput("an executor needs an id, found an empty one")
        if self.cores < 1:
            raise InvalidInput(f"executor {self.id!r}: cores must be at least 1, found {self.cores}")
        for field in _AMOUNTS:
            if (value := getattr(self, field)) is not None:
                check_amount(f"executor {self.id!r}: {field}", value)
