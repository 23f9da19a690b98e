"""An operator instance as a process: `python -m elastream.decentralized.spark.process RUN ADDRESS`.

It has a data job and a scaling module, and talks to its neighbours only. Its supervisor holds its standard input
and starts it again when it dies; a process whose supervisor has died starts another one, and makes room.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from elastream.decentralized.protocol.control import Controller
from elastream.decentralized.protocol.instance import InstancePhase
from elastream.decentralized.protocol.messages import Create, Effect, Halt, operator_of
from elastream.decentralized.spark.data_job import DataJob, lanes_of
from elastream.decentralized.spark.events import EventLog
from elastream.decentralized.spark.folders import RunFolder, take_lock
from elastream.decentralized.spark.inbox import InstanceInbox, Received
from elastream.decentralized.spark.living_protocol import LivingProtocol
from elastream.decentralized.spark.outbox import Outbox
from elastream.decentralized.spark.scaling import MetricCollector, ScalingTrigger
from elastream.decentralized.spark.settings import read_settings
from elastream.decentralized.spark.supervisor import DIED, ENDED, NOT_AGAIN, start_supervisor
from elastream.decentralized.spark.takeover import take_over
from elastream.decentralized.spark.transports import records_of, transport_of
from elastream.engines.spark.kafka.topic import BrokerAway
from elastream.engines.spark.pipeline import Kind
from elastream.engines.spark.run import read_pipeline
from elastream.errors import ElastreamError, InvalidInput

if TYPE_CHECKING:  # it needs a client of Kafka, which not every run has
    from elastream.decentralized.spark.topic_records import TopicRecords

_LOOK_S = 0.2
_LONGEST_PAUSE_S = 30.0
_PATIENCE_S = 5.0  # for a process of before to be gone
_TELL_S = 2.0  # between two looks at what neighbours do not tell
_PROCESSING = (InstancePhase.RUNNING, InstancePhase.DUPLICATING, InstancePhase.LEAVING, InstancePhase.DRAINING)


class InstanceProcess:
    def __init__(self, run: RunFolder, me: str) -> None:
        self._run_folder = run
        self._folder = run.instance(me)
        self._lock = take_lock(self._folder.path / "lock", me, patience_s=_PATIENCE_S)
        if self._folder.is_closed and not self._folder.has_ended:
            raise ElastreamError(f"{me!r} was declared dead: its place is closed, and it does not come back")
        events = EventLog(self._folder.events)
        self._record = events.record
        settings = read_settings(run)
        pipeline = read_pipeline(settings.pipeline, settings.arguments).pipeline
        place = settings.place(me, pipeline.graph())
        controller = Controller(place, settings.neighbour_locks(pipeline.graph()))
        outbox = Outbox(self._folder.outbox, lambda successor: run.instance(successor).lane(me))
        self._protocol = LivingProtocol(
            controller, self._folder, outbox, carry_out=self._carry_out, record=self._record
        )
        self._step = step = pipeline[operator_of(me)]
        self._batch_interval_s = settings.batch_interval_s
        self._topics = records_of(settings, pipeline, self._folder, self._record)
        self._inbox: Received = InstanceInbox(lanes_of(run, self._folder, step))
        if self._topics is not None and step.reads:
            self._inbox = self._topics
        if self._has_ended:
            self._tidy_up()  # killed before it could
        self._protocol.begin()
        self._record("began", incarnation=self._protocol.incarnation, pid=os.getpid(), phase=self._phase)
        self._transport = transport_of(settings, self._protocol, run, record=self._record, on_stale=self._stale)
        self._data = DataJob(pipeline, run, self._folder, settings, self._send, self._topics)
        collector = MetricCollector(self._inbox, self._protocol, EventLog(self._folder.metrics).record)
        self._parts = (
            self._transport,
            collector,
            ScalingTrigger(place, settings, collector, self._inbox, self._protocol, self._record),
        )
        self._stopping = threading.Event()
        self._failures = 0
        self._tell_due_s = 0.0

    @property
    def _phase(self) -> InstancePhase:
        return self._protocol.state.phase

    @property
    def _has_ended(self) -> bool:
        return self._phase is InstancePhase.ENDED and self._protocol.has_said_all

    def run(self) -> int:
        signal.signal(signal.SIGTERM, lambda *_: self._stopping.set())
        threading.Thread(target=self._watch_supervisor, daemon=True).start()
        if self._topics is not None:
            threading.Thread(target=self._take_part, args=(self._topics,), daemon=True).start()
        for part in self._parts:
            part.start()
        while not self._stopping.is_set():
            if self._has_ended:
                self._end()
                return ENDED
            if self._folder.is_closed:
                self._stale("it was declared dead, and others have taken over what it had")
            self._look_after_data()
            self._look_after_neighbours()
            self._look_after_the_dead()
            time.sleep(_LOOK_S)
        if self._topics is not None:
            self._topics.leave()
        self._data.close()
        self._record("stopped")
        return ENDED

    def _look_after_data(self) -> None:
        if self._phase is InstancePhase.WAITING or self._phase in _PROCESSING:
            if not self._data.has_spark:
                self._start_data()
            elif self._phase in _PROCESSING:
                self._keep_data_running()
        elif self._data.is_running:
            self._data.stop()
        if self._phase is InstancePhase.DRAINING:
            if self._topics is not None:
                self._topics.leave()  # what it has not done, the others do
            if self._inbox.pending() == 0:
                self._protocol.drained()

    def _look_after_neighbours(self) -> None:
        """Forget those that are gone, and tell the others by when there was nothing for them."""
        if time.monotonic() < self._tell_due_s:
            return
        self._tell_due_s = time.monotonic() + _TELL_S
        self._protocol.forget_ended(lambda former: self._run_folder.instance(former).has_ended)
        # who reads shared topics sees for itself what is in them
        if self._topics is None and self._data.is_running and (until_s := self._quiet_until_s()) is not None:
            self._protocol.tell_quiet(until_s)

    def _look_after_the_dead(self) -> None:
        for dead in self._protocol.left_behind():
            if take_over(self._run_folder, self._folder.me, dead):
                self._protocol.taken_over(dead)

    def _quiet_until_s(self) -> float | None:
        now_s = time.time()
        match self._step.kind:
            case Kind.SOURCE:
                return now_s - self._batch_interval_s if self._data.waits_for_input else None
            case Kind.FEED:
                return now_s if self._inbox.pending() == 0 else None
        return self._inbox.quiet_until_s()

    def _start_data(self) -> None:
        with self._run_folder.turn_to_start():
            self._data.start_spark()
            if self._phase in _PROCESSING:
                self._start_query()
        self._record("data job", running=self._data.is_running)

    def _take_part(self, topics: TopicRecords) -> None:
        """Begin to share the topics without waiting for Spark: the others go by the load that they see."""
        while not self._stopping.wait(_LOOK_S):
            if self._phase in _PROCESSING:
                with suppress(BrokerAway):  # the query asks again, and says so
                    topics.start()
                return

    def _keep_data_running(self) -> None:
        failure = self._data.failure()
        if failure is not None:
            # for ever: on a busy machine Spark's Python workers fail to come up in time, and nobody else
            # would start this instance again; what was not processed waits in the inbox
            self._failures += 1
            self._record("failed", why=failure[:2000], failures=self._failures)
            self._stopping.wait(min(_LONGEST_PAUSE_S, 2.0**self._failures))
        if not self._data.is_running:
            self._data.batches = 0
            self._start_query()
        elif self._data.batches > 0:
            self._failures = 0

    def _start_query(self) -> None:
        try:
            self._data.start()
        except BrokerAway as error:
            self._record("no broker", why=str(error))

    def _send(self, batch: int, records: pa.Table, came_s: float) -> None:
        if self._topics is None:
            self._protocol.send_records(batch, records, came_s)
        else:
            # not under the lock: whoever comes or goes, the topics stay the same
            self._protocol.records_sent += self._topics.send(batch, records, came_s)

    def _carry_out(self, effect: Effect) -> None:
        """The others are seen in the state: what is to run, to drain, to be taken over and to end."""
        if isinstance(effect, Halt):
            self._stale("it was declared dead")
        if isinstance(effect, Create):
            try:
                start_supervisor(self._run_folder, effect.instance)
            except OSError:
                die()  # it is written down as done: only who begins anew does it again

    def _end(self) -> None:
        self._folder.mark_ended()  # the others wait for that
        self._record("ended")
        self._transport.stop()
        self._data.close()
        self._tidy_up()

    def _tidy_up(self) -> None:
        folder = self._folder
        folder.mark_ended()
        for left in (folder.inbox, folder.outbox, folder.plans, folder.checkpoint, folder.path / "scratch"):
            shutil.rmtree(left, ignore_errors=True)

    def _stale(self, why: str) -> None:
        self._record("refused", why=f"this process is stale: {why}")
        os._exit(NOT_AGAIN)

    def _watch_supervisor(self) -> None:
        sys.stdin.buffer.read()  # until it lets go
        if not self._stopping.is_set() and not self._folder.has_ended:
            self._record("orphaned")
            start_supervisor(self._run_folder, self._folder.me)
        os._exit(DIED)


def die() -> NoReturn:
    """With what was raised, to be started again: who misses one of its threads, or what it noted as done, is of no
    use any more."""
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(DIED)


def _die_of(thread: threading.ExceptHookArgs) -> None:
    try:
        threading.__excepthook__(thread)
    finally:
        sys.stderr.flush()
        os._exit(DIED)


def main(run: str, me: str) -> int:
    threading.excepthook = _die_of
    try:
        instance = InstanceProcess(RunFolder(Path(run)), me)
    except InvalidInput as error:  # the pipeline is not to be read, which may pass: somebody may be saving it
        print(f"error: {error}", file=sys.stderr, flush=True)
        return DIED
    except ElastreamError as error:  # refused: it has ended, or runs already
        print(f"error: {error}", file=sys.stderr, flush=True)
        return NOT_AGAIN
    try:
        return instance.run()
    except Exception:
        traceback.print_exc()
        return DIED


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the threads of the scaling module have nothing to finish
