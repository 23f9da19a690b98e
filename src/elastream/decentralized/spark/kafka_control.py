"""Control messages over Kafka: each instance reads a topic of its own, with one partition, and writes to those of
the others.

Thin, like `tcp.py`: what is said, and what a repeated message or a stale process means, is decided in `link.py`
and `control.py`. Kafka only carries, and nothing depends on what it keeps: delivery is at least once, as a message
is sent again until its receiver has acknowledged it, by a message in the sender's topic. So a broker may be away,
deliver twice, or lose everything it had, and a process may be killed at any point.

    from, to, incarnation, number, body     a message: one at a time for each receiver
    from, to, acknowledged                  it is written down
    from, to, refused, stale, start         it is not; `start` is the incarnation that was refused
    from, to, began                         to oneself: a process that reads of a later start than its own is stale

How far a topic was read lies in the folder of its instance (`position.json`), beside the journal. It spares going
through old messages again, no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.protocol.link import Envelope, Stale
from elastream.decentralized.protocol.messages import Address
from elastream.decentralized.spark.folders import RunFolder, read_whole, write_whole
from elastream.decentralized.spark.living_protocol import LivingProtocol, Record
from elastream.decentralized.spark.topic_names import control_topic
from elastream.engines.spark.kafka.topic import MOST_MESSAGE_BYTES, Topic, away_text, client_settings
from elastream.errors import ElastreamError
from elastream.formats import read_json

_RETRY_S = 1.0
_LONGEST_RETRY_S = 8.0
_LOOK_S = 0.2
_CREATE_S = 1.5
_STOP_S = 5.0
_LAST_WORDS_S = 1.0
_CLIENT = {"topic.metadata.refresh.interval.ms": 5_000}
_PRODUCER: dict[str, Any] = {
    # no idempotence: the links do that, and it has errors that a producer does not survive
    "acks": "all",
    "linger.ms": 0,
    "message.timeout.ms": 10_000,
    "message.max.bytes": MOST_MESSAGE_BYTES,
    "allow.auto.create.topics": False,
    # a receiver may make its topic long after it is first written to
    "topic.metadata.propagation.max.ms": 3_600_000,
}
_CONSUMER: dict[str, Any] = {
    "group.id": "elastream",  # asked for, never used: each topic has one reader, which keeps its position
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 100,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A message that was sent, and when to send it again."""

    number: int
    due_s: float
    pause_s: float = _RETRY_S

    def again(self, now_s: float) -> Attempt:
        longer_s = min(_LONGEST_RETRY_S, 2 * self.pause_s)
        return Attempt(number=self.number, due_s=now_s + self.pause_s, pause_s=longer_s)


