"""The snapshot format: it round-trips, and whatever is wrong in a file is named with the file and the place."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.errors import InvalidInput
from elastream.formats import read_json
from elastream.measurement import Reading, Snapshot
from elastream.measurement.executor import ExecutorReading
from elastream.measurement.late_reading import LateReading
from elastream.measurement.snapshot_format import read_snapshot, snapshot_from_json, snapshot_to_json
from elastream.policies.ds2 import DS2
from elastream.testing import chain, snapshot_of
from tests.word_count import WORD_COUNT

Mutation = Callable[[dict[str, Any]], object]


def changed(mutate: Mutation) -> dict[str, Any]:
    data = copy.deepcopy(WORD_COUNT)
    mutate(data)
    return data


def refused(data: Any) -> str:
    """The message without the name of the file, which must come first."""
    with pytest.raises(InvalidInput) as error:
        snapshot_from_json(data, place="snapshot.json")
    message = str(error.value)
    assert message.startswith("snapshot.json: ")
    return message.removeprefix("snapshot.json: ")


def parsed_or_refused(text: str) -> Snapshot | None:
    """The only two things that may become of a file; anything else is a failure of the test."""
    try:
        return snapshot_from_json(read_json(text, "fuzz.json"), place="fuzz.json")
    except InvalidInput as error:
        message = str(error)
    assert message.startswith("fuzz.json: ")
    return None


# --- reading ----------------------------------------------------------------------------------------------------


def test_the_word_count_is_read() -> None:
    snapshot = snapshot_from_json(WORD_COUNT, place="here")

    assert snapshot.dataflow.order == ("source", "flatmap", "count")
    assert snapshot.dataflow["flatmap"] == Operator(name="flatmap", max_parallelism=64)
    assert snapshot.plan == {"flatmap": 1, "count": 1}
    assert snapshot.source_rates == {"source": 16666.67}
    assert snapshot.readings[0] == Reading(
        operator="flatmap", window_s=60.0, useful_s=60.0, records_in=1e5, records_out=2e6, backlog=0.0
    )
    assert snapshot.is_complete


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(WORD_COUNT), encoding="utf-8")

    assert read_snapshot(path) == snapshot_from_json(WORD_COUNT, place="here")


def test_parallelism_and_instance_numbers_have_defaults() -> None:
    reading = {"operator": "map", "window_s": 60, "useful_s": 30, "records_in": 1, "records_out": 1}
    snapshot = snapshot_from_json(
        {
            "operators": [{"name": "source", "source": True}, {"name": "map"}, {"name": "sink"}],
            "edges": [["source", "map"], ["map", "sink"]],
            "source_rates": {"source": 1},
            "readings": [reading, {**reading, "instance": 0}, reading],
        },
        place="here",
    )

    assert [one.instance for one in snapshot.readings] == [1, 0, 2]
    assert snapshot.plan == {"map": 3, "sink": 1}
    assert snapshot.at_s == 0.0
    assert snapshot.missing == ("sink: readings of 0 of 1 instances",)


def test_records_out_may_be_given_per_edge() -> None:
    data = changed(lambda d: d["readings"][0].update(records_out={"count": 7}))

    assert snapshot_from_json(data, place="here").readings[0].records_out_to("count") == 7.0


def test_everything_that_a_reading_may_carry_is_read() -> None:
    others = {
        "wait_in_s": 1.0,
        "wait_out_s": 2.0,
        "latency_s": 3.0,
        "cpu_utilization": 0.4,
        "memory_utilization": 0.5,
        "heap_utilization": 0.6,
        "state_size": 7.0,
        "metrics": {"open_files": 8.0},
        "overdue": 7.0,
        "records_late": 9.0,
    }

    reading = snapshot_from_json(changed(lambda d: d["readings"][0].update(others)), place="here").readings[0]

    assert {name: getattr(reading, name) for name in others} == others


# --- round trip -------------------------------------------------------------------------------------------------

NAMES = st.text(
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"), min_size=1, max_size=8
)
AMOUNTS = st.floats(min_value=0, max_value=1e18)
COUNTS = st.integers(min_value=1, max_value=64)


@st.composite
def operators(draw: st.DrawFn, name: str, *, source: bool) -> Operator:
    least = draw(COUNTS)
    return Operator(
        name=name,
        source=source,
        min_parallelism=least,
        max_parallelism=draw(st.none() | COUNTS.map(lambda room: least + room)),
        fixed=draw(st.booleans()),
        state_partitions=draw(st.none() | COUNTS),
        movable_state=draw(st.booleans()),
    )


@st.composite
def dataflows(draw: st.DrawFn) -> Dataflow:
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    sources = draw(st.integers(min_value=1, max_value=len(names)))
    edges = []
    for index in range(sources, len(names)):
        before = draw(st.sets(st.integers(0, index - 1), min_size=1, max_size=3))
        edges += [(names[producer], names[index]) for producer in sorted(before)]
    made = [draw(operators(name, source=index < sources)) for index, name in enumerate(names)]
    return Dataflow.of(draw(st.permutations(made)), draw(st.permutations(edges)))


@st.composite
def readings(draw: st.DrawFn, operator: str, instance: int, consumers: tuple[str, ...]) -> Reading:
    window_s = draw(st.floats(min_value=1e-3, max_value=1e6))
    maybe = st.none() | AMOUNTS
    return Reading(
        operator=operator,
        instance=instance,
        window_s=window_s,
        useful_s=draw(st.floats(min_value=0, max_value=window_s)),
        records_in=draw(AMOUNTS),
        records_out=draw(AMOUNTS | st.fixed_dictionaries(dict.fromkeys(consumers, AMOUNTS))),
        backlog=draw(maybe),
        wait_in_s=draw(maybe),
        wait_out_s=draw(maybe),
        latency_s=draw(maybe),
        cpu_utilization=draw(maybe),
        memory_utilization=draw(maybe),
        heap_utilization=draw(maybe),
        state_size=draw(maybe),
        metrics=draw(st.none() | st.dictionaries(st.text(), AMOUNTS, max_size=2)),
        overdue=draw(maybe),
        records_late=draw(maybe),
    )


late_readings = st.builds(
    LateReading,
    operator=NAMES,
    age_s=st.floats(0, 1e6),
    values=st.dictionaries(NAMES, st.dictionaries(st.integers(0, 9), st.floats(0, 1e9), max_size=2), max_size=2),
)


@st.composite
def executors(draw: st.DrawFn, name: str) -> ExecutorReading:
    maybe = st.none() | AMOUNTS
    return ExecutorReading(
        id=name,
        host=draw(st.just("") | NAMES),
        node=draw(st.none() | NAMES),
        cores=draw(COUNTS),
        active_tasks=draw(st.integers(0, 64)),
        processors=draw(st.none() | st.integers(1, 64)),
        busy_cores=draw(maybe),
        memory_used_bytes=draw(maybe),
        memory_bytes=draw(maybe),
        peak_heap_bytes=draw(maybe),
        leaving=draw(st.booleans()),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    dataflow = draw(dataflows())
    plan = {name: draw(st.integers(1, 4)) for name in dataflow.order if name in dataflow.scalable}
    made = [
        draw(readings(name, instance, dataflow.downstream(name)))
        for name in dataflow.order
        for instance in draw(st.sets(st.integers(0, 9), max_size=plan.get(name, 2)))
    ]
    return Snapshot(
        dataflow=dataflow,
        plan=Plan(plan),
        source_rates={name: draw(AMOUNTS) for name in dataflow.sources},
        readings=tuple(made),
        at_s=draw(st.floats(allow_nan=False, allow_infinity=False)),
        gaps=tuple(draw(st.lists(st.text(), max_size=2))),
        notes=tuple(draw(st.lists(st.text(), max_size=2))),
        failing={name: draw(st.text()) for name in dataflow.order if draw(st.booleans())},
        executors=tuple(draw(executors(name)) for name in sorted(draw(st.sets(NAMES, max_size=2)))),
        late=tuple(draw(st.lists(late_readings, max_size=2))),
    )


def test_the_parallelism_of_a_source_is_no_part_of_the_plan() -> None:
    data = snapshot_to_json(snapshot_of(edges=chain("source", "map"), source_rates={"source": 1.0}))
    data["operators"][0]["parallelism"] = 6
    assert data["operators"][0]["source"] is True
    assert snapshot_from_json(data, place="here").plan == {"map": 1}


@given(snapshots())
@settings(deadline=None)
def test_what_is_written_is_read_back_as_it_was(snapshot: Snapshot) -> None:
    text = json.dumps(snapshot_to_json(snapshot), allow_nan=False)

    again = snapshot_from_json(read_json(text, "here"), place="here")

    assert again == snapshot
    assert snapshot_to_json(again) == snapshot_to_json(snapshot)


def test_what_was_not_measured_is_left_out() -> None:
    written = snapshot_to_json(snapshot_from_json(WORD_COUNT, place="here"))

    assert "latency_s" not in written["readings"][0]
    assert "backlog" not in written["readings"][1]
    assert written["readings"][0]["backlog"] == 0.0
    assert "records_late" not in written["readings"][0]
    assert "gaps" not in written
    assert "notes" not in written
    assert "failing" not in written
    assert "executors" not in written


# --- bad input, each with its place -----------------------------------------------------------------------------


def operator(index: int, **fields: Any) -> Mutation:
    return lambda data: data["operators"][index].update(fields)


def reading(index: int, **fields: Any) -> Mutation:
    return lambda data: data["readings"][index].update(fields)


def without(*path: Any) -> Mutation:
    def remove(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return remove


def executor(**fields: Any) -> Mutation:
    whole = {"id": "3", "host": "here", "cores": 4, "active_tasks": 1, **fields}
    return lambda data: data.update(executors=[whole])


BAD: dict[str, tuple[Mutation, str]] = {
    "cycle": (lambda d: d["edges"].append(["count", "flatmap"]), "the edges form a cycle: "),
    "edge to an unknown operator": (
        lambda d: d["edges"].append(["flatmap", "cuont"]),
        "edge 'flatmap' → 'cuont': unknown operator 'cuont' (did you mean 'count'?)",
    ),
    "reading of an unknown operator": (
        reading(1, operator="coun"),
        "readings[1]: unknown operator 'coun' (did you mean 'count'?)",
    ),
    "two operators of one name": (operator(2, name="flatmap"), "two operators have the name 'flatmap'"),
    "source with inputs": (operator(1, source=True), "edge 'source' → 'flatmap': 'flatmap' is a source"),
    "no source": (operator(0, source=False), "no operator is a source"),
    "operator without input": (lambda d: d["operators"].append({"name": "lost"}), "operator 'lost' has no input"),
    "edge given twice": (
        lambda d: d["edges"].append(["flatmap", "count"]),
        "edge 'flatmap' → 'count' is given twice",
    ),
    "no operators": (lambda d: d.update(operators=[], edges=[]), "a dataflow needs at least one operator"),
    "empty name": (operator(2, name=""), "operators[2]: an operator has an empty name"),
    "negative count": (
        reading(0, records_in=-1),
        "readings[0]: reading of 'flatmap' instance 0: records_in must be a number of at least 0, found -1.0",
    ),
    "NaN count": (
        reading(1, records_out=float("nan")),
        "readings[1]: reading of 'count' instance 0: records_out ",
    ),
    "infinite backlog": (
        reading(0, backlog=float("inf")),
        "readings[0]: reading of 'flatmap' instance 0: backlog ",
    ),
    "negative count for an edge": (
        reading(0, records_out={"count": -3}),
        "readings[0]: reading of 'flatmap' instance 0: records_out to 'count' must be",
    ),
    "count for an edge that is not there": (
        reading(0, records_out={"cuont": 3}),
        "readings[0].records_out: 'flatmap' has no edge to 'cuont' (did you mean 'count'?)",
    ),
    "useful time above the window": (
        reading(1, useful_s=61),
        "readings[1]: reading of 'count' instance 0: useful_s (61) is above window_s (60)",
    ),
    "empty window": (reading(1, window_s=0, useful_s=0), "readings[1]: reading of 'count' instance 0: window_s "),
    "negative instance": (reading(1, instance=-1), "readings[1]: reading of 'count': instance must be at least 0"),
    "duplicate reading": (
        lambda d: d["readings"].append(dict(d["readings"][0])),
        "readings[2]: a second reading of 'flatmap' instance 0 in one window",
    ),
    "more readings than instances": (
        lambda d: d["readings"].append({**d["readings"][0], "instance": 1}),
        "operator 'flatmap' has parallelism 1, but there are readings of 2 instances",
    ),
    "missing source rate": (without("source_rates", "source"), "source_rates: no rate for the source 'source'"),
    "rate of an unknown source": (
        lambda d: d["source_rates"].update(sorce=1),
        "source_rates: 'sorce' is an unknown operator (did you mean 'source'?)",
    ),
    "rate of an operator": (lambda d: d["source_rates"].update(count=1), "source_rates: 'count' is not a source"),
    "NaN rate": (
        lambda d: d["source_rates"].update(source=float("nan")),
        "source_rates: 'source' must be a number",
    ),
    "negative rate": (lambda d: d["source_rates"].update(source=-1), "source_rates: 'source' must be a number"),
    "NaN time": (lambda d: d.update(at_s=float("nan")), "at_s must be a number, found nan"),
    "unknown key": (
        lambda d: d.update(readngs=[]),
        "unknown key 'readngs' (did you mean 'readings'?)",
    ),
    "unknown key of an operator": (
        operator(1, paralelism=3),
        "operators[1]: unknown key 'paralelism' (did you mean 'parallelism'?)",
    ),
    "unknown key of a reading": (
        reading(1, usefull_s=3),
        "readings[1]: unknown key 'usefull_s' (did you mean 'useful_s'?)",
    ),
    "missing key": (without("edges"), "edges: is missing"),
    "missing name": (without("operators", 1, "name"), "operators[1].name: is missing"),
    "missing count": (without("readings", 0, "records_in"), "readings[0].records_in: is missing"),
    "parallelism of zero": (
        operator(1, parallelism=0),
        "operator 'flatmap': parallelism must be at least 1, found 0",
    ),
    "huge parallelism": (operator(1, parallelism=10**400), "operator 'flatmap': parallelism must be at most"),
    "bounds that contradict": (
        operator(1, min_parallelism=65),
        "operators[1]: operator 'flatmap': max_parallelism (64) is below min_parallelism (65)",
    ),
    "text for a number": (
        reading(0, records_in="100"),
        "readings[0].records_in: Input should be a valid number, found '100'",
    ),
    "boolean for a number": (
        reading(0, records_in=True),
        "readings[0].records_in: Input should be a valid number, found True",
    ),
    "boolean for records out": (reading(0, records_out=True), "readings[0].records_out: a number, or an object"),
    "boolean for an edge's records": (
        reading(0, records_out={"count": True}),
        "readings[0].records_out: a number",
    ),
    "text for a rate": (lambda d: d["source_rates"].update(source="9"), "source_rates.source: Input should be"),
    "number for a boolean": (
        operator(0, source=1),
        "operators[0].source: Input should be a valid boolean, found 1",
    ),
    "fraction for a parallelism": (operator(1, parallelism=1.5), "operators[1].parallelism: Input should be"),
    "huge number": (reading(0, records_in=10**400), "readings[0].records_in: Input should be a valid number"),
    "huge records out": (reading(0, records_out=10**400), "readings[0].records_out: a number, or an object"),
    "huge records out of an edge": (
        reading(0, records_out={"count": 10**400}),
        "readings[0].records_out: a number",
    ),
    "edge of one": (
        lambda d: d["edges"].append(["flatmap"]),
        'edges[2]: an edge is ["from", "to"], found [\'flat',
    ),
    "edge of numbers": (lambda d: d["edges"].append([1, 2]), 'edges[2]: an edge is ["from", "to"], found [1, 2]'),
    "operator that is no object": (
        lambda d: d["operators"].append("sink"),
        "operators[3]: Input should be an object, found 'sink'",
    ),
    "rates that are no object": (lambda d: d.update(source_rates=[1]), "source_rates: Input should be an object"),
    "executor without cores": (executor(cores=0), "executor '3': cores must be at least 1, found 0"),
    "executor without an id": (executor(id=""), "an executor needs an id, found an empty one"),
    "negative memory": (
        executor(memory_bytes=-1),
        "executor '3': memory_bytes must be a number of at least 0, found -1.0",
    ),
    "unknown key of an executor": (
        executor(color="red"),
        "executors[0]: unknown key 'color' (did you mean 'cores'?)",
    ),
    "executor given twice": (
        lambda d: d.update(executors=[{"id": "3", "host": "here", "cores": 4, "active_tasks": 1}] * 2),
        "executors: a second reading of '3' in one window",
    ),
    "null for a list": (lambda d: d.update(readings=None), "readings: Input should be a valid list, found None"),
}


@pytest.mark.parametrize(("mutate", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_with_its_place(mutate: Mutation, message: str) -> None:
    assert message in refused(changed(mutate))


def test_what_was_found_is_shown_shortly_however_long_it_is() -> None:
    message = refused(changed(lambda d: d["edges"].append(["x" * 10_000] * 10_000)))

    assert len(message) < 600


@pytest.mark.parametrize("data", [None, 3, "text", [], [1], True])
def test_a_snapshot_is_an_object(data: Any) -> None:
    assert refused(data) == f"a snapshot is a JSON object, found {type(data).__name__}"


# --- bad files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON: Expecting value (line 1, column 1)"),
        (b'{"operators": [\n  {"name": }]}', "not valid JSON: Expecting value (line 2, column 12)"),
        (b'{"edges": [], "edges": []}', "the key 'edges' is given twice in one object"),
        (b'{"edges": [{"a": 1, "a": 2}]}', "the key 'a' is given twice in one object"),
        (b"[" * 100_000, "not valid JSON: nested too deeply"),
        (b'{"at_s": ' + b"9" * 5_000 + b"}", "not valid JSON: Exceeds the limit"),
        (b"\xff\xfe", "not a UTF-8 text file (byte 0)"),
    ],
)
def test_a_broken_file_is_refused_with_its_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)

    with pytest.raises(InvalidInput) as error:
        read_snapshot(path)

    assert str(error.value).startswith(f"{path}: {message}")


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.json: there is no such file"):
        read_snapshot(tmp_path / "none.json")
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        read_snapshot(tmp_path)


# --- fuzz -------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(
    [
        *WORD_COUNT,
        *WORD_COUNT["operators"][1],
        *WORD_COUNT["readings"][0],
        "state_partitions",
        "wait_out_s",
        "at_s",
        "gaps",
        "notes",
        "failing",
        "records_late",
        "flatmap",
        "count",
        "source",
    ]
) | st.text(max_size=5)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 100)
    | st.sampled_from([10**400, -(10**400), 2**63, 10**18 + 1])
    | st.floats()
    | KEYS
)
JSON_VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value, outermost first."""
    yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from places(value, (*path, index))


