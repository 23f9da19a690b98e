"""HDFS: as the default file system under a run in a local folder, and as the place of state; also an ill one."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hdfs_story
import pytest
from hadoop import Hadoop, hadoop_jars
from hdfs_story import FILES, NUMBERS_PER_FILE
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import Running, kept, wait_until

from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.state_folder import StateFolder
from elastream.errors import ElastreamError
from tests.needed import need_jars

KEYS = 7
RECORDS = 50  # of a round
_AWAY_S = 20.0


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    need_jars(hadoop_jars(), "Hadoop")
    with Hadoop(tmp_path_factory.mktemp("hadoop") / "hadoop") as hadoop:
        yield hadoop
        assert hadoop.ended() == []


@pytest.fixture
def hdfs(spark: SparkSession, hadoop: Hadoop) -> Any:
    """Hadoop's client, with the rights of who has started the NameNode."""
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(hadoop.file_system)  # type: ignore[union-attr]
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def test_every_record_is_there_once_and_nothing_is_published_that_is_not_there(
    hadoop: Hadoop, tmp_path: Path
) -> None:
    folder = tmp_path / "pipeline"
    folder.mkdir()
    ending = hdfs_story.tell(folder, hadoop)

    assert "the driver and Spark's own process do not see the same folder there" in ending.refused
    assert ending.on_hdfs_by_mistake > 0, "without a scheme Spark writes to HDFS"
    assert "numbers: batch 0 has 50 records, and 0 are found where it was written" in ending.failed
    assert ending.published_meanwhile == 0
    assert ending.retried == "100 of 100"

    assert 0 < ending.counted_when_killed < FILES * NUMBERS_PER_FILE * 2 // 3
    assert ending.faults == [], "also of what was read while paths had no scheme"
    assert ending.on_hdfs_since == []


# State that lies there


def declare(folder: Path) -> Pipeline:
    pipeline = Pipeline("far")
    pipeline.feed("numbers", schema="id bigint")

    @pipeline.operator(reads="numbers", state_partitions=2, max_parallelism=8, output_mode="update")
    def counts(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy((F.col("id") % KEYS).alias("key")).count()

    @pipeline.operator(reads="numbers", state_partitions=2)
    def distinct(numbers: DataFrame) -> DataFrame:
        return numbers.dropDuplicates()

    for step in ("counts", "distinct"):
        pipeline.keep(f"kept_{step}", reads=step, folder=kept(folder, step))
    return pipeline


def put(running: Running, number: int) -> None:
    running.put("numbers", [(one,) for one in range(number * RECORDS, (number + 1) * RECORDS)])


def check(running: Running, rounds: int) -> None:
    ids = range(rounds * RECORDS)
    assert dict(sorted(running.kept("counts"))) == Counter(one % KEYS for one in ids)
    assert sorted(running.kept("distinct")) == [(one,) for one in ids]


def test_it_goes_on_with_the_state_that_lies_there(spark: SparkSession, hadoop: Hadoop, tmp_path: Path) -> None:
    url = f"{hadoop.file_system}/goes-on"
    for number in range(2):  # the second time from the checkpoints
        with Running(spark, declare(tmp_path), tmp_path, state_url=url) as running:
            put(running, 2 * number)
            running.drain()
            runs = running.runs()
            assert running.rescale(counts=1, distinct=2).succeeded
            put(running, 2 * number + 1)
            running.drain()
            assert running.runs() == runs
            assert running.engine.graph()["counts"].max_parallelism == 8
            assert not running.engine.graph()["counts"].movable_state, "its partitions bound it"
    check(running, 4)
    far = [path for path in hadoop.files("/goes-on") if path.endswith((".changelog", ".zip"))]
    assert {path.split("/")[3] for path in far} == {"counts", "distinct"}
    assert not list((tmp_path / "run" / "checkpoints").glob("*/state"))
    assert (tmp_path / "run" / "checkpoints" / "counts" / "commits").exists()


@pytest.mark.long
def test_a_name_node_that_is_away_is_waited_for(spark: SparkSession, hadoop: Hadoop, tmp_path: Path) -> None:
    with Running(spark, declare(tmp_path), tmp_path, state_url=f"{hadoop.file_system}/away") as running:
        put(running, 0)
        running.drain()
        hadoop.kill_names()
        away_since_s = time.monotonic()
        put(running, 1)
        running.wait_until(lambda: time.monotonic() - away_since_s > _AWAY_S, "away for long enough")
        assert sorted(running.kept("distinct")) == [(one,) for one in range(RECORDS)], "nothing came out meanwhile"
        hadoop.start_names()
        running.drain()
        told = " ".join(gap for snapshot in running.measured() for gap in snapshot.gaps)
        assert "nobody answers there" in told
        assert "the pipeline waits" in told
    check(running, 2)


# What cannot be used is refused at the start, with a sentence


@contextmanager
def as_guest(spark: SparkSession) -> Iterator[None]:
    users: Any = spark.sparkContext._jvm.org.apache.hadoop.security.UserGroupInformation  # type: ignore[union-attr]
    before = users.getLoginUser()
    users.setLoginUser(users.createRemoteUser("guest"))
    try:
        yield
    finally:
        users.setLoginUser(before)


def refused(spark: SparkSession, url: str, tmp_path: Path, patience_s: float = 0.0) -> str:
    with pytest.raises(ElastreamError) as error:
        StateFolder(url=url, run=tmp_path, pipeline="far").check(spark, patience_s=patience_s)
    return str(error.value)


def test_what_cannot_be_written_is_told_in_a_sentence(
    spark: SparkSession, hadoop: Hadoop, hdfs: Any, tmp_path: Path
) -> None:
    path: Any = spark.sparkContext._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
    said = refused(spark, "nofs://bucket/state", tmp_path)
    assert "--state-folder nofs://bucket/state: Spark knows no such file system: --packages brings" in said
    assert "a host is needed, as HDFS is not the default" in refused(spark, "hdfs:///state", tmp_path)

    url = f"{hadoop.file_system}/not-mine"
    hdfs.mkdirs(path(url))
    with as_guest(spark):
        said = refused(spark, url, tmp_path)
    assert said.startswith(f"--state-folder {url}: no right to write there (")
    assert "user=guest, access=WRITE" in said

    for name, quota in {"few-names": (1, 2**40), "little-space": (2**20, 1)}.items():
        url = f"{hadoop.file_system}/{name}"
        hdfs.mkdirs(path(url))
        hdfs.setQuota(path(url), *quota)
        assert refused(spark, url, tmp_path).startswith(f"--state-folder {url}: its quota is full (")


def test_safe_mode_is_waited_for_and_told(
    spark: SparkSession, hadoop: Hadoop, hdfs: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    actions: Any = spark.sparkContext._jvm.org.apache.hadoop.fs.SafeModeAction  # type: ignore[union-attr]
    url = f"{hadoop.file_system}/safe"
    hdfs.setSafeMode(actions.ENTER)
    assert f"--state-folder {url}: it is in safe mode, and takes nothing (" in refused(spark, url, tmp_path)

    def leave() -> None:
        wait_until(lambda: "waiting for it" in caplog.text, "told that it waits")
        hdfs.setSafeMode(actions.LEAVE)

    leaving = threading.Thread(target=leave)
    leaving.start()
    with caplog.at_level(logging.WARNING):
        StateFolder(url=url, run=tmp_path, pipeline="far").check(spark)
    leaving.join()
    assert not [one for one in hadoop.files("/safe") if "/.try-" in one], "nothing is left behind"
