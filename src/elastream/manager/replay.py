"""Replay: what a policy and these knobs would have said to windows that were recorded earlier.

Nothing is acted upon, so every window is judged with the parallelism that was then in force.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from elastream.dataflow import Change
from elastream.manager.events import Decided, Event
from elastream.manager.knobs import Knobs
from elastream.manager.state import initial_state
from elastream.manager.step import Measured, step
from elastream.measurement import Snapshot
from elastream.policies.catalog import Policy


def replay(snapshots: Iterable[Snapshot], policy: Policy, knobs: Knobs) -> tuple[Event, ...]:
    """The events of every window; a decision that is the same as in the window before is told only once."""
    rehearsal = replace(knobs, dry_run=True)
    state = initial_state(rehearsal)
    events: list[Event] = []
    last: tuple[Change, ...] | None = None
    for snapshot in snapshots:
        # whether a decision was told before is judged here: the parallelism in force changes between windows
        result = step(
            replace(state, last_dry_run=None), Measured(snapshot=snapshot), policy=policy, knobs=rehearsal
        )
        state = result.state
        changes = next((event.decision.changes for event in result.events if isinstance(event, Decided)), None)
        events.extend(event for event in result.events if not isinstance(event, Decided) or changes != last)
        last = changes
    return tuple(events)
