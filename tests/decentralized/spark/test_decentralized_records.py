"""Records in topics that the instances of an operator share: each is read once, whoever comes, goes or is
killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException

from elastream.decentralized.protocol.load_meter import Arrived
from elastream.decentralized.spark import topic_publisher, topic_records
from elastream.decentralized.spark.folders import RunFolder
from elastream.decentralized.spark.topic_names import PARTITIONS, records_topic
from elastream.decentralized.spark.topic_publisher import Publisher, Unsettled
from elastream.decentralized.spark.topic_readers import GroupReader, Taken, TopicRecord
from elastream.decentralized.spark.topic_records import OwnRecords, Route, SharedRecords
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.kafka.topic import BrokerAway
from tests.decentralized.spark.control_sites import wait_until

WORKER = Path(__file__).parent / "topic_worker.py"
IN_A_BATCH = 12
CAME_S = float(int(time.time()) - 60)


def in_time(ask: Callable[[], object]) -> None:
    """As Spark does, with a batch that failed: a broker with much to do may say "not now"."""

    def asked() -> bool:
        try:
            ask()
        except (BrokerAway, Unsettled):
            return False
        return True

    wait_until(asked, "the broker answers")


def numbers(*found: int) -> pa.Table:
    return pa.table({"id": pa.array(found, pa.int64())})


class Ends:
    """The source and the sink of a pipeline a, b, c; what both need after a kill is in their folders."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.servers, self.run = servers, RunFolder(folder)
        self.topics = f"tests-{uuid.uuid4().hex}"
        self.sent = self.batch = 0
        self.kept: list[list[int]] = []
        self.came_s: set[float] = set()
        self.come_back()

    def come_back(self) -> None:
        """As new processes, after a kill."""
        self.source = self._own("a/0", reads=False, readers=["b"])
        self.sink = self._own("c/0", reads=True, readers=[])

    def _own(self, me: str, *, reads: bool, readers: list[str]) -> OwnRecords:
        route = Route(servers=self.servers, topics=self.topics, me=me, reads=reads, readers=readers)
        own = OwnRecords(route, self.run.instance(me))
        own.start()
        return own

    def send(self) -> None:
        self._send(self.batch)
        self.batch += 1
        self.sent += IN_A_BATCH

    def send_again(self) -> None:
        """The batch that was under way when it was killed."""
        self._send(self.batch - 1)

    def _send(self, batch: int) -> None:
        first = IN_A_BATCH * batch
        in_time(lambda: self.source.send(batch, numbers(*range(first, first + IN_A_BATCH)), CAME_S + batch))

    def keep(self) -> None:
        self.kept.append(self.read(len(self.kept)))

    def read(self, batch: int) -> list[int]:
        found = self.sink.load(batch, 40)
        assert {record.sender for record in found} <= {"b"}, "each record says which operator it comes from"
        self.came_s |= {record.came_s for record in found}
        return [json.loads(record.value)["id"] for record in found]

    @property
    def arrived(self) -> list[int]:
        return [number for batch in self.kept for number in batch]


class Workers:
    """Instances of b, each a process; who dies is started again."""

    def __init__(self, ends: Ends) -> None:
        self.ends = ends
        self.deaths: list[str] = []
        self.moments = {"b/0": "put", "b/0.1": "loaded", "b/0.2": "committed"}
        """When each of them is to be killed, once."""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, me: str) -> None:
        moment = "never" if me in self.deaths else self.moments[me]
        command = [sys.executable, str(WORKER), self.ends.servers, self.ends.topics, me, moment]
        self.processes[me] = subprocess.Popen(command)

    def look_after(self) -> None:
        for me, process in list(self.processes.items()):
            if process.poll() is not None:
                if process.returncode == -signal.SIGKILL:
                    self.deaths.append(me)
                self.start(me)

    def leave(self, me: str) -> None:
        """Unless it is killed before it could."""
        self.processes[me].terminate()
        self.processes.pop(me).wait()


@contextmanager
def workers_for(ends: Ends) -> Iterator[Workers]:
    workers = Workers(ends)
    try:
        yield workers
    finally:
        for process in workers.processes.values():
            process.kill()
            process.wait()


@pytest.mark.parametrize("broker_dies", [False, pytest.param(True, marks=pytest.mark.long)])
def test_each_record_gets_to_the_sink_once_whoever_comes_goes_or_is_killed(
    broker: Broker, tmp_path: Path, broker_dies: bool
) -> None:
    ends = Ends(broker.servers, tmp_path)
    with workers_for(ends) as workers:

        def turn() -> bool:
            workers.look_after()
            ends.keep()
            return len(ends.arrived) >= ends.sent

        def story() -> str:
            return f"{len(ends.arrived)} of {ends.sent} have arrived; died: {workers.deaths}"

        def send_until_dead(*wanted: str) -> None:
            def sent() -> bool:
                ends.send()
                turn()
                return set(wanted) <= set(workers.deaths)

            wait_until(sent, story)

        workers.start("b/0")
        workers.start("b/0.1")
        send_until_dead("b/0", "b/0.1")
        if broker_dies:
            broker.kill()
            broker.start()
        ends.come_back()
        ends.send_again()
        assert ends.read(len(ends.kept) - 1) == ends.kept[-1], "a batch that runs again has the same records"
        workers.start("b/0.2")
        send_until_dead("b/0.2")
        workers.leave("b/0.1")
        wait_until(turn, story)
        ends.keep()
    assert sorted(ends.arrived) == list(range(ends.sent))
    assert ends.came_s <= {CAME_S + batch for batch in range(ends.batch)}, "the times of the source"
    assert sorted(workers.deaths) == ["b/0", "b/0.1", "b/0.2"]


