"""Delays between nodes that are all on this machine: tasks wait for them.

The records of a task are taken to come from everywhere, in fetches of so many records, and each fetch to take the
round trip from its node to the farthest one that the operator runs on. A task waits for all of its fetches before
it hands over the first record: were it to wait between them, Spark would work on one part while it waits for the
next, and the delay would cost nothing.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

NODE_VARIABLE = "ELASTREAM_NODE"
"""In the environment of a worker, and so of its executors and their tasks: on which node they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetches:
    records: int = 0
    """Of one fetch; with 0 nothing is emulated."""
    round_trips_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Of a fetch by a task on each node."""

    def wait_s(self, records: int, node: str | None) -> float:
        """How long a task on the node waits for so many records."""
        if self.records < 1 or node is None:
            return 0.0
        return math.ceil(records / self.records) * self.round_trips_s.get(node, 0.0)

    def wait(self, records: int) -> None:
        time.sleep(self.wait_s(records, os.environ.get(NODE_VARIABLE)))
