"""Pipelines on Spark under faults from a seed, rescaled all the while: every record once, as counted by itself.

    python tests/spark/chaos.py [--minutes 60] [--kinds files,kafka,cluster] [--seed 1] [--folder out/chaos]

A round is a pipeline (`exactly_once_driver.py`) that this process feeds, rescales, kills, hangs, starves and
poisons by a schedule (`chaos_faults.py`), and starts again whenever it has ended, as a supervisor would. Then it
drains, and the sinks, what was put aside and the accounts of the driver are compared with what went in. A line a
round, also in `rounds.jsonl` of the folder, from which the next start goes on. A round that fails is made smaller,
and its schedule, its folder and what it said are kept: `--repeat FILE` runs that schedule alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import exactly_once as once
from chaos_faults import (
    Disk,
    Fault,
    Step,
    an_executor,
    can_mount,
    schedule,
    send,
    shrunk,
    signal_broker,
    signal_some,
)
from driver_process import PATIENCE_S

from elastream.engines.spark.channels.kinds import ChannelKind, Files, Kafka
from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster
from elastream.engines.spark.kafka.broker import Broker

_STARTS_IN_A_ROW = 6
_POLL_S = 0.1


class ChaosError(AssertionError):
    pass


@dataclass(kw_only=True)
class Counts:
    """What really happened in a round."""

    kills: Counter[str] = field(default_factory=Counter)
    rescales: int = 0
    starts: int = 0
    ended: int = 0
    """Times that the driver ended by itself: because of a fault, as a process does that cannot go on."""


class Round:
    def __init__(
        self,
        folder: Path,
        channels: ChannelKind,
        *,
        broker: Broker | None,
        cluster: StandaloneCluster | None,
        disk: Disk | None,
    ) -> None:
        """The folder is on the disk, what the driver says beside it."""
        self.counts = Counts()
        self.log = folder.with_name(folder.name + ".log")
        self._folder = folder
        self._channels = channels
        self._broker = broker
        self._cluster = cluster
        self._disk = disk
        self._driver: once.Driver | None = None
        self._drivers: list[once.Driver] = []
        """All that there were: a JVM may outlive its driver, and the next one has to cope."""
        self._feeder = once.Feeder(folder, channels)

    def run(self, steps: Sequence[Step]) -> list[str]:
        """What is wrong in the end, in words."""
        try:
            with self._feeder:
                for step in steps:
                    self._take(step)
                numbers = self._drain()
        finally:
            for driver in self._drivers:
                driver.kill()
        poisoned = self._feeder.poisoned
        return [
            *once.faults(self._folder, numbers),
            *once.aside_faults(self._folder, poisoned),
            *once.account_faults(self._folder, numbers, poisoned),
        ]

    # A step

    def _take(self, step: Step) -> None:
        chance = random.Random(step.seed)
        if self._is_up() or chance.random() < 0.7:  # else the fault comes while it starts
            self._go_on()
            for _ in range(step.rescales):
                self._rescale(chance)
        else:
            self._start()
        if step.rescaling and self._is_up():
            self._driver_now.rescale(once.any_rescale(self._folder, chance), wait=False)
        time.sleep(chance.uniform(0.0, 0.5))
        with self._lasting(step.fault, chance):
            if step.fault.lasts:
                time.sleep(step.lasts_s / 2)
                if step.meanwhile is not None:
                    self._kill(step.meanwhile, chance)
                time.sleep(step.lasts_s / 2)
        if step.fault.kills and step.fault is not Fault.KILL_BROKER:
            self._kill(step.fault, chance)
        if step.fault is Fault.POISON:
            self._feeder.poison()

    @contextlib.contextmanager
    def _lasting(self, fault: Fault, chance: random.Random) -> Iterator[None]:
        match fault:
            case Fault.HANG_DRIVER | Fault.HANG_JVM:
                session = self._driver_now.pid
                signal_some(session, fault, signal.SIGSTOP, chance)
                yield
                signal_some(session, fault, signal.SIGCONT, chance)
            case Fault.HANG_EXECUTOR:
                assert self._cluster is not None
                hung = an_executor(self._cluster, chance)
                send(signal.SIGSTOP, hung)
                yield
                send(signal.SIGCONT, hung)
            case Fault.HANG_BROKER:
                assert self._broker is not None
                signal_broker(self._broker, signal.SIGSTOP)
                yield
                signal_broker(self._broker, signal.SIGCONT)
            case Fault.KILL_BROKER:
                assert self._broker is not None
                self._broker.kill()
                self.counts.kills[fault] += 1
                yield
                self._broker.start()
            case Fault.FULL_DISK:
                assert self._disk is not None
                with self._disk.full():
                    yield
            case Fault.NO_INPUT:
                self._feeder.pausing = True
                yield
                self._feeder.pausing = False
            case _:
                yield

    def _kill(self, fault: Fault, chance: random.Random) -> None:
        if fault is Fault.KILL_ALL:
            self._driver_now.kill()
            self.counts.kills[fault] += 1
        elif fault is Fault.KILL_EXECUTOR:
            assert self._cluster is not None
            killed = an_executor(self._cluster, chance)
            send(signal.SIGKILL, killed)
            self.counts.kills[fault] += len(killed)
        else:
            self.counts.kills[fault] += signal_some(self._driver_now.pid, fault, signal.SIGKILL, chance)

    def _rescale(self, chance: random.Random) -> None:
        answers = self._driver_now.said().count("rescaled ")
        wanted = once.any_rescale(self._folder, chance)
        with contextlib.suppress(BrokenPipeError):
            self._driver_now.rescale(wanted, wait=False)
        _wait(
            lambda: not self._is_up() or self._driver_now.said().count("rescaled ") > answers, f"rescaled {wanted}"
        )
        if self._is_up():
            self.counts.rescales += 1
        else:
            self._go_on()

    # A driver, for as long as it takes

    @property
    def _driver_now(self) -> once.Driver:
        assert self._driver is not None
        return self._driver

    def _is_up(self) -> bool:
        return self._driver is not None and not self._driver.has_ended

    def _start(self) -> None:
        if self._driver is not None:
            self.counts.ended += self._driver.ended_by_itself
        on = () if self._cluster is None else ("--master", self._cluster.master_url)
        self._driver = once.Driver(self._folder, self._channels, log=self.log, more=on)
        self._drivers.append(self._driver)
        self.counts.starts += 1

    def _go_on(self) -> None:
        """Up, and every step a batch further."""
        before = once.committed(self._folder)
        self._until(
            lambda: all(count > before[name] for name, count in once.committed(self._folder).items()),
            f"a batch further than {before}",
        )

    def _until(self, true: Callable[[], bool], what: str) -> None:
        """It is started again when it ends; but not for ever."""
        first = self.counts.starts
        deadline_s = time.monotonic() + PATIENCE_S
        while not (self._is_up() and "ready" in self._driver_now.said() and true()):
            if not self._is_up():
                if self.counts.starts - first >= _STARTS_IN_A_ROW:
                    raise ChaosError(f"ended {_STARTS_IN_A_ROW} times before it was {what}")
                self._start()
            if time.monotonic() > deadline_s:
                raise ChaosError(f"is not {what} within {PATIENCE_S:.0f} s, pending {once.pending(self._folder)}")
            time.sleep(_POLL_S)

    def _drain(self) -> int:
        self._go_on()
        numbers = self._feeder.stop()
        self._until(lambda: once.is_drained(self._folder), "drained")
        self._driver_now.stop()
        return numbers


def _wait(true: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline_s:
            raise ChaosError(f"is not {what} within {PATIENCE_S:.0f} s")
        time.sleep(_POLL_S)


# Rounds


@dataclass(frozen=True, kw_only=True)
class Plan:
    kind: str
    seed: int
    steps: tuple[Step, ...]

    def as_json(self) -> dict[str, object]:
        steps = [step.as_json() for step in self.steps]
        return {"kind": self.kind, "seed": self.seed, "steps": steps}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    faults: list[str]
    counts: Counts
    records: int
    took_s: float


def live_through(plan: Plan, folder: Path, *, disk: bool) -> Outcome:
    """One round in a fresh folder, which is left as it is."""
    began_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        small = stack.enter_context(Disk(folder)) if disk else None
        folder.mkdir(parents=True, exist_ok=True)
        broker = stack.enter_context(Broker(folder.with_name("broker"))) if plan.kind == "kafka" else None
        cluster = stack.enter_context(_cluster(folder.with_name("cluster"))) if plan.kind == "cluster" else None
        channels = Files() if broker is None else Kafka(servers=broker.servers)
        found = Round(folder, channels, broker=broker, cluster=cluster, disk=small)
        try:
            faults = found.run(plan.steps)
        except (AssertionError, OSError, ValueError) as error:
            faults = [f"{type(error).__name__}: {error}"]
        if faults and small is not None:  # what is in memory goes with it
            shutil.copytree(folder, folder.with_name("kept"), symlinks=True, ignore=_not_temporary)
        records = once.records_in(folder)
    return Outcome(faults=faults, counts=found.counts, records=records, took_s=time.monotonic() - began_s)


def _cluster(folder: Path) -> StandaloneCluster:
    """With room for all slots that the pipeline may come to have, in executors of four."""
    return StandaloneCluster(ClusterOptions(folder=folder, workers=2, cores=8, memory="1500m", port=0, web_port=0))


def _not_temporary(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "temporary"]


def _run_one(plan: Plan, folder: Path, *, disk: bool) -> Outcome:
    shutil.rmtree(folder, ignore_errors=True)
    return live_through(plan, folder / "run", disk=disk)


def _line(plan: Plan, outcome: Outcome) -> str:
    kills = ", ".join(f"{count} {fault}" for fault, count in sorted(outcome.counts.kills.items()))
    done = f"{outcome.counts.rescales} rescales, {sum(outcome.counts.kills.values())} kills ({kills})"
    ended = f", ended by itself {outcome.counts.ended} times" if outcome.counts.ended else ""
    verdict = "; ".join(outcome.faults) if outcome.faults else "each once"
    return f"{plan.kind} {plan.seed}: {done}{ended}; {outcome.records} records, {verdict}; {outcome.took_s:.0f} s"


def _note(folder: Path, plan: Plan, outcome: Outcome) -> None:
    noted = {
        "kind": plan.kind,
        "seed": plan.seed,
        "kills": sum(outcome.counts.kills.values()),
        "rescales": outcome.counts.rescales,
        "faults": outcome.faults,
    }
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(json.dumps(noted) + "\n")


def _noted(folder: Path) -> list[dict[str, object]]:
    file = folder / "rounds.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _shrink(plan: Plan, folder: Path, *, disk: bool) -> None:
    """Write down the shortest schedule that fails; one that fails only now and then stays long."""

    def fails(steps: Sequence[Step]) -> bool:
        tried = Plan(kind=plan.kind, seed=plan.seed, steps=tuple(steps))
        outcome = _run_one(tried, folder / "shrinking", disk=disk)
        print(f"  {len(steps)} steps: {'; '.join(outcome.faults) or 'each once'}", flush=True)
        if outcome.faults:
            (folder / "schedule.json").write_text(json.dumps(tried.as_json(), indent=1))
        return bool(outcome.faults)

    left = shrunk(plan.steps, fails)
    print("  shrunk to: " + "; ".join(map(str, left)), flush=True)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # disks are taken away, and drivers end
    given = _arguments()
    folder: Path = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    disk = can_mount(folder)
    if not disk:
        print("no disk is filled: that needs root, and the right to mount", flush=True)
    if given.repeat is not None:
        data = json.loads(given.repeat.read_text())
        plan = Plan(**{**data, "steps": tuple(map(Step.from_json, data["steps"]))})
        outcome = _run_one(plan, folder / "repeated", disk=disk)
        sys.exit(_line(plan, outcome) if outcome.faults else print(_line(plan, outcome)))
    ends_s = time.monotonic() + given.minutes * 60
    kinds = given.kinds.split(",")
    seed = max((int(str(one["seed"])) for one in _noted(folder)), default=given.seed - 1) + 1
    while time.monotonic() < ends_s:
        _round(folder, kinds[seed % len(kinds)], seed, given.steps, disk=disk, shrinking=not given.no_shrinking)
        seed += 1
    _sum_up(folder)


def _round(folder: Path, kind: str, seed: int, steps: int, *, disk: bool, shrinking: bool) -> None:
    drawn = schedule(seed, steps, broker=kind == "kafka", cluster=kind == "cluster", disk=disk)
    plan = Plan(kind=kind, seed=seed, steps=tuple(drawn))
    here = folder / f"{kind}-{seed}"
    outcome = _run_one(plan, here, disk=disk)
    print(_line(plan, outcome), flush=True)
    _note(folder, plan, outcome)
    if not outcome.faults:
        shutil.rmtree(here)
        return
    (here / "schedule.json").write_text(json.dumps(plan.as_json(), indent=1))
    print(f"  kept in {here}; again: --repeat {here / 'schedule.json'}", flush=True)
    if shrinking:
        _shrink(plan, here, disk=disk)


def _sum_up(folder: Path) -> None:
    rounds = _noted(folder)
    kills, rescales = (sum(int(str(one[what])) for one in rounds) for what in ("kills", "rescales"))
    failed = [f"{one['kind']} {one['seed']}" for one in rounds if one["faults"]]
    print(
        f"in all: {len(rounds)} rounds, {kills} kills, {rescales} rescales; failed: {', '.join(failed) or 'none'}"
    )
    if failed:
        sys.exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="no round begins after that")
    parser.add_argument("--kinds", default="files,kafka,cluster", help="of channels, or on a cluster; in turn")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--steps", type=int, default=12, help="of a round: rescales and a fault each")
    parser.add_argument("--folder", type=Path, default=Path("out/chaos"))
    parser.add_argument("--no-shrinking", action="store_true", help="go on with the next seed at once")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="a schedule that was kept, alone")
    return parser.parse_args()


if __name__ == "__main__":
    main()
