"""Dataclasses that check their numbers: a field's type says which numbers it may be, and how that is called."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

from elastream.errors import InvalidInput


@dataclass(frozen=True)
class Numbers:
    expected: str
    holds: Callable[[float], bool]

    def check(self, name: str, value: float) -> None:
        if not self.holds(value):
            raise InvalidInput(f"{name} must be {self.expected}, found {value}")


FINITE = Numbers("a finite number", math.isfinite)
POSITIVE = Numbers("a finite number above 0", lambda value: math.isfinite(value) and value > 0)
NOT_NEGATIVE = Numbers("a finite number of at least 0", lambda value: math.isfinite(value) and value >= 0)

Finite = Annotated[float, FINITE]
Positive = Annotated[float, POSITIVE]
NotNegative = Annotated[float, NOT_NEGATIVE]
Share = Annotated[float, Numbers("above 0 and at most 1", lambda value: 0 < value <= 1)]
Limit = Annotated[float, Numbers("above 0, or infinite", lambda value: value > 0)]
"""An infinite limit is none."""
Count = Annotated[int, Numbers("at least 1", lambda value: value >= 1)]


class Checked:
    """Base of such a dataclass.

    One with a `__post_init__` of its own calls `Checked.__post_init__(self)` in it: `super()` does not work in a
    dataclass with slots.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, numbers in self._declared():
            value = getattr(self, name)
            if value is not None:
                numbers.check(name, value)

    @classmethod
    @cache
    def _declared(cls) -> tuple[tuple[str, Numbers], ...]:
        hints = get_type_hints(cls, include_extras=True)
        return tuple((name, numbers) for name, hint in hints.items() for numbers in _numbers(hint))


def _numbers(hint: Any) -> Iterator[Numbers]:
    """Of the type itself, or of a part of it, as in `Share | None`."""
    for part in get_args(hint):
        if isinstance(part, Numbers):
            yield part
        else:
            yield from _numbers(part)
