"""The load of Nexmark's events: what is due is written, to feeds and to files, and what cannot be held is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastream.arrivals.load import Constant, Load, Steps
from elastream.engines.spark.channels.files import FileChannel
from elastream.errors import InvalidInput
from elastream.workloads import nexmark_load
from elastream.workloads.nexmark import AUCTIONS, BIDS, PERSONS, SCHEMAS, Nexmark
from elastream.workloads.nexmark_load import RateHeld, streams_of, write_load
from elastream.workloads.nexmark_targets import Feeds, FilesOf


class ManualClock:
    """A clock that moves when someone sleeps, and as much more as a write takes."""

    def __init__(self, write_s: float = 0.0) -> None:
        self.now_s = 1_000.0
        self.write_s = write_s

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Memory:
    """A target that keeps what it is given, and takes its time."""

    def __init__(self, clock: ManualClock) -> None:
        self.tables: dict[str, list[pa.Table]] = {}
        self._clock = clock

    def written(self, stream: str) -> int:
        return sum(map(len, self.tables.get(stream, ())))

    def write(self, stream: str, events: pa.Table) -> None:
        self._clock.now_s += self._clock.write_s
        self.tables.setdefault(stream, []).append(events)


def run(
    monkeypatch: pytest.MonkeyPatch,
    load: Load,
    duration_s: float,
    *,
    target: Memory | Feeds | FilesOf | None = None,
    clock: ManualClock | None = None,
    streams: tuple[str, ...] = tuple(SCHEMAS),
) -> tuple[RateHeld, Memory, list[str]]:
    clock = clock or ManualClock()
    monkeypatch.setattr(nexmark_load, "time", clock)
    memory, told = Memory(clock), []
    held = write_load(
        target or memory,
        Nexmark(),
        load,
        streams,
        tick_s=0.25,
        stopped=lambda: False,
        duration_s=duration_s,
        tell=told.append,
    )
    return held, memory, told


def test_each_stream_gets_its_share_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    held, memory, told = run(monkeypatch, Steps(steps=((0, 1_000), (5, 3_000))), 10)
    assert {stream: memory.written(stream) for stream in SCHEMAS} == {PERSONS: 400, AUCTIONS: 1_200, BIDS: 18_400}
    assert (held.written, held.is_late, told) == (20_000, False, [])


def test_the_time_of_an_event_is_when_it_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    _, memory, _ = run(monkeypatch, Steps(steps=((0, 100), (5, 200))), 10, streams=(BIDS,))
    times = [at.timestamp() for table in memory.tables[BIDS] for at in table["at"].to_pylist()]
    assert times == sorted(times)
    assert sum(1 for at in times if at < 1_005) == 460
    assert 1_009.9 < times[-1] <= 1_010


def test_a_rate_that_cannot_be_held_is_told_with_the_one_that_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write takes a second, and has at most 200,000 events."""
    held, _, told = run(
        monkeypatch, Constant(records_per_s=500_000), 6, clock=ManualClock(write_s=1), streams=(BIDS,)
    )
    assert held.is_late
    assert told, "also while it runs"
    assert "where 500,000 were asked for" in held.text()
    assert held.written / held.over_s == pytest.approx(200_000, rel=0.15)


def test_a_machine_that_is_late_for_a_moment_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    held, memory, _ = run(monkeypatch, Constant(records_per_s=1_000), 20, clock=ManualClock(write_s=0.6))
    assert not held.is_late
    assert memory.written(BIDS) == pytest.approx(0.92 * 20_000, abs=0.92 * 2_000)


def test_it_goes_on_behind_what_it_wrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = (BIDS, AUCTIONS)
    for _ in range(2):
        run(monkeypatch, Constant(records_per_s=1_000), 1, target=Feeds(tmp_path / BIDS, asked), streams=asked)
    ids = [number for table in FileChannel(tmp_path / AUCTIONS).tables() for number in table["id"].to_pylist()]
    assert ids == list(range(1000, 1120))
    assert FileChannel(tmp_path / BIDS).log.head().records == 1_840


def test_files_are_whole_and_numbered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for kind in ("parquet", "json"):
        for _ in range(2):
            run(
                monkeypatch,
                Constant(records_per_s=1_000),
                1,
                target=FilesOf(tmp_path / kind, kind, tuple(SCHEMAS)),
            )
        assert FilesOf(tmp_path / kind, kind, (BIDS,)).written(BIDS) == 1_840
    files = sorted((tmp_path / "parquet" / AUCTIONS).iterdir())
    assert [number for file in files for number in pq.read_table(file)["id"].to_pylist()] == list(
        range(1000, 1120)
    )
    lines = "".join(file.read_text() for file in sorted((tmp_path / "json" / PERSONS).iterdir())).splitlines()
    assert len(lines) == 40
    assert '"state": ' in lines[0]


def test_unknown_streams_and_kinds_of_files_are_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="did you mean 'bids'"):
        streams_of("persons,bidz")
    with pytest.raises(InvalidInput, match="did you mean 'parquet'"):
        FilesOf(tmp_path, "parket", (BIDS,))


def test_as_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elastream.workloads.nexmark_load", str(tmp_path), "--files", "parquet"]
    options = ["--load", "2000", "--duration", "0.5", "--streams", "persons"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, check=True)
    assert "a second" in done.stderr
    assert list((tmp_path / PERSONS).glob("*.parquet"))
    refused = subprocess.run([*command, "--load", "{}"], capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: ")
