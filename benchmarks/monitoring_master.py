"""What a master costs with many agents, how long a reading takes to be evaluated, and what subscriptions save.

The master is a process of its own, as `elastream master` runs it: server, rules, manager, store. The agents are
real connections from two other processes. Every reading is followed from its number at the agent to the evaluation
of its round, and the time between is taken by the clock of the machine, which both sides share.

Three runs differ only in what is asked for: what the rules look at, everything, nothing. The last tells what the
frames cost without any metric in them.
"""

from __future__ import annotations

import json
import logging
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import IO, Any

import psutil

from benchmarks.measure import Measure, Report
from elastream.agents.master_server import Endpoint
from elastream.agents.rounds import Round
from elastream.agents.run import MasterOptions, MasterRun, Watcher
from elastream.manager.knobs import Knobs
from elastream.options import build
from elastream.policies.by_rules import Rules
from elastream.policies.catalog import info
from elastream.policies.rules import RuleSet, every_operator, minutes, percent, records, rule, rules
from elastream.policies.rules.metrics import METRICS

MOST_CORE_SHARE = 0.15
MOST_P99_S = 0.25
LEAST_OF_SHARE = 0.9
_ROUGHLY = 0.98  # the names of metrics are not all of one length
_INSTANCES = 10  # of an operator
_AGENT_PROCESSES = 2
_PATIENCE_S = 60.0
_RULES = rules(
    rule("the queue is long")
    .scale_out(every_operator)
    .by(2)
    .never_above(64)
    .when("queue_length")
    .above(records(1000))
    .for_at_least(minutes(5))
    .unless_scaled_out_within(minutes(5)),
    rule("nothing to do")
    .scale_in(every_operator)
    .by(1)
    .when("cpu_utilization", of="max")
    .below(percent(20))
    .for_at_least(minutes(10), share=0.9)
    .unless_scaled_out_within(minutes(15)),
)


class FixedSizes:
    """An engine that is never asked to change anything: the rules above do not fire."""

    def __init__(self, operators: int) -> None:
        self._names = tuple(f"operator{number}" for number in range(operators))

    def operators(self) -> tuple[str, ...]:
        return self._names

    def current_size(self, operator: str) -> int:
        return _INSTANCES

    def original_size(self, operator: str) -> int:
        return _INSTANCES

    def set_size(self, operator: str, size: int) -> None:
        raise AssertionError(f"nothing was to change, but {operator} was to have {size}")


# The process of the master


