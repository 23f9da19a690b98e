"""What becomes of readings and rules when masters die: an outage of all of them, and kills of the one that leads.

Three masters stand by each other in processes of their own, and many agents in others read for many operators.
First all masters are killed, and come back after the outage; then the one that leads is killed several times, and
started again as one that stands by. Every agent reads the number of its sample as the metric `queue_length`: what
masters evaluated is compared with that, sample by sample.

A rule for every operator holds from the beginning and may act once: however many masters lead, each operator is to
be scaled once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO

from benchmarks.measure import Measure, Report
from elastream.agents.agent import Agent
from elastream.agents.agent_client import AgentClient
from elastream.agents.master_server import Endpoint
from elastream.agents.messages import Claim
from elastream.agents.rounds import Round
from elastream.agents.run import MasterOptions, MasterRun, Watcher
from elastream.manager.knobs import Knobs
from elastream.manager.signals import stopping_on_signals
from elastream.options import build
from elastream.policies.by_rules import Rules
from elastream.policies.catalog import info
from elastream.policies.rules import every_operator, minutes, records_per_second, rule, rules, seconds
from elastream.policies.rules.metrics import METRICS

MOST_INTERVALS = 3.0
"""Without an evaluation, when the master that leads is killed."""
_MASTERS = 3
_AGENT_PROCESSES = 2
_METRICS = tuple(METRICS)[:12]
_NUMBER = "queue_length"
_PATIENCE_S = 300.0

_RULES = rules(
    rule("much comes in")
    .scale_out(every_operator)
    .by(1)
    .never_above(100_000)
    .when("input_rate")
    .above(records_per_second(10))
    .for_at_least(seconds(20))
    .unless_scaled_out_within(minutes(24 * 60)),
)


# A master


class NotingSizes:
    """An engine that notes every size that it is given."""

    def __init__(self, folder: Path, operators: int, size: int) -> None:
        self._file = folder / "given"
        self._names = tuple(f"operator{number}" for number in range(operators))
        self._size = size

    def operators(self) -> tuple[str, ...]:
        return self._names

    def current_size(self, operator: str) -> int:
        given = self._file.read_text().splitlines() if self._file.exists() else []
        return next((int(line.split()[1]) for line in reversed(given) if line.split()[0] == operator), self._size)

    def original_size(self, operator: str) -> int:
        return self._size

    def set_size(self, operator: str, size: int) -> None:
        with self._file.open("a") as file:
            file.write(f"{operator} {size} {os.getpid()}\n")


def serve(folder: Path, port: int, operators: int, agents: int, interval_s: float) -> None:
    """Lead or stand by, until it is killed; what is evaluated is written to a file of its own."""
    logging.basicConfig(filename=folder / f"log.{port}", level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("elastream.agents.run").setLevel(logging.INFO)
    with (folder / f"evaluated.{os.getpid()}").open("a", buffering=1) as log:

        def on_evaluated(found: Round) -> None:
            log.write(json.dumps({"at_s": time.monotonic(), "numbers": _numbers(found)}) + "\n")

        knobs = build(Knobs, {**info("rules").knobs, "interval_s": interval_s}, place="benchmark")
        options = MasterOptions(
            folder=folder / "state", endpoint=Endpoint(port=port), views=frozenset(_METRICS), standby=True
        )
        engine = NotingSizes(folder, operators, agents)
        run = MasterRun(Rules(rules=_RULES), knobs, engine, options, Watcher(on_evaluated=on_evaluated))
        with stopping_on_signals(run.clock):
            run.run(lambda _: print("leads", flush=True))


def _numbers(found: Round) -> list[tuple[int, int]]:
    """The samples of each agent that are in the round, by what they read for the first operator."""
    live = [
        (reading.instance, int(reading.values[_NUMBER]))
        for reading in found.readings
        if reading.operator == "operator0" and _NUMBER in reading.values
    ]
    late = [
        (instance, int(number))
        for one in found.late
        if one.operator == "operator0"
        for instance, number in one.values.get(_NUMBER, {}).items()
    ]
    return [*live, *late]


# Agents


def _client(ports: Sequence[int], number: int, operators: int) -> AgentClient:
    claims = tuple(Claim(f"operator{place}", number) for place in range(operators))
    agent = Agent(name=f"agent{number}", run="benchmark", claims=claims, offers=tuple(METRICS))

    def read(wanted: Sequence[frozenset[str]]) -> Sequence[Mapping[str, float]]:
        sample = float(agent.taken + 1)
        return [{name: sample if name == _NUMBER else 50.5 for name in names} for names in wanted]

    first, *others = (Endpoint(port=port) for port in ports)
    return AgentClient(agent=agent, endpoint=first, others=tuple(others), read=read, blocks=False)


async def agents(ports: Sequence[int], first: int, count: int, operators: int) -> None:
    """Until a line comes; then, when all is acknowledged, how many samples each took and gave up."""
    clients = [_client(ports, number, operators) for number in range(first, first + count)]
    tasks = [asyncio.create_task(each.run()) for each in clients]
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.readline)
    for each in clients:
        each.agent.pause()
    deadline_s = loop.time() + _PATIENCE_S
    while any(each.agent.kept for each in clients) and loop.time() < deadline_s:
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    found = {
        first + place: (each.agent.taken, each.agent.thinned, each.agent.kept)
        for place, each in enumerate(clients)
    }
    print(json.dumps(found))


# The benchmark


@dataclass(kw_only=True)
class _Scene:
    folder: Path
    ports: list[int]
    operators: int
    agents: int
    interval_s: float
    stack: ExitStack
    masters: dict[int, subprocess.Popen[str]] = field(default_factory=dict)
    """By port."""

    def start(self, port: int) -> None:
        arguments = ("--serve", str(self.folder), port, self.operators, self.agents, self.interval_s)
        self.masters[port] = _process(self.stack, *map(str, arguments))

    def kill(self, port: int) -> None:
        process = self.masters.pop(port)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def leader(self) -> int:
        """The port of the master that evaluated last."""
        by_pid = {process.pid: port for port, process in self.masters.items()}
        newest = max(self.evaluated(), key=lambda one: one[0])
        return by_pid.get(newest[1], next(iter(self.masters)))

    def evaluated(self) -> list[tuple[float, int, list[list[int]]]]:
        """When, by which process, which samples."""
        found = []
        for path in self.folder.glob("evaluated.*"):
            for line in path.read_text().splitlines():
                with suppress(json.JSONDecodeError):  # the last line of one that was killed
                    one = json.loads(line)
                    found.append((one["at_s"], int(path.suffix[1:]), one["numbers"]))
        return sorted(found, key=lambda one: one[0])

    def wait_for_all(self, after_s: float) -> float:
        """Until a round after that time has live readings of every agent; when that was."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline_s:
            heard: set[int] = set()
            for at_s, _, numbers in self.evaluated():
                if at_s > after_s:
                    heard |= {agent for agent, _ in numbers}
                    if len(heard) == self.agents:
                        return at_s
            time.sleep(self.interval_s / 2)
        logs = "\n".join(path.read_text()[-2_000:] for path in sorted(self.folder.glob("log.*")))
        raise AssertionError(f"not all agents were heard within {_PATIENCE_S:g} s; masters said:\n{logs}")


