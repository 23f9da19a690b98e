"""What older versions recorded is read, and leads to the same proposals as it did then."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from elastream.cli import main
from elastream.measurement.recording import RunHeader, read_recording
from elastream.measurement.snapshot_format import snapshot_from_json, snapshot_to_json
from elastream.policies.ds2 import DS2

VERSION_2 = Path(__file__).parent / "recordings" / "version-2.jsonl"


def test_a_recording_of_version_2_leads_to_what_was_proposed_then() -> None:
    recording = read_recording(VERSION_2)
    (header,) = recording.headers
    assert isinstance(header, RunHeader)
    windows = {snapshot.at_s: snapshot for snapshot in recording.snapshots}
    proposed = [event for event in recording.events if event["event"] == "proposed"]
    assert len(proposed) >= 3
    for event in proposed:
        found = DS2(**{**header.options, "single_window": True})(windows[event["at_s"]])
        then: dict[str, Any] = event["proposal"]["advice"]
        for name, advice in found.advice.items():
            assert advice.true_per_s == pytest.approx(then[name]["true_per_s"])
            assert advice.current == then[name]["current"]
            assert advice.need is not None
            assert advice.need <= then[name]["need"]  # a queue that is soon gone is no longer a reason for more
            assert advice.need == pytest.approx(then[name]["need"], rel=0.1)


def asked(command: str, *options: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "argv", ["elastream", command, str(VERSION_2), "--json", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    return json.loads(capsys.readouterr().out)


def test_a_recording_of_version_2_is_reported_as_it_happened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = asked("report", "--against", "none", "--out", str(tmp_path), capsys=capsys, monkeypatch=monkeypatch)
    assert (told["pipeline"], told["policy"], told["duration_s"]) == ("word count", "ds2", 183.0)
    (decision,) = told["decisions"]
    assert (decision["before"], decision["after"]) == ({"words": 1, "counts": 1}, {"words": 7, "counts": 7})
    assert (decision["at_s"], decision["took_s"], decision["verdict"]) == (90.0, 3.0, "effective")
    assert decision["reasons"][0]["text"] == "a backlog of 89,100 records is to be gone in 600 s"
    assert told["cost"]["instance_s"] == 90 * 2 + 93 * 14


def test_a_recording_of_version_2_is_replayed_with_the_policies_of_today(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_needs(events: Iterable[Any]) -> dict[str, float]:
        first = next(event for event in events if event["event"] == "proposed")
        return {name: one["need"] for name, one in first["proposal"]["advice"].items()}

    events = asked("replay", capsys=capsys, monkeypatch=monkeypatch)
    assert first_needs(events) == pytest.approx(first_needs(read_recording(VERSION_2).events), rel=0.15)
    assert next(event for event in events if event["event"] == "decided")["decision"]["before"] == {
        "words": 1,
        "counts": 1,
    }


def test_equal_readings_of_each_instance_say_what_one_of_all_together_does() -> None:
    """As Spark's windows were written up to version 3, and as they are now."""
    graph: dict[str, Any] = {
        "operators": [{"name": "source", "source": True}, {"name": "map", "parallelism": 4}],
        "edges": [["source", "map"]],
        "source_rates": {"source": 500.0},
    }
    each = {
        "operator": "map",
        "window_s": 10.0,
        "useful_s": 5.0,
        "records_in": 100,
        "records_out": 0,
        "backlog": 7,
    }
    totals = {**each, "instances": 4, "useful_s": 20.0, "records_in": 400, "backlog": 28}
    then = snapshot_from_json({**graph, "readings": [{**each, "instance": n} for n in range(4)]}, place="then")
    now = snapshot_from_json({**graph, "readings": [totals]}, place="now")
    assert DS2()(then).parallelism == DS2()(now).parallelism
    assert then.measurements["map"].totals == now.measurements["map"].totals
    assert snapshot_from_json(snapshot_to_json(now), place="again") == now
    assert then.is_complete
    assert now.is_complete
