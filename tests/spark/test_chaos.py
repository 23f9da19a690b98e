"""What `make chaos` is made of: schedules from a seed, smaller ones that fail as well, a short round of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from chaos import Plan, live_through
from chaos_faults import Fault, Step, can_mount, schedule, shrunk

FILES = {"broker": False, "cluster": False, "disk": False}


def test_a_seed_gives_the_same_schedule_also_from_a_file() -> None:
    drawn = schedule(7, 40, **FILES)
    assert drawn == schedule(7, 40, **FILES)
    assert drawn != schedule(8, 40, **FILES)
    assert [Step.from_json(json.loads(json.dumps(step.as_json()))) for step in drawn] == drawn


@pytest.mark.parametrize(
    ("there", "faults"),
    [
        ("broker", {Fault.KILL_BROKER, Fault.HANG_BROKER}),
        ("cluster", {Fault.KILL_EXECUTOR, Fault.HANG_EXECUTOR}),
        ("disk", {Fault.FULL_DISK}),
    ],
)
def test_only_what_is_there_fails(there: str, faults: set[Fault]) -> None:
    without = {step.fault for step in schedule(1, 500, **FILES)}
    assert {step.fault for step in schedule(1, 500, **{**FILES, there: True})} - without == faults


def test_what_a_failure_needs_is_left_of_its_schedule() -> None:
    drawn = schedule(3, 30, **FILES)
    needed = (drawn[4], drawn[21])
    tried = 0

    def fails(steps: Sequence[Step]) -> bool:
        nonlocal tried
        tried += 1
        return {(step.fault, step.seed) for step in needed} <= {(step.fault, step.seed) for step in steps}

    left = shrunk(drawn, fails)
    assert [step.seed for step in left] == [step.seed for step in needed]
    assert all(step.rescales == 0 for step in left), "they do not matter here"
    assert tried < 60


def test_whether_disks_can_be_made_is_found_out_again_with_each_start(tmp_path: Path) -> None:
    assert can_mount(tmp_path) is can_mount(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", ["files", "kafka", "cluster"])
def test_a_short_round_loses_and_repeats_nothing(kind: str, tmp_path: Path) -> None:
    drawn = schedule(1, 3, broker=kind == "kafka", cluster=kind == "cluster", disk=False)
    outcome = live_through(Plan(kind=kind, seed=1, steps=tuple(drawn)), tmp_path / "run", disk=False)
    assert outcome.faults == []
    assert outcome.counts.rescales > 0
    assert outcome.records > 0
