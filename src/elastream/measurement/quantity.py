"""What is said of a quantity once, where it is declared, for everyone who combines, writes, charts or exports it.

A quantity is a field whose type carries a `Quantity`, or a property that is declared to be one:

    latency_s: Annotated[float | None, Quantity("how long a record takes", instances=Combine.LARGEST)] = None

    @computed("the mean share of the window that was useful time", gauge="utilization_ratio")
    def utilization(self) -> float: ...

The file format, the views, the points of charts and the gauges for Prometheus are made from these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import fsum
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints


class Combine(StrEnum):
    """How several values become one; what was not measured is left out."""

    SUM = "sum"
    MEAN = "mean"
    LARGEST = "largest"

    def of(self, weighted: Iterable[tuple[float | None, float]]) -> float | None:
        """Of values with their weights, by which only the mean goes."""
        known = [(value, weight) for value, weight in weighted if value is not None]
        if not known:
            return None
        if self is Combine.SUM:
            return fsum([value for value, _ in known])
        if self is Combine.LARGEST:
            return max([value for value, _ in known])
        total = fsum(weight for _, weight in known)
        if total <= 0:
            return fsum(value for value, _ in known) / len(known)
        return fsum(value * weight for value, weight in known) / total


@dataclass(frozen=True, slots=True)
class Quantity:
    meaning: str
    instances: Combine = Combine.SUM
    """How the values of an operator's instances become that of the operator."""
    windows: Combine | None = None
    """How two windows become one point of a chart; None where it is not charted."""
    gauge: str | None = None
    """Its name in Prometheus, behind that of what it is measured of."""
    counter: str | None = None
    """The same, where Prometheus is told of the total since the beginning."""

    @property
    def is_shown(self) -> bool:
        return bool(self.windows or self.gauge or self.counter)


Value = TypeVar("Value")


class ComputedQuantity(cached_property[Value]):
    quantity: Quantity


def computed(
    meaning: str, *, windows: Combine | None = None, gauge: str | None = None
) -> Callable[[Callable[[Any], Value]], ComputedQuantity[Value]]:
    """A property that is a quantity, computed once."""

    def declare(function: Callable[[Any], Value]) -> ComputedQuantity[Value]:
        found = ComputedQuantity(function)
        found.quantity = Quantity(meaning, windows=windows, gauge=gauge)
        return found

    return declare


def declared_in(kind: type) -> Mapping[str, Quantity]:
    """The quantities of a class by name: its fields, then its properties, each in the order of the source."""
    hints = get_type_hints(kind, include_extras=True).items()
    found = {name: quantity for name, hint in hints if (quantity := _of(hint)) is not None}
    properties = vars(kind).items()
    return found | {name: one.quantity for name, one in properties if isinstance(one, ComputedQuantity)}


def _of(hint: Any) -> Quantity | None:
    if get_origin(hint) is not Annotated:
        return None
    return next((found for found in get_args(hint) if isinstance(found, Quantity)), None)
