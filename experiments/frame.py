"""The frame of the experiments: each table or figure of a paper is one named experiment.

An experiment is a function that runs something and returns a report: what we found beside what the paper says,
by the same definition, and the bounds that it set itself. It holds only if every bound does. Adding one is adding
a function with the decorator below to a module of this package.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from elastream.errors import InvalidInput, nearest


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was compared. Without a bound it is only shown."""

    what: str
    ours: str
    paper: str = "—"
    bound: str = ""
    holds: bool = True


@dataclass(frozen=True, kw_only=True)
class Report:
    checks: tuple[Check, ...]
    differs: tuple[str, ...] = ()
    """Where our result differs from the paper's, and what makes it differ."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Everything that the plot and the checks were made from; written as JSON."""
    plot: Callable[[Path], None] | None = None

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


Progress = Callable[[str, float], None]
"""Told what is being done and which share of the whole experiment is behind it."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    name: str
    paper: str
    """Which part of which paper it repeats."""
    question: str
    run: Callable[[Progress], Report]
    minutes: int = 0
    """About how long it takes, where that is long: such an experiment is run by its name, not with all others."""


_EXPERIMENTS: dict[str, Experiment] = {}


def experiment(
    name: str, *, paper: str, question: str, minutes: int = 0
) -> Callable[[Callable[[Progress], Report]], Callable[[Progress], Report]]:
    """Enter a function in the list of experiments."""

    def enter(run: Callable[[Progress], Report]) -> Callable[[Progress], Report]:
        _EXPERIMENTS[name] = Experiment(name=name, paper=paper, question=question, run=run, minutes=minutes)
        return run

    return enter


@cache
def experiments() -> Mapping[str, Experiment]:
    """Every experiment by name, in alphabetical order."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)], f"{__package__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return dict(sorted(_EXPERIMENTS.items()))


def short_ones() -> tuple[str, ...]:
    """Those that are run together."""
    return tuple(name for name, found in experiments().items() if not found.minutes)


def find(name: str) -> Experiment:
    if name not in experiments():
        raise InvalidInput(f"unknown experiment {name!r}{nearest(name, experiments())}")
    return experiments()[name]


def report_as_json(name: str, report: Report) -> dict[str, Any]:
    return {
        "experiment": name,
        "holds": report.holds,
        "checks": [asdict(check) for check in report.checks],
        "differs": list(report.differs),
        "data": report.data,
    }


def write(name: str, report: Report, folder: Path) -> tuple[Path, ...]:
    """Write the report as NAME.json and its plot as NAME.png."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{name}.json"]
    written[0].write_text(json.dumps(report_as_json(name, report), indent=1) + "\n", encoding="utf-8")
    if report.plot is not None:
        written.append(folder / f"{name}.png")
        report.plot(written[-1])
    return tuple(written)
