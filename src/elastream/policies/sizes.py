"""What is known of an operator's sizes: the one that it began with, the one it has, when it last grew and shrank.

Times are in watched seconds: the time that someone was there to measure, added up by a monotonic clock
(`Knowledge.watched_s`). A wall clock that jumps, and a manager that was down for a while, therefore neither end
a guard time early nor stretch it by the jump.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    original: int
    current: int
    scaled_out_s: float | None = None
    scaled_in_s: float | None = None

    @classmethod
    def beginning_with(cls, size: int) -> Sizes:
        return cls(original=size, current=size)

    def changed_to(self, size: int, at_s: float) -> Sizes:
        """The same operator with so many instances, whoever changed it."""
        if size > self.current:
            return replace(self, current=size, scaled_out_s=at_s)
        if size < self.current:
            return replace(self, current=size, scaled_in_s=at_s)
        return self
