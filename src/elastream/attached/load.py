"""What is asked of a query: rows that arrive and wait, how often it is triggered, how long a batch may take."""

from __future__ import annotations

from dataclasses import dataclass

from elastream.attached.model import QueryModel

DEFAULT_LATENCY_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryLoad:
    name: str
    rows_per_s: float
    """That arrive."""
    latency_s: float
    """The longest that a batch may take, from its trigger to its commit."""
    interval_s: float = 0.0
    """Between two triggers; 0 where a batch follows the other at once."""
    growth_per_s2: float = 0.0
    """By how much more arrive each second."""
    waiting: float | None = None
    """Rows that wait beyond those of the next batch; None where the source does not tell."""
    limit_rows: float | None = None
    """The most rows of a batch, where batches were seen to be cut off there."""
    model: QueryModel | None = None

    @property
    def between_s(self) -> float:
        """From one batch to the next when all of the latency is used."""
        return max(self.interval_s, self.latency_s)


def latency_of(asked_s: float | None, interval_s: float) -> float:
    """What a user asked for; else the trigger interval; else 10 s."""
    return asked_s or interval_s or DEFAULT_LATENCY_S
