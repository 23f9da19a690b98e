"""Every interleaving of small systems: what the printed pseudo-code does wrong, and that the mended forms do not.

The thesis sketches why its protocols are right and says that a proof is missing. This is no proof either, but it
leaves nothing out for these sizes: each configuration is explored to its end, or says that it was not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.locks import LOCKS, LockKind, Ra1, Ra2, TwoFgme
from elastream.decentralized.protocol.instance import Instance
from experiments.as_published.instance import InstanceAsPublished
from experiments.as_published.instance import Mend as ProtocolMend
from experiments.as_published.two_fgme import Mend as LockMend
from experiments.as_published.two_fgme import TwoFgmeAsPublished
from experiments.checking.control_model import ControlModel
from experiments.checking.explorer import Exploration, Model, explore
from experiments.checking.lock_model import LockModel
from experiments.checking.protocol_model import LockedModel, May, ProtocolModel
from experiments.checking.survivor_model import SurvivorModel
from experiments.decentralized_setup import pipeline
from experiments.frame import Check, Progress, Report, experiment

_D, _L, _BOTH, _N = May(duplicate=1), May(leave=True), May(duplicate=1, leave=True), May()
_AB, _ABC = pipeline("a", "b"), pipeline("a", "b", "c")
_DIAMOND = Dataflow.of(
    [Operator(name="s", source=True), *(Operator(name=name) for name in "abt")],
    [("s", "a"), ("s", "b"), ("a", "t"), ("b", "t")],
)
_MOST_WORLDS = 1_500_000


@dataclass(frozen=True, kw_only=True)
class _Case:
    name: str
    model: Callable[[], Model]
    fails: bool = False
    """It is the printed form, and a violation is what is to be found."""


def _lock(name: str, make: Callable[..., object], sizes: tuple[int, int], entries: int, **more: int) -> _Case:
    twice = f", {', '.join(more)} twice" if more else ""
    return _Case(
        name=f"{name}, {sizes[0]} and {sizes[1]}, {entries} {'entries' if entries > 1 else 'entry'} each{twice}",
        model=lambda: LockModel(make, sizes=sizes, entries=entries, more=more),  # type: ignore[arg-type]
        fails=make not in (TwoFgme, Ra1, Ra2),
    )


def _published_lock(*mends: LockMend) -> Callable[..., object]:
    return partial(TwoFgmeAsPublished, mends=frozenset(mends))


def _protocol(
    what: str, dataflow: Dataflow, plan: Mapping[str, Sequence[May]], newcomers: May, *mends: ProtocolMend | None
) -> _Case:
    published = [mend for mend in mends if mend is not None]
    make = partial(InstanceAsPublished, mends=frozenset(published)) if mends else Instance
    form = f" as published, {len(published)} mends" if mends else ""
    return _Case(
        name=f"protocol{form}: {what}",
        model=lambda: ProtocolModel(make, dataflow, plan, newcomers=newcomers),
        fails=bool(mends),
    )


def _control(
    kind: LockKind, what: str, dataflow: Dataflow, plan: Mapping[str, Sequence[May]], *killed: str, **options: Any
) -> _Case:
    kills = {name: killed.count(name) for name in killed}
    return _Case(
        name=f"the control side under {kind}: {what}",
        model=lambda: ControlModel(LOCKS[kind], dataflow, plan, kills=kills, **options),
    )


_LEAVE_AND_DUPLICATE = {"a": [_D], "b": [_N, _L]}


def _survivors(what: str, plan: Mapping[str, Sequence[May]], *mortal: str) -> _Case:
    flow = _ABC if len(plan) == 3 else _AB
    return _Case(
        name=f"dead for good: {what}",
        model=lambda: SurvivorModel(flow, plan, newcomers=_N, mortal=mortal),
    )


_RECORD = May(records=1)
_ONE_DUPLICATES = {"a": [_D], "b": [_N]}
_TWO_AND_TWO = {"a": [_BOTH, _L], "b": [_D, _L]}
_THREE = {"a": [_D], "b": [_N, _L], "c": [_N]}
_MANY: Mapping[str, Any] = {"newcomers": _N, "acknowledges": False}
"""No acknowledgement gets through: for systems that would be too large with the two ends of every link."""
_TWO_LEAVE = {"a": [_N], "b": [_N, _L], "c": [_N, _L]}
_SIDE, _ONE = ProtocolMend.SENDERS_OPERATOR, ProtocolMend.ONE_ACTION

CASES = (
    _lock("2-FGME as published", _published_lock(), (2, 1), 1),
    _lock("2-FGME as published", _published_lock(), (2, 2), 1),
    _lock("2-FGME, lines 65 and 85 first", _published_lock(LockMend.SUBTRACT_FIRST), (2, 1), 1),
    _lock("2-FGME, both obvious mends", _published_lock(*LockMend), (2, 1), 2),
    _lock("2-FGME", TwoFgme, (1, 1), 4),
    _lock("2-FGME", TwoFgme, (2, 1), 2),
    _lock("2-FGME", TwoFgme, (2, 2), 1),
    _lock("2-FGME", TwoFgme, (2, 2), 1, a1=2),
    _lock("2-FGME", TwoFgme, (2, 2), 1, b2=2),
    _lock("2-FGME", TwoFgme, (3, 1), 1),
    _lock("RA1", Ra1, (2, 1), 2),
    _lock("RA2", Ra2, (1, 1), 3),
    _lock("RA2", Ra2, (2, 1), 1),
    _lock("RA2", Ra2, (2, 1), 1, b1=2),
    _protocol("one leaves as a neighbour duplicates", _AB, _LEAVE_AND_DUPLICATE, _N, None),
    _protocol("neighbours duplicate", _AB, {"a": [_D], "b": [_D]}, _N, None),
    _protocol("one duplicates and leaves", _AB, {"a": [_N], "b": [_N, _BOTH]}, _N, _SIDE),
    _protocol("neighbours leave", _ABC, _TWO_LEAVE, _N, _SIDE, _ONE),
    _protocol("one leaves as a neighbour duplicates", _AB, _LEAVE_AND_DUPLICATE, _L),
    _protocol("neighbours duplicate, the new leave", _AB, {"a": [_D], "b": [_D]}, _L),
    _protocol("neighbours leave", _ABC, _TWO_LEAVE, _N),
    _protocol("two and two, each acts once", _AB, {"a": [_D, _L], "b": [_D, _L]}, _N),
    _protocol("three operators duplicate, the new leave", _ABC, {"a": [_D], "b": [_D], "c": [_D]}, _L),
    _protocol("1, 2, 2; the new leave", _ABC, {"a": [_N], "b": [_D, _L], "c": [_N, _L]}, _L),
    _protocol("two records through a scaling operator", _AB, {"a": [May(records=2)], "b": [_D, _L]}, _L),
    _protocol("a diamond", _DIAMOND, {"s": [_D], "a": [_D], "b": [_N, _L], "t": [_N]}, _N),
    _Case(
        name="under locks: three operators duplicate, the new leave",
        model=lambda: LockedModel(TwoFgme, _ABC, {"a": [_D], "b": [_D], "c": [_D]}, newcomers=_L),
    ),
    _Case(
        name="under locks: cores of two, one leaves as neighbours duplicate",
        model=lambda: LockedModel(TwoFgme, _AB, {"a": [_D, _N], "b": [_N, _N, _L]}, newcomers=_N, core=2),
    ),
    *(_control(kind, "two and two, each acts once", _AB, _TWO_AND_TWO, **_MANY) for kind in LOCKS),
    *(_control(kind, "who duplicates is killed", _AB, _LEAVE_AND_DUPLICATE, "a/1", **_MANY) for kind in LOCKS),
    *(_control(kind, "who leaves is killed", _AB, _LEAVE_AND_DUPLICATE, "b/2", **_MANY) for kind in LOCKS),
    *(_control(kind, "three operators, a keeper is killed", _ABC, _THREE, "b/1", **_MANY) for kind in LOCKS),
    _control(LockKind.TWO_FGME, "three operators, both scale and are killed", _ABC, _THREE, "a/1", "b/2", **_MANY),
    _survivors("one of two, with two records", {"a": [May(records=2)], "b": [_N, _N]}, "b/2"),
    _survivors("with a record", {"a": [_RECORD], "b": [_N, _N], "c": [_N]}, "b/2"),
    _survivors("while it leaves, with a record", {"a": [_RECORD], "b": [_N, _L], "c": [_N]}, "b/2"),
    _survivors("while it duplicates, with a record", {"a": [_RECORD], "b": [_N, _D]}, "b/2"),
    _survivors("while a predecessor duplicates", {"a": [_D], "b": [_N, _N], "c": [_N]}, "b/2"),
    _survivors("while a predecessor leaves", {"a": [_N, _L], "b": [_N, _N], "c": [_N]}, "b/2"),
    _survivors("while a successor duplicates", {"a": [_N], "b": [_N, _N], "c": [_D]}, "b/2"),
    _survivors("while a successor leaves", {"a": [_N], "b": [_N, _N], "c": [_N, _L]}, "b/2"),
    _survivors("two of two operators", {"a": [_N], "b": [_N, _N], "c": [_N, _N]}, "b/2", "c/2"),
    _control(LockKind.TWO_FGME, "one duplicates and is killed", _AB, _ONE_DUPLICATES, "a/1", newcomers=_N),
)

_DIFFERS = (
    "The printed 2-FGME and the printed scaling protocol fail in systems of three instances. The runs that lead "
    "to each failure are in the tests and in docs/decentralized.",
)


@experiment(
    "decentralized-explorer",
    paper="Belkhiria's thesis, §3.3.4, §3.3.5, §5.2",
    question="Do the protocols hold in every interleaving of small systems?",
)
def run(tell: Progress) -> Report:
    checks, data = [], []
    for number, case in enumerate(CASES):
        tell(case.name, number / len(CASES))
        found = explore(case.model(), most_worlds=_MOST_WORLDS)
        checks.append(_check(case, found))
        data.append(
            {
                "case": case.name,
                "worlds": found.worlds,
                "ends": found.ends,
                "complete": found.complete,
                "longest_run": found.longest_run,
                "violation": found.violation.what if found.violation else None,
                "run": list(found.violation.run) if found.violation else [],
            }
        )
    return Report(checks=tuple(checks), differs=_DIFFERS, data={"cases": data})


def _check(case: _Case, found: Exploration) -> Check:
    """What was not explored to its end shows nothing but its violations."""
    whole = "" if found.complete or found.violation else ", not to the end"
    what = found.violation.what if found.violation else "no violation"
    return Check(
        what=case.name,
        ours=f"{found.worlds:,} worlds{whole}: {what}",
        paper="right",
        bound="a violation" if case.fails else "no violation, to the end",
        holds=found.violation is not None if case.fails else found.complete and found.violation is None,
    )
