"""What the command prints: fits the terminal, says what is missing, and takes no name for markup."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from elastream.arrivals.load import Constant, Steps
from elastream.commands import console
from elastream.dataflow import Plan
from elastream.engines.simulated import EngineModel, OperatorModel, PowerLaw, SourceModel
from elastream.engines.simulated.simulation import Simulation, simulate
from elastream.manager.decision import Decision, DecisionKind
from elastream.manager.events import ActionVerdict, Decided, Event, Held, Ignored, Judged, Proposed
from elastream.manager.knobs import Knobs
from elastream.measurement import Snapshot
from elastream.measurement.elasticity import Elasticity
from elastream.options import OptionInfo
from elastream.policies.catalog import catalog, create, info
from elastream.policies.proposal import Advice, Proposal, Reason, ReasonKind
from elastream.policies.starting_plan import StartingPlan, StartingPoint
from elastream.testing import alike, chain, snapshot_of
from experiments import printing
from experiments.frame import Check, Experiment, Report

Shown = Callable[..., list[str]]

LONG = "normalise-and-deduplicate-every-single-word"
TRAPS = "[/red]:key:[bold]"


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Calls a function with a console of some columns; the lines that it printed, none of them wider than that."""

    def show(print_something: Callable[[Console], None], width: int = 80) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        print_something(console.new_console())
        lines = capsys.readouterr().out.splitlines()
        assert all(len(line) <= width for line in lines), "\n".join(lines)
        return lines

    return show


def words(lines: Iterable[str]) -> str:
    """The text without its layout: what a reader reads, wherever the lines were broken."""
    return " ".join(" ".join(lines).split())


# A disk that is full


def test_what_goes_on_leaves_out_what_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Full()
    monkeypatch.setattr("sys.stdout", full)
    enduring, other = console.new_console(enduring=True), console.new_console()
    full.why = errno.ENOSPC
    enduring.print("lost")
    with pytest.raises(OSError, match="No space left"):
        other.print("a result")
    full.why = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        enduring.print("of another kind")
    full.why = 0
    console.new_console(enduring=True).print("back")
    assert full.getvalue() == "back\n"


class Full(io.StringIO):
    """A file that cannot be written, for a while."""

    why = 0

    def write(self, text: str) -> int:
        if self.why:
            raise OSError(self.why, os.strerror(self.why))
        return super().write(text)


# A line of bars


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ([], 40, ""),
        ([0.0, 0.0], 40, "▁▁"),
        ([5.0], 40, "█"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([0, 0, 8, 8], 2, "▁█"),
        ([1, 3, 4, 4], 2, "▅█"),
    ],
)
def test_bars_are_means_on_a_scale_from_zero_to_the_highest(values: list[float], width: int, bars: str) -> None:
    assert console.sparkline(values, width) == bars


@given(st.lists(st.floats(min_value=0, max_value=1e18), max_size=300), st.integers(min_value=1, max_value=120))
def test_there_is_a_bar_for_every_value_or_as_many_as_fit(values: list[float], width: int) -> None:
    bars = console.sparkline(values, width)
    assert len(bars) == min(width, len(values))
    assert set(bars) <= set("▁▂▃▄▅▆▇█")


# A proposal


def proposed(snapshot: Snapshot, policy: str = "ds2", **options: str) -> tuple[Snapshot, Proposal]:
    return snapshot, create(policy, options)(snapshot)


def half_measured(*names: str) -> Snapshot:
    """A chain whose first operator lacks an instance's readings and whose other ones have none at all."""
    return snapshot_of(
        edges=chain("source", *names),
        source_rates={"source": 1_234_567.0},
        readings=alike(names[0], records_per_s=100, useful_share=0.5),
        parallelism={names[0]: 2},
    )


def test_a_proposal_is_a_table_with_a_row_for_each_operator(shown: Shown) -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": 950.0}, readings=alike("map", records_per_s=100)
    )

    lines = shown(lambda out: console.print_proposal(out, *proposed(snapshot)))

    assert lines[0] == "ds2: how many instances each operator needs"
    row = next(line for line in lines if "map" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "map",
        "1",
        "9.50",
        "10",
        "950/s",
        "100/s",
        "100%",
    ]
    assert lines[-1] == "expected: 100% of the source rate is sustained"


