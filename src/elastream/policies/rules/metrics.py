"""What a rule may look at: each metric with its unit, its meaning and where in a reading it stands.

Adding one is adding a line to `METRICS` and its name to `MetricName`, by which a type checker knows it. The names
are those of the SEEP thesis (section 4.2.2) where it has one: queue length, latency, CPU and memory utilization.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

from elastream.errors import InvalidInput, nearest, shown
from elastream.measurement import Reading, Snapshot

MetricName = Literal[
    "queue_length",
    "latency",
    "utilization",
    "cpu_utilization",
    "memory_utilization",
    "heap_utilization",
    "disk_utilization",
    "open_files",
    "state_size",
    "backpressure",
    "input_rate",
    "output_rate",
    "out_of_order",
]


class Unit(StrEnum):
    RECORDS = "records"
    PERCENT = "%"
    SECONDS = "s"
    RECORDS_PER_S = "records/s"
    BYTES = "bytes"
    FILES = "files"
    NUMBER = ""
    """Of a metric that is not known here."""


def _only_by_agents(reading: Reading) -> None:
    """No engine measures it for its readings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    name: str
    words: str
    """As it stands in a sentence."""
    unit: Unit
    meaning: str
    of: Callable[[Reading], float | None] = _only_by_agents
    """Of one instance in one window, in the unit, as an engine measured it; None where it did not."""

    def read(self, reading: Reading) -> float | None:
        """As an agent read it where one did, else as the engine measured it."""
        return self.of(reading) if reading.metrics is None else reading.metrics.get(self.name)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _records_out(reading: Reading) -> float:
    """To all operators after it together, where they are counted one by one."""
    out = reading.records_out
    return sum(out.values()) if isinstance(out, Mapping) else out


_ALL = (
    Metric(
        name="queue_length",
        words="the queue length",
        unit=Unit.RECORDS,
        meaning="records that wait for an instance when the window ends; on Spark, for longer than a batch",
        of=lambda reading: reading.backlog if reading.overdue is None else reading.overdue,
    ),
    Metric(
        name="latency",
        words="the latency",
        unit=Unit.SECONDS,
        meaning="how long a record waits and is worked on",
        of=lambda reading: reading.latency_s,
    ),
    Metric(
        name="utilization",
        words="the utilization",
        unit=Unit.PERCENT,
        meaning="useful time as a share of the window",
        of=lambda reading: _percent(min(1.0, reading.useful_s / reading.window_s)),
    ),
    Metric(
        name="cpu_utilization",
        words="the CPU utilization",
        unit=Unit.PERCENT,
        meaning="as the engine or the operating system measures it",
        of=lambda reading: _percent(reading.cpu_utilization),
    ),
    Metric(
        name="memory_utilization",
        words="the memory utilization",
        unit=Unit.PERCENT,
        meaning="as the engine or the operating system measures it",
        of=lambda reading: _percent(reading.memory_utilization),
    ),
    Metric(
        name="heap_utilization",
        words="the heap utilization",
        unit=Unit.PERCENT,
        meaning="used heap of its virtual machine, as a share of the most that it may have",
        of=lambda reading: _percent(reading.heap_utilization),
    ),
    Metric(
        name="disk_utilization",
        words="the disk utilization",
        unit=Unit.PERCENT,
        meaning="used space of the disk that it writes to; only agents read it",
    ),
    Metric(
        name="open_files",
        words="the number of open files",
        unit=Unit.FILES,
        meaning="files and sockets that it has open; only agents read it",
    ),
    Metric(
        name="state_size",
        words="the state size",
        unit=Unit.BYTES,
        meaning="bytes of state that it keeps",
        of=lambda reading: reading.state_size,
    ),
    Metric(
        name="backpressure",
        words="the backpressure",
        unit=Unit.PERCENT,
        meaning="the share of the window in which it was held back by the operators after it",
        of=lambda reading: _percent(None if reading.wait_out_s is None else reading.wait_out_s / reading.window_s),
    ),
    Metric(
        name="input_rate",
        words="the input rate",
        unit=Unit.RECORDS_PER_S,
        meaning="records that it took in, per second of the window",
        of=lambda reading: reading.records_in / reading.window_s,
    ),
    Metric(
        name="output_rate",
        words="the output rate",
        unit=Unit.RECORDS_PER_S,
        meaning="records that it put out, per second of the window",
        of=lambda reading: _records_out(reading) / reading.window_s,
    ),
    Metric(
        name="out_of_order",
        words="the out-of-order records",
        unit=Unit.RECORDS_PER_S,
        meaning="records that came after later ones, per second; only agents read it",
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}

assert set(METRICS) == set(get_args(MetricName)), "the type knows what the table has"


def of_operators(snapshot: Snapshot) -> Mapping[str, Mapping[str, float]]:
    """What was measured of each operator, of its instances on average."""
    found = {}
    for name, measured in snapshot.measurements.items():
        instance = measured.totals.mean
        read = {metric.name: metric.read(instance) for metric in METRICS.values()}
        found[name] = {metric: value for metric, value in read.items() if value is not None}
    return found


QUERY = "promql:"
"""Before a query that a Prometheus server is asked, in the place of a metric."""


def query_in(metric: str) -> str | None:
    """The query, where the metric is one."""
    return metric.removeprefix(QUERY).strip() if metric.startswith(QUERY) else None


def metric_named(name: str) -> Metric | None:
    """Also one that is a query; None where there is none of that name."""
    query = query_in(name)
    if query is None:
        return METRICS.get(name)
    meaning = "what a Prometheus server answers"
    return Metric(name=name, words=f"the query {query}", unit=Unit.NUMBER, meaning=meaning)


def unit_of(metric: str) -> Unit:
    return METRICS[metric].unit if metric in METRICS else Unit.NUMBER


def check_metric(name: str) -> None:
    """Refuse a metric that nobody measures."""
    if not metric_named(name):
        raise InvalidInput(unknown_metric(name))
    if query_in(name) == "":
        raise InvalidInput(f"a query was expected after {QUERY!r}, found nothing")


def unknown_metric(name: str) -> str:
    return f"unknown metric {shown(name)}{nearest(name, METRICS)}"


def spelt(name: str) -> str:
    """The thesis writes `queue-length`; a query stays as it is."""
    return name.strip() if query_in(name.strip()) is not None else name.strip().replace("-", "_")
