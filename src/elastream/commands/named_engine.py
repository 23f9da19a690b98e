"""The engine that a user names on the command line: a Python object as `module:object`, or a scenario's file.

A scenario is simulated in real time, for trying rules and agents out: what its operators do is written as JSON for
agents to read, one file for each instance.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from elastream.agents.adaptor import Adaptor, EngineAdaptor
from elastream.agents.engine_metrics import write_metrics
from elastream.agents.run_adaptor import RunAdaptor
from elastream.engines.simulated.engine import SimulatedEngine
from elastream.engines.simulated.scenario import read_scenario
from elastream.errors import InvalidInput
from elastream.manager.engine import ENGINE_CALLS
from elastream.policies.rules.metrics import METRICS
from elastream.web.address import TOKEN_VARIABLE

_CALLS = ("operators", "current_size", "original_size", "set_size")


def named_engine(name: str, folder: Path) -> Adaptor:
    """Something with the four calls of an adaptor or those of an engine, or a function that gives it; or a run."""
    if name.startswith(("http://", "https://")):
        return RunAdaptor(name, os.environ.get(TOKEN_VARIABLE, ""))
    if Path(name).suffix in (".yaml", ".yml"):
        return SimulatedInRealTime(SimulatedEngine(read_scenario(Path(name)).model), folder / "engine-metrics")
    found = _imported(name)
    if isinstance(found, type) or (callable(found) and not _has(found, _CALLS)):
        found = _made(name, found)
    if _has(found, ENGINE_CALLS):
        return EngineAdaptor(found)
    lacking = [call for call in _CALLS if not callable(getattr(found, call, None))]
    if lacking:
        what = f"{type(found).__name__} lacks {', '.join(lacking)}"
        raise InvalidInput(f"--engine {name}: an adaptor has the calls {', '.join(_CALLS)}, and {what}")
    return cast(Adaptor, found)


def _imported(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        takes = "MODULE:OBJECT, http://HOST:PORT of a run or the .yaml of a scenario"
        raise InvalidInput(f"--engine takes {takes}, found {name!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: what lies in this folder can be named
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise InvalidInput(f"--engine {name}: cannot be imported: {error}") from None
    except AttributeError:
        raise InvalidInput(f"--engine {name}: {module} has no {attribute}") from None


def _made(name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:  # of someone else's code
        raise InvalidInput(f"--engine {name}: cannot be made: {type(error).__name__}: {error}") from error


def _has(found: Any, calls: Sequence[str]) -> bool:
    return all(callable(getattr(found, call, None)) for call in calls)


class SimulatedInRealTime(EngineAdaptor):
    """Simulated time follows ours; whoever asks for the operators also brings the files up to date."""

    def __init__(self, engine: SimulatedEngine, folder: Path) -> None:
        super().__init__(engine)
        self._simulated = engine
        self._folder = folder
        self._began_s = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def operators(self) -> Sequence[str]:
        behind_s = time.monotonic() - self._began_s - self._simulated.now()
        if behind_s > 0:
            self._simulated.wait(behind_s)
            self._tell()
        return super().operators()

    def _tell(self) -> None:
        told = set()
        for reading in self._simulated.measure().readings:
            path = self._folder / f"{reading.operator}.{reading.instance}.json"
            told.add(path)
            values = {name: metric.of(reading) for name, metric in METRICS.items()}
            write_metrics(path, {name: value for name, value in values.items() if value is not None})
        for path in set(self._folder.glob("*.json")) - told:
            path.unlink()  # of an instance that is gone