def test_what_was_never_committed_is_never_read(broker: Broker, tmp_path: Path) -> None:
    ends = Ends(broker.servers, tmp_path)
    topic = records_topic(ends.servers, ends.topics, "c")
    killed = Publisher(ends.servers, "the one")
    in_time(killed.settle)
    killed._producer.begin_transaction()
    killed._put(killed._producer, [topic], b"b", [b'{"id":1}'], came_ms=1_000)
    killed._producer.flush(10.0)
    again = Publisher(ends.servers, "the one")
    in_time(lambda: again.publish([topic], "b", [b'{"id":2}'], [], came_s=CAME_S))

    def read() -> bool:
        ends.keep()
        return bool(ends.arrived)

    wait_until(read, "something arrives")
    with pytest.raises(KafkaException, match="fenced"):
        killed._producer.commit_transaction(10.0)
    in_time(lambda: again.publish([topic], "b", [b'{"id":3}'], [], came_s=CAME_S + 1))
    wait_until(lambda: read() and len(ends.arrived) > 1, "more arrives")
    assert ends.arrived == [2, 3]
    assert ends.came_s == {CAME_S, CAME_S + 1}, "records bring along when they came into the pipeline"


def test_a_batch_that_fails_is_read_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it fails of: here its records cannot be written."""

    def overflow(_: pa.Table) -> list[bytes]:
        raise OverflowError

    topics = f"tests-{uuid.uuid4().hex}"
    route = Route(servers=broker.servers, topics=topics, me="b/0", reads=True, readers=["c"])
    records = SharedRecords(route, record=lambda event, **told: None)
    records.start()
    writer = Publisher(broker.servers, f"{topics}-a")
    values = [b"0", b"1", b"2", b"3", b"4", b"5"]
    in_time(lambda: writer.publish([route.source], "a", values, [], came_s=CAME_S))
    found: list[TopicRecord] = []

    def load() -> bool:
        found[:] = records.load(0, 3)
        return len(found) == 3

    wait_until(load, "three are read")
    first = {record.value for record in found}
    with monkeypatch.context() as patch:
        patch.setattr(topic_records, "encode", overflow)
        with pytest.raises(OverflowError):
            records.send(0, numbers(0, 1, 2), CAME_S)
    read: set[bytes] = set()

    def all_read() -> bool:
        if load() and records.send(0, numbers(*(int(record.value) for record in found)), CAME_S) == 3:
            read.update(record.value for record in found)
        return len(read) == 6

    wait_until(all_read, lambda: f"all are read: {sorted(read)}, at first {sorted(first)}")
    records.leave()


def test_time_does_not_go_back_where_senders_lag_differently() -> None:
    reader = GroupReader(records_topic("localhost:1", "tests", "b"), "tests")
    for offset, came_s in enumerate((10.0, 8.0, 11.0, 9.0)):
        reader._keep(TopicRecord(sender="a", value=b"", came_s=came_s, partition=3, offset=offset))
    assert reader.arrived() == {"3": Arrived(records=4, came_s=11.0)}


def test_while_a_transaction_is_open_nobody_reads_what_was_read_before(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(topic_publisher._PRODUCER, "transaction.timeout.ms", 600_000)  # not by itself meanwhile
    topics = f"tests-{uuid.uuid4().hex}"
    topic = records_topic(broker.servers, topics, "b")
    topic.create(patience_s=10.0)
    writer, dead = Publisher(broker.servers, f"{topics}-a"), Publisher(broker.servers, f"{topics}-b")

    def put(*found: int) -> None:
        values = [str(number).encode() for number in found]
        in_time(lambda: writer.publish([topic], "a", values, [], came_s=CAME_S))

    def read(reader: GroupReader, count: int) -> Taken:
        wait_until(lambda: reader.pending() >= count, lambda: f"{reader.pending()} of {count} are there")
        return reader.take(count)

    first, second = (GroupReader(topic, topic.name) for _ in range(2))
    put(*range(PARTITIONS))
    first.start()
    positions = [read(first, PARTITIONS).positions]
    in_time(lambda: dead.publish([], "b", [], positions, came_s=CAME_S))
    put(*range(PARTITIONS, 2 * PARTITIONS))
    dead._producer.begin_transaction()
    topic_publisher._send_positions(dead._producer, read(first, PARTITIONS).positions)
    first.close()

    second.start()
    # nothing tells that the client has asked the broker: so both soon enough to meet it still asking for the last
    # time, and late enough for what came of that to show
    for pause_s in 4 * [0.02, 0.5]:
        second.rewind()
        time.sleep(pause_s)
        assert second.pending() == 0, "what the transaction is about is not settled yet"
    in_time(Publisher(broker.servers, f"{topics}-b").settle)
    found = sorted(int(record.value) for record in read(second, PARTITIONS).records)
    second.close()
    assert found == list(range(PARTITIONS, 2 * PARTITIONS))
