"""Simulated time at a pace that people can watch: so many simulated seconds in each real one."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from elastream.engines.simulated.engine import SimulatedEngine


class PlaySpeed:
    """Waits for real; a wait ends early where someone asks for something."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._woken = threading.Event()

    def wake(self) -> None:
        self._woken.set()

    def rest(self, seconds: float) -> float:
        """Wait for so many simulated seconds; how many of them have passed."""
        began_s = time.monotonic()
        woken = self._woken.wait(seconds / self.speed)
        self._woken.clear()
        return min(seconds, (time.monotonic() - began_s) * self.speed) if woken else seconds


@dataclass(frozen=True)
class PacedClock:
    """The simulated engine as a clock that does not run ahead of its pace."""

    engine: SimulatedEngine
    pace: PlaySpeed

    def now(self) -> float:
        return self.engine.now()

    def steady(self) -> float:
        return self.engine.steady()

    def wait(self, seconds: float) -> None:
        self.engine.wait(self.pace.rest(seconds))