PLACES = list(places(WORD_COUNT))[1:]


def mutate(data: Any, path: tuple[Any, ...], how: str, value: Any) -> None:
    """Change one place; a place that an earlier change removed is passed over."""
    try:
        for key in path[:-1]:
            data = data[key]
        match how:
            case "replace":
                data[path[-1]] = value
            case "remove":
                del data[path[-1]]
            case "repeat" if isinstance(data, list):
                data.append(copy.deepcopy(data[path[-1]]))
            case "add" if isinstance(data, dict):
                data[str(value)[:20]] = value
    except (KeyError, IndexError, TypeError):
        pass


@given(st.text())
@example("nan")
@example("\x00")
@settings(deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    assert parsed_or_refused(text) is None


@given(st.dictionaries(KEYS, JSON_VALUES) | JSON_VALUES)
@settings(deadline=None, max_examples=200)
def test_any_json_is_read_or_refused(data: Any) -> None:
    found = parsed_or_refused(json.dumps(data))
    assert found is None or snapshot_from_json(snapshot_to_json(found), place="again") == found


@given(
    st.lists(
        st.tuples(
            st.sampled_from(PLACES), st.sampled_from(["replace", "remove", "repeat", "add"]), SCALARS | JSON_VALUES
        ),
        min_size=1,
        max_size=3,
    )
)
@settings(deadline=None, max_examples=400)
def test_a_damaged_snapshot_is_read_or_refused_and_what_is_read_can_be_evaluated(
    damage: list[tuple[tuple[Any, ...], str, Any]],
) -> None:
    data = copy.deepcopy(WORD_COUNT)
    for path, how, value in damage:
        mutate(data, path, how, value)

    snapshot = parsed_or_refused(json.dumps(data))

    if snapshot is not None:
        proposal = DS2(catch_up_s=60.0)(snapshot)
        assert set(proposal.advice) == set(snapshot.dataflow.scalable)
        assert set(proposal.applied_to(snapshot.plan)) == set(snapshot.plan)


@given(snapshots())
@settings(deadline=None)
def test_every_snapshot_can_be_evaluated_whatever_its_numbers(snapshot: Snapshot) -> None:
    """Tiny and huge numbers side by side: there may be no opinion, but there is an answer."""
    proposal = DS2(catch_up_s=0.001, tolerance=0.5)(snapshot)

    for name, advice in proposal.advice.items():
        assert advice.parallelism is None or advice.parallelism >= 1
        assert advice.parallelism is not None or advice.reasons, name


@pytest.mark.parametrize("depth", [10, 300, 900, 950, 990, 1_500])
def test_deep_nesting_is_refused(depth: int) -> None:
    nested = "[" * depth + "]" * depth

    for text in (nested, f'{{"edges": [{nested}]}}', f'{{"readings": [{{"records_out": {nested}}}]}}'):
        assert parsed_or_refused(text) is None
