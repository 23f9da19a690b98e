"""Scenario files: what may be written, and what is said about what may not."""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import dedent

import pytest

from elastream.arrivals.load import Brownian, Constant, Sine, Steps, Trace
from elastream.durations import seconds
from elastream.engines.simulated import (
    Amdahl,
    DowntimeScope,
    PowerLaw,
    Scenario,
    SimulatedEngine,
    Usl,
    read_scenario,
)
from elastream.errors import InvalidInput

WORD_COUNT = """\
name: word count
duration: 30 min
engine: {step: 500 ms, downtime: [20 s, 40 s], downtime_of: operator, noise: 0.03, seed: 7}
operators:
  sentences: {source: true, load: {steps: [[0, 1000], [10 min, 2000]]}, max_rate: 5000}
  words:
    reads: sentences
    capacity: {per_instance: 100, exponent: 0.9}
    selectivity: {counts: 20, archive: 1}
    parallelism: 4
    max_parallelism: 64
    queue: 10000
  counts: {reads: words, capacity: 1000, window: 10 s, fire_cost: 1 ms, hot_share: 0.2, state_partitions: 12}
  archive: {reads: [words, counts], capacity: 1000, min_parallelism: 2, slow_instance: 0.5}
manager: {interval: 60 s}
policies: {ds2: {target_utilization: 0.8}, threshold: }
"""


def scenario(folder: Path, text: str) -> Scenario:
    path = folder / "word-count.yaml"
    path.write_text(dedent(text), encoding="utf-8")
    return read_scenario(path)


def one_operator(**replaced: str) -> str:
    """The least that a scenario needs, with some of it replaced."""
    parts = {
        "duration": "60",
        "engine": "{}",
        "source": "{source: true, load: 5}",
        "work": "{reads: source, capacity: 10}",
        "more": "",
        **replaced,
    }
    return (
        f"name: small\nduration: {parts['duration']}\nengine: {parts['engine']}\n"
        f"operators:\n  source: {parts['source']}\n  work: {parts['work']}\n{parts['more']}\n"
    )


def test_a_whole_scenario(tmp_path: Path) -> None:
    found = scenario(tmp_path, WORD_COUNT)
    assert (found.name, found.duration_s) == ("word count", 1800)
    assert found.manager == {"interval": "60 s"}
    assert found.policies == {"ds2": {"target_utilization": 0.8}, "threshold": {}}
    model = found.model
    assert (model.step_s, model.downtime_s, model.noise, model.seed) == (0.5, (20, 40), 0.03, 7)
    assert model.downtime_scope is DowntimeScope.OPERATOR
    assert model.initial_plan == {"words": 4, "counts": 1, "archive": 2}
    assert model.dataflow.upstream("archive") == ("words", "counts")
    assert model.dataflow["counts"].state_partitions == 12
    assert model.sources["sentences"].load == Steps(steps=((0, 1000), (600, 2000)))
    assert model.operators["words"].capacity == PowerLaw(per_instance_per_s=100, exponent=0.9)
    assert model.operators["words"].queue_records == 10_000
    assert model.operators["counts"].fire_cost_s_per_record == 0.001
    assert model.operators["counts"].window_s == 10
    assert model.selectivity("words", "counts") == 20


def test_it_runs(tmp_path: Path) -> None:
    engine = SimulatedEngine(scenario(tmp_path, WORD_COUNT).model)
    engine.wait(60)
    assert engine.measure().is_complete


def test_the_defaults(tmp_path: Path) -> None:
    model = scenario(tmp_path, one_operator()).model
    assert (model.step_s, model.downtime_range_s, model.noise, model.seed) == (1, (0, 0), 0, 0)
    assert model.downtime_scope is DowntimeScope.JOB
    assert model.operators["work"].queue_records == math.inf
    assert model.initial_plan == {"work": 1}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("5", Constant(records_per_s=5)),
        ("{constant: 5}", Constant(records_per_s=5)),
        ("{sine: {mean: 100, amplitude: 50, period: 1 h}}", Sine(mean=100, amplitude=50, period_s=3600)),
        ("{brownian: {start: 100, step_std: 5, seed: 2}}", Brownian(start=100, step_std=5, seed=2)),
    ],
)
def test_loads(tmp_path: Path, written: str, expected: object) -> None:
    model = scenario(tmp_path, one_operator(source=f"{{source: true, load: {written}}}")).model
    assert model.sources["source"].load == expected


def test_a_trace_is_looked_for_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("time_s,records_per_s\n0,10\n60,20\n", encoding="utf-8")
    text = one_operator(source="{source: true, load: {trace: mine.csv, scale: 2, speed: 3}}")
    load = scenario(tmp_path, text).model.sources["source"].load
    assert isinstance(load, Trace)
    assert load.rate_at(20) == pytest.approx(40)


