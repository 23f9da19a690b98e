"""`elastream run` as a process, where something goes wrong: what its user reads, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from driver_process import kill_session
from running import PATIENCE_S, kept, records, wait_until

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kafka import KafkaChannel
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.kafka.topic import Topic

_COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # as from a terminal, however the tests were started
from elastream.cli import main
main()
"""
_BIDS = """
from pathlib import Path

import pandas as pd
from pyspark.sql import functions as F

from elastream import Pipeline

HERE = Path(__file__).parent
pipeline = Pipeline("bids")


@F.pandas_udf("string")
def score(bidder: pd.Series) -> pd.Series:
    if (bidder == 666).any():
        raise ValueError("bidder 666 is poison")
    return bidder.astype(str)


@pipeline.source
def bids(spark):
    return spark.readStream.schema("bidder bigint, price double").json(str(HERE / "incoming"))


@pipeline.operator(reads="bids")
def scored(bids):
    return bids.withColumn("score", score("bidder"))


pipeline.keep("results", reads="scored", folder=HERE / "kept" / "results")
"""
_TOPICS = """
from pathlib import Path

from elastream import Pipeline

pipeline = Pipeline("topics")


def read(spark, topic):
    options = {{"kafka.bootstrap.servers": {servers!r}, "subscribe": topic, "startingOffsets": "earliest"}}
    return spark.readStream.format("kafka").options(**options).load().selectExpr("cast(value as string) as line")


@pipeline.source
def lines(spark):
    return read(spark, "lines_of_others")


@pipeline.source
def nothing(spark):
    return read(spark, "no_such_topic")


@pipeline.sink(reads="lines")
def back(batch, batch_id):
    options = {{"kafka.bootstrap.servers": {servers!r}, "topic": "lines_back"}}
    batch.selectExpr("upper(line) as value").write.format("kafka").options(**options).save()


pipeline.keep("other", reads="nothing", folder=Path(__file__).parent / "other")
"""


class Command:
    """As a user starts it; all that is said is in one file."""

    def __init__(self, folder: Path, file: Path, environment: dict[str, str], more: Sequence[str]) -> None:
        self._said = folder / "said.txt"
        options = ["--folder", str(folder / "run"), "--no-serve", "--interval", "1 s", "--master", "local[4]"]
        with self._said.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, "run", str(file), *options, *more],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "COLUMNS": "200", **environment},
            )

    def said(self) -> str:
        return self._said.read_text(encoding="utf-8")

    def wait_for(self, words: str) -> None:
        wait_until(
            lambda: words in self.said() or self.process.poll() is not None, lambda: f"{words}: {self.said()}"
        )
        assert words in self.said()

    def ends(self) -> int:
        return self.process.wait(PATIENCE_S)

    def interrupt(self) -> int:
        os.killpg(self.process.pid, signal.SIGINT)
        return self.ends()


@contextlib.contextmanager
def command(folder: Path, text: str, *more: str, **environment: str) -> Iterator[Command]:
    file = folder / "job.py"
    file.write_text(text, encoding="utf-8")
    running = Command(folder, file, environment, more)
    try:
        yield running
    finally:
        kill_session(running.process.pid)
        running.process.wait()


def put(folder: Path, name: str, *bidders: int) -> None:
    """A file of bids, whole or not at all."""
    folder.mkdir(exist_ok=True)
    lines = (json.dumps({"bidder": bidder, "price": bidder / 2}) + "\n" for bidder in bidders)
    (folder / f".{name}").write_text("".join(lines), encoding="utf-8")
    (folder / f".{name}").rename(folder / name)


def test_a_poisonous_record_is_told_by_the_users_own_line(tmp_path: Path) -> None:
    put(tmp_path / "incoming", "1.json", *range(600, 700))
    with command(tmp_path, _BIDS, "--poisoned", "fail") as run:
        assert run.ends() == 2
        told = run.said()
    line = "ValueError: bidder 666 is poison (job.py:16, in score)"
    first = next(one for one in told.splitlines() if line in one)
    assert "scored: batch " in first
    assert "the record that it names, from bids: {bidder=666, price=333.0}" in first
    assert f"error: 'scored' failed 5 times, the last time with: {line}, in batch" in told
    assert "Traceback" not in told
    assert "Python Proxy" not in told
    recorded = (tmp_path / "run" / "recording.jsonl").read_text(encoding="utf-8").splitlines()
    troubles = [one["what"] for one in map(json.loads, recorded) if one.get("event") == "trouble"]
    assert any(line in what and "price=333.0" in what for what in troubles)


