"""What people may ask of a running manager, and what stays set because they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elastream.dataflow import Dataflow, Operator
from elastream.manager.knobs import Knobs


@dataclass(frozen=True, kw_only=True)
class Pause:
    """Measure and learn, but decide nothing, until someone resumes; what is asked for by hand is still done."""


@dataclass(frozen=True, kw_only=True)
class Resume:
    pass


@dataclass(frozen=True, kw_only=True)
class SetDryRun:
    on: bool


@dataclass(frozen=True, kw_only=True)
class SetBounds:
    """Within the operator's own; None leaves that side to them."""

    operator: str
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, kw_only=True)
class Scale:
    """By hand: these operators, in one action."""

    parallelism: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class RollBack:
    """Take back the last action."""


MOST_BY_HAND = 10_000
"""Instances of an operator that has no bound of its own: more than that is a slip of the finger."""

Request = Pause | Resume | SetDryRun | SetBounds | Scale | RollBack


@dataclass(frozen=True, kw_only=True)
class Bounds:
    least: int | None = None
    most: int | None = None

    def __str__(self) -> str:
        match self.least, self.most:
            case None, None:
                return "its own bounds"
            case least, None:
                return f"at least {least}"
            case None, most:
                return f"at most {most}"
        return f"{self.least} to {self.most}"


@dataclass(frozen=True, kw_only=True)
class Controls:
    """What people set while the manager ran; a part of its state, so a restart does not forget it."""

    paused: bool = False
    dry_run: bool | None = None
    """None leaves it to the knob."""
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = ["scaling is paused"] if self.paused else []
        parts += ["dry run"] if self.dry_run else []
        return ", ".join([*parts, *(f"{name}: {bounds}" for name, bounds in self.bounds.items())])

    def after_restart(self) -> Controls:
        """Everything holds on, but for a dry run that was ended: whoever starts anew may want one."""
        return replace(self, dry_run=None) if self.dry_run is False else self

    def applied_to(self, knobs: Knobs) -> Knobs:
        return knobs if self.dry_run is None else replace(knobs, dry_run=self.dry_run)

    def narrowed(self, dataflow: Dataflow) -> Dataflow:
        """The graph with the bounds that were set; those for operators that it does not have are passed over."""
        if not any(name in dataflow for name in self.bounds):
            return dataflow
        operators = tuple(
            _narrowed(operator, self.bounds[operator.name]) if operator.name in self.bounds else operator
            for operator in dataflow.operators
        )
        return replace(dataflow, operators=operators)


UNTOUCHED = Controls()


def _narrowed(operator: Operator, bounds: Bounds) -> Operator:
    """Never wider than its own: a pipeline that was changed since may have others than when they were set."""
    least = operator.clamp(max(operator.min_parallelism, bounds.least or 1))
    most = operator.max_parallelism
    if bounds.most is not None:
        most = max(least, bounds.most if most is None else min(most, bounds.most))
    return replace(operator, min_parallelism=least, max_parallelism=most)
