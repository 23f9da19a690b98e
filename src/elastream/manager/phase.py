"""The phases of the manager and every way from one to another.

docs/manager.md has the diagram, which is drawn from the table below.

A trigger that the table does not have for a phase is a mistake in the program: it raises, and the state stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from elastream.errors import ElastreamError


class ManagerPhase(StrEnum):
    WARMING_UP = "warming up"
    OBSERVING = "observing"
    ACTIVATING = "activating"
    RESCALING = "rescaling"
    VERIFYING = "verifying"
    ROLLED_BACK = "rolled back"
    GIVEN_UP = "given up"


class PhaseTrigger(StrEnum):
    STARTED = "started"
    WARMED_UP = "warmed up"
    WARMED_UP_AFTER_ACTION = "warmed up after an action"
    WARMED_UP_AFTER_ROLLBACK = "warmed up after a rollback"
    CHANGE_WANTED = "a change is wanted"
    NOTHING_WANTED = "no change is wanted"
    DECIDED = "decided"
    ACTION_ENDED = "the action ended"
    HALF_DONE = "the action was only half done"
    JUDGED = "judged"
    LIMIT_REACHED = "the limit of useless actions is reached"
    LOAD_CHANGED = "the load changed"
    ASKED_FOR = "asked for by hand"


class IllegalTransition(ElastreamError):  # noqa: N818
    def __init__(self, phase: ManagerPhase, trigger: PhaseTrigger) -> None:
        super().__init__(f"nothing leads from the phase '{phase}' on '{trigger}'")


_P, _T = ManagerPhase, PhaseTrigger

TRANSITIONS: Mapping[tuple[ManagerPhase, PhaseTrigger], ManagerPhase] = {
    (_P.WARMING_UP, _T.WARMED_UP): _P.OBSERVING,
    (_P.WARMING_UP, _T.WARMED_UP_AFTER_ACTION): _P.VERIFYING,
    (_P.WARMING_UP, _T.WARMED_UP_AFTER_ROLLBACK): _P.ROLLED_BACK,
    (_P.OBSERVING, _T.NOTHING_WANTED): _P.OBSERVING,
    (_P.OBSERVING, _T.CHANGE_WANTED): _P.ACTIVATING,
    (_P.OBSERVING, _T.DECIDED): _P.RESCALING,
    (_P.ACTIVATING, _T.NOTHING_WANTED): _P.OBSERVING,
    (_P.ACTIVATING, _T.CHANGE_WANTED): _P.ACTIVATING,
    (_P.ACTIVATING, _T.DECIDED): _P.RESCALING,
    (_P.RESCALING, _T.ACTION_ENDED): _P.WARMING_UP,
    (_P.RESCALING, _T.HALF_DONE): _P.RESCALING,  # it is undone
    (_P.VERIFYING, _T.NOTHING_WANTED): _P.VERIFYING,  # not sure yet; proposals are collected meanwhile
    (_P.VERIFYING, _T.CHANGE_WANTED): _P.VERIFYING,
    (_P.VERIFYING, _T.JUDGED): _P.OBSERVING,
    (_P.VERIFYING, _T.DECIDED): _P.RESCALING,  # a harmful action is taken back
    (_P.VERIFYING, _T.LIMIT_REACHED): _P.GIVEN_UP,
    (_P.ROLLED_BACK, _T.NOTHING_WANTED): _P.ROLLED_BACK,
    (_P.ROLLED_BACK, _T.CHANGE_WANTED): _P.ROLLED_BACK,
    (_P.ROLLED_BACK, _T.DECIDED): _P.RESCALING,
    (_P.ROLLED_BACK, _T.LOAD_CHANGED): _P.OBSERVING,
    (_P.GIVEN_UP, _T.NOTHING_WANTED): _P.GIVEN_UP,
    (_P.GIVEN_UP, _T.CHANGE_WANTED): _P.GIVEN_UP,
    (_P.GIVEN_UP, _T.LOAD_CHANGED): _P.OBSERVING,
    # someone asks for an action, whatever the manager thinks of it; only not while another is under way
    (_P.WARMING_UP, _T.ASKED_FOR): _P.RESCALING,
    (_P.OBSERVING, _T.ASKED_FOR): _P.RESCALING,
    (_P.ACTIVATING, _T.ASKED_FOR): _P.RESCALING,
    (_P.VERIFYING, _T.ASKED_FOR): _P.RESCALING,
    (_P.ROLLED_BACK, _T.ASKED_FOR): _P.RESCALING,
    (_P.GIVEN_UP, _T.ASKED_FOR): _P.RESCALING,
    # a restart of the manager begins anew, but for an action that was under way
    (_P.WARMING_UP, _T.STARTED): _P.WARMING_UP,
    (_P.OBSERVING, _T.STARTED): _P.WARMING_UP,
    (_P.ACTIVATING, _T.STARTED): _P.WARMING_UP,
    (_P.VERIFYING, _T.STARTED): _P.WARMING_UP,
    (_P.ROLLED_BACK, _T.STARTED): _P.WARMING_UP,
    (_P.GIVEN_UP, _T.STARTED): _P.GIVEN_UP,
    (_P.RESCALING, _T.STARTED): _P.RESCALING,
}


def following(phase: ManagerPhase, trigger: PhaseTrigger) -> ManagerPhase:
    try:
        return TRANSITIONS[phase, trigger]
    except KeyError:
        raise IllegalTransition(phase, trigger) from None
