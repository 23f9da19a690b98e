"""Source rates over time, as pure values.

A load answers one question: how many records per second arrive `t_s` seconds after the start. It has no clock
and no memory that shows: the same load gives the same rate at the same time, in whatever order it is asked.

- `Constant`, `Steps`, `Sine`: shapes whose right answer is known, for tests and first experiments.
- `Brownian`: a seeded random walk, the load of a run that nobody tuned for.
- `Trace`: recorded rates, from a file (`read_trace`) or from the package (`bundled_trace`).

A simulated day asks 86,400 times and more, so what can be computed once is computed at construction, and
`rate_at` is left with a search in a tuple: no numpy in it, whose scalars are slower than Python's floats.
"""

from __future__ import annotations

import csv
import io
import math
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np

from elastream.checked import FINITE, NOT_NEGATIVE, Checked, Finite, NotNegative, Positive
from elastream.errors import InvalidInput, nearest, shown

TIME_COLUMN = "time_s"
RATE_COLUMN = "records_per_s"
FIRST_WALK_STEPS = 1024  # 17 hours of the default step; a longer walk doubles from here


class Load(Protocol):
    """What arrives at a source. A load begins at 0: for an earlier time it gives what it gives at 0."""

    def rate_at(self, t_s: float) -> float:
        """Records per second at a time since the start, never negative."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant(Checked):
    """The same rate for ever."""

    records_per_s: NotNegative

    def rate_at(self, t_s: float) -> float:
        return self.records_per_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """Rates that change at once: each (from_s, records_per_s) holds until the next, the last for ever."""

    steps: tuple[tuple[float, float], ...]
    _from_s: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _rates: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from_s = tuple(step[0] for step in self.steps)
        rates = tuple(step[1] for step in self.steps)
        _require_times("steps", from_s)
        _require_rates("steps", rates)
        object.__setattr__(self, "_from_s", from_s)
        object.__setattr__(self, "_rates", rates)

    def rate_at(self, t_s: float) -> float:
        after = bisect_right(self._from_s, t_s)
        return self._rates[after - 1] if after else self._rates[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sine(Checked):
    """A wave around a mean, cut off at zero; at 0 it stands where one without phase is at `phase_s`."""

    mean: NotNegative
    amplitude: NotNegative
    period_s: Positive
    phase_s: Finite = 0.0

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        FINITE.check("mean + amplitude", self.mean + self.amplitude)

    def rate_at(self, t_s: float) -> float:
        turns = (max(t_s, 0.0) + self.phase_s) / self.period_s
        return max(0.0, self.mean + self.amplitude * math.sin(math.tau * turns))


@dataclass(frozen=True, kw_only=True, slots=True)
class Brownian(Checked):
    """A random walk: every `step_s` the rate moves by a normal step and is mirrored back at the bounds.

    The walk is a function of the fields alone. It is made when it is asked for, and made again at twice the
    length when it is too short: the same seed draws the same steps, so what was answered before stays true.
    That keeps no generator between calls, whose position would depend on who asked for what.
    """

    start: NotNegative
    step_std: NotNegative
    step_s: Positive = 60.0
    minimum: NotNegative = 0.0
    maximum: Finite | None = None
    seed: Annotated[int, NOT_NEGATIVE] = 0
    _walk: tuple[float, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.maximum is not None and self.maximum <= self.minimum:
            raise InvalidInput(f"maximum: expected more than the minimum, {self.minimum}, found {self.maximum}")
        if self.start < self.minimum or (self.maximum is not None and self.start > self.maximum):
            bounds = f"{self.minimum} to {'any' if self.maximum is None else self.maximum}"
            raise InvalidInput(f"start: expected a rate within the bounds, {bounds}, found {self.start}")

    def rate_at(self, t_s: float) -> float:
        step = int(t_s / self.step_s) if t_s > 0 else 0
        walk = self._walk
        if step >= len(walk):
            walk = self._walk_of(max(FIRST_WALK_STEPS, 1 << step.bit_length()))
            object.__setattr__(self, "_walk", walk)
        return walk[step]

    def _walk_of(self, length: int) -> tuple[float, ...]:
        """The walk's first rates. A free walk folded at its bounds is, steps being symmetric, a mirrored one."""
        moves = np.random.default_rng(self.seed).normal(scale=self.step_std, size=length - 1)
        above_minimum = np.concatenate(([0.0], np.cumsum(moves))) + (self.start - self.minimum)
        if self.maximum is None:
            return tuple((self.minimum + np.abs(above_minimum)).tolist())
        width = self.maximum - self.minimum
        folded = width - np.abs(np.mod(above_minimum, 2 * width) - width)
        # Adding the minimum again may round past the bound that was subtracted.
        return tuple(np.clip(self.minimum + folded, self.minimum, self.maximum).tolist())


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace(Checked):
    """Recorded rates, on a straight line from each point to the next; after the last point it holds.

    `speed` plays it faster and `scale` multiplies its rates. With `repeat` it starts again instead of holding:
    one more stretch, as long as the last, leads back to the first point, so that a day of 1,440 minutes comes
    again after 86,400 s and not after 86,340 s.
    """

    times_s: tuple[float, ...]
    records_per_s: tuple[float, ...]
    speed: Positive = 1.0
    scale: Positive = 1.0
    repeat: bool = False
    _played_s: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _rates: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _period_s: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._validate()
        times_s, rates = self.times_s, self.records_per_s
        period_s = math.inf
        if self.repeat and len(times_s) > 1:
            times_s = (*times_s, times_s[-1] + (times_s[-1] - times_s[-2]))
            rates = (*rates, rates[0])
            period_s = times_s[-1] / self.speed
        object.__setattr__(self, "_played_s", tuple(time_s / self.speed for time_s in times_s))
        object.__setattr__(self, "_rates", tuple(rate * self.scale for rate in rates))
        object.__setattr__(self, "_period_s", period_s)

    def _validate(self) -> None:
        Checked.__post_init__(self)
        if len(self.times_s) != len(self.records_per_s):
            found = f"{len(self.times_s)} times and {len(self.records_per_s)} rates"
            raise InvalidInput(f"times_s and records_per_s: expected as many of each, found {found}")
        _require_times("times_s", self.times_s)
        _require_rates("records_per_s", self.records_per_s)
        FINITE.check("the highest of records_per_s × scale", max(self.records_per_s) * self.scale)

    def rate_at(self, t_s: float) -> float:
        if t_s >= self._period_s:
            t_s %= self._period_s
        times_s, rates = self._played_s, self._rates
        after = bisect_right(times_s, t_s)
        if after == 0:
            return rates[0]
        if after == len(times_s):
            return rates[-1]
        from_s, from_rate = times_s[after - 1], rates[after - 1]
        passed = (t_s - from_s) / (times_s[after] - from_s)
        return from_rate + (rates[after] - from_rate) * passed


