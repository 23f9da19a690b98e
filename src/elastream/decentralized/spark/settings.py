"""What is run, in the run's own folder, so that every instance finds it: `run.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter

from elastream.checked import Checked, Positive
from elastream.dataflow import Dataflow
from elastream.decentralized.locks import LOCKS, LockKind
from elastream.decentralized.protocol.decision import ScalingPolicy
from elastream.decentralized.protocol.instance import Place
from elastream.decentralized.protocol.messages import Address, operator_of
from elastream.decentralized.protocol.neighbour_locks import NeighbourLocks
from elastream.decentralized.spark.folders import RunFolder, read_whole, write_whole
from elastream.errors import InvalidInput, nearest

FIRST = "0"
"""The number of the first instance of each operator, which is its keeper."""


@dataclass(frozen=True, kw_only=True)
class RunSettings(Checked):
    pipeline: Path
    """The file, absolute."""
    arguments: tuple[str, ...] = ()
    """What the file finds in `sys.argv`."""
    capacities: Mapping[str, float] = field(default_factory=dict)
    """Records per second that an instance of an operator can process; one without stays as it is."""
    policy: ScalingPolicy = field(default_factory=ScalingPolicy)
    locks: LockKind = LockKind.NONE
    """What keeps neighbouring operators from scaling at the same time."""
    period_s: Positive = 10.0
    """Between two decisions of an instance. All decide at the same times of the clock, as in the papers."""
    dead_after_s: Positive = 60.0
    """An instance that cannot be reached for so long is given up, and its records taken over; a keeper never."""
    batch_interval_s: Positive = 2.0
    most_records: int = 1_000
    """Of a batch."""
    cores: int = 1
    """Tasks of an instance at a time: `local[cores]`."""
    memory: str = "512m"
    """Of the JVM of an instance."""
    seed: int = 0
    control: str = "tcp"
    """What carries control messages, see `transports.py`."""
    data: str = "files"
    """Where records lie: in files, an inbox for each instance, or in topics of Kafka, which instances share."""
    kafka_servers: str = ""
    topics: str = ""
    """What the names of its topics begin with, where it has any; no other run has the same."""

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        for operator, capacity in self.capacities.items():
            if not 0 < capacity < float("inf"):
                raise InvalidInput(
                    f"the capacity of {operator!r} must be above 0 records per second, found {capacity:g}"
                )

    def check(self, dataflow: Dataflow) -> None:
        for operator in self.capacities:
            if operator not in dataflow:
                known = nearest(operator, dataflow.order)
                raise InvalidInput(f"a capacity is given for {operator!r}, which is no operator{known}")

    def place(self, me: Address, dataflow: Dataflow) -> Place:
        operator, _, number = me.rpartition("/")
        place = Place.of(me, dataflow, keeper=number == FIRST)
        return place if place.fixed else replace(place, fixed=self._why_fixed(operator, dataflow))

    def neighbour_locks(self, dataflow: Dataflow) -> NeighbourLocks | None:
        """The core of an operator is its first instance, which never leaves."""
        if self.locks is LockKind.NONE:
            return None
        cores = {operator: frozenset({first_address(operator)}) for operator in dataflow.order}
        return NeighbourLocks(make_lock=LOCKS[self.locks], dataflow=dataflow, cores=cores)

    def _why_fixed(self, operator: str, dataflow: Dataflow) -> str:
        if dataflow[operator].source:
            return f"{operator!r} is a source: it is kept at one"
        if operator in dataflow.sinks:
            return f"{operator!r} is a sink, which writes to one place: it is kept at one"
        if operator not in self.capacities:
            return f"the capacity of {operator!r} is not known: it is kept at one"
        return ""

    def write(self, run: RunFolder) -> None:
        write_whole(run.settings, _SETTINGS.dump_python(self, mode="json"))


_SETTINGS = TypeAdapter(RunSettings)


def read_settings(run: RunFolder) -> RunSettings:
    found = read_whole(run.settings)
    if found is None:
        raise InvalidInput(f"{run.path}: no run of a decentralized pipeline is here")
    return _SETTINGS.validate_python(found)


def first_address(operator: str) -> Address:
    return f"{operator}/{FIRST}"


def is_first(address: Address) -> bool:
    return address == first_address(operator_of(address))
