"""Control messages through Kafka: a topic for each instance, which others write and it reads (the thesis, 4.2.2).

There are no connections here, so nobody can see that something did not arrive: what is not acknowledged after a
while is sent again, all of it and in order. What arrives twice, or before its time, is dropped by its number.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from elastream.decentralized.link import LinkBroken, Stale
from elastream.decentralized.messages import Address
from elastream.engines.decentralized.folders import RunFolder
from elastream.engines.decentralized.protocol import Protocol, Record
from elastream.engines.spark.kafka.topic import Topic, client_settings
from elastream.errors import ElastreamError

_POLL_S = 0.1
_AGAIN_S = 3.0
_FLUSH_S = 10.0


class KafkaTransport:
    def __init__(
        self,
        protocol: Protocol,
        run: RunFolder,
        *,
        servers: str,
        topics: str,
        record: Record,
        on_stale: Callable[[str], None],
    ) -> None:
        """`topics` is what the names of the topics begin with: something that no other run has."""
        self._protocol = protocol
        self._run = run
        self._servers = servers
        self._topics = topics
        self._record = record
        self._on_stale = on_stale
        self._sent: dict[Address, tuple[int, float]] = {}
        """Up to which message everything was sent to a receiver, and when it was sent from the beginning."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _main(self) -> None:
        while not self._stopped.is_set():
            try:
                self._exchange()
            except ElastreamError as error:  # the broker is away, and waiting helps
                self._record("control", why=str(error))
                self._stopped.wait(_AGAIN_S)

    def _exchange(self) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        mine = self._topic(self._protocol.me)
        mine.create()
        settings = client_settings(self._servers)
        self._producer = Producer({**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
        # no group and no stored position: everything is read from the beginning, and known by its number
        consumer = Consumer({**settings, "group.id": mine.name, "enable.auto.commit": False})
        consumer.assign([TopicPartition(mine.name, 0, 0)])
        while not self._stopped.is_set():
            self._send_what_waits()
            message = consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self._take(json.loads(message.value() or b"{}"))
        self._producer.flush(_FLUSH_S)
        consumer.close()

    # Sending

    def _send_what_waits(self) -> None:
        now_s = time.monotonic()
        for receiver, waiting in self._protocol.waiting().items():
            if self._run.instance(receiver).has_ended:
                self._protocol.given_up(receiver)
                continue
            upto, since_s = self._sent.get(receiver, (0, now_s))
            if now_s - since_s > _AGAIN_S:
                upto, since_s = 0, now_s
            for envelope in waiting:
                if envelope.number > upto:
                    self._say(receiver, {"to": receiver, "number": envelope.number, "body": envelope.body})
            self._sent[receiver] = (waiting[-1].number, since_s)

    def _say(self, receiver: Address, line: dict[str, Any]) -> None:
        told = {"from": self._protocol.me, "incarnation": self._protocol.incarnation, **line}
        # the topic of one that is about to start may not be there yet: the broker makes it, or it comes again
        self._producer.produce(self._topic(receiver).name, json.dumps(told).encode(), partition=0)
        self._producer.poll(0)

    # Receiving

    def _take(self, line: dict[str, Any]) -> None:
        try:
            if "acknowledged" in line:
                self._protocol.acknowledged(line["from"], int(line["acknowledged"]))
            elif "refused" in line:
                self._refused(line)
            else:
                self._message(line)
        except LinkBroken:
            pass  # before its time: it comes again, in order
        except (ElastreamError, KeyError, TypeError, ValueError) as error:
            self._record("refused", why=str(error))

    def _message(self, line: dict[str, Any]) -> None:
        sender, number, incarnation = str(line["from"]), int(line["number"]), int(line["incarnation"])
        if number > self._protocol.taken(sender):  # else it is old, and so may be its incarnation
            try:
                self._protocol.greeted(sender, str(line["to"]), incarnation)
                self._protocol.received(sender, incarnation, number, dict(line["body"]))
            except Stale as error:
                self._record("refused", why=f"a stale instance: {error}")
                self._say(sender, {"refused": str(error), "of": incarnation})
                return
        self._say(sender, {"acknowledged": number})

    def _refused(self, line: dict[str, Any]) -> None:
        if int(line["of"]) == self._protocol.incarnation:  # else it was meant for a process of before
            self._on_stale(str(line["refused"]))

    def _topic(self, instance: Address) -> Topic:
        name = f"{self._topics}-{instance.replace('/', '-')}"
        return Topic(servers=self._servers, name=name, partitions=1)
