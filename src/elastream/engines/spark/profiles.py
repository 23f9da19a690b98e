"""Executors of their own for operators that are placed, by Spark's resource profiles.

Spark gives a task to any executor of the profile that its stage has. With a profile for each placed operator an
executor is one operator's, and so is the node that it is on. The first operator keeps Spark's default profile, as
do the sources, sinks and fixed operators that run beside it.

Spark's own interfaces set a profile for RDDs and for some functions over frames. A batch is an RDD by the time it
is written: `own_batch` sets the profile on it and on all that it is computed from, and so on every stage up to the
one that writes. A profile is refused where the cluster manager knows none; standalone masters do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from elastream.engines.spark.allocation import Executors
from elastream.engines.spark.executor_client import ExecutorClient
from elastream.engines.spark.executors import ExecutorOptions
from elastream.engines.spark.rest import RestApi

_DEFAULT = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosted:
    """An executor, as Spark tells of it."""

    executor: str
    host: str
    operator: str | None
    """Whose tasks alone it is given; none where Spark tells of a profile that is not ours."""


class ProfiledExecutors(Executors):
    def __init__(self, spark: SparkSession, api: RestApi, options: Mapping[str, ExecutorOptions]) -> None:
        """`options` are those of each operator's executors; the first one's are the session's."""
        first, *others = options
        super().__init__(spark, api, options[first])
        self._spark_resource: Any = spark.sparkContext._jvm.org.apache.spark.resource  # type: ignore[union-attr]
        self._by_profile = ExecutorClient(spark)
        self._profiles = {name: self._new_profile(options[name]) for name in others}
        self._ids = {first: _DEFAULT, **{name: int(found.id()) for name, found in self._profiles.items()}}

    def request_each(self, totals: Mapping[str, int]) -> None:
        """So many executors for each operator."""
        self._by_profile.request_by_profile({self._ids[name]: total for name, total in totals.items()})

    def hosted(self) -> list[Hosted]:
        """One that is only about to come tells no host, and is left out."""
        operators = {number: name for name, number in self._ids.items()}
        return [
            Hosted(executor=str(entry["id"]), host=host, operator=operators.get(int(entry["resourceProfileId"])))
            for entry, host in self.active()
        ]

    def own_batch(self, operator: str, frame: DataFrame) -> None:
        """Run the batch that is about to be written on the operator's executors alone."""
        if operator not in self._profiles:
            return
        batch: Any = frame._jdf.queryExecution().logical()  # what `foreachBatch` is handed is an RDD, wrapped
        waiting, seen = [batch.rdd()], set()
        while waiting:
            rdd = waiting.pop()
            if rdd.id() not in seen:
                seen.add(rdd.id())
                rdd.withResources(self._profiles[operator])
                reads = rdd.dependencies()
                waiting += [reads.apply(place).rdd() for place in range(reads.size())]

    def _new_profile(self, options: ExecutorOptions) -> Any:
        resource = self._spark_resource
        executor = resource.ExecutorResourceRequests().cores(options.cores).memory(options.memory)
        task = resource.TaskResourceRequests().cpus(1)
        profile = resource.ResourceProfileBuilder().require(executor).require(task).build()
        self._by_profile.add_profile(profile)
        return profile
