"""What `elastream run` shows while it runs, in plain lines and as a table."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from elastream.commands.live import LiveRun
from elastream.measurement import Snapshot
from elastream.testing import alike, chain, snapshot_of

IDLE = "the input gps of windows is idle: its watermark stands still"


def window(at_s: float, *, late: float | None = None, notes: tuple[str, ...] = ()) -> Snapshot:
    readings = alike("windows", instances=2, records_per_s=50, window_s=10)
    readings = tuple(replace(one, records_late=None if late is None else late / 2) for one in readings)
    snapshot = snapshot_of(edges=chain("source", "windows"), source_rates={"source": 100}, readings=readings)
    return replace(snapshot, at_s=at_s, notes=notes)


def shown(*windows: Snapshot, terminal: bool = False) -> list[str]:
    told = io.StringIO()
    console = Console(
        file=told, width=200, force_terminal=terminal, markup=False, highlight=False, color_system=None
    )
    with LiveRun(console, "test") as live:
        for one in windows:
            live.snapshot(one)
    return told.getvalue().splitlines()


def test_late_records_are_in_the_line_of_their_window() -> None:
    first, second, third = shown(window(0, late=0), window(10, late=12), window(20, late=1_000))
    assert "late" not in first
    assert "windows ×2 100/s, 12 late" in second
    assert "windows ×2 100/s, 1,000 late" in third


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