def run(
    *, agents: int = 200, operators: int = 16, outage_s: float = 600.0, kills: int = 5, interval_s: float = 5.0
) -> Report:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        scene = _Scene(
            folder=Path(name),
            ports=_free_ports(_MASTERS),
            operators=operators,
            agents=agents,
            interval_s=interval_s,
            stack=stack,
        )
        for port in scene.ports:
            scene.start(port)
        each = agents // _AGENT_PROCESSES
        ports = ",".join(map(str, scene.ports))
        sides = [
            _process(stack, "--agents", ports, str(side * each), str(each), str(operators))
            for side in range(_AGENT_PROCESSES)
        ]
        scene.wait_for_all(time.monotonic())
        time.sleep(8 * interval_s)

        for port in scene.ports:
            scene.kill(port)
        time.sleep(outage_s)
        back_s = time.monotonic()
        for port in scene.ports:
            scene.start(port)
        recovered_s = scene.wait_for_all(back_s) - back_s
        time.sleep(8 * interval_s)

        kills_s = [_kill_and_replace(scene) for _ in range(kills)]
        taken = [line for side in sides for line in _ended(side).items()]
        return _report(scene, dict(taken), kills_s, recovered_s, outage_s)


def _kill_and_replace(scene: _Scene) -> float:
    port = scene.leader()
    killed_s = time.monotonic()
    scene.kill(port)
    scene.wait_for_all(killed_s)
    scene.start(port)
    time.sleep(6 * scene.interval_s)
    return killed_s


