"""The pictures of the documentation are made of a recording, by what shows it to people."""

from __future__ import annotations

from pathlib import Path

from docs.hooks.screenshots import main, terminal_svg
from elastream.engines.simulated.scenario import read_scenario
from elastream.engines.simulated.simulation import simulate
from elastream.manager.events import event_to_json
from elastream.manager.knobs import Knobs
from elastream.measurement import Snapshot
from elastream.measurement.recording import RecordingWriter, snapshot_line
from elastream.policies.catalog import create

ROOT = Path(__file__).parents[1]


def recorded(folder: Path) -> Path:
    model = read_scenario(ROOT / "examples" / "wordcount.yaml").model
    run = simulate(model, create("ds2"), Knobs(interval_s=10.0), duration_s=300)
    path = folder / "recording.jsonl"
    with RecordingWriter(path) as recording:
        for one in sorted([*run.snapshots, *run.events], key=lambda happened: happened.at_s):
            recording.write(snapshot_line(one) if isinstance(one, Snapshot) else event_to_json(one))
    return path


def test_the_terminal_is_drawn_as_it_was_after_so_many_windows(tmp_path: Path) -> None:
    folder = tmp_path / "wordcount"
    folder.mkdir()
    path = recorded(folder)
    early = terminal_svg(path, windows=1).replace("&#160;", " ")
    assert "wordcount: running" in early
    assert "rescale" not in early
    main([str(folder), str(tmp_path / "images"), "--only", "terminal", "--command", "elastream run x.py"])
    end = (tmp_path / "images" / "terminal.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    assert end.startswith("<svg")
    assert "elastream run x.py" in end
    assert "rescale: " in end
