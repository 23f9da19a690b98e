"""The master as a whole: agents' rounds go to the manager, which evaluates the rules and acts through the adaptor.

The manager's store keeps what the rules have seen, the sizes, guard times and an action that is under way; a
master that is killed and started again in the same folder goes on with them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elastream.agents.adaptor import Adaptor, ReportedSizes
from elastream.agents.master import Master
from elastream.agents.master_server import Endpoint, MasterServer
from elastream.agents.monitored import MonitoredEngine
from elastream.agents.rounds import Late, Round, Tell
from elastream.agents.subscription import Subscription
from elastream.errors import ElastreamError
from elastream.manager.events import LATE_READING, Event, event_to_json
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager, WallClock
from elastream.manager.store import Store
from elastream.measurement import Snapshot
from elastream.measurement.recording import RecordingWriter, snapshot_line
from elastream.policies.by_rules import Rules

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.2


def _nothing(_: object) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class MasterOptions:
    folder: Path
    """For the state and the recording."""
    endpoint: Endpoint
    token: str = ""
    views: frozenset[str] = frozenset()
    """Metrics to ask for although no rule looks at them."""
    duration_s: float = float("inf")
    record: bool = False
    """Every round, not only what happened: with many agents that is gigabytes a day."""


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Whoever looks on: all of it is called by the thread that runs the master."""

    on_event: Callable[[Event], None] = _nothing
    on_snapshot: Callable[[Snapshot], None] = _nothing
    on_evaluated: Callable[[Round], None] = _nothing


class MasterRun:
    def __init__(
        self,
        rules: Rules,
        knobs: Knobs,
        adaptor: Adaptor,
        options: MasterOptions,
        watcher: Watcher = Watcher(),  # noqa: B008 - it is frozen
    ) -> None:
        self._options = options
        self._watcher = watcher
        self.clock = WallClock()
        """`stopped` ends the run."""
        self._adaptor = adaptor
        self._engine = MonitoredEngine(adaptor, self.clock)
        self._subscription = Subscription(rules=rules.rules, views=options.views)
        self.server = MasterServer(
            Master(
                interval_s=knobs.interval_s,
                now_s=time.monotonic(),
                token=options.token,
                subscription=self._subscription,
                operators=self._operators(),
            ),
            options.endpoint,
        )
        self._rules, self._knobs = rules, knobs
        self._records = True
        """Until the recording cannot be written."""

    def run(self, on_listening: Callable[[Endpoint], None] = _nothing) -> None:
        """Until its time is over, or until someone sets `clock.stopped`."""
        with (
            _folder_of_one(self._options.folder),
            Store(self._options.folder / "master.db") as store,
            RecordingWriter(self._options.folder / "recording.jsonl") as recording,
        ):
            manager = self._manager(store, recording)
            self._note_original_sizes(manager)
            manager.start()
            self.server.start()
            on_listening(self.server.endpoint)
            try:
                self._watch(manager, recording)
            finally:
                self.server.stop()
                self._log_news(recording)

    def _manager(self, store: Store, recording: RecordingWriter) -> Manager:
        def on_snapshot(snapshot: Snapshot) -> None:
            if self._options.record:
                self._record(recording, snapshot_line(snapshot))
            self._watcher.on_snapshot(snapshot)

        def on_event(event: Event) -> None:
            if event.event != "proposed":
                self._record(recording, event_to_json(event))
            self._watcher.on_event(event)

        return Manager(
            engine=self._engine,
            policy=self._rules,
            knobs=self._knobs,
            clock=self.clock,
            store=store,
            on_snapshot=on_snapshot,
            on_event=on_event,
        )

    def _record(self, recording: RecordingWriter, line: Mapping[str, Any]) -> None:
        """A disk that is full ends the recording, not the scaling."""
        try:
            recording.write(line)
        except ElastreamError as error:
            if self._records:
                _log.warning("%s", error)
            self._records = False

    def _watch(self, manager: Manager, recording: RecordingWriter) -> None:
        until_s = self.clock.steady() + self._options.duration_s
        while not self.clock.stopped.is_set() and self.clock.steady() < until_s:
            found = self.server.next_round(_LOOK_EVERY_S)
            self._log_news(recording)
            if found is not None:
                self._evaluate(manager, found)

    def _evaluate(self, manager: Manager, found: Round) -> None:
        self._engine.take(found)
        if isinstance(self._adaptor, ReportedSizes):
            self._adaptor.see(found.readings)
        self._note_original_sizes(manager)
        manager.tick()
        self._subscribe(manager)
        self.server.evaluated(found)
        self._watcher.on_evaluated(found)

    def _note_original_sizes(self, manager: Manager) -> None:
        # the manager hears it too when the adaptor does not answer, and tells it
        with suppress(ElastreamError):
            manager.state = self._engine.knowing_original_sizes(manager.state)

    def _subscribe(self, manager: Manager) -> None:
        """Rules that were changed, or operators that came or went, change what is wanted of agents."""
        assert isinstance(manager.policy, Rules), "a renewal of rules is rules"
        subscription = Subscription(rules=manager.policy.rules, views=self._options.views)
        operators = self._operators()
        if subscription != self._subscription or operators != self.server.master.operators:
            self._subscription = subscription
            self.server.subscribe(subscription, operators)

    def _operators(self) -> frozenset[str] | None:
        """None where any is welcome, or where the engine does not say."""
        if isinstance(self._adaptor, ReportedSizes):
            return None
        try:
            return frozenset(self._engine.plan())
        except ElastreamError:
            return None

    def _log_news(self, recording: RecordingWriter) -> None:
        for item in self.server.news():
            match item:
                case Tell(text=text, warning=warning):
                    _log.log(logging.WARNING if warning else logging.INFO, "%s", text)
                case Late(reading=reading):
                    self._record(recording, {"event": LATE_READING, **asdict(reading)})


@contextmanager
def _folder_of_one(folder: Path) -> Iterator[None]:
    """Two masters that act on one engine, each by its own guard times, would undo what the other does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise ElastreamError(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        _take(lock, folder)
        yield
    finally:
        os.close(lock)


def _take(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ElastreamError(f"{folder}: another master uses this folder") from None
