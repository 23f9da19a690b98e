"""What the tests of the server share: a simulated word count behind a real server on a free port of loopback.

The manager runs in a thread, with an interval so long that only what is asked for happens; windows and events that
a test wants shown it feeds itself.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from elastream.engines.simulated.engine import SimulatedEngine
from elastream.engines.simulated.scenario import read_scenario
from elastream.engines.simulated.simulation import Simulation, simulate
from elastream.manager.events import Event, event_to_json
from elastream.manager.inbox import Inbox
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager, WallClock
from elastream.measurement import Snapshot
from elastream.measurement.recording import RecordingWriter, snapshot_line
from elastream.policies.by_rules import Rules
from elastream.policies.ds2 import DS2
from elastream.showing.as_views import option_views
from elastream.showing.views import ConfigurationView
from elastream.web.actions import Acting
from elastream.web.address import Address
from elastream.web.feed import Feed
from elastream.web.rules_file import RulesFile
from elastream.web.server import Server
from elastream.web.tokens import Tokens
from tests.patience import PATIENCE_S, wait_until

SCENARIO = read_scenario(Path(__file__).parents[2] / "examples" / "wordcount.yaml")
TOKEN = "open sesame"
WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}


def eventually(what: str, holds: Callable[[], bool]) -> None:
    wait_until(holds, what)


def word_count(minutes: float = 10.0) -> Simulation:
    return simulate(SCENARIO.model, DS2(), Knobs(interval_s=10.0), duration_s=60 * minutes)


def in_order(run: Simulation) -> list[Snapshot | Event]:
    """As they happened: the events of a window after it."""
    return sorted([*run.snapshots, *run.events], key=lambda happened: happened.at_s)


def line_of(happened: Snapshot | Event) -> Mapping[str, Any]:
    return snapshot_line(happened) if isinstance(happened, Snapshot) else event_to_json(happened)


def write(path: Path, happened: Sequence[Snapshot | Event]) -> None:
    """Add them to a recording."""
    with RecordingWriter(path) as recording:
        for one in happened:
            recording.write(line_of(one))


def show(feed: Feed, happened: list[Snapshot | Event]) -> None:
    for one in happened:
        if isinstance(one, Snapshot):
            feed.snapshot(one)
        else:
            feed.event(one)


@dataclass(frozen=True, kw_only=True)
class Served:
    server: Server
    feed: Feed
    inbox: Inbox
    engine: SimulatedEngine
    manager: Manager
    client: httpx.Client


@contextmanager
def served(
    *,
    rules: Path | None = None,
    address: Address = Address(port=0),  # noqa: B008
    tokens: Tokens | None = None,
    verify: ssl.SSLContext | bool = True,
) -> Iterator[Served]:
    """A run with nothing shown yet; what is asked for is carried out."""
    feed, clock, engine = Feed("word count"), WallClock(), SimulatedEngine(SCENARIO.model)
    inbox, knobs = Inbox(clock.wake), Knobs(interval_s=3_600.0)
    policy = DS2() if rules is None else Rules(file=str(rules), dataflow=engine.graph())
    file = None if rules is None else RulesFile(path=rules, dataflow=engine.graph())
    manager = Manager(engine=engine, policy=policy, knobs=knobs, clock=clock, on_event=feed.event, inbox=inbox)
    thread = threading.Thread(target=lambda: manager.run(until_s=1e12, stopped=clock.stopped.is_set), daemon=True)
    configuration = ConfigurationView(
        pipeline="word count",
        shown="simulation",
        policy="ds2" if rules is None else "rules",
        options=option_views(policy),
        knobs=option_views(knobs),
        acts=True,
    )
    acting, tokens = Acting(inbox=inbox, rules=file), tokens or Tokens(TOKEN)
    with (
        Server(feed, configuration, address, acting=acting, tokens=tokens) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_S, verify=verify) as client,
    ):
        thread.start()
        try:
            yield Served(server=server, feed=feed, inbox=inbox, engine=engine, manager=manager, client=client)
        finally:
            clock.stop()
            thread.join(PATIENCE_S)
