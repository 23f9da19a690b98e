"""The scaling protocol of a living instance: the third part of its scaling module (the thesis, Figure 4.1).

It holds the state of `control.py` under one lock, and its journal. Every change is written down before anybody
else can see it. Records are shared out under the same lock, so that a view never changes in the middle of a
batch, and what was sent to a successor that leaves is in its inbox before that is acknowledged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.protocol.control import (
    Controller,
    ControlState,
    Turn,
    control_from_json,
    control_to_json,
)
from elastream.decentralized.protocol.instance import Bereavement, InstancePhase, InstanceState
from elastream.decentralized.protocol.link import Body, Envelope
from elastream.decentralized.protocol.messages import Address, Effect, Flush
from elastream.decentralized.spark.folders import InstanceFolder, read_whole, write_whole
from elastream.decentralized.spark.outbox import Outbox
from elastream.decentralized.spark.settings import is_first

Record = Callable[..., None]
"""Told what happened: an event and its fields."""


class LivingProtocol:
    def __init__(
        self,
        controller: Controller,
        folder: InstanceFolder,
        outbox: Outbox,
        *,
        carry_out: Callable[[Effect], None],
        record: Record,
    ) -> None:
        self.me = controller.place.me
        self.on_news: Callable[[], None] = lambda: None
        """Called when there may be something to send."""
        self.records_sent = 0
        self._controller = controller
        self._journal = folder.journal
        self._outbox = outbox
        self._carry_out = carry_out
        self._record = record
        self._lock = threading.RLock()
        found = read_whole(self._journal)
        self._state = controller.initial(is_first(self.me)) if found is None else control_from_json(found)

    def begin(self) -> None:
        """Raises where this instance has ended: it does not come back."""
        with self._lock:
            turn = self._controller.begin(self._state)
            self._outbox.finish()  # before anything is said: it may be what an acknowledgement stands for
            self._take(turn)

    @property
    def state(self) -> InstanceState:
        return self._state.instance

    @property
    def incarnation(self) -> int:
        return self._state.incarnation

    @property
    def may_decide(self) -> bool:
        """Whether it is neither changing nor waiting for its turn to."""
        return self.state.phase is InstancePhase.RUNNING and not self._state.waits_for_locks

    @property
    def has_said_all(self) -> bool:
        return self._state.all_said

    # What the instance itself decides

    def duplicate(self, times: int) -> None:
        with self._lock:
            self._take(self._controller.duplicate(self._state, times))

    def leave(self) -> None:
        with self._lock:
            self._take(self._controller.leave(self._state))

    def drained(self) -> None:
        with self._lock:
            self._take(self._controller.drained(self._state))

    # What becomes of others

    def watched(self) -> frozenset[Address]:
        """Who is to be suspected where it cannot be reached."""
        with self._lock:
            return self._controller.watched(self._state)

    def suspect(self, missing: Address) -> None:
        with self._lock:
            self._record("suspects", instance=missing)
            self._take(self._controller.suspect(self._state, missing))

    def left_behind(self) -> list[Address]:
        """Whose records are to be taken over now."""
        return [one.dead for one in self.state.estates if one.stage is Bereavement.TAKING_OVER]

    def taken_over(self, dead: Address) -> None:
        with self._lock:
            self._record("took over", instance=dead)
            self._take(self._controller.taken_over(self._state, dead))

    # Records

    def send_records(self, batch: int, records: pa.Table, came_s: float) -> None:
        with self._lock:
            if not self.state.sends_records:
                raise IllegalEvent(f"{self.me!r} is {self.state.phase} and sends no records")
            self._outbox.send(batch, records, self.state.successors, came_s=came_s)
            self.records_sent += records.num_rows

    def tell_quiet(self, until_s: float) -> None:
        """All that had come into the pipeline by then is on its way to the successors."""
        with self._lock:
            if self.state.sends_records:
                self._outbox.tell_quiet(until_s, self.state.successors)

    # What comes over connections

    def greeted(self, sender: Address, receiver: Address, incarnation: int) -> int:
        """The number of the last message that was taken in from this sender."""
        with self._lock:
            state = self._controller.greeted(self._state, sender, receiver, incarnation)
            if state != self._state:
                self._keep(state)
            return state.incoming[sender].taken

    def received(self, sender: Address, incarnation: int, number: int, body: Body) -> None:
        with self._lock:
            self._state.incoming[sender].greeted(incarnation)  # a newer start may have come in between
            turn = self._controller.received(self._state, sender, number, body)
            if turn.refused:
                self._record("refused", sender=sender, message=body, why=turn.refused)
            self._take(turn)

    def acknowledged(self, receiver: Address, number: int) -> None:
        with self._lock:  # not written down: a message that is sent again is dropped
            self._state = self._controller.acknowledged(self._state, receiver, number)

    def given_up(self, receiver: Address) -> None:
        with self._lock:
            self._state = self._controller.given_up(self._state, receiver)

    def forget_ended(self, has_ended: Callable[[Address], bool]) -> None:
        """The journal, which is written for every message, knows those only that may still say something."""
        with self._lock:
            if ended := [address for address in self._state.former if has_ended(address)]:
                self._keep(self._controller.forgotten(self._state, ended))

    def waiting(self) -> Mapping[Address, tuple[Envelope, ...]]:
        """What is to be sent to whom."""
        with self._lock:
            return {receiver: link.waiting for receiver, link in self._state.outgoing.items() if link.waiting}

    # Their parts

    def _take(self, turn: Turn) -> None:
        before, waited = self.state.phase, self._state.waits_for_locks
        for effect in turn.effects:
            if isinstance(effect, Flush):
                self._outbox.finish()
        self._keep(turn.state)
        if turn.state.instance.phase is not before:
            self._tell_phase(turn.state.instance)
        if turn.state.waits_for_locks and not waited:
            self._record("waits", why="for the locks between neighbouring operators")
        if turn.dropped:
            self._record("dropped", why=turn.dropped)
        for effect in turn.effects:
            self._carry_out(effect)
        self.on_news()

    def _keep(self, state: ControlState) -> None:
        write_whole(self._journal, control_to_json(state))
        self._state = state

    def _tell_phase(self, state: InstanceState) -> None:
        told: dict[str, Any] = {"phase": state.phase}
        if state.phase is InstancePhase.DUPLICATING:
            told["newcomers"] = list(state.newcomers)
        self._record("phase", **told)
