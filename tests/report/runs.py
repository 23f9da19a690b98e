"""Recorded runs in a few lines, for the tests of reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elastream.dataflow import Plan
from elastream.manager.decision import Decision
from elastream.manager.engine import RescaleOutcome
from elastream.manager.events import Acted, ActionVerdict, Decided, Event, Judged, event_to_json
from elastream.measurement import Snapshot
from elastream.measurement.recording import Recording, RecordingWriter, RunHeader
from elastream.policies.proposal import Reason, ReasonKind
from elastream.testing import alike, chain, snapshot_of


def window(
    at_s: float,
    *,
    rate: float = 100.0,
    instances: int = 1,
    waiting: float = 0.0,
    window_s: float = 60.0,
    useful_share: float = 0.5,
    name: str = "map",
) -> Snapshot:
    """A source and one operator that takes in all that comes; `waiting` is of all its instances together."""
    readings = alike(
        name,
        instances=instances,
        records_per_s=rate / instances,
        window_s=window_s,
        useful_share=useful_share,
        backlog=waiting / instances,
    )
    snapshot = snapshot_of(edges=chain("source", name), source_rates={"source": rate}, readings=readings)
    return replace(snapshot, at_s=at_s)


def decided(
    number: int, at_s: float, before: int, after: int, *, dry_run: bool = False, why: str = "x"
) -> Decided:
    decision = Decision(
        number=number,
        at_s=at_s,
        before=Plan({"map": before}),
        after=Plan({"map": after}),
        reasons=(Reason(kind=ReasonKind.MEASURED, text=why),),
        share_before=0.5,
        expected_share=1.0,
    )
    return Decided(at_s=at_s, decision=decision, dry_run=dry_run)


def acted(number: int, at_s: float, instances: int, *, took_s: float = 5.0, succeeded: bool = True) -> Acted:
    outcome = RescaleOutcome(plan=Plan({"map": instances}), succeeded=succeeded, took_s=took_s)
    return Acted(at_s=at_s, number=number, outcome=outcome)


def judged(
    number: int, at_s: float, verdict: ActionVerdict = ActionVerdict.EFFECTIVE, share: float = 0.9
) -> Judged:
    return Judged(
        at_s=at_s, number=number, verdict=verdict, share_before=0.5, share_after=share, expected_share=1.0
    )


def recording(snapshots: Sequence[Snapshot], events: Iterable[Event] = (), **options: Any) -> Recording:
    return Recording(snapshots=tuple(snapshots), events=tuple(map(event_to_json, events)), **options)


def grown() -> Recording:
    """One instance for two minutes, then three for two: 100, 100, 250, 250 records/s, with 900 waiting once."""
    return recording(
        [
            window(60),
            window(120, waiting=900),
            window(185, rate=250, instances=3, waiting=90),
            window(245, rate=250, instances=3),
        ],
        [decided(1, 120, 1, 3), acted(1, 125, 3), judged(1, 185)],
        headers=(RunHeader(pipeline="clicks", policy="ds2"),),
    )


def write(path: Path, found: Recording) -> Path:
    with RecordingWriter(path) as writer:
        for header in found.headers:
            writer.begin(header)
        for snapshot in found.snapshots:
            writer.snapshot(snapshot)
        for event in found.events:
            writer.write(json.loads(json.dumps(event)))
    return path