def test_what_is_missing_is_a_dash_and_a_sentence(shown: Shown) -> None:
    lines = shown(lambda out: console.print_proposal(out, *proposed(half_measured("map", "sink"))))

    row = next(line for line in lines if "sink" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["sink", "1", "—", "—", "1,234,567/s", "—", "—"]
    assert "• sink: no readings in this window" in lines
    assert "incomplete: map: readings of 1 of 2 instances; sink: readings of 0 of 1 instances" in words(lines)


@pytest.mark.parametrize("width", [80, 120])
def test_long_names_are_broken_and_numbers_never(shown: Shown, width: int) -> None:
    lines = shown(lambda out: console.print_proposal(out, *proposed(half_measured(LONG, "sink"))), width)

    assert any("6,172.84" in line and "200/s" in line for line in lines)
    cells = "".join(line.split("│")[1].strip() for line in lines if line.startswith("│"))
    assert cells == LONG + "sink"


@pytest.mark.parametrize("every_reason", [False, True])
def test_names_are_printed_as_they_are(shown: Shown, every_reason: bool) -> None:
    snapshot, proposal = proposed(half_measured(TRAPS, "sink"))

    lines = shown(lambda out: console.print_proposal(out, snapshot, proposal, every_reason=every_reason))

    assert any(line.startswith(f"│ {TRAPS} ") for line in lines)
    assert f"incomplete: {TRAPS}: readings of 1 of 2 instances" in words(lines)


def test_every_reason_is_told_with_its_kind(shown: Shown) -> None:
    snapshot, proposal = proposed(half_measured("map", "sink"))

    lines = shown(lambda out: console.print_proposal(out, snapshot, proposal, every_reason=True))

    assert "measured processes 100/s in 60 s, readings of 1 of 2 instances, utilization 50 %" in words(lines)
    assert "formula must process 1,234,567/s, an instance can do 200/s: 6172.84 instances" in words(lines)
    assert "no data no readings in this window" in words(lines)


def test_lines_of_a_reason_begin_below_each_other(shown: Shown) -> None:
    snapshot, proposal = proposed(half_measured("map", "sink"))

    lines = shown(lambda out: console.print_proposal(out, snapshot, proposal, every_reason=True), 60)

    first = next(index for index, line in enumerate(lines) if "measured" in line)
    assert lines[first + 1].startswith(" " * lines[first].index("processes"))
    assert not any(line.endswith(" ") for line in lines)


def test_shared_workers_are_told(shown: Shown) -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": 950.0}, readings=alike("map", records_per_s=100)
    )
    lines = shown(lambda out: console.print_proposal(out, *proposed(snapshot, shared_workers="true")))
    assert "workers: 10" in lines


def test_a_proposal_of_nothing_is_printed(shown: Shown) -> None:
    snapshot = snapshot_of(edges=[], source_rates={"source": 1.0})
    lines = shown(lambda out: console.print_proposal(out, snapshot, Proposal(policy="ds2", advice={})))
    assert lines[0].startswith("ds2: ")


# Decisions, of a simulation and of a replay


def run_of(*, name: str = "map", load: Constant | Steps | None = None, duration_s: float = 600.0) -> Simulation:
    model = EngineModel(
        dataflow=snapshot_of(edges=chain("source", name), source_rates={"source": 1.0}).dataflow,
        operators={name: OperatorModel(capacity=PowerLaw(per_instance_per_s=100.0))},
        sources={"source": SourceModel(load=load or Constant(records_per_s=350.0))},
        initial_plan=Plan({name: 1}),
    )
    return simulate(model, create("ds2-paper"), Knobs(interval_s=30.0, warm_up_intervals=0), duration_s=duration_s)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["map", LONG, TRAPS])
def test_a_simulation_is_shown_in_any_width(shown: Shown, name: str, width: int) -> None:
    run = run_of(name=name)

    lines = shown(lambda out: console.print_simulation(out, TRAPS, "ds2", run), width)

    assert TRAPS in lines[0]
    assert f"30 s rescale {name} 1 → 4 (29% of the rate before, 100% after: effective)" in words(lines)
    assert words(lines).endswith(
        f"1 action; ends at {name} 4. 38 instance minutes, 4% less than 4 instances all the time."
    )


def test_a_simulation_in_which_nothing_happens(shown: Shown) -> None:
    run = run_of(load=Constant(records_per_s=50.0))

    lines = shown(lambda out: console.print_simulation(out, "calm", "ds2", run))

    assert "No decision was made: the pipeline stayed as it was." in lines
    assert any(line.startswith("map ") and line.rstrip().endswith(" 1 instance") for line in lines)
    assert lines[-1] == "0 actions; ends at map 1. 10 instance minutes."