def test_a_start_that_fails_is_told_in_a_sentence(tmp_path: Path) -> None:
    with command(tmp_path, _BIDS, "--conf", "spark.driver.maxResultSize=abc") as run:
        assert run.ends() == 2
        told = run.said()
    assert "error: Spark did not start: SparkIllegalArgumentException: " in told
    assert '"spark.driver.maxResultSize" is invalid' in told.splitlines()[-1]
    assert told.endswith(f"(all of it: {tmp_path / 'run' / 'spark.log'})\n")
    assert "Traceback" not in told


def test_a_java_process_that_is_killed_is_told_in_a_sentence_and_nothing_is_lost(tmp_path: Path) -> None:
    results = FileChannel(kept(tmp_path, "results"))
    put(tmp_path / "incoming", "1.json", *range(10))
    with command(tmp_path, _BIDS) as run:
        wait_until(lambda: results.log.head().records == 10, run.said)
        run.wait_for("running")
        children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
        (java,) = (pid for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "java")
        os.kill(int(java), signal.SIGKILL)
        assert run.ends() == 2
        told = run.said()
    assert "error: Spark's Java process has ended (killed, or out of memory?), see " in told.splitlines()[-1]
    assert "Traceback" not in told
    assert len(list(records(results))) == 10


def slow_python(folder: Path, *, once: Path) -> Path:
    """A Python that takes too long the first time that it is to read a channel."""
    found = folder / "slow_python"
    found.write_text(
        "#!/bin/sh\n"
        f"if [ \"$2\" = pyspark.sql.streaming.python_streaming_source_runner ] && [ ! -e '{once}' ]\n"
        f"then touch '{once}'; sleep 40; fi\n"
        f"exec '{sys.executable}' \"$@\"\n",
        encoding="utf-8",
    )
    found.chmod(found.stat().st_mode | stat.S_IXUSR)
    return found


def test_a_late_worker_is_a_plain_line_and_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    incoming, results = tmp_path / "incoming", FileChannel(kept(tmp_path, "results"))
    put(incoming, "1.json", *range(10))
    with command(tmp_path, _BIDS, PYSPARK_PYTHON=str(slow_python(tmp_path, once=tmp_path / "slept"))) as run:
        run.wait_for(
            "operator scored: a Python worker did not connect in time (busy machine?); the batch is tried again"
        )
        wait_until(lambda: results.log.head().records == 10, run.said)
        log = tmp_path / "run" / "workers.log"
        wait_until(
            lambda: "CANNOT_OPEN_SOCKET" in log.read_text(encoding="utf-8"), "the traceback of the late one"
        )
        incoming.rename(tmp_path / "gone")
        run.wait_for(f"bids: {incoming}, which it reads, is gone since ")
        assert run.interrupt() == 1
        assert f"error: bids: {incoming}, which it reads, is gone since " in run.said()
        assert "has not worked" not in run.said(), "the operator was well again"
        assert "Traceback" not in run.said()


def test_topics_with_channels_of_files_and_one_that_does_not_exist(tmp_path: Path, broker: Broker) -> None:
    for name in ("lines_of_others", "lines_back"):
        Topic(servers=broker.servers, name=name, partitions=2).create()
    others = KafkaChannel(tmp_path / "others", Topic(servers=broker.servers, name="lines_of_others", partitions=2))
    others._send([b"one", b"two", b"three"])
    with command(tmp_path, _TOPICS.format(servers=broker.servers)) as run:
        run.wait_for("nothing failed: there is no such topic: UnknownTopicOrPartitionException")
        wait_until(lambda: read_back(broker.servers) == [b"ONE", b"THREE", b"TWO"], run.said)
        assert run.interrupt() == 1
        told = run.said()
    assert "error: nothing never worked in this run: there is no such topic: " in told
    assert [line for line in told.splitlines() if line.startswith("error: ")] == told.splitlines()[-1:]
    assert not list(records(FileChannel(tmp_path / "other")))


def read_back(servers: str) -> list[bytes]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("lines_back", partition, 0) for partition in (0, 1)])
        found = consumer.consume(3, timeout=2.0)
    finally:
        consumer.close()
    return sorted(message.value() for message in found if message.error() is None)
