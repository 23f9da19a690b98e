"""A streaming job whose elastream fails again and again: its results are whole, its executors are given back.

    python attach_faults.py FOLDER SEED...

One unmodified job runs throughout, on a cluster of four executors inside of the driver's process. For each seed
it is attached to, sized, and after a random time something happens to elastream: a bug, its thread is ended or
blocked, the disk is full, Spark's REST API is away. Afterwards there must be four executors again, and the job
must go on. In the end it prints as JSON what it saw.
"""

from __future__ import annotations

import ctypes
import json
import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attach_story

import elastream
from elastream.attached import attaching
from elastream.attached.attaching import Attached
from elastream.engines.spark.rest import RestApi
from elastream.errors import ElastreamError

MOST = 4
KINDS = ("bug", "ended", "blocked", "full disk", "api away", "none")
_SILENT_S = 4.0
_LONGEST_WAIT_S = 8.0
_PATIENCE_S = 300.0


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(what)
        time.sleep(0.1)


@contextmanager
def happens(kind: str, attached: Attached) -> Iterator[None]:
    engine: Any = attached._engine
    over = threading.Event()
    match kind:
        case "bug":
            engine.measure = lambda: 1 // 0
        case "ended":
            thread = ctypes.c_ulong(attached._manager.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(SystemExit))
        case "blocked":
            engine.measure = lambda: over.wait(_PATIENCE_S)
        case "api away":
            engine._get = RestApi("http://127.0.0.1:9", "nobody").get
        case "full disk":  # for this process, not for the JVM: what is written beyond 0 bytes fails
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        case _:
            pass
    try:
        yield
    finally:
        over.set()
        if kind == "full disk":
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


class Story:
    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.query = attach_story.query(spark, folder, every="1 second")
        self.kinds: Counter[str] = Counter()
        self.sized = 0

    def up(self) -> int:
        return int(self.spark.sparkContext._jsc.sc().getExecutorIds().size())

    def batches(self) -> int:
        last = self.query.lastProgress
        return -1 if last is None else int(last["batchId"])

    def round(self, seed: int) -> None:
        chance = random.Random(seed)
        kind = KINDS[seed % len(KINDS)]
        attached = elastream.attach(
            self.spark,
            latency="30 s",
            max_executors=MOST,
            folder=self.folder / f"run-{seed}",
            knobs={"interval": "1 s", "warm_up_intervals": 0, "scale_down_delay": "0 s"},
        )
        time.sleep(chance.uniform(0, _LONGEST_WAIT_S))  # what is varied is when it happens
        self.sized += self.up() < MOST
        with happens(kind, attached):
            if kind in ("bug", "ended", "blocked"):
                until(lambda: not attached.is_attached, f"{kind}: it is no longer attached")
            else:
                time.sleep(chance.uniform(0, _SILENT_S / 2))
        attached.detach()
        self.kinds[kind] += 1
        until(lambda: self.up() == MOST, f"seed {seed}, {kind}: {MOST} executors again, {self.up()} are there")
        seen = self.batches()
        until(lambda: self.batches() > seen, f"seed {seed}, {kind}: the job goes on")
        if not self.query.isActive:
            raise ElastreamError(f"seed {seed}, {kind}: the job has failed: {self.query.exception()}")


def main(folder: str, *seeds: str) -> None:
    attaching._SILENT_S = _SILENT_S
    raised: list[Any] = []
    threading.excepthook = raised.append
    spark = attach_story.session(f"local-cluster[{MOST},1,600]")
    spark.sparkContext.setLogLevel("OFF")
    story = Story(spark, Path(folder))
    for seed in seeds:
        story.round(int(seed))
        print(f"{seed} {KINDS[int(seed) % len(KINDS)]}", flush=True)
    story.query.stop()
    values = [row.value for row in spark.read.parquet(str(Path(folder) / "out")).select("value").collect()]
    spark.stop()
    seen = {
        "faults": dict(story.kinds),
        "executors were fewer when it happened": story.sized,
        "raised": len(raised),
        "rows": len(values),
        "distinct": len(set(values)),
        "highest": max(values),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
