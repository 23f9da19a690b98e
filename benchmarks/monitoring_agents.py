"""Many agents in one process, for the benchmark of the master: each with a connection of its own.

    python -m benchmarks.monitoring_agents PORT FIRST COUNT INSTANCES_PER_OPERATOR

They read made-up numbers of every metric there is, at no cost, as it is the master that is measured. A line on
standard input ends the reading; when the master has acknowledged everything, or after some time, the last line
tells how many readings there were.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence

from elastream.agents.agent import Agent
from elastream.agents.agent_client import AgentClient
from elastream.agents.master_server import Endpoint
from elastream.agents.messages import Claim, frame
from elastream.policies.rules.metrics import METRICS

_ACKNOWLEDGED_WITHIN_S = 60.0


def client(port: int, number: int, instances: int) -> AgentClient:
    claim = Claim(f"operator{number // instances}", number % instances)
    values = {name: 40.0 + (number + place) % 20 for place, name in enumerate(METRICS)}

    def read(wanted: Sequence[frozenset[str]]) -> Sequence[Mapping[str, float]]:
        return [{name: values[name] for name in wanted[0]}]

    agent = Agent(name=f"agent{number}", run="benchmark", claims=(claim,), offers=tuple(METRICS))
    return AgentClient(agent=agent, endpoint=Endpoint(port=port), read=read, blocks=False)


async def run(port: int, first: int, count: int, instances: int) -> Mapping[str, int]:
    clients = [client(port, number, instances) for number in range(first, first + count)]
    hello_bytes = sum(len(frame(each.agent.connected(0.0))) for each in clients)
    tasks = [asyncio.create_task(each.run()) for each in clients]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for each in clients:
        each.agent.pause()
    deadline_s = asyncio.get_running_loop().time() + _ACKNOWLEDGED_WITHIN_S
    while any(each.agent.kept for each in clients) and asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "hello_bytes": hello_bytes,
        "taken": sum(each.agent.taken for each in clients),
        "unacknowledged": sum(each.agent.kept for each in clients),
        "thinned": sum(each.agent.thinned for each in clients),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(*map(int, sys.argv[1:5])))))
