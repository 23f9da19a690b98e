"""Nodes join and leave under a running pipeline: an application of its own, on a cluster that it starts itself.

    python nodes_story.py FOLDER

Four nodes on a line: `broken`, which is cheap, but no worker starts on it; `left` and `right` of it; and `far`.
Every record is marked with the node that it was processed on. In the end it prints as JSON what it saw.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from running import Numbers, Running, kept, wait_until

from elastream.engines.spark import on_nodes
from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster
from elastream.engines.spark.executors import ExecutorOptions, session_settings
from elastream.engines.spark.on_nodes import OnWorkers, executors_on
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.session import start_session
from elastream.nodes import Node, NodePool
from elastream.nodes.files import WorkerNodes

PLACES_MS = {"left": 0.0, "broken": 10.0, "right": 20.0, "far": 200.0}
_EXECUTOR = ExecutorOptions(memory="512m")
_RECORDS_PER_TICK = 6
_WORKER = (
    "test {{node}} != broken && SPARK_LOCAL_IP={{host}} exec {home}/bin/spark-class "
    "org.apache.spark.deploy.worker.Worker {{master}} --host {{host}} --cores {{cores}} --memory {{memory}} "
    "--webui-port 0 --work-dir {work}/{{node}}"
)


def nodes(folder: Path) -> WorkerNodes:
    """Their workers are started by a command, as those of other machines would be."""
    places = PLACES_MS.values()
    return WorkerNodes(
        pool=NodePool(
            nodes=tuple(Node(name=name, cost=0.5 if name == "broken" else 1.0) for name in PLACES_MS),
            delays_s=tuple(tuple(abs(one - other) / 1000 for other in places) for one in places),
        ),
        hosts={name: f"127.0.9.{place}" for place, name in enumerate(PLACES_MS, 1)},
        start=("sh", "-c", _WORKER.format(home=_find_spark_home(), work=folder / "work")),
        records_per_fetch=10,
    )


def pipeline(folder: Path) -> Pipeline:
    numbered = Pipeline("nodes")
    numbered.feed("numbers", schema="id bigint")

    @numbered.operator(reads="numbers", max_parallelism=8)
    def marked(numbers: DataFrame) -> DataFrame:
        return numbers.select(
            "id", F.expr("reflect('java.lang.System', 'getenv', 'ELASTREAM_NODE')").alias("node")
        )

    numbered.keep("kept_marked", reads="marked", folder=kept(folder, "marked"))
    return numbered


class Story:
    def __init__(self, running: Running, alive: Callable[[], tuple[str, ...]]) -> None:
        self.seen: dict[str, object] = {}
        self._running = running
        self._alive = alive
        self._numbers = Numbers(running, "numbers", per_tick=_RECORDS_PER_TICK)

    def tell(self) -> None:
        with self._numbers:
            self._live()
        self._running.drain()
        self.seen["numbers"] = self._numbers.count

    def _live(self) -> None:
        runs = self._running.runs()
        self.seen["told at first"] = self._running.engine.shortage
        self._look("at first", {"right"})
        self.seen["grown"] = self._running.rescale(marked=3).detail
        self._look("after growing", {"left", "right", "far"})
        refused = self._running.rescale(marked=5)
        self.seen["refused"] = [refused.succeeded, refused.detail, refused.plan["marked"]]
        self.seen["shrunk"] = self._running.rescale(marked=2).detail
        wait_until(self._far_has_gone, lambda: f"the worker of `far` has ended, of {self._alive()}")
        self.seen["last number when far had gone"] = self._numbers.count
        self._look("after shrinking", {"left", "right"})
        self.seen["runs changed"] = [name for name, run in self._running.runs().items() if runs[name] != run]

    def _far_has_gone(self) -> bool:
        self._running.engine.measure()
        return "worker far" not in self._alive()

    def _look(self, when: str, expected: set[str]) -> None:
        """Wait until records that come from now on were processed on these nodes, each of which has a task."""
        first = self._numbers.count

        def marks() -> set[str]:
            return {node for number, node in self._running.kept("marked") if number >= first}

        wait_until(lambda: marks() >= expected, lambda: f"records from {first} on {expected}, found {marks()}")
        snapshot = self._running.engine.measure()
        self.seen[f"placement {when}"] = snapshot.placement["marked"]
        self.seen[f"delay {when}"] = snapshot.delay_s("marked")


def main(folder: Path) -> None:
    on_nodes._JOIN_TIMEOUT_S = 300.0  # a slow machine is not to be taken for nodes that do not come
    declared, chosen = pipeline(folder), nodes(folder)
    cluster = StandaloneCluster(ClusterOptions(folder=folder / "cluster", port=0, web_port=0))
    cluster.start_master()
    try:
        settings = session_settings(executors_on(chosen, declared, _EXECUTOR), slots=1)
        # tasks may fail for reasons of their own on a slow machine, which is not to be taken for what is tested
        settings |= {"spark.ui.port": "0", "spark.task.maxFailures": "20"}
        spark = start_session("nodes", master=cluster.master_url, settings=settings)
        workers = OnWorkers(nodes=chosen, daemons=cluster.daemons)
        running = Running(spark, declared, folder, executors=_EXECUTOR, on_nodes=workers)
        with running:
            story = Story(running, lambda: cluster.daemons.alive)
            story.tell()
        spark.stop()
    finally:
        cluster.stop()
    print(json.dumps(story.seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
