"""How long Spark's tasks wait for a core, from what Linux counts of each thread.

Spark's run time of a task goes on while the task stands in line for a core. That is not useful time: with four
tasks on two cores every record seems to cost twice as much, and a policy that believes it asks for four more. Nor
does the processor time of a task help alone, as what is missing from it may as well be sleep or a disk. Linux
counts for each thread how long it ran and how long it was ready to run and did not (`schedstat`); their ratio,
over the threads of tasks, is what a task waited for each second that it computed.

Only where the tasks themselves use most of the cores is that their own doing. On a machine that is busy with
something else more instances do help, as each gets its share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_TASK_THREADS = "Executor task"  # as Spark names them; Linux keeps the first fifteen letters
_MOST_CORES = 0.6  # of the time of all cores: tasks that compute for as long are what keeps the cores busy


class CoreWaits:
    """Of the process that runs the tasks, which must be on this machine."""

    def __init__(
        self,
        process: int,
        *,
        cores: int | None = None,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._threads = proc / str(process) / "task"
        self._cores = (os.cpu_count() or 1) if cores is None else cores
        self._clock = clock
        self._looked_s = clock()
        self._seen = dict(self._count())

    def look(self) -> float | None:
        """Seconds that tasks waited for a core for each second that they had one, since the last look.

        None where it is not known (another system than Linux), or others than the tasks keep the cores busy.
        """
        before, self._seen = self._seen, dict(self._count())
        since_s, self._looked_s = self._looked_s, self._clock()
        ran = waited = 0
        for thread, (ran_ns, waited_ns) in self._seen.items():
            ran_before, waited_before = before.get(thread, (0, 0))
            if ran_ns >= ran_before:  # else another thread has its number now
                ran, waited = ran + ran_ns - ran_before, waited + waited_ns - waited_before
        theirs_s = _MOST_CORES * self._cores * (self._looked_s - since_s)
        return waited / ran if ran > 0 and ran / 1e9 >= theirs_s else None

    def _count(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Nanoseconds that each thread ran and waited, from its beginning."""
        for thread in self._threads.glob("*"):
            try:
                if (thread / "comm").read_text(encoding="utf-8").startswith(_TASK_THREADS):
                    ran_ns, waited_ns, _ = (thread / "schedstat").read_text(encoding="utf-8").split()
                    yield thread.name, (int(ran_ns), int(waited_ns))
            except (OSError, ValueError):  # it has ended, or the system does not count
                continue