def read_trace(source: str | os.PathLike[str] | Traversable) -> Trace:
    """The trace of a CSV file with the columns `time_s` and `records_per_s`; other columns are ignored."""
    file = Path(source) if isinstance(source, str | os.PathLike) else source
    times_s: list[float] = []
    rates: list[float] = []
    for line, time_s, rate in _points(file):
        _require_next_time(f"{file}, line {line}", time_s, times_s)
        times_s.append(time_s)
        rates.append(rate)
    if not times_s:
        raise InvalidInput(f"{file}: expected points after the header, found none")
    return Trace(times_s=tuple(times_s), records_per_s=tuple(rates))


def bundled_traces() -> tuple[str, ...]:
    """The names of the traces that come with the package; their README tells where each is from."""
    names = (entry.name for entry in _bundled().iterdir())
    return tuple(sorted(name.removesuffix(".csv") for name in names if name.endswith(".csv")))


def bundled_trace(name: str) -> Trace:
    """A trace that comes with the package."""
    known = bundled_traces()
    if name not in known:
        raise InvalidInput(f"no bundled trace is named {shown(name)}{nearest(name, known)}")
    return read_trace(_bundled() / f"{name}.csv")


def _bundled() -> Traversable:
    return files("elastream.arrivals") / "traces"


def _points(file: Traversable) -> Iterator[tuple[int, float, float]]:
    """Line number, time and rate of each line after the header."""
    rows = csv.DictReader(io.StringIO(_text(file), newline=""), skipinitialspace=True)
    try:
        _require_columns(file, rows.fieldnames)
        for row in rows:
            place = f"{file}, line {rows.line_num}"
            time_s = _number(place, TIME_COLUMN, row[TIME_COLUMN])
            yield rows.line_num, time_s, _number(place, RATE_COLUMN, row[RATE_COLUMN])
    except csv.Error as error:
        raise InvalidInput(f"{file}, line {rows.reader.line_num}: not CSV: {error}") from error


def _text(file: Traversable) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")  # spreadsheets put a byte-order mark before the header
    except OSError as error:
        raise InvalidInput(f"{file}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file}: expected a text file in UTF-8, found other bytes: {error}") from error


def _require_columns(file: Traversable, found: Sequence[str] | None) -> None:
    wanted = f"{TIME_COLUMN},{RATE_COLUMN}"
    if not found:
        raise InvalidInput(f"{file}, line 1: expected the header {wanted}, found nothing")
    for column in (TIME_COLUMN, RATE_COLUMN):
        if column not in found:
            header = ",".join(found)
            raise InvalidInput(
                f"{file}, line 1: expected the header {wanted}, found no {column} in {shown(header)}"
            )


def _number(place: str, column: str, text: str | None) -> float:
    try:
        number = float(text or "")
        NOT_NEGATIVE.check(column, number)
    except (ValueError, InvalidInput):
        found = repr(text) if text else "nothing"
        raise InvalidInput(f"{place}: {column} must be {NOT_NEGATIVE.expected}, found {found}") from None
    return number


def _require_next_time(place: str, time_s: float, before_s: Sequence[float]) -> None:
    if not before_s and time_s != 0:
        raise InvalidInput(f"{place}: {TIME_COLUMN}: expected the first time to be 0, found {time_s}")
    if before_s and time_s <= before_s[-1]:
        raise InvalidInput(
            f"{place}: {TIME_COLUMN}: expected more than the line before, {before_s[-1]}, found {time_s}"
        )


def _require_times(name: str, times_s: Sequence[float]) -> None:
    if not times_s:
        raise InvalidInput(f"{name}: expected at least one point, found none")
    for time_s in times_s:
        FINITE.check(f"{name}: time", time_s)
    if times_s[0] != 0:
        raise InvalidInput(f"{name}: expected the first time to be 0, found {times_s[0]}")
    for before_s, time_s in pairwise(times_s):
        if time_s <= before_s:
            raise InvalidInput(f"{name}: expected increasing times, found {time_s} after {before_s}")


def _require_rates(name: str, rates: Sequence[float]) -> None:
    for rate in rates:
        NOT_NEGATIVE.check(f"{name}: rate", rate)
