"""What a decentralized run is given: who may scale and why not, what is refused before anything starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elastream.cli import app
from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.locks import LockKind
from elastream.decentralized.protocol.capacity_ramp import CapacityStep, ramp
from elastream.decentralized.protocol.control import Controller
from elastream.decentralized.protocol.decision import ScalingPolicy, Variant
from elastream.decentralized.protocol.instance import Instance, first_instance
from elastream.decentralized.spark import capacity
from elastream.decentralized.spark.capacity import CapacityOptions
from elastream.decentralized.spark.folders import RunFolder, take_lock
from elastream.decentralized.spark.living_protocol import LivingProtocol
from elastream.decentralized.spark.outbox import Outbox
from elastream.decentralized.spark.settings import RunSettings, read_settings
from elastream.engines.spark.run import PipelineFile
from elastream.errors import ElastreamError, InvalidInput

FLOW = Dataflow.of(
    [
        Operator(name="source", source=True),
        Operator(name="free"),
        Operator(name="unmeasured"),
        Operator(name="counts", state_partitions=4),
        Operator(name="sink"),
    ],
    [("source", "free"), ("free", "unmeasured"), ("unmeasured", "counts"), ("counts", "sink")],
)
SETTINGS = RunSettings(pipeline=Path("p.py"), capacities={"free": 60.0, "counts": 60.0})


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        ("free", ""),
        ("source", "is a source: it is kept at one"),
        ("unmeasured", "the capacity of 'unmeasured' is not known: it is kept at one"),
        ("counts", "'counts' is stateful: its instances cannot come and go on their own, it is kept at one"),
        ("sink", "is a sink, which writes to one place: it is kept at one"),
    ],
)
def test_who_does_not_scale_says_why(operator: str, why: str) -> None:
    place = SETTINGS.place(f"{operator}/0", FLOW)
    assert why in place.fixed
    assert bool(place.fixed) == bool(why)
    if why:
        with pytest.raises(IllegalEvent, match="it is kept at one"):
            Instance(place).duplicate(first_instance((), ()), 1)


def test_the_first_instance_is_the_keeper_and_no_other() -> None:
    assert SETTINGS.place("free/0", FLOW).keeper
    assert not SETTINGS.place("free/0.1", FLOW).keeper


@pytest.mark.parametrize("capacity", [0.0, -1.0, float("nan"), float("inf")])
def test_a_capacity_is_above_zero(capacity: float) -> None:
    with pytest.raises(InvalidInput, match="capacity of 'free' must be above 0 records per second"):
        RunSettings(pipeline=Path("p.py"), capacities={"free": capacity})


def test_a_capacity_is_for_an_operator_that_there_is() -> None:
    settings = RunSettings(pipeline=Path("p.py"), capacities={"fre": 1.0})
    with pytest.raises(InvalidInput, match=r"'fre', which is no operator .did you mean 'free'"):
        settings.check(FLOW)


def test_settings_survive_the_disk(tmp_path: Path) -> None:
    policy = ScalingPolicy(variant=Variant.COUNTED, look_ahead=True)
    settings = RunSettings(
        pipeline=Path("/p.py"), capacities={"free": 60.0}, policy=policy, seed=7, locks=LockKind.RA2
    )
    settings.write(RunFolder(tmp_path))
    assert read_settings(RunFolder(tmp_path)) == settings


def test_the_locks_of_a_run_are_part_of_what_its_instances_have_written_down(tmp_path: Path) -> None:
    RunSettings(pipeline=Path("examples/taxi_zones.py").absolute(), locks=LockKind.RA1).write(RunFolder(tmp_path))
    given = ["decentralized", "run", "examples/taxi_zones.py", "--folder", str(tmp_path), "--locks", "2-fgme"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2, result.output
    assert "its instances scale with --locks ra1, found --locks 2-fgme" in " ".join(result.output.split())


def test_the_first_instance_of_each_operator_answers_for_the_others() -> None:
    locks = RunSettings(pipeline=Path("p.py"), locks=LockKind.TWO_FGME).neighbour_locks(FLOW)
    assert locks is not None
    assert locks.delegate_of("free/0.2.1") == locks.delegate_of("free/0") == "free/0"
    assert list(locks.of("free/0")) == [("source", "free"), ("free", "unmeasured")]
    assert locks.of("free/0.1") == {}
    assert SETTINGS.neighbour_locks(FLOW) is None


def test_a_second_process_of_an_instance_is_refused(tmp_path: Path) -> None:
    with (
        take_lock(tmp_path / "lock", "free/0"),
        pytest.raises(ElastreamError, match="free/0 runs already in another process"),
    ):
        take_lock(tmp_path / "lock", "free/0")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--capacity", "inZone=0"], "the capacity of 'inZone' must be above 0"),
        (["--capacity", "inZone=many"], "expected records per second, found 'many'"),
        (["--capacity", "inzone=60"], "did you mean 'inZone'"),
        (["--set", "upper_load=0.5"], "the thresholds cross"),
        (["--set", "uper_load=0.5"], "did you mean 'upper_load'"),
        (["--set", "look_ahead=true"], "use the variant 'counted'"),
        (["--locks", "ra3"], "'ra3' is not one of"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(
    tmp_path: Path, options: list[str], why: str
) -> None:
    folder = tmp_path / "run"
    given = ["decentralized", "run", "examples/taxi_zones.py", "--folder", str(folder), *options]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2, result.output
    assert why in " ".join(result.output.split())
    assert not folder.exists()


def test_a_folder_without_a_run_has_no_status(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["decentralized", "status", str(tmp_path)])
    assert result.exit_code == 2
    assert "no run of a decentralized pipeline is here" in " ".join(result.output.split())


def test_status_tells_how_often_each_was_started_and_who_waits_for_locks(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    settings = RunSettings(pipeline=Path("p.py"), capacities={"free": 60.0}, locks=LockKind.RA1)
    settings.write(run)
    for me in ("source/0", "source/0", "free/0"):  # the source was started a second time
        protocol = LivingProtocol(
            Controller(settings.place(me, FLOW), settings.neighbour_locks(FLOW)),
            run.instance(me),
            Outbox(run.instance(me).outbox, lambda successor: run.instance(successor).inbox),
            carry_out=lambda effect: None,
            record=lambda event, **told: None,
        )
        protocol.begin()
    protocol.duplicate(1)
    assert not protocol.may_decide
    result = CliRunner().invoke(app, ["decentralized", "status", str(tmp_path), "--json"])
    instances = {told.pop("instance"): told for told in json.loads(result.output)}
    assert instances == {
        "source/0": {"phase": "running", "incarnation": 2, "waits_for_locks": False, "pending": 0},
        "free/0": {"phase": "running", "incarnation": 1, "waits_for_locks": True, "pending": 0},
    }
    assert "waits for locks" in CliRunner().invoke(app, ["decentralized", "status", str(tmp_path)]).output


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that does 60 records a second with each of its cores, without a Spark to run it."""

    def measure(
        file: PipelineFile, path: Path, operator: str, options: CapacityOptions, *, cores: int
    ) -> Iterator[CapacityStep]:
        return ramp(lambda rate: min(rate, 60.0 * cores), first_per_s=options.first_per_s, growth=2.0)

    monkeypatch.setattr(capacity, "measure_capacity", measure)


