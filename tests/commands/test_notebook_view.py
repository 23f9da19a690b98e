"""The live table as HTML, and that it is nowhere but in a notebook."""

from __future__ import annotations

import io
import threading

from rich.console import Console
from rich.text import Text

from elastream.commands.live import LiveRun
from elastream.notebook import InlineView, as_html, display_of_notebook
from elastream.testing import alike, chain, snapshot_of


def test_what_is_shown_is_text_whatever_it_is_called() -> None:
    found = as_html(Text("<b>words</b>", style="bold green"))
    assert "&lt;b&gt;words&lt;/b&gt;" in found
    assert "font-weight: bold" in found
    assert found.startswith("<pre")
    assert "</html>" not in found


def test_the_table_of_a_run_is_drawn_on_it() -> None:
    shown: list[str] = []
    snapshot = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": 100}, readings=alike("map", records_per_s=50)
    )
    drawn_on = Console(file=io.StringIO(), force_terminal=True)
    with LiveRun(drawn_on, "a run", live=InlineView(shown.append)) as live:
        live.phase("starting Spark", waits=True)
        live.snapshot(snapshot)
        live.phase("running")
    assert "starting Spark" in shown[0]
    assert "a run: running" in shown[-1]
    assert "map" in shown[-1]
    assert drawn_on.file.getvalue() == "", "and nowhere else"  # type: ignore[attr-defined]


def test_seconds_of_waiting_are_seen_to_pass() -> None:
    changed = threading.Semaphore(0)
    with LiveRun(
        Console(file=io.StringIO(), force_terminal=True),
        "a run",
        live=InlineView(lambda _: changed.release(), every_s=0.01),
    ) as live:
        live.phase("starting Spark", waits=True)
        assert all(changed.acquire(timeout=60) for _ in range(3)), "the spinner turns"


def test_a_program_has_no_cell() -> None:
    assert display_of_notebook() is None
