"""The recording that a command is to read: a file, or the folder of a run, which has it under its usual name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elastream.arrivals.load import read_trace
from elastream.errors import InvalidInput
from elastream.manager.run import RECORDING
from elastream.measurement.recording import read_recording

_MOST_NAMED = 5

RecordingArgument = Annotated[
    Path, typer.Argument(metavar="RECORDING", help="A recording (JSON lines), or the folder of a run.")
]


def recording_at(path: Path) -> Path:
    """The file; a folder without one is told with the folders below it that have one."""
    if not path.is_dir():
        return path
    found = path / RECORDING
    if found.is_file():
        return found
    runs = sorted(str(below.parent) for below in path.glob(f"*/{RECORDING}"))
    others = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    below = f"; runs below: {', '.join(runs[:_MOST_NAMED])}{others}" if runs else ""
    raise InvalidInput(f"{path}: the folder of a run was expected, found no {RECORDING} in it{below}")


def name_of(recording: Path) -> str:
    """What it is called by: where the file has the usual name, the folder of the run."""
    return recording.absolute().parent.name if recording.name == RECORDING else recording.stem


def rates_in(path: Path, *, ignore_cut_off: bool = False) -> dict[str, list[tuple[float, float]]]:
    """Times and rates of each source, of a recording or a trace; that of a trace is called as its file is."""
    if path.suffix == ".csv":
        trace = read_trace(path)
        return {path.stem: list(zip(trace.times_s, trace.records_per_s, strict=True))}
    found: dict[str, list[tuple[float, float]]] = {}
    for snapshot in read_recording(recording_at(path), ignore_cut_off=ignore_cut_off).snapshots:
        for source, rate in snapshot.source_rates.items():
            found.setdefault(source, []).append((snapshot.at_s, rate))
    return found
