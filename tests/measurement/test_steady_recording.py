"""A recording on a disk that is full for a while, and one that is larger than the memory."""

from __future__ import annotations

import json
import resource
import shutil
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastream.engines.simulated import SimulatedEngine
from elastream.engines.simulated.scenario import read_scenario
from elastream.errors import ElastreamError
from elastream.manager.events import Event, Trouble
from elastream.manager.knobs import Knobs
from elastream.manager.run import RECORDING, Run
from elastream.measurement import Snapshot
from elastream.measurement.recording import RecordingWriter, RunHeader, read_recording
from elastream.measurement.steady_recording import SteadyRecording
from elastream.policies.ds2 import DS2
from elastream.testing import alike, chain, snapshot_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "wordcount.yaml"


def window(at_s: float) -> Snapshot:
    found = snapshot_of(edges=chain("in", "map"), source_rates={"in": 5}, readings=alike("map"))
    return replace(found, at_s=at_s)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A write is cut there and the next one fails: as on a disk that is filling up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_of_a_line_without_room_nothing_stays(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RecordingWriter(path) as recording:
        recording.write({"event": "held"})
        before = path.read_bytes()
        with files_of_at_most(len(before) + 5), pytest.raises(ElastreamError, match="cannot be written: File too"):
            recording.write({"event": "held", "why": "a long reason"})
        recording.write({"event": "of later"})
    assert path.read_bytes() == before + b'{"event":"of later"}\n'


def test_what_a_full_disk_took_is_told_once_and_counted_where_it_goes_on(tmp_path: Path) -> None:
    path, told = tmp_path / "run.jsonl", []
    with SteadyRecording(path, tell=told.append, now=lambda: 7.0) as recording:
        recording.write({"event": "first"})
        for _ in range(2):
            with files_of_at_most(path.stat().st_size):
                for _ in range(3):
                    recording.write({"event": "lost"})
            recording.write({"event": "back"})
    gap = {
        "event": "trouble",
        "at_s": 7.0,
        "what": "the recording lacks 3 lines before this one, which could not be written",
    }
    assert lines(path) == [{"event": "first"}, gap, {"event": "back"}, gap, {"event": "back"}]
    assert [("goes on without" in text, "it lacks 3 lines" in text) for text in told] == [
        (True, False),
        (False, True),
    ] * 2


def test_a_disk_with_little_room_is_still_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, told = tmp_path / "run.jsonl", []
    with SteadyRecording(path, tell=told.append, now=lambda: 7.0) as recording:
        with files_of_at_most(0):
            recording.write({"event": "lost"})
        free = SimpleNamespace(free=5_000)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
        recording.write({"event": "lost"})
        assert len(told) == 1
        free.free = 10**9
        recording.write({"event": "back"})
    assert [line["event"] for line in lines(path)] == ["trouble", "back"]
    assert told[1].endswith("is written again; it lacks 2 lines")


def test_the_header_comes_first_however_late(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with SteadyRecording(path, tell=lambda _: None) as recording:
        with files_of_at_most(0):
            recording.begin(RunHeader(pipeline="words"))
            recording.snapshot(window(60))
        recording.snapshot(window(120))
    found = read_recording(path)
    assert [header.pipeline for header in found.headers] == ["words"]
    assert [snapshot.at_s for snapshot in found.snapshots] == [120]
    assert [line["event"] for line in lines(path)] == ["recording", "trouble", "snapshot"]


class FullForAWhile(SimulatedEngine):
    """The disk is full from the third window to the fifth."""

    def __init__(self) -> None:
        super().__init__(read_scenario(EXAMPLE).model)
        self.windows = 0

    @contextmanager
    def running(self, folder: Path) -> Iterator[SimulatedEngine]:
        self.path = folder / RECORDING
        yield self

    def measure(self) -> Snapshot:
        self.windows += 1
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if self.windows == 3:
            self.soft = soft
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.path.stat().st_size + 10, hard))
        if self.windows == 6:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.soft, hard))
        return super().measure()


def test_a_run_outlives_a_full_disk(tmp_path: Path) -> None:
    engine, told = FullForAWhile(), list[Event]()
    knobs, measured = Knobs(interval_s=10.0), list[Snapshot]()
    run = Run(
        job=engine,  # type: ignore[arg-type]
        policy=DS2(),
        knobs=knobs,
        folder=tmp_path,
        header=RunHeader(pipeline="words"),
        duration_s=100.0,
        on_snapshot=measured.append,
        on_event=told.append,
    )
    assert run.run() == ()
    assert engine.windows == len(measured) > 6
    troubles = [event.what for event in told if isinstance(event, Trouble) and RECORDING in event.what]
    assert ["goes on without a recording" in what for what in troubles] == [True, False]
    assert all(event.at_s <= 100.0 for event in told if isinstance(event, Trouble)), "by the engine's clock"
    kept = [snapshot.at_s for snapshot in read_recording(tmp_path / RECORDING).snapshots]
    assert kept == [snapshot.at_s for n, snapshot in enumerate(measured, start=1) if n not in (3, 4, 5)]


@pytest.mark.parametrize("last", [b"", b'{"event":"cut o'])
def test_a_large_recording_is_taken_up_without_reading_it(tmp_path: Path, last: bytes) -> None:
    path = tmp_path / "run.jsonl"
    with path.open("wb") as file:
        file.truncate(2**31)  # mostly a hole, so that it takes no room
        file.seek(0, 2)
        file.write(b'\n{"event":"held"}\n' + last)
    tracemalloc.start()
    with RecordingWriter(path) as recording:
        recording.write({"event": "held"})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
    assert recording.repaired == bool(last)
    with path.open("rb") as file:
        file.seek(2**31)
        assert file.read() == b'\n{"event":"held"}\n{"event":"held"}\n'