def test_a_simulation_of_a_source_alone(shown: Shown) -> None:
    model = EngineModel(
        dataflow=snapshot_of(edges=[], source_rates={"source": 1.0}).dataflow,
        operators={},
        sources={"source": SourceModel(load=Constant(records_per_s=1.0))},
        initial_plan=Plan({}),
    )
    run = simulate(model, create("ds2-paper"), Knobs(), duration_s=60.0)

    lines = shown(lambda out: console.print_simulation(out, "alone", "ds2", run))

    assert lines[-1] == "0 actions; ends at nothing that scales. 0 instance minutes."


@pytest.mark.parametrize("duration_s", [0.4, 1.0, 10.0])
def test_a_simulation_that_is_over_before_anything_is_measured(shown: Shown, duration_s: float) -> None:
    run = run_of(duration_s=duration_s)
    lines = shown(lambda out: console.print_simulation(out, "short", "ds2", run))
    assert any(line.startswith("arriving") and "up to 350/s" in line for line in lines)


def decision(number: int, at_s: float, *, advice: tuple[Advice, ...] = ()) -> Decision:
    return Decision(number=number, at_s=at_s, before=Plan({"map": 1}), after=Plan({"map": 4}), advice=advice)


def windows(*ends_s: float) -> list[Snapshot]:
    snapshot = snapshot_of(edges=chain("source", "map"), source_rates={"source": 1.0}, readings=alike("map"))
    return [replace(snapshot, at_s=at_s) for at_s in ends_s]


def test_a_replay_counts_its_time_from_the_beginning_of_the_recording(shown: Shown) -> None:
    began_s = 1_760_000_000.0  # as a wall clock has it
    reasons = (Reason(kind=ReasonKind.MEASURED, text="is slow"), Reason(kind=ReasonKind.FORMULA, text="needs 4"))
    advice = Advice(operator="map", current=1, parallelism=4, reasons=reasons)
    events: list[Event] = [
        Ignored(at_s=began_s + 60, why="warming up, 1 more"),
        Decided(at_s=began_s + 120, decision=decision(1, began_s + 120, advice=(advice,)), dry_run=True),
    ]

    lines = shown(lambda out: console.print_replay(out, "ds2", windows(began_s + 60, began_s + 120), events))

    assert "2 windows, 2 min, replayed with ds2" in lines[0]
    assert words(lines[1:3]).startswith("1 decision; 1 window left out.")
    assert [line.strip() for line in lines[3:]] == [
        "• 1 window left out: warming up, 1 more",
        "2 min  would rescale map 1 → 4  (? of the rate before)",
        "• map needs 4",
    ]


def test_a_replay_says_in_how_many_windows_nothing_was_decided_and_why(shown: Shown) -> None:
    silent = Advice(
        operator="map", current=1, parallelism=None, reasons=(Reason(kind=ReasonKind.NO_DATA, text="is new"),)
    )
    asked = Proposal(policy="lag", advice={"map": silent})
    events: list[Event] = [Proposed(at_s=60, proposal=asked), Proposed(at_s=120, proposal=asked)]
    events += [Held(at_s=120, why="scaling is paused")]
    lines = shown(lambda out: console.print_replay(out, "lag", windows(60, 120), events))
    assert "• in 2 windows: not deciding: map (is new)" in lines
    assert "• in 1 window: held: scaling is paused" in lines


def test_a_replay_of_a_window_without_readings(shown: Shown) -> None:
    empty = snapshot_of(edges=chain("source", "map"), source_rates={"source": 1.0})
    lines = shown(lambda out: console.print_replay(out, "lag", [empty], []))
    assert "1 window, 0 s, replayed with lag" in lines[0]
    assert words(lines[1:]).startswith("0 decisions; 0 windows left out")


def test_a_decision_is_told_with_its_verdict(shown: Shown) -> None:
    back = replace(decision(1, 60), kind=DecisionKind.ROLLBACK, share_before=0.5)
    verdict = Judged(
        at_s=120, number=1, verdict=ActionVerdict.HARMFUL, share_before=0.5, share_after=None, expected_share=1.0
    )
    events: list[Event] = [Decided(at_s=60, decision=back), verdict]

    lines = shown(lambda out: console.print_replay(out, "ds2", windows(60), events))

    assert lines[-1].strip() == "60 s  rollback map 1 → 4  (50% of the rate before, ? after: harmful)"


