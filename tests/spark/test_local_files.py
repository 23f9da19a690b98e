"""Spark makes files on a local disk without starting a process for each, with the permissions that they had."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from elastream.engines.spark.local_files import start_no_processes_for_files

_FILES = 40


def made(spark: SparkSession, folder: Path) -> None:
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path
    files = path(f"file://{folder}").getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    for number in range(_FILES):
        files.create(path(f"file://{folder}/{number}")).close()
    files.mkdirs(path(f"file://{folder}/below/that"))


def faults_of_ended_children(spark: SparkSession) -> int:
    """Of the processes that Java started: each has some hundreds, whatever it does."""
    jvm: Any = spark.sparkContext._jvm
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return int(fields[8])


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_made_without_processes_and_without_files_of_checksums(
    spark: SparkSession, tmp_path: Path
) -> None:
    start_no_processes_for_files(spark)  # a second time it changes nothing
    before = faults_of_ended_children(spark)
    made(spark, tmp_path)
    assert faults_of_ended_children(spark) - before < 10 * _FILES, "others may start one"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*map(str, range(_FILES)), "below"])
    umask = int(str(spark.sparkContext._jsc.hadoopConfiguration().get("fs.permissions.umask-mode", "022")), 8)
    assert mode_of(tmp_path / "7") == 0o666 & ~umask
    assert mode_of(tmp_path / "below" / "that") == 0o777 & ~umask


def test_what_tasks_write_has_no_checksums_either(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).repartition(3).write.parquet(f"file://{tmp_path}/numbers")
    assert not list((tmp_path / "numbers").glob(".*"))
    assert spark.read.parquet(f"file://{tmp_path}/numbers").count() == 10


def test_files_with_checksums_of_an_older_release_are_replaced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "7").write_text("old")
    (tmp_path / ".7.crc").write_bytes(b"crc\x00\x00\x00\x02\x00" + bytes(4))
    made(spark, tmp_path)
    assert not (tmp_path / ".7.crc").exists(), "else what is new would be taken for damaged"
