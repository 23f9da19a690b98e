"""Points at which the tests let the driver die as if it were killed there; elsewhere they do nothing.

    ELASTREAM_CRASH_AT='after the publication/counts/3'

is the third time that the step `counts` comes by the point.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum

VARIABLE = "ELASTREAM_CRASH_AT"


class CrashPoint(StrEnum):
    AFTER_THE_TASKS = "after the tasks"
    """A batch has written its files; nobody knows of them yet."""
    IN_THE_PUBLICATION = "in the publication"
    """The log has the batch, the head does not."""
    AFTER_THE_PUBLICATION = "after the publication"
    """Readers see the batch, but Spark has not yet noted that it is done."""
    IN_SHARING_OUT = "in sharing out"
    """Of a decentralized instance: some successors have their part of the batch, others do not."""
    IN_FORGETTING = "in forgetting"
    """The files of a commit that everyone has read are gone, its entry in the log is not."""
    RESCALED = "after a rescale"
    """The control has another parallelism; the batch under way does not, or none has it yet."""
    REPARTITION_WANTED = "before a repartition"
    """It is written down that the state is to have another number of partitions; nothing was done yet."""
    REPARTITION_DONE = "after a repartition"
    """The checkpoint has the state in its new partitions; the query was not started on them."""
    PUT_ASIDE = "after putting aside"
    """Records at which a batch fails lie aside; the batch was not run without them yet."""


_wanted = os.environ.get(VARIABLE)
_passings = 0


def crash_point(point: CrashPoint, step: str) -> None:
    """Die here, if this is where a test wants it."""
    if _wanted is not None:
        _pass(point, step, _wanted)


def _pass(point: CrashPoint, step: str, wanted: str) -> None:
    global _passings
    wanted_point, wanted_step, wanted_passing = wanted.split("/")
    if (point, step) == (wanted_point, wanted_step):
        _passings += 1
        if _passings == int(wanted_passing):
            os.kill(os.getpid(), signal.SIGKILL)