# The other tables


def test_elasticity_of_several_policies_fits_eighty_columns(shown: Shown) -> None:
    most = Elasticity(
        accuracy_over=12_345.67,
        accuracy_under=123.45,
        timeshare_over=1.0,
        timeshare_under=1.0,
        excess_time=1.0,
        reconfigurations=123,
        cost=1_234_567.0,
    )
    lines = shown(lambda out: console.print_elasticity(out, {"ds2-learned": most, "threshold": most}))
    assert sum("100.0%" in line and "1,234,567" in line for line in lines) == 2


def test_every_policy_is_listed(shown: Shown) -> None:
    lines = shown(lambda out: console.print_policies(out, list(catalog().values())))
    first_cells = {line.split("│")[1].strip() for line in lines if line.startswith("│")}
    assert set(catalog()) <= first_cells


def test_a_policy_is_shown_with_what_its_name_sets(shown: Shown) -> None:
    lines = shown(lambda out: console.print_policy(out, info("ds2-learned")))
    row = next(line for line in lines if line.startswith("│ learned_curve"))
    assert row.split("│")[2].strip() == "True"


def test_a_policy_is_shown_with_the_knobs_that_its_authors_use(shown: Shown) -> None:
    lines = shown(lambda out: console.print_policy(out, info("dhalion")))
    assert "run with: interval_s = 60, warm_up_intervals = 2" in words(lines)


def test_a_policy_of_another_package_is_listed_with_where_it_comes_from(shown: Shown) -> None:
    entry = replace(info("lag"), origin="others 1.0")
    assert "(from others 1.0)" in " ".join(
        " ".join(shown(lambda out: console.print_policies(out, [entry]))).split()
    )
    assert "from: others 1.0" in shown(lambda out: console.print_policy(out, entry))


def test_an_option_without_a_default_says_none(shown: Shown) -> None:
    option = OptionInfo(name="catch_up_s", default=None, unit="s", meaning="how fast")
    lines = shown(lambda out: console.print_options(out, "options", [option]))
    assert "│ catch_up_s │ none    │ s    │ how fast │" in lines


def test_a_report_marks_what_holds_and_what_fails(shown: Shown) -> None:
    report = Report(
        checks=(
            Check(what="steps", ours="1", paper="1", bound="at most 2", holds=True),
            Check(what="ends at", ours="11/20", paper="10/20", bound="10/20", holds=False),
            Check(what="took", ours="30 s"),
            Check(what="odd one", ours="?", holds=False),
        ),
        differs=("ours is [quicker]",),
    )
    experiment = Experiment(name="fake", paper="DS2 §5.2", question="Does it?", run=lambda _: report)

    lines = shown(lambda out: printing.print_report(out, experiment, report))

    rows = {line.split("│")[1].strip(): line.split("│")[-2].strip() for line in lines if line.startswith("│")}
    assert rows == {"steps": "holds", "ends at": "FAILS", "took": "", "odd one": "FAILS"}
    assert lines[-1] == "• ours is [quicker]"


def test_experiments_are_listed_with_their_questions(shown: Shown) -> None:
    experiment = Experiment(name="fake", paper="DS2 §5.2", question="Does it?", run=lambda _: Report(checks=()))
    lines = shown(lambda out: printing.print_experiments(out, [experiment]))
    assert "│ fake │ DS2 §5.2 │ Does it? │" in lines


def test_a_starting_plan_has_its_range_its_reasons_and_what_is_unknown(shown: Shown) -> None:
    reasons = (Reason(kind=ReasonKind.MEASURED, text="is slow"), Reason(kind=ReasonKind.FORMULA, text="needs 4"))
    point = StartingPoint(
        parallelism=4,
        lowest=3,
        highest=5,
        windows=7,
        latest=Advice(operator=TRAPS, current=1, parallelism=4, reasons=reasons),
    )
    plan = StartingPlan(source_rates={"source": 1_000.0}, operators={TRAPS: point}, unknown=("sink",))

    lines = shown(lambda out: console.print_starting_plan(out, plan))

    assert lines[0] == "to start with, for source at 1,000/s: the median of what the windows say"
    row = next(line for line in lines if line.startswith(f"│ {TRAPS}"))
    assert [cell.strip() for cell in row.split("│")[2:-1]] == ["4", "3", "5", "7"]
    assert lines[-2:] == [f"• {TRAPS}: needs 4", "• sink: no recorded window says what it can do"]
