"""A run to look at: a simulated word count under a manager, with its page; time passes when a test lets it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from elastream.arrivals.load import Load, Steps
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated import EngineModel, OperatorModel, PowerLaw, SimulatedEngine, SourceModel
from elastream.errors import ElastreamError
from elastream.manager.inbox import Inbox
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager
from elastream.measurement import Snapshot
from elastream.policies.catalog import Policy, create
from elastream.showing.as_views import option_views
from elastream.showing.views import ConfigurationView
from elastream.testing import chain
from elastream.web.actions import Acting
from elastream.web.address import Address
from elastream.web.feed import Feed
from elastream.web.rules_file import RulesFile
from elastream.web.server import Server
from elastream.web.tokens import Tokens

TOKEN = "a-token-of-the-tests"
INTERVAL_S = 10.0
PER_INSTANCE = {"words": 100.0, "counts": 400.0}
SELECTIVITY = 5.0
PATIENCE_S = 120.0


class GrantedClock:
    """The engine's own time, of which an interval passes only when the test grants it."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._changed = threading.Condition()
        self._granted = 0
        self._woken = self._stopped = self._resting = False

    def now(self) -> float:
        return self._engine.now()

    def steady(self) -> float:
        return self._engine.steady()

    def wait(self, seconds: float) -> None:
        with self._changed:
            self._resting = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._granted or self._woken or self._stopped)
            self._resting = False
            if self._woken or self._stopped:
                self._woken = False
                return
            self._granted -= 1
        self._engine.wait(seconds)

    def wake(self) -> None:
        self._set(lambda: setattr(self, "_woken", True))

    def stop(self) -> None:
        self._set(lambda: setattr(self, "_stopped", True))

    @property
    def stopped(self) -> bool:
        return self._stopped

    def pass_intervals(self, count: int) -> None:
        """And wait until the manager has done what follows from them."""
        with self._changed:
            self._granted += count
            self._changed.notify_all()
            done = self._changed.wait_for(
                lambda: (self._granted == 0 and self._resting) or self._stopped, PATIENCE_S
            )
        assert done, "the manager does not come to rest"

    def _set(self, change: Callable[[], None]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()


class SimulatedRun:
    """`with SimulatedRun() as run:` its page is at `run.url`; `run.pass_intervals(3)` lets three windows come."""

    def __init__(
        self,
        *,
        load: Load | None = None,
        policy: Policy | None = None,
        rules: Path | None = None,
        names: tuple[str, str, str] = ("sentences", "words", "counts"),
        port: int = 0,
        tokens: Tokens | None = None,
    ) -> None:
        self.engine = SimulatedEngine(word_count(load or Steps(steps=((0.0, 350.0),)), names))
        self.knobs = Knobs(interval_s=INTERVAL_S)
        self.policy = policy or create("ds2", {"target_utilization": 0.8, "catch_up_s": 600.0})
        self.clock = GrantedClock(self.engine)
        self.snapshots: list[Snapshot] = []
        self._inbox = Inbox(self.clock.wake)
        self.feed = Feed("word count")
        self._manager = Manager(
            engine=self.engine,
            policy=self.policy,
            knobs=self.knobs,
            clock=self.clock,
            on_snapshot=self._measured,
            on_event=self.feed.event,
            inbox=self._inbox,
        )
        rules_file = None if rules is None else RulesFile(path=rules, dataflow=self.engine.graph())
        self._server = Server(
            self.feed,
            ConfigurationView(
                pipeline="word count",
                shown="simulation",
                policy="ds2" if rules is None else "rules",
                options=(),
                knobs=option_views(self.knobs),
                rules_file=None if rules is None else rules.name,
                acts=True,
            ),
            Address(port=port),
            acting=Acting(inbox=self._inbox, rules=rules_file),
            tokens=tokens or Tokens(TOKEN),
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._server.__enter__()
        self._thread.start()
        self.clock.pass_intervals(0)
        return self

    def __exit__(self, *_: object) -> None:
        self.clock.stop()
        self._thread.join(PATIENCE_S)
        self._server.__exit__(None, None, None)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def port(self) -> int:
        return self._server.port

    def pass_intervals(self, count: int) -> None:
        self.clock.pass_intervals(count)

    def _measured(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        self.feed.snapshot(snapshot)

    def _run(self) -> None:
        try:
            self._manager.run(until_s=float("inf"), stopped=lambda: self.clock.stopped)
        except ElastreamError as error:  # tests wait for what does not come then, and say what they see
            print(f"the manager ended: {error}")


def word_count(load: Load, names: tuple[str, str, str]) -> EngineModel:
    source, words, counts = names
    return EngineModel(
        dataflow=Dataflow.of(
            (
                Operator(name=source, source=True),
                Operator(name=words, max_parallelism=16),
                Operator(name=counts, state_partitions=12),
            ),
            chain(*names),
        ),
        operators={
            words: OperatorModel(
                capacity=PowerLaw(per_instance_per_s=PER_INSTANCE["words"]),
                selectivity=SELECTIVITY,
                queue_records=20_000,
            ),
            counts: OperatorModel(
                capacity=PowerLaw(per_instance_per_s=PER_INSTANCE["counts"]), queue_records=100_000
            ),
        },
        sources={source: SourceModel(load=load)},
        initial_plan=Plan({words: 2, counts: 2}),
        downtime_s=1.0,
    )
