"""The master as a whole: agents' rounds go to the manager, which evaluates the rules and acts through the adaptor.

The manager's store keeps what the rules have seen, the sizes, guard times and an action that is under way; a
master that is killed and started again in the same folder goes on with them. Of several masters in one folder the
one that holds the lease leads, and the others stand by.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from elastream.agents.adaptor import Adaptor, ReportedSizes
from elastream.agents.lease import HeldLease, Lease, LeaseError
from elastream.agents.master import Master
from elastream.agents.master_server import Endpoint, MasterServer
from elastream.agents.monitored import MonitoredEngine
from elastream.agents.prometheus_queries import PrometheusQueries
from elastream.agents.rounds import Counts, Round
from elastream.agents.sqlite_lease import SqliteLease
from elastream.agents.subscription import Subscription
from elastream.errors import ElastreamError
from elastream.manager.events import Event, Proposed, event_to_json
from elastream.manager.inbox import Inbox
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager, WallClock, boot_of_this_machine
from elastream.manager.store import Store
from elastream.measurement import Snapshot
from elastream.measurement.recording import snapshot_line
from elastream.measurement.steady_recording import SteadyRecording
from elastream.policies.by_rules import Rules
from elastream.policies.proposal import Proposal, ReasonKind
from elastream.policies.rules.metrics import query_in

_log = logging.getLogger(__name__)

STATE = "master.db"
"""The file in the folder with the manager's state and the lease."""
_LOOK_EVERY_S = 0.2
_LEASE_INTERVALS = 1.5
_LEAST_LEASE_S = 5.0  # a busy machine may hold up the renewal for seconds; a killed master is noticed at once


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
    standby: bool = False
    """Where another master leads, wait for its end instead of giving up."""
    prometheus: str | None = None
    """The server that is asked what rules name as queries."""
    lease_s: float | None = None
    """After so long without a sign of life another takes over; 1.5 intervals, at least 5 s, if not given."""


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
        watcher: Watcher = Watcher(),
        inbox: Inbox | None = None,
    ) -> None:
        self._inbox = inbox
        self._options = options
        self._watcher = watcher
        self.clock = WallClock()
        """`stopped` ends the run."""
        self._adaptor = adaptor
        self._engine = MonitoredEngine(adaptor, self.clock)
        self._subscription = Subscription(rules=rules.rules, views=options.views)
        self._rules, self._knobs = rules, knobs
        self.server = self._new_server()
        """Of the term that it leads in, or led in last."""
        prometheus = options.prometheus
        self._queries = None if prometheus is None else PrometheusQueries(prometheus, knobs.interval_s)
        self._unbrought: set[str] = set()
        """What nobody brings, as it was told."""
        self._lease_s = options.lease_s or max(_LEAST_LEASE_S, _LEASE_INTERVALS * knobs.interval_s)

    def run(self, on_listening: Callable[[Endpoint], None] = _nothing) -> None:
        """Until its time is over, or until someone sets `clock.stopped`.

        It leads while it holds the lease; one that has lost it waits until it is its turn again.
        """
        until_s = self.clock.steady() + self._options.duration_s
        folder = self._options.folder
        self._ask_for(self._subscription)
        if self._queries is not None:
            self._queries.start()
        with closing(SqliteLease(folder / STATE)) as leases:
            while (lease := self._elected(leases, until_s)) is not None:
                with HeldLease(leases, lease, lasts_s=self._lease_s) as held:
                    try:
                        self._lead(leases, held, until_s, on_listening)
                    except (ElastreamError, OSError) as error:
                        if leases.is_there():
                            raise
                        _log.warning("the folder went away: %s", error)
                if self.clock.stopped.is_set() or self.clock.steady() >= until_s:
                    return
                leases.stand_back()
                _log.warning("leads no longer (term %d): %s", lease.term, held.why_not)
                self.server = self._new_server(self.server.master.counts)

    def _new_server(self, counts: Counts | None = None) -> MasterServer:
        """Counts are those of all terms together."""
        master = Master(
            interval_s=self._knobs.interval_s,
            now_s=time.monotonic(),
            token=self._options.token,
            subscription=self._subscription,
            operators=self._operators(),
            counts=counts,
        )
        return MasterServer(master, self._options.endpoint)

    def _elected(self, leases: SqliteLease, until_s: float) -> Lease | None:
        """The lease, once it is free; None where there is no time left to wait for it."""
        told = ""
        while not self.clock.stopped.is_set() and self.clock.steady() < until_s:
            try:
                lease = leases.take(f"{socket.gethostname()}/{os.getpid()}", lasts_s=self._lease_s)
                text = "" if lease is not None else self._standing_by(leases.holder())
            except LeaseError as error:
                lease, text = None, f"nobody can lead: {error}"
            if lease is not None:
                if self._options.standby:
                    _log.info("leads (term %d)", lease.term)
                return lease
            if text != told:
                _log.warning("%s", text)
            told = text
            if self._inbox is not None:
                self._inbox.refuse(text)
            self.clock.stopped.wait(min(_LOOK_EVERY_S, self._lease_s / 6))
        return None

    def _standing_by(self, holder: str) -> str:
        if not self._options.standby:
            folder = self._options.folder
            by = f" ({holder})" if holder else ""
            raise ElastreamError(f"{folder}: another master uses this folder{by}; --standby waits for its end")
        return f"{holder or 'another master'} leads, this one stands by"

    def _lead(
        self, leases: SqliteLease, held: HeldLease, until_s: float, on_listening: Callable[[Endpoint], None]
    ) -> None:
        """Until the time is over or the lease is lost. Nothing is written or done without it."""
        self._engine.before_acting = held.check
        with (
            Store(self._options.folder / STATE, fence=lambda db: leases.fence(db, held.lease)) as store,
            SteadyRecording(self._options.folder / "recording.jsonl") as recording,
        ):
            manager = self._manager(store, recording)
            if not self._started(manager, held, until_s):
                return
            self.server.start()
            on_listening(self.server.endpoint)
            try:
                self._watch(manager, held, until_s)
            finally:
                self.server.stop()
                self._log_news()
                if isinstance(manager.policy, Rules):
                    self._rules = manager.policy

    def _started(self, manager: Manager, held: HeldLease, until_s: float) -> bool:
        """One that takes over waits for an engine that does not answer; at a first start that may be a typo."""
        told = ""
        while not self.clock.stopped.is_set() and self.clock.steady() < until_s and held.is_held:
            try:
                self._note_original_sizes(manager)
                manager.start()
            except ElastreamError as error:
                if not self._options.standby:
                    raise
                if str(error) != told:
                    _log.warning("leads, but cannot begin yet: %s", error)
                told = str(error)
                self.clock.stopped.wait(min(_LOOK_EVERY_S, self._lease_s / 6))
            else:
                return True
        return False

    def _manager(self, store: Store, recording: SteadyRecording) -> Manager:
        def on_snapshot(snapshot: Snapshot) -> None:
            if self._options.record:
                recording.write(snapshot_line(snapshot))
            self._watcher.on_snapshot(snapshot)

        def on_event(event: Event) -> None:
            if isinstance(event, Proposed):
                self._tell_of_unbrought(event.proposal)
            else:
                recording.write(event_to_json(event))
            self._watcher.on_event(event)

        return Manager(
            engine=self._engine,
            policy=self._rules,
            knobs=self._knobs,
            clock=self.clock,
            store=store,
            on_snapshot=on_snapshot,
            on_event=on_event,
            inbox=self._inbox,
            boot=boot_of_this_machine(),
        )

    def _tell_of_unbrought(self, proposal: Proposal) -> None:
        """A metric that no agent brings is said once; the page has it with every proposal."""
        for reason in proposal.reasons:
            if reason.kind is ReasonKind.NO_DATA and reason.text not in self._unbrought:
                self._unbrought.add(reason.text)
                _log.warning("%s", reason.text)

    def _watch(self, manager: Manager, held: HeldLease, until_s: float) -> None:
        while not self.clock.stopped.is_set() and self.clock.steady() < until_s and held.is_held:
            found = self.server.next_round(min(_LOOK_EVERY_S, self._lease_s / 6))
            self._log_news()
            if held.is_held:
                manager.attend()
            if found is not None and held.is_held:
                self._evaluate(manager, found)

    def _evaluate(self, manager: Manager, found: Round) -> None:
        if self._queries is not None:
            operators = self._operators() or frozenset(reading.operator for reading in found.readings)
            found = found.with_values({name: self._queries.values(name) for name in operators})
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
            self._ask_for(subscription)

    def _ask_for(self, subscription: Subscription) -> None:
        queries = [metric for metric in subscription.rules.metrics if query_in(metric) is not None]
        if self._queries is not None:
            self._queries.ask_for(queries)
        elif queries:
            _log.warning("nobody is asked for %s: a Prometheus server was not given", ", ".join(sorted(queries)))

    def _operators(self) -> frozenset[str] | None:
        """None where any is welcome, or where the engine does not say."""
        if isinstance(self._adaptor, ReportedSizes):
            return None
        try:
            return frozenset(self._engine.plan())
        except ElastreamError:
            return None

    def _log_news(self) -> None:
        for told in self.server.news():
            _log.log(logging.WARNING if told.warning else logging.INFO, "%s", told.text)
