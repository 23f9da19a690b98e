"""All that one agent can read: the operating system's metrics for each of its operators, and the engine's."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elastream.agents.engine_metrics import EngineMetrics
from elastream.agents.os_metrics import OsMetrics, read_os
from elastream.errors import ElastreamError
from elastream.policies.rules.metrics import METRICS

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Reader:
    operators: tuple[str, ...]
    os_metrics: OsMetrics
    engine: EngineMetrics | None = None
    _last_error: str = field(default="", init=False)

    @property
    def offers(self) -> tuple[str, ...]:
        """Of an engine nobody knows before what it will say, so it may be anything."""
        return tuple(METRICS) if self.engine is not None else tuple(self.os_metrics.readers())

    def __call__(self, wanted: Sequence[frozenset[str]]) -> Sequence[Mapping[str, float]]:
        """Of each operator what is wanted of it. What the engine says of something goes before all else."""
        asked = frozenset().union(*wanted)
        by_system = read_os(self.os_metrics.readers(), asked) if asked else {}
        by_engine = self._by_engine() if asked else {}
        return [
            {name: value for name, value in {**by_system, **by_engine.get(operator, {})}.items() if name in names}
            for operator, names in zip(self.operators, wanted, strict=True)
        ]

    def _by_engine(self) -> Mapping[str, Mapping[str, float]]:
        """No data is better than an agent that ends: the engine may come up later, or be restarted."""
        if self.engine is None:
            return {}
        try:
            found = self.engine()
        except ElastreamError as error:
            if str(error) != self._last_error:  # the same again and again is logged once
                _log.warning("%s", error)
            self._last_error = str(error)
            return {}
        self._last_error = ""
        return found