CAPACITY = ["capacity", "examples/taxi_zones.py", "inZone", "--cores", "1,4", "--first-rate", "50"]


@pytest.mark.usefixtures("measured")
def test_a_capacity_is_told_while_it_is_measured_and_in_a_table_for_each_number_of_cores() -> None:
    result = CliRunner().invoke(app, CAPACITY)
    assert result.stderr.splitlines() == [
        "1 core: 50/s offered, 50.0/s processed",
        "1 core: 100/s offered, 60.0/s processed: no longer follows",
        "4 cores: 50/s offered, 50.0/s processed",
        "4 cores: 100/s offered, 100.0/s processed",
        "4 cores: 200/s offered, 200.0/s processed",
        "4 cores: 400/s offered, 240.0/s processed: no longer follows",
    ]
    rows = [line.strip("│").split("│") for line in result.stdout.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["1", "60.0", "60.0", "2"],
        ["4", "240.0", "60.0", "4"],
    ]


@pytest.mark.usefixtures("measured")
def test_a_capacity_as_json_has_every_step() -> None:
    found = json.loads(CliRunner().invoke(app, [*CAPACITY, "--json"]).stdout)
    assert found["operator"] == "inZone"
    assert found["capacities"] == {"1": 60.0, "4": 240.0}
    assert found["steps"]["1"] == [
        {"offered_per_s": 50.0, "processed_per_s": 50.0},
        {"offered_per_s": 100.0, "processed_per_s": 60.0},
    ]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["inzone"], "did you mean 'inZone'"),
        (["inZone", "--cores", "1,0"], "expected numbers from 1 on, with commas between them, found '1,0'"),
        (["inZone", "--cores", "1,,2"], "expected numbers from 1 on, with commas between them, found '1,,2'"),
        (["inZone", "--cores", "two"], "expected numbers from 1 on, with commas between them, found 'two'"),
        (["inZone", "--cores", "2,1,2"], "expected each number once, found '2,1,2'"),
        (["inZone", "--first-rate", "0"], "first_per_s must be a finite number above 0"),
    ],
)
def test_a_capacity_that_cannot_be_measured_is_refused(given: list[str], why: str) -> None:
    result = CliRunner().invoke(app, ["capacity", "examples/taxi_zones.py", *given])
    assert result.exit_code == 2
    assert why in " ".join(result.output.split())
