"""The load generator: what is due by the clock is written, numbered, whatever else happens."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elastream.arrivals.load import Constant, Load, Sine, Steps
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.segments import SegmentLog
from elastream.errors import InvalidInput
from elastream.workloads import generator
from elastream.workloads.generator import generate, records_of, sentence, table
from tests.patience import PATIENCE_S, wait_until


class ManualClock:
    """A clock that moves when someone sleeps, and as much more as the machine is late."""

    def __init__(self, late_s: tuple[float, ...] = (0.0,)) -> None:
        self.now_s = 1_000.0
        self._late_s = late_s
        self._slept = 0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + self._late_s[self._slept % len(self._late_s)]
        self._slept += 1


@pytest.fixture
def log(tmp_path: Path) -> SegmentLog:
    return SegmentLog(tmp_path / "sentences")


def run(
    monkeypatch: pytest.MonkeyPatch,
    log: SegmentLog,
    load: Load,
    duration_s: float,
    clock: ManualClock | None = None,
) -> int:
    monkeypatch.setattr(generator, "time", clock or ManualClock())
    make = records_of("sentences", words=3)
    return generate(
        FileChannel(log.folder), load, make=make, tick_s=0.25, stopped=lambda: False, duration_s=duration_s
    )


def records(log: SegmentLog) -> list[tuple[int, int, str]]:
    found = []
    for part in FileChannel(log.folder).tables():
        columns = part.to_pydict()
        found += list(zip(columns["id"], columns["created_ms"], columns["line"], strict=True))
    return found


# --- the rate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 3.7, 40.0, 1234.5])
def test_the_rate_holds_on_average(monkeypatch: pytest.MonkeyPatch, log: SegmentLog, rate: float) -> None:
    assert run(monkeypatch, log, Constant(records_per_s=rate), 20.0) == pytest.approx(20 * rate, abs=1)


def test_a_late_machine_catches_up(monkeypatch: pytest.MonkeyPatch, log: SegmentLog) -> None:
    """It is an open loop: what was not written in time is written afterwards."""
    clock = ManualClock(late_s=(0.0, 0.1, 3.0))
    assert run(monkeypatch, log, Constant(records_per_s=100.0), 30.0, clock) == pytest.approx(3_000, abs=1)


def test_steps_are_followed(monkeypatch: pytest.MonkeyPatch, log: SegmentLog) -> None:
    load = Steps(steps=((0.0, 100.0), (10.0, 300.0), (15.0, 0.0)))
    assert run(monkeypatch, log, load, 60.0) == pytest.approx(1_000 + 1_500, rel=0.02)
    created_s = [created_ms / 1000 - 1_000 for _, created_ms, _ in records(log)]
    assert sum(second <= 10 for second in created_s) == pytest.approx(1_000, rel=0.03)
    assert max(created_s) <= 15.3


def test_a_sine_is_followed(monkeypatch: pytest.MonkeyPatch, log: SegmentLog) -> None:
    load = Sine(mean=100.0, amplitude=80.0, period_s=10.0)
    assert run(monkeypatch, log, load, 30.0) == pytest.approx(3_000, rel=0.02)


def test_no_load_writes_nothing(monkeypatch: pytest.MonkeyPatch, log: SegmentLog) -> None:
    assert run(monkeypatch, log, Constant(records_per_s=0.0), 5.0) == 0
    assert log.head().commits == 0


# --- the records ------------------------------------------------------------------------------------------------


def test_records_are_numbered_from_where_an_earlier_generator_stopped(
    monkeypatch: pytest.MonkeyPatch, log: SegmentLog
) -> None:
    first = run(monkeypatch, log, Constant(records_per_s=10.0), 3.0)
    both = run(monkeypatch, log, Constant(records_per_s=50.0), 2.0)
    assert 0 < first < both
    assert [number for number, _, _ in records(log)] == list(range(both))


def test_one_that_died_between_two_files_is_continued(monkeypatch: pytest.MonkeyPatch, log: SegmentLog) -> None:
    run(monkeypatch, log, Constant(records_per_s=10.0), 1.0)
    before = (log.folder / "head.json").read_bytes()
    run(monkeypatch, log, Constant(records_per_s=8.0), 0.25)
    (log.folder / "head.json").write_bytes(before)  # the entry was written, the head was not
    total = run(monkeypatch, log, Constant(records_per_s=10.0), 1.0)
    assert [number for number, _, _ in records(log)] == list(range(total))
    assert total == 22


def test_a_sentence_is_the_same_for_the_same_number() -> None:
    assert sentence(3, 2) == "word093 word110"
    assert len({sentence(number, 5) for number in range(500)}) == 500
    columns = table(7, 2, words=2, created_ms=5).to_pydict()
    assert columns == {"id": [7, 8], "created_ms": [5, 5], "line": [sentence(7, 2), sentence(8, 2)]}


def test_records_are_made_by_a_function_that_is_named() -> None:
    assert records_of("elastream.workloads.generator:table") is table
    assert records_of("sentences", words=2)(7, 1, created_ms=5).to_pydict()["line"] == [sentence(7, 2)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rides", "expected 'sentences' or MODULE:FUNCTION, found 'rides'"),
        ("no_such_module:table", "'no_such_module:table' cannot be imported: No module named 'no_such_module'"),
        ("elastream.workloads.generator:tabel", "has no attribute 'tabel'"),
        (
            "elastream.workloads.generator:SCHEMA",
            "expected a function, found elastream.workloads.generator:SCHEMA =",
        ),
    ],
)
def test_records_that_cannot_be_made_are_refused(name: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        records_of(name)


# --- as a process -----------------------------------------------------------------------------------------------


def wait_for(log: SegmentLog, count: int, process: subprocess.Popen[str]) -> None:
    wait_until(lambda: log.head().records >= count or process.poll() is not None, f"{count} records")
    assert process.poll() is None, "the generator ended by itself"


def command(log: SegmentLog, load: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "elastream.workloads.generator",
        str(log.folder),
        "--load",
        load,
        "--tick",
        "0.05",
    ]


def test_a_terminated_process_ends_after_a_whole_write(log: SegmentLog) -> None:
    with subprocess.Popen(
        command(log, "steps: [[0, 400], [60, 800]]"), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for(log, 100, process)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, said) == (0, "")
    found = records(log)
    assert [number for number, _, _ in found] == list(range(log.head().records))
    assert [line for _, _, line in found] == [sentence(number, 5) for number in range(len(found))]


def test_a_bad_load_is_told_in_one_line(log: SegmentLog) -> None:
    ended = subprocess.run(
        command(log, "stairs: [1, 2]"), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: --load: ")
    assert len(ended.stderr.splitlines()) == 1
