"""Dynamic allocation is taken over and given back, on a cluster inside of this process with two executors.

    python give_back_story.py

In the end it prints as JSON how many executors there were after each step.
"""

from __future__ import annotations

import json
import threading
import time

from pyspark.sql import SparkSession

from elastream.attached.executors import ClusterExecutors

_PATIENCE_S = 400.0
_SETTINGS = {
    "spark.ui.port": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.memory": "480m",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
}


def until(holder: ClusterExecutors, wanted: int) -> int:
    deadline_s = time.monotonic() + _PATIENCE_S
    while holder.count() != wanted and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return holder.count()


def main() -> None:
    builder = SparkSession.builder.master("local-cluster[2,1,480]").appName("given back")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    holder, seen = ClusterExecutors(spark), {}
    seen["most"] = holder.most()
    holder.take(1, 2)
    seen["taken"] = until(holder, 1)
    seen["grown"], seen["shrunk"] = _changed(holder, 2), _changed(holder, 1)
    holder.give_back()
    backlog = threading.Thread(target=_keep_busy, args=(spark,), daemon=True)
    backlog.start()
    seen["grown by dynamic allocation"] = until(holder, 2)
    print(json.dumps(seen))
    spark.sparkContext.cancelAllJobs()
    backlog.join(_PATIENCE_S)
    spark.stop()


def _changed(holder: ClusterExecutors, total: int) -> int:
    holder.change(total, lambda: None)
    return until(holder, total)


def _keep_busy(spark: SparkSession) -> None:
    sleeping = "reflect('java.lang.Thread', 'sleep', cast(500 as bigint)) AS slept"
    try:
        spark.range(0, 2000, 1, 200).selectExpr(sleeping).write.format("noop").mode("append").save()
    except Exception as error:  # it is cancelled once it was seen
        print(f"ended: {type(error).__name__}")


if __name__ == "__main__":
    main()
