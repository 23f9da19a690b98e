"""Metrics of operators from an endpoint for Prometheus or OpenMetrics, as most programs have one already.

queue_length=kafka_lag{topic="in"}            the sum of all series that have these labels
input_rate=rate(records_total{job="counts"})  by how much a counter grew since the last look, per second
counts.latency=latency_seconds                of one of several operators that an agent reads for
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from elastream.agents.fetching import fetched
from elastream.errors import ElastreamError, InvalidInput, shown
from elastream.measurement.amounts import MOST_AMOUNT
from elastream.policies.rules.metrics import check_metric, spelt

_log = logging.getLogger(__name__)

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'[\s,]*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_SAMPLE = re.compile(rf"({_NAME})(?:\s*\{{(.*)\}})?\s+(\S+)(?:\s+\S+)?")
_SELECTOR = re.compile(rf"({_NAME})\s*(?:\{{(.*)\}})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Which series of an endpoint are which metric of which operator."""

    operator: str
    metric: str
    name: str
    labels: tuple[tuple[str, str], ...] = ()
    per_second: bool = False

    def __str__(self) -> str:
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels)
        selector = f"{self.name}{{{labels}}}" if labels else self.name
        return f"rate({selector})" if self.per_second else selector


@dataclass(frozen=True, slots=True)
class Scraped:
    name: str
    labels: Mapping[str, str]
    value: float


def series_of(written: str, operators: tuple[str, ...]) -> Series:
    """From `[OPERATOR.]METRIC=SELECTOR`, where the selector may stand in `rate(...)`."""
    left, equals, right = written.partition("=")
    operator, dot, metric = left.strip().rpartition(".")
    selector = right.strip()
    per_second = selector.startswith("rate(") and selector.endswith(")")
    found = _SELECTOR.fullmatch(selector[5:-1].strip() if per_second else selector)
    if not equals or found is None:
        raise InvalidInput(f'--series takes [OPERATOR.]METRIC=NAME{{label="value"}}, found {shown(written)}')
    check_metric(spelt(metric))
    if not dot and len(operators) > 1:
        raise InvalidInput(f"--series {shown(written)}: of which operator is it, of {', '.join(operators)}?")
    name = operator if dot else operators[0]
    if name not in operators:
        raise InvalidInput(f"--series {shown(written)}: this agent does not read for {shown(name)}")
    labels = tuple(sorted(_labels(found[2] or "")))
    return Series(operator=name, metric=spelt(metric), name=found[1], labels=labels, per_second=per_second)


def scraped(text: str) -> tuple[list[Scraped], dict[str, str]]:
    """The samples of an exposition, and the types that it states; a line that is none is passed over."""
    samples, types = [], {}
    for line in text.splitlines():
        if line.startswith("#"):
            words = line.split(maxsplit=3)
            if len(words) == 4 and words[1] == "TYPE":
                types[words[2]] = words[3].strip()
        elif (match := _SAMPLE.fullmatch(line.partition(" # ")[0].strip())) is not None:
            with_labels = dict(_labels(match[2] or ""))
            samples.append(Scraped(match[1], with_labels, _float(match[3])))
    return samples, types


@dataclass
class PrometheusMetrics:
    """An `EngineMetrics`: what one endpoint says of the operators; what it does not say is told once."""

    url: str
    series: tuple[Series, ...]
    fetch: Callable[[str], str] = fetched
    steady: Callable[[], float] = time.monotonic
    _before: dict[Series, tuple[float, float]] = field(default_factory=dict)
    """Of counters: when, and how much."""
    _told: set[str] = field(default_factory=set)

    def __call__(self) -> Mapping[str, Mapping[str, float]]:
        samples, types = scraped(self.fetch(self.url))
        found: dict[str, dict[str, float]] = {}
        for one in self.series:
            try:
                value = self._value(one, samples, types)
            except ElastreamError as error:
                self._tell_once(str(error))
            else:
                if value is not None:
                    found.setdefault(one.operator, {})[one.metric] = value
        return found

    def _value(self, one: Series, samples: Iterable[Scraped], types: Mapping[str, str]) -> float | None:
        values = [sample.value for sample in samples if is_of(sample, one)]
        if not values:
            raise ElastreamError(f"{self.url}: there is no {one}, which is to be {one.metric} of {one.operator}")
        total = sum(values)  # no fsum, which raises at infinities of both signs
        if not 0 <= total <= MOST_AMOUNT:  # false for what is no number, too
            raise ElastreamError(f"{self.url}: {one} must be a number from 0 to {MOST_AMOUNT:g}, found {total:g}")
        return self._rate(one, total, types) if one.per_second else total

    def _rate(self, one: Series, total: float, types: Mapping[str, str]) -> float | None:
        kind = types.get(one.name) or types.get(one.name.removesuffix("_total"), "counter")
        if kind not in ("counter", "unknown", "untyped"):
            self._before.pop(one, None)
            raise ElastreamError(f"{self.url}: {one} takes a counter, found a {kind}")
        now_s = self.steady()
        before_s, before = self._before.get(one, (now_s, total))
        self._before[one] = now_s, total
        if now_s <= before_s or total < before:  # the first look, or the counter began anew
            return None
        return (total - before) / (now_s - before_s)

    def _tell_once(self, text: str) -> None:
        """Once for all values that are found."""
        what = text.partition(", found ")[0]
        if what not in self._told:
            self._told.add(what)
            _log.warning("%s", text)


def is_of(sample: Scraped, one: Series) -> bool:
    return sample.name == one.name and all(sample.labels.get(name) == value for name, value in one.labels)


def _labels(text: str) -> Iterator[tuple[str, str]]:
    """One after the other up to what is none: to search on from there would take time that grows as the square."""
    at = 0
    while (found := _LABEL.match(text, at)) is not None:
        at = found.end()
        yield found[1], re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], found[2])


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
