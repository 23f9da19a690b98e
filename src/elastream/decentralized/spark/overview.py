"""What a run looks like from outside: read from the folders of its instances, which do not notice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elastream.decentralized.protocol.control import control_from_json
from elastream.decentralized.protocol.instance import InstancePhase
from elastream.decentralized.protocol.messages import Address, operator_of
from elastream.decentralized.spark.events import last_event
from elastream.decentralized.spark.folders import InstanceFolder, RunFolder, read_whole
from elastream.decentralized.spark.inbox import InstanceInbox

COUNTED = (InstancePhase.RUNNING, InstancePhase.DUPLICATING)
"""An instance counts from its start until it decides to leave."""


@dataclass(frozen=True, kw_only=True)
class InstanceView:
    address: Address
    phase: InstancePhase
    waits_for_locks: bool
    incarnation: int
    arrived: int
    """Records from all senders that are still there."""
    pending: int

    @property
    def operator(self) -> str:
        return operator_of(self.address)


def look(run: RunFolder) -> list[InstanceView]:
    """Every instance that has not ended."""
    found = (_view(folder) for folder in run.instances() if not folder.has_ended)
    return [view for view in found if view is not None]


def counts(views: Sequence[InstanceView]) -> dict[str, int]:
    """How many instances of each operator run."""
    found: dict[str, int] = {}
    for view in views:
        found[view.operator] = found.get(view.operator, 0) + (view.phase in COUNTED)
    return found


def _view(folder: InstanceFolder) -> InstanceView | None:
    journal = read_whole(folder.journal)
    if journal is None:
        return None
    state = control_from_json(journal)
    arrived, pending = _input(folder)
    return InstanceView(
        address=folder.me,
        phase=state.instance.phase,
        waits_for_locks=state.waits_for_locks,
        incarnation=state.incarnation,
        arrived=arrived,
        pending=pending,
    )


def _input(folder: InstanceFolder) -> tuple[int, int]:
    """Records that have arrived, and of those the ones to do: from the inbox, or as the instance told it last."""
    if folder.inbox.exists():
        inbox = InstanceInbox(sorted(folder.inbox.glob("*")))
        return sum(one.records for one in inbox.arrived().values()), inbox.pending()
    told = last_event(folder.metrics) or {}
    return int(told.get("received", 0)), int(told.get("pending", 0))
