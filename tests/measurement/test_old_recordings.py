"""What older versions recorded is read, and leads to the same proposals as it did then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastream.measurement.recording import RunHeader, read_recording
from elastream.measurement.snapshot_format import snapshot_from_json, snapshot_to_json
from elastream.policies.ds2 import DS2

RECORDINGS = Path(__file__).parent / "recordings"


def test_a_recording_of_version_2_leads_to_what_was_proposed_then() -> None:
    recording = read_recording(RECORDINGS / "version-2.jsonl")
    (header,) = recording.headers
    assert isinstance(header, RunHeader)
    windows = {snapshot.at_s: snapshot for snapshot in recording.snapshots}
    proposed = [event for event in recording.events if event["event"] == "proposed"]
    assert len(proposed) >= 3
    for event in proposed:
        found = DS2(**{"catch_up_s": None, **header.options, "single_window": True})(windows[event["at_s"]])
        then: dict[str, Any] = event["proposal"]["advice"]
        for name, advice in found.advice.items():
            assert advice.true_per_s == pytest.approx(then[name]["true_per_s"])
            assert advice.current == then[name]["current"]
            assert advice.need is not None
            assert advice.need <= then[name]["need"]  # a queue that is soon gone is no longer a reason for more
            assert advice.need == pytest.approx(then[name]["need"], rel=0.1)


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
