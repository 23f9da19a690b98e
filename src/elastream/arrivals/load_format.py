"""How files and the command line write a load: a number, steps, a wave, a walk or a trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from elastream.arrivals.load import Brownian, Constant, Load, Sine, Steps, bundled_trace, read_trace
from elastream.durations import seconds
from elastream.formats import Duration, Strict, is_number


def _step(value: Any) -> tuple[float, float]:
    if not (isinstance(value, list) and len(value) == 2 and is_number(value[1])):
        raise ValueError(f"a step is [from when, records per second], found {value!r}")
    return seconds(value[0]), float(value[1])


class SineEntry(Strict):
    mean: float
    amplitude: float
    period: Duration
    phase: Duration = 0.0


class BrownianEntry(Strict):
    start: float
    step_std: float
    step: Duration = 60.0
    minimum: float = 0.0
    maximum: float | None = None
    seed: int = 0


class LoadEntry(Strict):
    """One of the first five; the rest belongs to a trace."""

    constant: float | None = None
    steps: list[Annotated[tuple[float, float], BeforeValidator(_step)]] | None = None
    sine: SineEntry | None = None
    brownian: BrownianEntry | None = None
    trace: str | None = Field(default=None, description="a bundled trace, or a CSV file beside the scenario")
    speed: float = 1.0
    scale: float = 1.0
    repeat: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> LoadEntry:
        kinds = ("constant", "steps", "sine", "brownian", "trace")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"a load is one of {', '.join(kinds)}; found {' and '.join(given) or 'none'}")
        of_trace = self.model_fields_set - set(kinds)
        if of_trace and self.trace is None:
            raise ValueError(f"{min(of_trace)} belongs to a trace, found it with {given[0]}")
        return self

    def load(self, folder: Path) -> Load:
        if self.constant is not None:
            return Constant(records_per_s=self.constant)
        if self.steps is not None:
            return Steps(steps=tuple(self.steps))
        if self.sine is not None:
            wave = self.sine
            return Sine(mean=wave.mean, amplitude=wave.amplitude, period_s=wave.period, phase_s=wave.phase)
        if self.brownian is not None:
            options = self.brownian.model_dump(exclude={"step"})
            return Brownian(step_s=self.brownian.step, **options)
        assert self.trace is not None  # by _one_kind
        trace = read_trace(folder / self.trace) if self.trace.endswith(".csv") else bundled_trace(self.trace)
        return replace(trace, speed=self.speed, scale=self.scale, repeat=self.repeat)