def test_a_bundled_trace_is_found_by_name(tmp_path: Path) -> None:
    text = one_operator(source="{source: true, load: {trace: worldcup98}}")
    assert isinstance(scenario(tmp_path, text).model.sources["source"].load, Trace)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("10", PowerLaw(per_instance_per_s=10)),
        (
            "{per_instance: 10, delay_cost: 2, delay: 5 ms}",
            PowerLaw(per_instance_per_s=10, delay_cost=2, delay_s=0.005),
        ),
        ("{per_instance: 10, serial_share: 0.1}", Amdahl(per_instance_per_s=10, serial_share=0.1)),
        (
            "{per_instance: 10, contention: 0.1, coherence: 0.01}",
            Usl(per_instance_per_s=10, contention=0.1, coherence=0.01),
        ),
    ],
)
def test_capacities(tmp_path: Path, written: str, expected: object) -> None:
    model = scenario(tmp_path, one_operator(work=f"{{reads: source, capacity: {written}}}")).model
    assert model.operators["work"].capacity == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (5, 5),
        (0.5, 0.5),
        ("90 s", 90),
        ("90s", 90),
        ("1.5 min", 90),
        ("2 h", 7200),
        ("1 d", 86400),
        ("20 ms", 0.02),
    ],
)
def test_durations(written: object, expected: float) -> None:
    assert seconds(written) == pytest.approx(expected)


@pytest.mark.parametrize("written", ["", "fast", "5 weeks", "-3 s", True, None, [1], -1, math.nan])
def test_what_is_not_a_duration(written: object) -> None:
    with pytest.raises(ValueError, match="a duration is"):
        seconds(written)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"duration": "soon"}, "duration: a duration is a number of seconds"),
        ({"duration": "0"}, "duration must be a finite number above 0"),
        ({"more": "polices: {}"}, "unknown key 'polices' (did you mean 'policies'?)"),
        ({"engine": "{downtme: 5}"}, "engine: unknown key 'downtme' (did you mean 'downtime'?)"),
        ({"engine": "{downtime: [1, 2, 3]}"}, "engine.downtime: a duration, or the least and the most"),
        ({"engine": "{downtime: [3 s, 2 s]}"}, "downtime_s must be (least, most)"),
        ({"engine": "{downtime_of: task}"}, "engine.downtime_of: "),
        ({"engine": "{noise: much}"}, "engine.noise: "),
        ({"work": "5"}, "operators.work: "),
        ({"work": "{reads: source}"}, "operators.work: capacity: is missing"),
        ({"work": "{capacity: 5}"}, "operators.work: reads: is missing"),
        ({"work": "{reads: sorce, capacity: 5}"}, "unknown operator 'sorce' (did you mean 'source'?)"),
        ({"work": "{reads: source, capacity: 5, paralelism: 2}"}, "operators.work: unknown key 'paralelism'"),
        ({"work": "{reads: source, capacity: -5}"}, "operators.work: per_instance_per_s must be"),
        ({"work": "{reads: source, capacity: {per_instance: 5, expnent: 1}}"}, "capacity: unknown key 'expnent'"),
        (
            {"work": "{reads: source, capacity: {per_instance: 5, exponent: 1, contention: 0.1}}"},
            "capacity: contention and exponent belong to different laws",
        ),
        ({"work": "{reads: source, capacity: 5, hot_share: 2}"}, "operators.work: hot_share must be above 0"),
        ({"work": "{reads: source, capacity: 5, selectivity: {x: 1}}"}, "selectivity of 'work': 'x'"),
        ({"work": "{reads: source, capacity: 5, selectivity: many}"}, "operators.work: selectivity: a number"),
        (
            {"work": "{reads: source, capacity: 5, parallelism: 9, max_parallelism: 4}"},
            "plan: 'work' may have 1 to 4",
        ),
        ({"work": "{reads: source, capacity: 5, parallelism: 0}"}, "'work': parallelism must be at least 1"),
        ({"work": "{reads: work, capacity: 5}"}, "cycle"),
        ({"source": "{source: true}"}, "operators.source: load: is missing"),
        ({"source": "{source: true, load: {}}"}, "operators.source: load: a load is one of"),
        ({"source": "{source: true, load: {constant: 1, trace: x}}"}, "found constant and trace"),
        ({"source": "{source: true, load: {constant: 1, speed: 2}}"}, "load: speed belongs to a trace"),
        ({"source": "{source: true, load: -1}"}, "operators.source: records_per_s must be"),
        (
            {"source": "{source: true, load: {steps: [5]}}"},
            "load.steps[0]: a step is [from when, records per second]",
        ),
        (
            {"source": "{source: true, load: {steps: [[5, 1]]}}"},
            "operators.source: steps: expected the first time",
        ),
        ({"source": "{source: true, load: {trace: worldcup}}"}, "no bundled trace is named 'worldcup'"),
        ({"source": "{source: true, load: {trace: nowhere.csv}}"}, "nowhere.csv"),
        ({"source": "{source: true, load: 1, reads: work}"}, "operators.source: unknown key 'reads'"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_the_place(
    tmp_path: Path, replaced: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        scenario(tmp_path, one_operator(**replaced))
    assert str(caught.value).startswith(f"{tmp_path / 'word-count.yaml'}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("- a\n- b", "a scenario is a mapping"), ("", "a scenario is a mapping"), ("a: [", "line")],
)
def test_what_is_no_scenario_at_all(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        scenario(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        read_scenario(tmp_path / "none.yaml")
