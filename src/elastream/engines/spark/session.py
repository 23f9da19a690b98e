"""The Spark session: the settings that matter for many small streaming queries in one application."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from elastream.engines.spark.channels.files_source import FileChannelSource
from elastream.engines.spark.channels.kafka_source import KafkaChannelSource
from elastream.engines.spark.connectors import jars_of_session, spark_defaults
from elastream.engines.spark.executors import is_local
from elastream.engines.spark.failures import failure_of
from elastream.engines.spark.jars import REPOSITORY_VARIABLE
from elastream.engines.spark.java import check_java
from elastream.engines.spark.local_files import start_no_processes_for_files
from elastream.engines.spark.ports import check_answers
from elastream.engines.spark.quiet import quiet_loggers, workers_print_to
from elastream.engines.spark.session_conf import JARS, JAVA_OPTIONS, PACKAGES, joined
from elastream.errors import ElastreamError

_OLD_WAY = "spark.sql.sources.useV1SourceList"
AS_IN_PLAIN_SPARK = {_OLD_WAY: "avro,csv,json,kafka,orc,parquet,text"}
"""Where no channel is in Kafka: a sink that writes there may depend on the older way, which needs no mode."""
# when a query is stopped while its Python source works, Spark looks through the error with a pattern that needs a
# stack frame for each letter
_DEEP_STACK = "-Xss16m"
WORKERS_LOG = "workers.log"
"""Beside Spark's own log: what Python workers print that run on this machine."""
LOWERS_FIXED_COST = {
    # the code of all operators: a hundred entries, as Spark has it, are too few for ten operators
    "spark.sql.codegen.cache.maxEntries": "2000",
    # without this Spark forks a process for every rename in a checkpoint on a local disk
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # a batch writes down what has changed in its state, and not all of it
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
"""Of every batch, where what is Spark's own costs more; `python -m benchmarks fixed-cost` has both."""
_SETTINGS = {
    **LOWERS_FIXED_COST,
    "spark.scheduler.mode": "FAIR",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.killEnabled": "false",  # on a cluster everyone who reaches its page could end jobs
    # the REST API answers for the last few batches; with everything retained a poll takes half a second
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.ui.retainedQueries": "5",
    # of each query, between two measurements
    "spark.sql.streaming.numRecentProgressUpdates": "300",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
    "spark.sql.streaming.stopTimeout": "60s",
    # by default a timestamp is written in a form that only Spark reads back with its time zone
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # all but Kafka's own: its older way of writing does not say how many records there were
    _OLD_WAY: "avro,csv,json,orc,parquet,text",
    # a batch writes few small files, and a rename publishes them
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.sql.parquet.compression.codec": "lz4_raw",
}


def start_session(
    name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    jars: Sequence[Path] = (),
    conf: Mapping[str, str] | None = None,
    packages: Sequence[str] = (),
    log: Path | None = None,
) -> SparkSession:
    """`jars` are those of the channels; connectors that are at hand come on top (`connectors.py`). `conf` and
    `packages` are what users ask for, see `session_conf.py`. `log` is where Spark's own log goes; its errors go to
    standard error where it is not given."""
    check_java()
    check_answers(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = {**_repositories(), **_SETTINGS, **_addresses(master), **(settings or {})}
    asked = conf or {}
    added = {
        JAVA_OPTIONS: joined(
            f"{_DEEP_STACK} {_logging(log)}", given.get(JAVA_OPTIONS), asked.get(JAVA_OPTIONS), by=" "
        ),
        PACKAGES: joined(*packages, asked.get(PACKAGES)),
    }
    named = {**given, **asked, **({PACKAGES: added[PACKAGES]} if added[PACKAGES] else {})}
    added[JARS] = joined(*jars_of_session(jars, named, spark_defaults()))
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**given, **asked, **{key: text for key, text in added.items() if text}}.items():
        builder = builder.config(key, value)
    quiet_loggers()
    session = _started(builder, added[PACKAGES], log)
    start_no_processes_for_files(session)
    if log is not None:
        workers_print_to(session, log.with_name(WORKERS_LOG))
    for source in (FileChannelSource, KafkaChannelSource):
        session.dataSource.register(source)
    return session


def _addresses(master: str) -> dict[str, str]:
    if not (is_local(master) or _is_loopback(master)):
        return {}
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark looks for another, and warns
    return {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}


def _repositories() -> dict[str, str]:
    """A mirror that our own jars come from is where packages are looked for, too."""
    mirror = os.environ.get(REPOSITORY_VARIABLE)
    return {"spark.jars.repositories": mirror} if mirror else {}


def stop_session(session: SparkSession) -> None:
    """Also where its Java process is gone: there is nothing to stop then."""
    try:
        session.stop()
    except GONE:
        if still_runs(session):
            raise


GONE = (Py4JError, OSError)
"""What a call raises where Spark's Java process has ended; also what Java raises, and what files do."""


def still_runs(session: SparkSession) -> bool:
    """Not where its Java process has ended, nor where it is about to: a signal that ends all of a process group
    reaches both, and Spark stops before Java does."""
    context: Any = session._jsc
    try:
        return not context.sc().isStopped()
    except GONE:
        return False


def _started(builder: Any, packages: str, log: Path | None) -> SparkSession:
    try:
        session: SparkSession = builder.getOrCreate()
    except Py4JJavaError as error:
        told = "" if log is None else f" (all of it: {log})"
        raise ElastreamError(f"Spark did not start: {failure_of(f': {error}').reason}{told}") from error
    except GONE as error:
        raise ElastreamError(f"Spark did not start: its Java process ended{_see(log)}") from error
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        fetched = f" It was to fetch {packages} from Maven: are the names and versions right?" if packages else ""
        raise ElastreamError(
            f"Spark did not start: its Java process ended; what it said stands above.{fetched}"
        ) from error
    return session


def _see(log: Path | None) -> str:
    return "" if log is None else f"; see {log}"


def _logging(log: Path | None) -> str:
    # in quotation marks, as a path may have spaces
    options = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"'
    return options if log is None else f'{options} -Delastream.appender=file "-Delastream.log={log.absolute()}"'


def _is_loopback(master: str) -> bool:
    return re.match(r"spark://(127\.|localhost[:,])", master) is not None
