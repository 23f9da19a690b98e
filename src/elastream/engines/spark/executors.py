"""How many executors a pipeline needs, and which of them may go: values in, values out, no Spark.

Every instance of an operator is a task, and a task holds one slot (a core of an executor) while its batch runs. So
the slots of a plan are the sum of its parallelism: one for a source, the parallelism of every operator and sink.
Spare executors are up beyond that, so that the next scale-up does not wait for one to start; those that were used
are asked for anew, which nobody waits for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.errors import InvalidInput
from elastream.options import option

_MEMORY = re.compile(r"(\d+)([kmgt])b?", re.IGNORECASE)
_MIB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
_LOCAL = re.compile(r"local(?:\[(\*|[1-9]\d*)(?:\s*,\s*\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
_STANDALONE = re.compile(r"spark://[^\s/,:]+:\d+(,[^\s/,:]+:\d+)*")


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """What every executor is, and how many there may be."""

    PANEL: ClassVar = "Cluster"

    cores: int = option(4, "slots of an executor on a cluster", name="executor_cores")
    memory: str = option("1g", "memory of an executor on a cluster", name="executor_memory")
    spare: int = option(
        0,
        "kept warm beyond what is needed, so that growing need not wait for them",
        unit="executors",
        name="spare_executors",
    )
    least: int = option(1, "at least so many", unit="executors", name="min_executors")
    most: int | None = option(None, "at most so many", unit="executors", name="max_executors")

    def __post_init__(self) -> None:
        for flag, found, least in (
            ("--executor-cores", self.cores, 1),
            ("--spare-executors", self.spare, 0),
            ("--min-executors", self.least, 1),
        ):
            if found < least:
                raise InvalidInput(f"{flag} must be at least {least}, found {found}")
        if self.most is not None and self.most < self.least:
            raise InvalidInput(f"--max-executors must be at least {self.least}, found {self.most}")
        memory_mib(self.memory)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorCount:
    needed: int
    """So many have to be up before the plan is put in force."""
    target: int
    """So many are asked for."""


def size_for(slots: int, options: ExecutorOptions) -> ExecutorCount:
    most = options.most if options.most is not None else max(slots + options.spare, options.least)
    needed = min(most, -(-slots // options.cores))
    return ExecutorCount(needed=needed, target=min(most, max(options.least, needed + options.spare)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Executor:
    """One that is up, and what would be lost or waited for if it went."""

    id: str
    active_tasks: int = 0
    state_tasks: int = 0
    """Of stateful operators, in their last batch: their state is open there, and elsewhere is read again."""


def to_release(executors: Iterable[Executor], *, keep: int) -> tuple[str, ...]:
    """Which ones may go: idle ones first, among those the ones with the least state, and of these the newest."""
    found = sorted(executors, key=lambda executor: (_number(executor), executor.id))
    # from the one that is hardest to part with; sorting keeps the order of equals, so that the oldest stay
    found.sort(key=lambda executor: (executor.active_tasks == 0, -executor.state_tasks, -executor.active_tasks))
    return tuple(executor.id for executor in reversed(found[keep:]))


def _number(executor: Executor) -> int:
    return int(executor.id) if executor.id.isdigit() else 0


def starting_slots(pipeline: Pipeline) -> int:
    """The slots of the plan that a pipeline starts with; a feed is written by others and has none."""
    return pipeline.plan().total + sum(step.kind is Kind.SOURCE for step in pipeline.steps)


def check_master(master: str) -> None:
    """Spark looks at it only when it has started, and says little."""
    kinds = (_LOCAL, _LOCAL_CLUSTER, _STANDALONE)
    if not (
        any(kind.fullmatch(master.strip()) for kind in kinds) or master == "yarn" or master.startswith("k8s://")
    ):
        raise InvalidInput(
            f"--master is local[N], local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT, found {master!r}"
        )


def is_local(master: str) -> bool:
    return master.startswith("local") and not master.startswith("local-cluster")


def local_slots(master: str) -> int | None:
    """How many tasks run at once where Spark has no executors; None where it is not said."""
    found = _LOCAL.fullmatch(master.strip())
    if found is None:
        return None
    match found[1]:
        case None:
            return 1
        case "*":
            return os.cpu_count()
        case number:
            return int(number)


def local_shortage(slots: int, master: str) -> str | None:
    offered = local_slots(master)
    if offered is None or slots <= offered:
        return None
    return (
        f"the plan has {slots} slots and {master} offers {offered}: tasks wait for each other; "
        f"offer more with --master 'local[{slots}]'"
    )


def shortage(slots: int, *, up: int, options: ExecutorOptions, fitting: int | None) -> str | None:
    """What a plan lacks on a cluster with so many executors up, as text, with how many slots there are."""
    there = up * options.cores
    if slots <= there:
        return None
    needed = size_for(slots, options).needed
    if options.most is not None and up >= options.most:
        why = f"--max-executors is {options.most}"
    elif fitting is not None and fitting < needed:
        why = f"the workers have room for {fitting} of {options.cores} cores and {options.memory}"
    else:
        why = f"{needed - up} more were asked for and may still come"
    executors = "1 executor" if up == 1 else f"{up} executors"
    return f"the plan has {slots} slots and {executors} with {there} are there ({why}): tasks wait for each other"


def fitting_executors(master: Mapping[str, Any], application: str, options: ExecutorOptions) -> int:
    """How many executors of one application a standalone cluster has room for, by what its master tells."""
    granted = sum(app["cores"] for app in master["activeapps"] if app["id"] == application)
    free = sum(
        min(worker["coresfree"] // options.cores, int(worker["memoryfree"] // memory_mib(options.memory)))
        for worker in master["workers"]
        if worker["state"] == "ALIVE"
    )
    return int(granted // options.cores + free)


def session_settings(options: ExecutorOptions, *, slots: int) -> dict[str, str]:
    """What a session on a cluster starts with: as many executors as the plan needs, which Spark does not change.

    Without dynamic allocation a standalone application takes every core at its start, so it is on; the thread
    behind it is stopped as soon as the session is there.
    """
    size = size_for(slots, options)
    return {
        "spark.executor.cores": str(options.cores),
        "spark.executor.memory": options.memory,
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.initialExecutors": str(size.target),
        "spark.dynamicAllocation.shuffleTracking.enabled": "false",  # would keep executors for their shuffle files
        # an executor that goes finishes its tasks and hands its shuffle files on, so that no stage is run again
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
        # of how much heap tasks had they would tell with their heartbeats, every 10 s, and nothing of shorter ones
        "spark.executor.metrics.pollingInterval": "200ms",
        # by default it looks only every 30 s whether it is done
        "spark.storage.decommission.replicationReattemptInterval": "1s",
    }


def memory_mib(text: str) -> float:
    """What Spark means by an amount of memory such as 512m or 2g."""
    found = _MEMORY.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise InvalidInput(f"memory is written like 512m or 2g, found {text!r}")
    return int(found[1]) * _MIB[found[2].lower()]
