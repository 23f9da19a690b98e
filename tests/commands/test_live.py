"""What `elastream run` shows while it runs, in plain lines and as a table."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from elastream.commands.live import LiveRun
from elastream.commands.live_master import LiveMaster
from elastream.manager.events import Event, Held, Ignored, Proposed, Trouble
from elastream.measurement import Snapshot
from elastream.policies.proposal import Advice, Proposal, Reason, ReasonKind
from elastream.testing import alike, chain, snapshot_of

IDLE = "the input gps of windows is idle: its watermark stands still"


def window(at_s: float, *, late: float | None = None, notes: tuple[str, ...] = ()) -> Snapshot:
    readings = alike("windows", instances=2, records_per_s=50, window_s=10)
    readings = tuple(replace(one, records_late=None if late is None else late / 2) for one in readings)
    snapshot = snapshot_of(edges=chain("source", "windows"), source_rates={"source": 100}, readings=readings)
    return replace(snapshot, at_s=at_s, notes=notes)


def shown(
    *happened: Snapshot | Event, terminal: bool = False, width: int = 200, kind: type[LiveRun] = LiveRun
) -> list[str]:
    told = io.StringIO()
    console = Console(
        file=told, width=width, force_terminal=terminal, markup=False, highlight=False, color_system=None
    )
    with kind(console, "test") as live:
        for one in happened:
            if isinstance(one, Snapshot):
                live.snapshot(one)
            else:
                live.event(one)
    return told.getvalue().splitlines()


def advice(name: str, need: float, *reasons: Reason, decided: bool = True) -> Advice:
    return Advice(operator=name, current=2, parallelism=2 if decided else None, need=need, reasons=reasons)


def proposed(*advice: Advice, reasons: tuple[Reason, ...] = ()) -> Proposed:
    return Proposed(
        at_s=10, proposal=Proposal(policy="ds2", advice={one.operator: one for one in advice}, reasons=reasons)
    )


STAYS = Reason(kind=ReasonKind.HELD, text="a need of 2.52 ± 0.26 does not stand out from its scatter")
BACKLOG = Reason(kind=ReasonKind.CATCH_UP, text="a backlog of 9,000 records is to be gone in 20 s")
FORMULA = Reason(kind=ReasonKind.FORMULA, text="must process 100/s, an instance can do 50/s: 2.00 instances")
SILENT = Reason(kind=ReasonKind.NO_DATA, text="too few batches yet to know what one costs")


def test_late_records_are_in_the_line_of_their_window() -> None:
    first, second, third = shown(window(0, late=0), window(10, late=12), window(20, late=1_000))
    assert "late" not in first
    assert "windows ×2 100/s, 12 late" in second
    assert "windows ×2 100/s, 1,000 late" in third


def test_who_does_not_keep_up_is_named() -> None:
    readings = (*alike("map", records_per_s=2_974, window_s=10), *alike("windows", records_per_s=359, window_s=10))
    edges = chain("source", "map", "windows")
    snapshot = snapshot_of(edges=edges, source_rates={"source": 718}, readings=readings)
    (line,) = shown(snapshot)
    assert line.endswith("map ×1 2,974/s · windows ×1 359/s, 50% of the rate achieved by windows")
    (line,) = shown(replace(snapshot, failing={"windows": "it raised ValueError"}))
    assert line.endswith("359/s, windows does not work")
    (line,) = shown(replace(snapshot, failing=dict.fromkeys(("source", "map", "windows"), "it raised ValueError")))
    assert line.endswith("source, map and windows do not work")


def test_what_the_numbers_do_not_say_stands_below_the_table() -> None:
    asked = proposed(advice("windows", 2.52, FORMULA, STAYS), reasons=(BACKLOG,))
    lines = shown(window(0), asked, terminal=True)
    assert f"• {BACKLOG}" in lines
    assert f"• windows: {STAYS}" in lines
    assert not any("must process 100/s" in line for line in lines), "the row has it"
    gone = shown(window(0), asked, Ignored(at_s=20, why="warming up, 1 more"), terminal=True)
    assert f"• {BACKLOG}" not in gone[-6:]


def test_in_plain_lines_it_is_said_when_it_is_new() -> None:
    asked = proposed(advice("windows", 2.52, STAYS))
    told = shown(window(0), asked, asked, proposed(advice("windows", 2.52, STAYS), reasons=(BACKLOG,)), asked)
    assert [line for line in told if line.startswith("•")] == [f"• windows: {STAYS}", f"• {BACKLOG}"]
    assert sum(str(STAYS) in line for line in shown(asked, proposed(advice("windows", 2.0)), asked)) == 1


def test_who_is_not_decided_is_told_by_why() -> None:
    silent = (advice("windows", 1, SILENT, decided=False), advice("sink", 1, SILENT, decided=False))
    told = shown(window(0), proposed(advice("map", 2.0), *silent), proposed(*silent))
    assert f"deciding, but not for windows and sink ({SILENT})" in told
    assert f"not deciding: windows and sink ({SILENT})" in told, "where it is nobody, that is not deciding"


def test_a_trouble_that_comes_again_is_in_view_once_and_long_lines_hang_below_their_beginning() -> None:
    troubles = [Trouble(at_s=number, what="operator map: no worker; it is tried again") for number in range(9)]
    lines = shown(window(0), Trouble(at_s=0, what="another one"), *troubles, terminal=True, width=40)
    first, second, third, _ = lines[-4:]  # the last makes the cursor visible again
    assert first.endswith("another one")
    assert "operator map" in second
    assert third.startswith(" " * 9)
    assert third.endswith("tried again")


def test_what_is_held_window_after_window_takes_one_line_in_a_terminal() -> None:
    held = [Held(at_s=number, why=f"map: stays at 4: {number} would do now") for number in (1, 2, 3)]
    lines = shown(window(0), held[0], held[1], Trouble(at_s=2, what="another one"), held[2], terminal=True)
    assert [line.split()[-4] for line in lines[-4:] if "held" in line] == ["2", "3"]
    assert sum("held" in line for line in shown(window(0), *held)) == 3, "lines that are printed stay"


def test_a_line_of_a_window_is_one_line_however_narrow() -> None:
    told = io.StringIO()
    with LiveRun(Console(file=told, width=20), "test") as live:
        live.snapshot(window(0))
    assert len(told.getvalue().splitlines()) == 1


def test_the_table_has_their_sum_where_there_is_event_time() -> None:
    lines = shown(window(0, late=5), window(10, late=1_000), terminal=True)
    assert any("waiting" in line and "late" in line for line in lines)
    rows = [line for line in lines if "windows" in line]
    assert rows[-1].split("│")[-2].strip() == "1,005"
    assert not any("late" in line for line in shown(window(0), terminal=True))


def test_a_note_is_said_when_it_is_new_and_not_with_every_window() -> None:
    told = shown(
        window(0, notes=(IDLE,)),
        window(10, notes=(IDLE,)),
        window(20, notes=(IDLE, "another")),
        window(30),
        window(40, notes=(IDLE,)),
    )
    assert [line.split()[0] for line in told if IDLE in line] == ["0", "40"], "seconds after the start"
    assert sum("another" in line for line in told) == 1


def test_notes_stay_in_view_in_a_terminal() -> None:
    assert any(
        IDLE in line for line in shown(window(0, notes=(IDLE,)), window(10, notes=(IDLE,)), terminal=True)[-8:]
    )


def test_what_nobody_brings_a_master_says_to_its_log_and_not_here_again() -> None:
    both = tuple(
        replace(SILENT, text=f"the rule 'a' waits for {name}") for name in ("latency", "heap_utilization")
    )
    event = proposed(advice("windows", 2.0), reasons=(*both, STAYS))
    assert shown(event)[1:] == [f"• {both[0].text}; {both[1].text}", f"• {STAYS.text}"]
    assert shown(event, kind=LiveMaster)[1:] == [f"• {STAYS.text}"]
