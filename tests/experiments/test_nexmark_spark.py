"""What the experiments with Nexmark on Spark say of the pieces that were run, without running any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.nexmark_runs import CASES, answer_of, pieces, read_done
from experiments.nexmark_spark import report

_Q1 = CASES["q1"]


def start(*sizes: int) -> dict[str, Any]:
    return {"sizes": list(sizes), "actions": len(sizes) - 1}


def around(rate_per_s: float, batch_s: float) -> dict[str, Any]:
    return {"rate_per_s": rate_per_s, "latency_s": 1.5, "backlog": 10.0, "batch_s": batch_s}


DONE = {
    "q1-start-1": start(1, 4),
    "q1-start-2": start(2, 5, 4),
    "q1-start-6": start(6, 5),
    "q1-around-3": around(300, 1.9),
    "q1-around-4": around(350, 1.1),
    "q1-unmeasured-4": around(350, 1.0),
    "q1-cores-1": start(1, 2),
}


def said(done: dict[str, Any]) -> dict[str, str]:
    return {check.what: check.ours for check in report(done).checks}


def test_a_case_needs_some_instances_by_arithmetic_and_starts_below_and_above() -> None:
    assert list(CASES) == ["q1", "q2", "q3", "q5", "q8", "q11"]
    for case in CASES.values():
        assert case.starts[0] < case.need < case.starts[-1], case
        assert len(case.starts) == 6


def test_the_answer_is_where_most_starts_end() -> None:
    assert answer_of(_Q1, DONE) == 4
    assert answer_of(_Q1, {}) is None


def test_pieces_around_an_answer_come_once_there_is_one() -> None:
    names = [piece.name for piece in pieces([_Q1], {})]
    assert sorted(names) == [*(f"q1-cores-{n}" for n in (1, 6)), *(f"q1-start-{n}" for n in (1, 2, 3, 5, 6, 8))]
    assert names[:2] == ["q1-start-1", "q1-start-8"], "the farthest first"
    assert {"q1-around-3", "q1-around-4", "q1-around-5", "q1-unmeasured-4"} <= {
        p.name for p in pieces([_Q1], DONE)
    }


def test_what_was_run_is_told_and_what_was_not_is_not() -> None:
    texts = said(DONE)
    assert (
        texts["table 4: starts with at most 1, with 2, 3, more actions on the main operator"]
        == "2, 1, 0, 0 of 3 starts"
    )
    assert texts["q1: in_euros by start (a wait of 10 ms, need 3.5)"] == "1→4; 2→5→4; 6→5"
    assert texts["figure 8: q1 with 3 (one fewer)"] == "300 of 350/s, latency 1.5 s, 10 waiting"
    assert texts["figure 10: q1, the time of a batch, measured every 5 s and not"] == "1.10 s, 1.00 s: +10%"
    assert not [what for what in texts if "q5" in what]


@pytest.mark.parametrize(("sizes", "holds"), [((1, 4), True), ((1, 5, 4), True), ((1, 2, 3, 4), False)])
def test_more_than_two_actions_do_not_hold(sizes: tuple[int, ...], holds: bool) -> None:
    assert report({"q1-start-1": start(*sizes)}).holds is holds


@pytest.mark.parametrize(("sizes", "holds"), [((1, 7, 4), True), ((1, 4), True), ((1, 7, 4, 5), False)])
def test_a_long_run_may_turn_once(sizes: tuple[int, ...], holds: bool) -> None:
    one = {**start(*sizes), "lasts_s": 1200.0, "last_action_s": 40.0}
    assert report({"q5-long-1": one}).holds is holds


def test_a_hot_key_is_to_be_named() -> None:
    calm = {"reasons": ["must process 390/s"]}
    named = {"reasons": ["skew: its hottest key has 75% of the records and is on one instance"]}
    assert not report({"q11-hot-4": {**start(1, 2), "needs": [calm]}}).holds
    assert report({"q11-hot-4": {**start(1, 2), "needs": [calm, named]}}).holds


def test_what_is_done_is_read_from_its_files(tmp_path: Path) -> None:
    for name, one in DONE.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(one))
    assert read_done(tmp_path) == DONE
