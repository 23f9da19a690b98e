"""Whatever is in a file, reading it gives what it says or an error that names the file; never anything else."""

from __future__ import annotations

import copy
import datetime
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from elastream.engines.simulated.scenario import Scenario, read_scenario, scenario_from
from elastream.errors import ElastreamError, InvalidInput
from elastream.measurement.recording import Recording, RecordingWriter, read_recording
from elastream.measurement.snapshot_format import read_snapshot, snapshot_from_json, snapshot_to_json

SNAPSHOT: dict[str, Any] = {
    "operators": [
        {"name": "source", "source": True},
        {"name": "map", "parallelism": 2, "min_parallelism": 1, "max_parallelism": 8, "state_partitions": 6},
        {"name": "sink", "fixed": True},
    ],
    "edges": [["source", "map"], ["map", "sink"]],
    "source_rates": {"source": 100.0},
    "readings": [
        {
            "operator": "map",
            "instance": 1,
            "window_s": 60,
            "useful_s": 30.5,
            "records_in": 3000,
            "records_out": {"sink": 10},
            "backlog": 7,
            "wait_in_s": 1,
            "wait_out_s": 2,
            "latency_s": 0.1,
            "cpu_utilization": 0.5,
            "memory_utilization": 0.5,
        },
        {"operator": "sink", "window_s": 60, "useful_s": 60, "records_in": 10, "records_out": 0},
    ],
    "at_s": 60,
    "gaps": ["nobody answered"],
}

SCENARIO: dict[str, Any] = {
    "name": "everything",
    "duration": "30 min",
    "engine": {"step": "500 ms", "downtime": ["20 s", 40], "downtime_of": "operator", "noise": 0.03, "seed": 7},
    "operators": {
        "a": {"source": True, "load": {"steps": [[0, 1000], ["10 min", 2000]]}, "max_rate": 5000},
        "b": {"source": True, "load": {"sine": {"mean": 10, "amplitude": 5, "period": "1 h"}}},
        "c": {"source": True, "load": {"brownian": {"start": 10, "step_std": 1, "maximum": 90}}, "selectivity": 2},
        "d": {"source": True, "load": {"trace": "trace.csv", "scale": 2, "repeat": True}},
        "e": {"reads": ["a", "b"], "capacity": {"per_instance": 100, "exponent": 0.9}, "selectivity": {"f": 20}},
        "f": {"reads": ["e", "c", "d"], "capacity": {"per_instance": 9, "serial_share": 0.1}, "parallelism": 4},
        "g": {"reads": "f", "capacity": {"per_instance": 9, "contention": 0.1, "coherence": 0.01}, "queue": 100},
        "h": {"reads": "g", "capacity": 1000, "window": "10 s", "fire_cost": "1 ms", "hot_share": 0.2},
    },
    "manager": {"interval": "60 s"},
    "policies": {"ds2": {"target_utilization": 0.8}, "lag": None},
    "cost_per_instance_hour": 0.5,
}
TRACE = "time_s,records_per_s\n0,10\n60,20\n"


def words_of(value: Any) -> Iterator[str]:
    """Every key and every text in a tree."""
    if isinstance(value, dict):
        yield from value
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from words_of(item)


NUMBERS = st.integers(min_value=-3, max_value=70) | st.floats() | st.sampled_from([10**30, 1e-320, 1e308])
BEYOND_FLOATS = st.sampled_from([10**400, -(10**400)])
WORDS = st.one_of(
    st.sampled_from(sorted({*words_of(SNAPSHOT), *words_of(SCENARIO), "event"})), st.text(max_size=8)
)


def trees(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


JSON_VALUES = trees(st.none() | st.booleans() | NUMBERS | BEYOND_FLOATS | WORDS, WORDS)
YAML_LEAVES = (
    st.none()
    | st.booleans()
    | NUMBERS
    | WORDS
    | st.binary(max_size=4)
    | st.dates()
    | st.datetimes(timezones=st.just(datetime.UTC))
)
YAML_VALUES = trees(YAML_LEAVES, WORDS | st.booleans() | st.integers() | st.none() | st.dates())


@st.composite
def mutated(draw: st.DrawFn, valid: dict[str, Any], values: st.SearchStrategy[Any]) -> Any:
    """A valid tree in which up to three values, wherever they are, were replaced, dropped or doubled."""
    tree = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 3))):
        holder: Any = tree
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(holder[key], dict | list) and draw(st.integers(0, 3)) > 0:
                holder = holder[key]
                continue
            match draw(st.sampled_from(["replace", "drop", "add"])):
                case "replace":
                    holder[key] = draw(values)
                case "drop":
                    del holder[key]
                case "add" if isinstance(holder, dict):
                    holder[draw(WORDS)] = draw(values)
                case "add":
                    holder.append(copy.deepcopy(holder[key]))
            break
    return tree


