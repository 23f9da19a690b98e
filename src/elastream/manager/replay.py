"""Replay: what a policy and these knobs would have said to windows that were recorded earlier.

Nothing is acted upon, so every window is judged with the parallelism that was then in force.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from elastream.manager.events import Event
from elastream.manager.knobs import Knobs
from elastream.manager.state import initial_state
from elastream.manager.step import Measured, step
from elastream.monitor import Snapshot
from elastream.policies.catalog import Policy


def replay(snapshots: Iterable[Snapshot], policy: Policy, knobs: Knobs) -> tuple[Event, ...]:
    rehearsal = replace(knobs, dry_run=True)
    state = initial_state(rehearsal)
    events: list[Event] = []
    for snapshot in snapshots:
        result = step(state, Measured(snapshot=snapshot), policy=policy, knobs=rehearsal)
        state = result.state
        events.extend(result.events)
    return tuple(events)
