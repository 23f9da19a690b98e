"""What the benchmark with Nexmark tells of what was run, and that it goes on where it stopped."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import nexmark
from benchmarks.nexmark import FROM_1, SIMULATED, Outcome, Part, parts, report, run_missing

_DS2, _FLINK = (Part(engine=SIMULATED, query="q5", policy=policy, scenario=FROM_1) for policy in ("ds2", "flink"))


def outcome(instance_s: float, behind: float = 0.0) -> Outcome:
    return Outcome(actions=1, last_action_s=60, instance_s=instance_s, least_s=1000, behind=behind)


def test_a_row_for_each_query_and_policy_and_a_mean_for_each_policy() -> None:
    found = report({_DS2: outcome(1100, behind=0.25), _FLINK: outcome(1500)}, picture=None)
    assert "q5, from 1: ds2                            1     1 min         1,100    1.10  25.00%" in found.notes
    means = {measure.what: measure.value for measure in found.measures}
    assert means["flink, from 1: instance-seconds, times the least"] == 1.5
    assert means["ds2, from 1: of the time behind"] == 25


def test_where_ds2_is_not_better_than_flink_is_said() -> None:
    assert not said_worse(outcome(1100), outcome(1500))
    assert "1.60 and 1.50 times the least" in said_worse(outcome(1600), outcome(1500))
    assert "1.00% and 0.00% behind" in said_worse(outcome(1100, behind=0.01), outcome(1500))


def said_worse(ds2: Outcome, flink: Outcome) -> str:
    notes = report({_DS2: ds2, _FLINK: flink}, picture=None).notes
    return "".join(note for note in notes if note.startswith("ds2 is not better"))


def test_the_picture_is_written(tmp_path: Path) -> None:
    picture = tmp_path / "nexmark.png"
    report({_DS2: outcome(1100)}, picture=picture)
    assert picture.stat().st_size > 0


def test_it_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Part] = []
    monkeypatch.setattr(nexmark, "simulated", lambda part: ran.append(part) or outcome(1000))
    wanted = parts(["q5"], ["ds2", "flink"], [SIMULATED])
    assert run_missing(wanted, tmp_path, until_s=time.time() - 1) == {}
    (tmp_path / f"{_DS2.name}.json").write_text(json.dumps(asdict(outcome(1234))))
    done = run_missing(wanted, tmp_path)
    assert set(done) == set(wanted)
    assert ran == [part for part in wanted if part != _DS2]
    assert done[_DS2].instance_s == 1234


def test_both_policies_meet_the_same_pipeline_and_the_least_is_known() -> None:
    """From far too few, for 40 minutes: flink acts after 20, ds2 within two or three."""
    ds2, flink = (nexmark.simulated(part, duration_s=2400.0) for part in (_DS2, _FLINK))
    assert ds2.least_s == pytest.approx(flink.least_s)
    assert ds2.behind < flink.behind
    assert ds2.actions >= 1
    assert flink.last_action_s >= 1200
