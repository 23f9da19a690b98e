"""What the Python workers below a process use of the cores, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from elastream.engines.spark.executor_use import PythonCores

COMPUTE = """
import sys, time
while time.process_time() < float(sys.argv[1]): pass
print("done", flush=True)
sys.stdin.read()
"""
BELOW = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdin=sys.stdin)
sys.exit(child.wait())
"""


def worker(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_processes_below_count_while_they_run_and_the_process_itself_does_not() -> None:
    cores = PythonCores(os.getpid())
    with worker(BELOW, COMPUTE, "0.5") as below:
        assert below.stdout is not None
        below.stdout.readline()
        used_s = cores.look()
        ours_s = time.process_time()
        while time.process_time() < ours_s + 0.5:
            pass
        idle_s = cores.look()
        below.communicate()
    assert 0.45 < used_s < 2, "the worker below the worker, and two interpreters that start"
    assert idle_s < 0.4, "ours is not in it, though a broker of other tests may be"


def test_a_worker_that_has_ended_is_counted_by_the_one_above_it() -> None:
    keeps_on = BELOW.replace(
        "sys.exit(child.wait())", "child.wait(); print('waited', flush=True); sys.stdin.read()"
    )
    short = COMPUTE.replace("sys.stdin.read()", "")
    cores = PythonCores(os.getpid())
    with worker(keeps_on, short, "0.5") as below:
        assert below.stdout is not None
        while below.stdout.readline() != "waited\n":
            pass
        assert 0.45 < cores.look() < 2
        below.communicate()
