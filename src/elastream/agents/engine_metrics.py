"""What an engine, or the process of an operator, says of itself: a JSON object in a file or behind a URL.

    {"queue_length": 120, "latency": 0.4}                        of the only operator that an agent reads for
    {"counts": {"queue_length": 120}, "words": {"latency": 2}}   of several

The names and units are those of `elastream rules metrics`; a share is a percentage. Whoever writes the file puts
it in place with a rename, so that nobody reads half of it. A Python program can hand over a function instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elastream.agents.fetching import fetched
from elastream.errors import InvalidInput, nearest, shown
from elastream.formats import read_json, read_text
from elastream.measurement.amounts import MOST_AMOUNT
from elastream.policies.rules.metrics import METRICS
from elastream.whole_files import write_json

_MOST_BYTES = 1_000_000

EngineMetrics = Callable[[], Mapping[str, Mapping[str, float]]]
"""Gives the metrics of each operator. What it cannot give now is an ElastreamError."""


def json_metrics(where: str, operators: tuple[str, ...]) -> EngineMetrics:
    """From a file, or from what begins with http:// or https://."""
    is_url = where.startswith(("http://", "https://"))

    def read() -> Mapping[str, Mapping[str, float]]:
        text = fetched(where, most_bytes=_MOST_BYTES) if is_url else read_text(Path(where))
        return metrics_of(read_json(text, where), operators, place=where)

    return read


def metrics_of(data: Any, operators: tuple[str, ...], *, place: str) -> Mapping[str, Mapping[str, float]]:
    """What the object says of each of these operators; one that it says nothing of has no metrics."""
    if not isinstance(data, dict):
        raise InvalidInput(f"{place}: metrics are a JSON object, found {shown(data)}")
    if not any(isinstance(value, dict) for value in data.values()):
        if len(operators) > 1:
            raise InvalidInput(f"{place}: of which operator are these metrics, of {', '.join(operators)}?")
        data = {operators[0]: data}
    return {name: _checked(data[name], f"{place}: {name}") for name in operators if name in data}


def _checked(found: Any, place: str) -> Mapping[str, float]:
    if not isinstance(found, dict):
        raise InvalidInput(f"{place}: metrics are a JSON object, found {shown(found)}")
    for name, value in found.items():
        if name not in METRICS:
            raise InvalidInput(f"{place}: unknown metric {shown(name)}{nearest(name, METRICS)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_AMOUNT:
            raise InvalidInput(f"{place}: {name} must be a number from 0 to {MOST_AMOUNT:g}, found {shown(value)}")
    return {name: float(value) for name, value in found.items()}


def write_metrics(path: Path, metrics: Mapping[str, float]) -> None:
    """For an operator's process that tells of itself through a file."""
    write_json(path, metrics, lasting=False)