def _report(
    scene: _Scene, taken: Mapping[str, Sequence[int]], kills_s: list[float], recovered_s: float, outage_s: float
) -> Report:
    evaluated = scene.evaluated()
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    for _, _, numbers in evaluated:
        for agent, number in numbers:
            seen[agent][number] += 1
    missing = sum(
        max(0, samples - thinned - len(seen[int(agent)])) for agent, (samples, thinned, _) in taken.items()
    )
    twice = sum(count - 1 for numbers in seen.values() for count in numbers.values())
    given = (scene.folder / "given").read_text().splitlines()
    blind = [_blind_s(evaluated, killed_s) / scene.interval_s for killed_s in kills_s]
    samples, thinned, kept = (sum(column) for column in zip(*taken.values(), strict=True))
    measures = (
        Measure(what="samples that agents took", value=samples, unit="", at_least=1),
        Measure(what="given up by agents, and counted", value=thinned, unit=""),
        Measure(what="not acknowledged at the end", value=kept, unit="", at_most=0),
        Measure(what="neither evaluated nor counted as given up", value=missing, unit="", at_most=0),
        Measure(what="evaluated a second time by a new master", value=twice, unit=""),
        Measure(what="until all agents were heard after the outage", value=recovered_s, unit="s"),
        *(
            Measure(what=f"without evaluation, kill {number}", value=one, unit="intervals", at_most=MOST_INTERVALS)
            for number, one in enumerate(blind, start=1)
        ),
        Measure(
            what="actions, for each operator",
            value=max(Counter(line.split()[0] for line in given).values(), default=0),
            unit="",
            at_least=1,
            at_most=1,
        ),
        Measure(what="operators that were scaled", value=len(given), unit="", at_least=scene.operators),
    )
    shape = f"{scene.agents} agents of {scene.operators} operators with {len(_METRICS)} metrics"
    notes = f"{shape}, every {scene.interval_s:g} s; an outage of {outage_s:g} s; {len(kills_s)} kills"
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    return Report(measures=measures, notes=(notes, f"load of the machine at the end: {load}"))


def _blind_s(evaluated: Sequence[tuple[float, int, list[list[int]]]], killed_s: float) -> float:
    """The longest time between two evaluations with readings around the kill."""
    times_s = [at_s for at_s, _, numbers in evaluated if numbers]
    return max(after - before for before, after in pairwise(times_s) if before <= killed_s <= after)


def _process(stack: ExitStack, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.monitoring_election", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.callback(process.kill)
    return process


def _ended(side: subprocess.Popen[str]) -> dict[str, list[int]]:
    stdin, stdout = _pipes(side)
    stdin.write("\n")
    stdin.flush()
    found: dict[str, list[int]] = json.loads(stdout.readline())
    return found


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def main(what: str, *arguments: str) -> None:
    if what == "--serve":
        folder, port, operators, count, interval_s = arguments
        serve(Path(folder), int(port), int(operators), int(count), float(interval_s))
    else:
        ports, first, count, operators = arguments
        asyncio.run(agents([*map(int, ports.split(","))], int(first), int(count), int(operators)))


if __name__ == "__main__":
    main(*sys.argv[1:])
