"""What happens to a pipeline in a round of chaos: drawn from a seed, kept as JSON, shrunk when it fails."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from driver_process import members_of

from elastream.engines.spark.cluster import StandaloneCluster
from elastream.engines.spark.kafka.broker import Broker

DISK_MIB = 512
_LEFT_ON_A_FULL_DISK = 4_096


class Fault(StrEnum):
    KILL_ALL = "kill all"
    """The driver, its JVM and Spark's Python workers."""
    KILL_DRIVER = "kill driver"
    KILL_JVM = "kill jvm"
    KILL_WORKER = "kill worker"
    """One of Spark's Python workers."""
    HANG_DRIVER = "hang driver"
    HANG_JVM = "hang jvm"
    KILL_EXECUTOR = "kill executor"
    """On a cluster."""
    HANG_EXECUTOR = "hang executor"
    KILL_BROKER = "kill broker"
    HANG_BROKER = "hang broker"
    FULL_DISK = "full disk"
    NO_INPUT = "no input"
    POISON = "poison"

    @property
    def kills(self) -> bool:
        return self.startswith("kill")

    @property
    def lasts(self) -> bool:
        return self in (*_HANGS, Fault.FULL_DISK, Fault.NO_INPUT, Fault.KILL_BROKER)


_HANGS = (Fault.HANG_DRIVER, Fault.HANG_JVM, Fault.HANG_EXECUTOR, Fault.HANG_BROKER)
_OF_A_BROKER = (Fault.KILL_BROKER, Fault.HANG_BROKER)
_OF_A_CLUSTER = (Fault.KILL_EXECUTOR, Fault.HANG_EXECUTOR)
_OF_DRIVERS = (Fault.KILL_ALL, Fault.KILL_DRIVER, Fault.KILL_JVM, Fault.KILL_WORKER)


@dataclass(frozen=True, kw_only=True)
class Step:
    """Some rescales one after the other, and a fault."""

    fault: Fault
    seed: int
    """Of what is chosen on the way: which rescale, which worker, and when."""
    rescales: int
    rescaling: bool
    """Whether the fault comes in the middle of one more."""
    lasts_s: float = 0.0
    meanwhile: Fault | None = None
    """What is killed while it lasts."""

    @property
    def kills(self) -> int:
        return self.fault.kills + (self.meanwhile is not None)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        meanwhile = data["meanwhile"] and Fault(data["meanwhile"])
        return cls(**{**data, "fault": Fault(data["fault"]), "meanwhile": meanwhile})

    def __str__(self) -> str:
        lasts = f" for {self.lasts_s:.0f} s" if self.lasts_s else ""
        beside = f" with {self.meanwhile}" if self.meanwhile else ""
        middle = " in a rescale" if self.rescaling else ""
        return f"{self.rescales} rescales, {self.fault}{lasts}{beside}{middle}"


def schedule(seed: int, steps: int, *, broker: bool, cluster: bool, disk: bool) -> list[Step]:
    """The same for the same arguments; only with faults that can be made on this machine."""
    chance = random.Random(seed)
    without = (*(() if broker else _OF_A_BROKER), *(() if cluster else _OF_A_CLUSTER))
    faults = [one for one in Fault if one not in without and (disk or one is not Fault.FULL_DISK)]
    weights = [3 if one.kills else 1 for one in faults]
    return [_step(chance, chance.choices(faults, weights)[0]) for _ in range(steps)]


def _step(chance: random.Random, fault: Fault) -> Step:
    lasts_s = round(chance.uniform(1.0, 8.0), 1) if fault.lasts else 0.0
    killing = fault.lasts and fault not in _HANGS and chance.random() < 0.4
    return Step(
        fault=fault,
        seed=chance.getrandbits(32),
        rescales=chance.choice((1, 2, 2, 3, 4, 6)),
        rescaling=chance.random() < 0.3,
        lasts_s=lasts_s,
        meanwhile=chance.choice(_OF_DRIVERS) if killing else None,
    )


def shrunk(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Fewer steps that still fail: parts of it are left out, halves first and single ones last, then rescales."""
    left, size = list(steps), max(1, len(steps) // 2)
    while True:
        for first in range(0, len(left), size):
            without = [*left[:first], *left[first + size :]]
            if without and fails(without):
                left = without
                break
        else:
            if size == 1:
                break
            size //= 2
    simple = [replace(step, rescales=0, meanwhile=None) for step in left]
    return simple if simple != left and fails(simple) else left


# Making them


def signal_some(session: int, fault: Fault, number: signal.Signals, chance: random.Random) -> int:
    """Send a signal to the processes of a driver that the fault means; how many there were."""
    if fault in (Fault.KILL_DRIVER, Fault.HANG_DRIVER):
        found = [session]
    else:
        java = {pid for pid in members_of(session) if _command(pid).endswith("java")}
        workers = sorted(pid for pid in members_of(session) if pid != session and pid not in java)
        found = sorted(java) if fault in (Fault.KILL_JVM, Fault.HANG_JVM) else workers and [chance.choice(workers)]
    send(number, found)
    return len(found)


def an_executor(cluster: StandaloneCluster, chance: random.Random) -> list[int]:
    """Its process, or none where there is no executor."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,pgid=,args="], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in listed.stdout.splitlines()]
    groups = {str(pid) for pid in cluster.pids.values()}
    found = [int(pid) for pid, group, *words in lines if group in groups and "--executor-id" in words]
    return [chance.choice(sorted(found))] if found else []


def send(number: signal.Signals, processes: Iterable[int]) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def signal_broker(broker: Broker, number: signal.Signals) -> None:
    assert broker._process is not None
    os.killpg(broker._process.pid, number)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe")
    return ""


class Disk:
    """A small disk of its own, in memory, that can be filled; needs root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "elastream-chaos", str(self.folder)], check=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        ballast = self.folder / "ballast"
        with ballast.open("wb") as file, contextlib.suppress(OSError):
            while (free := shutil.disk_usage(self.folder).free) > _LEFT_ON_A_FULL_DISK:
                os.posix_fallocate(file.fileno(), file.tell(), free)
                file.seek(0, os.SEEK_END)
        try:
            yield
        finally:
            ballast.unlink()


def can_mount(folder: Path) -> bool:
    """Whether this process may make disks."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    trial = folder / "trial"
    try:
        with Disk(trial):
            return True
    except subprocess.CalledProcessError:
        return False
    finally:
        trial.rmdir()
