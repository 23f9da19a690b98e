"""A topic of Kafka, as far as a channel needs it: to be there, where it ends, and to forget its beginning."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from elastream.errors import ElastreamError
from elastream.extras import MissingExtra

_ANSWER_TIMEOUT_S = 10.0
_GRACE_S = 2.0
"""Beyond its own timeout, for a request whose answer never comes."""
_CREATE_TIMEOUT_S = 60.0
_PROBE_TIMEOUT_S = 3.0
_RETRY_S = 0.1
MOST_MESSAGE_BYTES = 16 * 1024 * 1024
_CONFIG = {
    "cleanup.policy": "delete",
    # nothing is deleted by age or size: only what every reader is done with, which the channel says
    "retention.ms": "-1",
    "retention.bytes": "-1",
    # deleted records give their disk back a file at a time, so the files are small
    "segment.bytes": str(16 * 1024 * 1024),
    "file.delete.delay.ms": "1000",
    "max.message.bytes": str(MOST_MESSAGE_BYTES),
}


class BrokerAway(ElastreamError):  # noqa: N818 - reads better where it is raised
    """Kafka does not answer; nothing is lost, and waiting helps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Topic:
    servers: str
    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of a new one, where it is not to keep everything until it is told to forget."""

    def create(self, *, patience_s: float = _CREATE_TIMEOUT_S) -> None:
        """Return when it is there and can be used; does nothing where that is so."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        wanted = NewTopic(self.name, num_partitions=self.partitions, config={**_CONFIG, **self.settings})
        answer_s = min(patience_s, _ANSWER_TIMEOUT_S)
        try:
            self._ask(lambda admin: admin.create_topics([wanted], request_timeout=answer_s), patience_s=answer_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ElastreamError(f"the topic {self.name} cannot be created: {error.args[0].str()}") from None
        self.ends(patience_s=patience_s)

    def ends(self, *, patience_s: float = _ANSWER_TIMEOUT_S) -> dict[int, int]:
        """By partition, the offset that its next record will have."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = dict.fromkeys(self.places(dict.fromkeys(range(self.partitions), 0)), newest)
        answer_s = min(patience_s, _ANSWER_TIMEOUT_S)
        found = self._ask(
            lambda admin: admin.list_offsets(wanted, request_timeout=answer_s), patience_s=patience_s
        )
        return {place.partition: result.offset for place, result in found.items()}

    def delete_before(self, offsets: Mapping[int, int]) -> None:
        places = self.places(offsets)
        self._ask(lambda admin: admin.delete_records(places, request_timeout=_ANSWER_TIMEOUT_S))

    def forget(self, offsets: Mapping[int, int]) -> None:
        """Delete what lies before, or not if that cannot be done now: next time."""
        from confluent_kafka import KafkaException

        if offsets:
            with contextlib.suppress(BrokerAway, KafkaException):
                self.delete_before(offsets)

    def exists(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return self.name in _admin(self.servers).list_topics(timeout=_PROBE_TIMEOUT_S).topics
        except KafkaException:
            raise BrokerAway(away_text(self.servers)) from None

    def delete(self) -> None:
        """Does nothing where it is not there."""
        from confluent_kafka import KafkaException

        if not self.exists():
            return
        try:
            self._ask(lambda admin: admin.delete_topics([self.name], request_timeout=_ANSWER_TIMEOUT_S))
        except KafkaException as error:
            raise ElastreamError(error.args[0].str()) from None

    def places(self, offsets: Mapping[int, int]) -> list[Any]:
        """As the client of Kafka names them."""
        from confluent_kafka import TopicPartition

        return [TopicPartition(self.name, partition, offset) for partition, offset in offsets.items()]

    def _ask(
        self, request: Callable[[Any], Mapping[Any, Any]], *, patience_s: float = _ANSWER_TIMEOUT_S
    ) -> dict[Any, Any]:
        """The answers; what nobody answers, or nobody who can yet, is asked again for a while."""
        from confluent_kafka import KafkaException

        deadline_s = time.monotonic() + patience_s
        while True:
            admin = _admin(self.servers)  # kept until it has answered: one that is let go answers nobody
            try:
                answer_s = _ANSWER_TIMEOUT_S + _GRACE_S
                return {key: future.result(answer_s) for key, future in request(admin).items()}
            except TimeoutError:
                if time.monotonic() > deadline_s:
                    raise BrokerAway(away_text(self.servers)) from None
            except KafkaException as error:
                if not passes(error.args[0]):
                    raise
                if time.monotonic() > deadline_s:
                    raise BrokerAway(f"{away_text(self.servers)}: {error.args[0].str()}") from None
            # a client that knew the broker before it went away goes on asking for the leader of that time
            _admin.cache_clear()
            time.sleep(_RETRY_S)


def passes(error: Any) -> bool:
    """Whether waiting helps. A broker that comes up, or goes down, has many errors that pass: these do not."""
    from confluent_kafka import KafkaError

    return error.code() not in (
        KafkaError._AUTHENTICATION,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._INVALID_ARG,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_ALREADY_EXISTS,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNSUPPORTED_VERSION,
    )


def within(timeout_s: float, call: Callable[[], Any]) -> Any:
    """Raises `TimeoutError` where a call outlasts its own timeout: some of librdkafka do while a coordinator is
    away (its issues 5456 and 5511). The call goes on in its thread: do not use that client again.
    """
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(timeout_s)


def away_text(servers: str) -> str:
    return f"Kafka at {servers} does not answer"


def answers(servers: str, *, timeout_s: float = _PROBE_TIMEOUT_S) -> bool:
    from confluent_kafka import KafkaException

    try:
        return bool(_admin(servers).list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False


def client_settings(servers: str) -> dict[str, Any]:
    """Of every client of librdkafka. What it logs is for its developers: errors reach us as results."""
    return {"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 1000}


@functools.cache
def _admin(servers: str) -> Any:
    """One for the process: it keeps its connection, and comes back by itself when the broker does."""
    try:
        from confluent_kafka.admin import AdminClient
    except ImportError:
        raise MissingExtra("kafka", "confluent_kafka") from None
    return AdminClient(client_settings(servers))
