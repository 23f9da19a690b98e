"""An archive of the classes that Spark loads (class data sharing), for the many short-lived Javas of the tests.

    python tests/class_archive.py FILE

With it a Java that starts Spark and runs a stream for some batches takes a third less processor time. A Java which
the archive does not fit, such as that of a broker, or of another version, does without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import functions as F

from elastream.engines.spark.session import start_session

ROOT = Path(__file__).parents[1]
FILE = ROOT / ".venv" / ".spark-classes.jsa"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""Each Java lives for a minute or so: for that the second compiler costs more than it gains. With the first alone
Java has 48 MB for compiled code by default, which ten queries fill within a minute: then it compiles no more."""
_BATCHES = 5
_PATIENCE_S = 300.0


def java_options() -> str:
    """With the archive where there is one; what does not fit is not worth a word on standard output."""
    if not FILE.exists():
        return QUICK
    return f"{QUICK} -XX:SharedArchiveFile={FILE} -Xlog:disable -Xlog:all=error:stderr"


def write(file: Path) -> None:
    """Run a stateful stream for some batches, and let Java write down what it has loaded when it ends."""
    beside = file.with_suffix(".new")
    os.environ["JDK_JAVA_OPTIONS"] = f"{QUICK} -XX:ArchiveClassesAtExit={beside.absolute()} -Xlog:disable"
    with tempfile.TemporaryDirectory(prefix="elastream-classes-") as folder:
        settings = {"spark.ui.port": "0", "spark.sql.warehouse.dir": folder, "spark.sql.shuffle.partitions": "2"}
        spark = start_session("classes", master="local[2]", settings=settings)
        counts = spark.readStream.format("rate").load().groupBy((F.col("value") % 7).alias("key")).count()
        writer = counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", folder)
        query = writer.trigger(processingTime="200 milliseconds").start()
        deadline_s = time.monotonic() + _PATIENCE_S
        while (query.lastProgress or {"batchId": 0})["batchId"] < _BATCHES and time.monotonic() < deadline_s:
            time.sleep(0.1)
        query.stop()
        java = SparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
        java.stdin.close()  # it ends with whoever started it
        java.wait(_PATIENCE_S)
    beside.rename(file)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
