"""The simulated engine as a kind of engine: `elastream run --engine simulated SCENARIO.yaml`.

As a run on a real engine it is recorded and served, with the manager's state in its folder; its time is simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elastream.dataflow import Dataflow
from elastream.engines.simulated.engine import SimulatedEngine
from elastream.engines.simulated.scenario import Scenario, read_scenario


@dataclass(frozen=True, kw_only=True)
class SimulatedJob:
    scenario: Scenario

    @property
    def name(self) -> str:
        return self.scenario.name

    def graph(self) -> Dataflow:
        return self.scenario.model.dataflow

    @contextmanager
    def running(self, folder: Path) -> Iterator[SimulatedEngine]:
        yield SimulatedEngine(self.scenario.model)


@dataclass(frozen=True, kw_only=True)
class Simulated:
    def read(self, target: Path) -> SimulatedJob:
        return SimulatedJob(scenario=read_scenario(Path(target)))