@st.composite
def scratched(draw: st.DrawFn, text: str) -> bytes:
    """A valid file in which a part was lost or overwritten."""
    content = text.encode()
    start = draw(st.integers(0, len(content)))
    return content[:start] + draw(st.binary(max_size=6)) + content[start + draw(st.integers(0, 40)) :]


patient = settings(deadline=None)  # these touch the disk, which others use, too

Found = TypeVar("Found")


def read(reader: Callable[[Path], Found], content: bytes) -> Found | None:
    """What a reader makes of a file; None if it refuses it, with the file's name in front."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "trace.csv").write_text(TRACE)
        path = Path(folder) / "file"
        path.write_bytes(content)
        try:
            return reader(path)
        except ElastreamError as error:
            said = str(error)
    assert said.startswith(f"{path}: ")
    return None


def read_cut_off(path: Path) -> Recording:
    return read_recording(path, ignore_cut_off=True)


def lines_of(values: list[Any]) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in values).encode()


# Snapshots and recordings


def test_the_valid_files_are_valid() -> None:
    assert isinstance(read(read_recording, lines_of([SNAPSHOT])), Recording)
    assert isinstance(read(read_scenario, yaml.safe_dump(SCENARIO).encode()), Scenario)


@patient
@given(st.one_of(st.binary(), st.text().map(str.encode), scratched(json.dumps(SNAPSHOT) + "\n")))
def test_any_bytes_as_a_recording(content: bytes) -> None:
    found = read(read_recording, content)
    assert found is None or found.snapshots


@patient
@given(st.lists(JSON_VALUES, max_size=3))
def test_any_json_values_as_a_recording(values: list[Any]) -> None:
    found = read(read_recording, lines_of(values))
    assert found is None or found.snapshots


@patient
@given(st.lists(mutated(SNAPSHOT, JSON_VALUES), min_size=1, max_size=2))
def test_mutated_snapshots_are_refused_or_come_back_from_a_recording_of_their_own(values: list[Any]) -> None:
    found = read(read_recording, lines_of(values))
    if found is not None:
        for snapshot in found.snapshots:
            again = snapshot_from_json(json.loads(json.dumps(snapshot_to_json(snapshot))), place="again")
            assert again == snapshot


@patient
@given(mutated(SNAPSHOT, JSON_VALUES))
def test_a_snapshot_file_and_a_recording_of_it_agree(value: Any) -> None:
    recorded = read(read_recording, lines_of([value]))
    alone = read(read_snapshot, json.dumps(value).encode())
    if isinstance(value, dict) and "event" not in value:
        assert (recorded.snapshots if recorded else ()) == ((alone,) if alone else ())


@patient
@given(st.binary() | scratched((json.dumps(SNAPSHOT) + "\n") * 2))
def test_a_writer_takes_up_any_file_and_loses_only_what_is_cut_off(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        with RecordingWriter(path) as recording:
            recording.write({"event": "held"})
        kept = path.read_bytes().removesuffix(b'{"event":"held"}\n')
    assert content.startswith(kept.removesuffix(b"\n"))
    assert b"\n" not in content[len(kept) :]
    assert recording.repaired == (len(kept) < len(content))


# Scenarios


@patient
@given(st.one_of(st.binary(), st.text().map(str.encode), scratched(yaml.safe_dump(SCENARIO))))
def test_any_bytes_as_a_scenario(content: bytes) -> None:
    found = read(read_scenario, content)
    assert found is None or found.duration_s > 0


@patient
@given(mutated(SCENARIO, YAML_VALUES))
def test_mutated_scenarios_as_files(value: Any) -> None:
    found = read(read_scenario, yaml.safe_dump(value, allow_unicode=True).encode(errors="replace"))
    assert found is None or found.duration_s > 0


@patient
@given(YAML_VALUES | mutated(SCENARIO, YAML_VALUES))
def test_any_value_as_a_scenario(value: Any) -> None:
    try:
        found = scenario_from(value, place="here", folder=Path("nowhere"))
    except InvalidInput as error:
        said = str(error)
    else:
        said = f"here: {found.name}"
    assert said.startswith("here: ")