class KafkaControl:
    def __init__(
        self,
        protocol: LivingProtocol,
        run: RunFolder,
        *,
        servers: str,
        topics: str,
        record: Record,
        on_stale: Callable[[str], None],
    ) -> None:
        self._protocol = protocol
        self._run = run
        self._folder = run.instance(protocol.me)
        self._servers = servers
        self._topics = topics
        self._record = record
        self._on_stale = on_stale
        self._topic = control_topic(servers, topics, protocol.me)
        self._producer: Any = Producer(client_settings(servers) | _CLIENT | _PRODUCER)
        self._attempts: dict[Address, Attempt] = {}
        self._announced = False
        self._away = False
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._keep_listening, self._keep_sending)
        ]

    def start(self) -> None:
        """Listen, and send what waits. A broker that is away is waited for."""
        started = {"incarnation": self._protocol.incarnation, "pid": os.getpid()}
        write_whole(self._folder.endpoint, {"servers": self._servers, "topic": self._topic.name, **started})
        self._protocol.on_news = self._news.set
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """In bounded time, whatever the broker does. The topic of an instance that has ended is deleted."""
        self._stopping.set()
        self._news.set()
        deadline_s = time.monotonic() + _STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._producer.flush(_LAST_WORDS_S)
        if self._folder.has_ended:
            delete_topic(self._topic, self._record)

    # Sending

    def _keep_sending(self) -> None:
        while not self._stopping.is_set():
            self._news.wait(self._send_what_is_due())
            self._news.clear()

    def _send_what_is_due(self) -> float | None:
        """How long until something is to be sent again; none where nothing waits."""
        now_s = time.monotonic()
        me = self._protocol.me
        if not self._announced and self._is_due(me, self._protocol.incarnation, now_s):
            self._tell(me, began=self._protocol.incarnation)
        waiting = self._protocol.waiting()
        for receiver, envelopes in waiting.items():
            self._send(receiver, envelopes[0], now_s)
        pending = {*waiting, *(() if self._announced else (me,))}
        self._attempts = {to: attempt for to, attempt in self._attempts.items() if to in pending}
        self._producer.poll(0)  # or what became of the messages piles up
        due_s = min((attempt.due_s for attempt in self._attempts.values()), default=None)
        return None if due_s is None else max(0.0, due_s - time.monotonic())

    def _send(self, receiver: Address, envelope: Envelope, now_s: float) -> None:
        if self._run.instance(receiver).has_ended:
            self._protocol.given_up(receiver)
        elif self._is_due(receiver, envelope.number, now_s):
            self._tell(receiver, number=envelope.number, body=envelope.body)

    def _is_due(self, receiver: Address, number: int, now_s: float) -> bool:
        """Whether to send this message now; if so, it is noted when to send it again."""
        attempt = self._attempts.get(receiver)
        if attempt is None or attempt.number != number:
            attempt = Attempt(number=number, due_s=now_s)
        due = attempt.due_s <= now_s
        self._attempts[receiver] = attempt.again(now_s) if due else attempt
        return due

    def _tell(self, receiver: Address, **what: Any) -> None:
        """Put into the receiver's topic as soon as the broker takes it; what does not get there is sent again."""
        line = {"from": self._protocol.me, "to": receiver, "incarnation": self._protocol.incarnation, **what}
        topic = control_topic(self._servers, self._topics, receiver)
        # there may be no such topic, or too much that waits for the broker already
        with contextlib.suppress(BufferError, KafkaException):
            self._producer.produce(topic.name, json.dumps(line).encode(), partition=0)

    # Receiving

    def _keep_listening(self) -> None:
        while not self._stopping.is_set():
            if self._create_topic():
                self._listen()

    def _create_topic(self) -> bool:
        try:
            self._topic.create(patience_s=_CREATE_S)
        except ElastreamError as error:
            self._note_away(str(error))
            self._stopping.wait(_LOOK_S)
            return False
        return True

    def _listen(self) -> None:
        """Until it is stopped, or the topic is gone."""
        consumer = Consumer(client_settings(self._servers) | _CLIENT | _CONSUMER | {"error_cb": self._on_error})
        try:
            consumer.assign([TopicPartition(self._topic.name, 0, self._position())])
            while not self._stopping.is_set():
                message: Any = consumer.poll(_LOOK_S)
                if message is None:
                    continue
                if message.error() is None:
                    self._away = False
                    self._take(message.value() or b"")
                    self._keep_position(message.offset() + 1)
                elif message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return
        finally:
            consumer.close()

    def _position(self) -> int:
        found = read_whole(self._folder.path / "position.json") or {}
        return int(found["offset"]) if found.get("topic") == self._topic.name else 0

    def _keep_position(self, offset: int) -> None:
        with contextlib.suppress(OSError):  # then a few messages come again
            write_whole(self._folder.path / "position.json", {"topic": self._topic.name, "offset": offset})

    def _take(self, value: bytes) -> None:
        try:
            line = _read(value)
            sender = str(line["from"])
            if "began" in line:
                self._heed_start(str(line["to"]), int(line["began"]))
            elif "acknowledged" in line:
                self._protocol.acknowledged(sender, int(line["acknowledged"]))
                self._news.set()
            elif "refused" in line:
                self._heed_refusal(line)
            else:
                self._receive(sender, line)
        except (ElastreamError, OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            self._record("refused", why=_why(error))

    def _heed_start(self, who: Address, began: int) -> None:
        mine = self._protocol.incarnation
        if who != self._protocol.me:
            raise IllegalEvent(f"{who!r} announces itself to {self._protocol.me!r}")
        if began > mine:
            self._on_stale(f"start {mine} of it is over, start {began} has taken its place")
        self._announced = self._announced or began == mine

    def _heed_refusal(self, line: dict[str, Any]) -> None:
        """Who is refused tries again later; who is stale gives up. An earlier start of ours was told, too."""
        if line.get("stale") and int(line["start"]) == self._protocol.incarnation:
            self._on_stale(str(line["refused"]))

    def _receive(self, sender: Address, line: dict[str, Any]) -> None:
        number, incarnation = int(line["number"]), int(line["incarnation"])
        try:
            if self._run.instance(sender).has_ended:
                return  # it did so when all that it said was heard: this came twice, and its link is forgotten
            self._protocol.greeted(sender, str(line["to"]), incarnation)
            self._protocol.received(sender, incarnation, number, dict(line["body"]))
        except (ElastreamError, ValueError, KeyError, TypeError, OverflowError) as error:
            stale = isinstance(error, Stale)
            self._tell(sender, refused=_why(error), stale=stale, start=incarnation)
            self._record("refused", why=f"a stale instance: {error}" if stale else _why(error))
        else:
            self._tell(sender, acknowledged=number)

    def _on_error(self, error: Any) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._note_away(away_text(self._servers))

    def _note_away(self, why: str) -> None:
        """Once, until it is back."""
        if not self._away:
            self._record("no broker", why=why)
        self._away = True


def delete_topic(topic: Topic, record: Record) -> None:
    """What is left behind does no harm: no other run has a topic of this name."""
    try:
        topic.delete()
    except ElastreamError as error:
        record("left behind", topic=topic.name, why=str(error))


def _read(value: bytes) -> dict[str, Any]:
    found = read_json(value.decode(), "a message")
    if not isinstance(found, dict):
        raise IllegalEvent(f"a message is a JSON object, found {type(found).__name__}")
    return found


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, ElastreamError) else f"not understood: {error}"
