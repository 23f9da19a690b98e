"""All that one agent can read: the operating system's metrics for each of its operators, and the engine's.

Each source is asked in a thread of its own. One that takes too long is waited for no longer, and what it says then
is of the next reading: so one that hangs holds up no other, and is not asked again meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from elastream.agents.engine_metrics import EngineMetrics
from elastream.agents.os_metrics import OsMetrics, read_os
from elastream.errors import ElastreamError
from elastream.policies.rules.metrics import METRICS

_log = logging.getLogger(__name__)

_Found = Mapping[str, Mapping[str, float]]


@dataclass(kw_only=True)
class Reader:
    operators: tuple[str, ...]
    os_metrics: OsMetrics
    engine: tuple[EngineMetrics, ...] = ()
    """What is said first gives way to what is said later."""
    _last_errors: dict[int, str] = field(default_factory=dict, init=False)
    _under_way: dict[int, Future[_Found]] = field(default_factory=dict, init=False)

    @property
    def offers(self) -> tuple[str, ...]:
        """Of an engine nobody knows before what it will say, so it may be anything."""
        return tuple(METRICS) if self.engine else tuple(self.os_metrics.readers())

    def __call__(
        self, wanted: Sequence[frozenset[str]], patience_s: float | None = None
    ) -> Sequence[Mapping[str, float]]:
        """Of each operator what is wanted of it. What the engine says of something goes before all else.

        It takes as long as its slowest source, but no longer than is said.
        """
        asked = frozenset().union(*wanted)
        if not asked:
            return [{} for _ in wanted]
        for place in range(len(self.engine)):
            if place not in self._under_way:
                self._under_way[place] = _asked(self.engine[place])
        by_system = read_os(self.os_metrics.readers(), asked)
        wait(self._under_way.values(), patience_s)
        by_engine = [self._by_engine(place) for place in range(len(self.engine))]
        return [
            {name: value for name, value in _together(by_system, by_engine, operator).items() if name in names}
            for operator, names in zip(self.operators, wanted, strict=True)
        ]

    def _by_engine(self, place: int) -> _Found:
        """No data is better than an agent that ends: the engine may come up later, or be restarted."""
        if not self._under_way[place].done():
            return {}
        try:
            found = self._under_way.pop(place).result()
        except ElastreamError as error:
            if str(error) != self._last_errors.get(place):  # the same again and again is logged once
                _log.warning("%s", error)
            self._last_errors[place] = str(error)
            return {}
        self._last_errors.pop(place, None)
        return found


def _asked(part: EngineMetrics) -> Future[_Found]:
    """In a thread that does not keep the agent from ending, as those of a pool would."""
    answer: Future[_Found] = Future()

    def ask() -> None:
        try:
            answer.set_result(part())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="reading", daemon=True).start()
    return answer


def _together(
    by_system: Mapping[str, float], by_engine: Sequence[Mapping[str, Mapping[str, float]]], operator: str
) -> Mapping[str, float]:
    found = dict(by_system)
    for part in by_engine:
        found.update(part.get(operator, {}))
    return found
