"""Systems that are too large to be explored to the end, walked at random: by seed, with everything checked after
every event. What a walk does not meet it says nothing of; the explorer is for that, in small."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from elastream.decentralized.locks import LOCKS
from elastream.decentralized.protocol.instance import Instance
from experiments.checking.control_model import ControlModel
from experiments.checking.explorer import Model
from experiments.checking.protocol_model import LockedModel, May, ProtocolModel
from experiments.checking.random_runs import walk
from experiments.decentralized_setup import pipeline
from experiments.frame import Check, Progress, Report, experiment

_EVENTS = 1_000_000
_FIVE = pipeline("a", "b", "c", "d", "e")
_THREE = pipeline("a", "b", "c")
_ACTIVE = May(duplicate=2, leave=True)
_COPIES = May(duplicate=1, leave=True)
_KILLS = dict.fromkeys(("a/1", "a/2", "b/1", "b/2", "b/1.1", "c/1", "c/2"), 2)
_SLOWER = 10
"""A walk over a network that loses takes so many times as long for an event: it has that many fewer."""

_WALKS: Mapping[str, tuple[Callable[[], Model], int]] = {
    "protocol: five operators of four": (
        partial(ProtocolModel, Instance, _FIVE, dict.fromkeys("abcde", [_ACTIVE] * 4), newcomers=_COPIES),
        _EVENTS,
    ),
    **{
        f"under {kind}: five operators of three": (
            partial(LockedModel, make, _FIVE, dict.fromkeys("abcde", [_ACTIVE] * 3), newcomers=_COPIES),
            _EVENTS // _SLOWER,
        )
        for kind, make in LOCKS.items()
    },
    **{
        f"the control side under {kind}: three operators of two, a network that loses, kills": (
            partial(
                ControlModel,
                make,
                _THREE,
                dict.fromkeys("abc", [_ACTIVE] * 2),
                newcomers=_COPIES,
                kills=_KILLS,
            ),
            _EVENTS // _SLOWER,
        )
        for kind, make in LOCKS.items()
    },
}


@experiment(
    "decentralized-walks",
    paper="Belkhiria's thesis, §3.3.4, §5.2",
    question="Do the protocols hold in systems that are too large to be explored?",
    minutes=15,
)
def run(tell: Progress) -> Report:
    checks = []
    for number, (name, (make, events)) in enumerate(_WALKS.items()):
        tell(name, number / len(_WALKS))
        found = walk(make, events=events)
        checks.append(
            Check(
                what=name,
                ours=f"{found.events:,} events in {found.runs:,} runs, up to {found.most_nodes} instances: "
                + (found.violation or "no violation"),
                paper="right",
                bound="no violation",
                holds=found.violation is None,
            )
        )
    return Report(checks=tuple(checks))