def serve(folder: Path, agents: int, asked: str) -> None:
    """Until a line comes on standard input; then what was seen, as JSON. A line says when all are there."""
    logging.basicConfig(level=logging.WARNING)
    latencies_s: list[float] = []
    evaluated = 0

    def on_evaluated(found: Round) -> None:
        nonlocal evaluated
        now_s = time.time()
        evaluated += len(found.readings)
        evaluated += sum(max(map(len, late.values.values()), default=0) for late in found.late)
        if not latencies_s and len(found.readings) == agents:
            print("complete", flush=True)
        if latencies_s or len(found.readings) == agents:
            latencies_s.extend(now_s - reading.taken_at_s for reading in found.readings)

    knobs = build(Knobs, {**info("rules").knobs, "interval_s": 1.0}, place="benchmark")
    options = MasterOptions(
        folder=folder,
        endpoint=Endpoint(),
        views=frozenset(METRICS) if asked == "everything" else frozenset(),
    )
    policy = Rules(rules=RuleSet() if asked == "nothing" else _RULES)
    run = MasterRun(policy, knobs, FixedSizes(agents // _INSTANCES), options, Watcher(on_evaluated=on_evaluated))

    def on_listening(endpoint: Endpoint) -> None:
        print(endpoint.port, flush=True)
        threading.Thread(target=_stop_after_a_line, args=(run,), daemon=True).start()

    run.run(on_listening)
    counts = run.server.master.counts
    print(
        json.dumps(
            {
                "readings": counts.readings,
                "evaluated": evaluated,
                "late": counts.late,
                "received_bytes": counts.received_bytes,
                "latencies_s": latencies_s,
            }
        )
    )


def _stop_after_a_line(run: MasterRun) -> None:
    sys.stdin.readline()
    run.clock.stopped.set()


# The benchmark


@dataclass(frozen=True, kw_only=True)
class Seen:
    master: Mapping[str, Any]
    taken: int
    hello_bytes: int
    cpu_share: float
    """Of one core, while all agents were connected."""

    @property
    def lost(self) -> int:
        return self.taken - int(self.master["evaluated"])

    @property
    def bytes_per_reading(self) -> float:
        return float((self.master["received_bytes"] - self.hello_bytes) / self.master["readings"])


def run(*, agents: int = 200, duration_s: float = 60.0, short_s: float = 8.0) -> Report:
    rules_only = observe("rules", agents=agents, duration_s=duration_s)
    everything = observe("everything", agents=agents, duration_s=short_s)
    nothing = observe("nothing", agents=agents, duration_s=short_s)
    latencies_s = rules_only.master["latencies_s"]
    p50_s, p99_s = quantiles(latencies_s, n=100)[49], quantiles(latencies_s, n=100)[98]
    unused = 1 - len(_RULES.metrics) / len(METRICS)
    cut = 1 - rules_only.bytes_per_reading / everything.bytes_per_reading
    envelope = nothing.bytes_per_reading
    payload_cut = 1 - (rules_only.bytes_per_reading - envelope) / (everything.bytes_per_reading - envelope)
    return Report(
        measures=(
            Measure(what="readings that agents took", value=rules_only.taken, unit="", at_least=1),
            Measure(what="lost on the way to a rule", value=rules_only.lost, unit="", at_most=0),
            Measure(what="the master, of one core", value=rules_only.cpu_share, unit="", at_most=MOST_CORE_SHARE),
            Measure(what="from sample to evaluation, median", value=1000 * p50_s, unit="ms"),
            Measure(
                what="from sample to evaluation, 99th percentile",
                value=1000 * p99_s,
                unit="ms",
                at_most=1000 * MOST_P99_S,
            ),
            Measure(what="metrics that no rule looks at", value=unused, unit="share"),
            Measure(
                what="metrics' bytes that a subscription saves",
                value=payload_cut,
                unit="share",
                at_least=_ROUGHLY * unused,
            ),
            Measure(
                what="of all bytes, frames included", value=cut, unit="share", at_least=LEAST_OF_SHARE * unused
            ),
            Measure(what="bytes of a reading, subscribed", value=rules_only.bytes_per_reading, unit="bytes"),
            Measure(what="bytes of a reading, everything", value=everything.bytes_per_reading, unit="bytes"),
        ),
        notes=(f"{agents} connections, one reading a second each, {duration_s:g} s",),
    )


def observe(
    asked: str,
    *,
    agents: int,
    duration_s: float,
    meanwhile: Callable[[int, int], None] = lambda pid, port: None,
    errors: IO[str] | None = None,
) -> Seen:
    """`meanwhile` is called once all agents are there, with the process of the master and its port."""
    each = agents // _AGENT_PROCESSES
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        master = _process(
            stack, "benchmarks.monitoring_master", "--serve", folder, str(agents), asked, errors=errors
        )
        port = _line(master)
        sides = [
            _process(stack, "benchmarks.monitoring_agents", port, str(first), str(each), str(_INSTANCES))
            for first in range(0, agents, each)
        ]
        assert _line(master) == "complete", "all agents are there"
        meanwhile(master.pid, int(port))
        cpu_share = _cpu_share(master.pid, duration_s)
        told = [json.loads(_ended(side)) for side in sides]
        seen = json.loads(_ended(master))
    assert all(side["unacknowledged"] == 0 for side in told), f"not all was acknowledged: {told}"
    return Seen(
        master=seen,
        taken=sum(side["taken"] for side in told),
        hello_bytes=sum(side["hello_bytes"] for side in told),
        cpu_share=cpu_share,
    )


def _process(
    stack: ExitStack, module: str, *arguments: str, errors: IO[str] | None = None
) -> subprocess.Popen[str]:
    """It is gone at the latest when the stack ends."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said, _, _ = select.select([process.stdout], [], [], _PATIENCE_S)
    return process.stdout.readline().strip() if said else ""


def _ended(process: subprocess.Popen[str]) -> str:
    """What it says last, after it was asked to end."""
    printed, _ = process.communicate("end\n", timeout=_PATIENCE_S)
    return printed.strip().splitlines()[-1]


def _cpu_share(pid: int, duration_s: float) -> float:
    process = psutil.Process(pid)
    before, began_s = process.cpu_times(), time.monotonic()
    time.sleep(duration_s)
    after, passed_s = process.cpu_times(), time.monotonic() - began_s
    return (after.user + after.system - before.user - before.system) / passed_s


if __name__ == "__main__":
    serve(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
