"""The Spark session: the settings that matter for many small streaming queries in one application."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from elastream.engines.spark.channels.files_source import FileChannelSource
from elastream.engines.spark.channels.kafka_source import KafkaChannelSource
from elastream.errors import ElastreamError

_LEAST_JAVA = 17
_SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    "spark.ui.showConsoleProgress": "false",
    # the REST API answers for the last few batches; with everything retained a poll takes half a second
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.ui.retainedQueries": "5",
    # without this Spark forks a process for every rename in a checkpoint on a local disk
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
    "spark.sql.streaming.stopTimeout": "60s",
    # by default a timestamp is written in a form that only Spark reads back with its time zone
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # all but Kafka's own: its older way of writing does not say how many records there were
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
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
) -> SparkSession:
    """The jars are those of the channels, and of what else the pipeline needs."""
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "localhost").config("spark.driver.bindAddress", "127.0.0.1")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for source in (FileChannelSource, KafkaChannelSource):
        session.dataSource.register(source)
    return session


def check_java() -> None:
    """Spark fails without Java, and with an old one, in ways that say little."""
    find_java()


def find_java() -> str:
    """The command that starts it; an error that says what to do where there is none, or an old one."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    how = "install one (Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
    if java is None or not os.path.exists(java):
        where = f"at JAVA_HOME ({home})" if home else "on the PATH"
        raise ElastreamError(f"Spark needs Java {_LEAST_JAVA} or newer, and none was found {where}: {how}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        raise ElastreamError(f"{java} does not run ({error.strerror}), and Spark needs Java: {how}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) < _LEAST_JAVA:
        version = found[0].split('"')[1] if found else "unknown"
        raise ElastreamError(f"Spark needs Java {_LEAST_JAVA} or newer, found {version} at {java}: {how}")
    return java
