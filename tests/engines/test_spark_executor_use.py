"""What the Python workers below a process use of the cores, from files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastream.engines.spark.executor_use import PythonCores


def write_stat(
    proc: Path, process: int, parent: int, ticks: tuple[int, int, int, int], name: str = "java"
) -> None:
    (proc / str(process)).mkdir(exist_ok=True)
    before = f"S {parent} 1 1 0 -1 4194304 0 0 0 0"
    (proc / str(process) / "stat").write_text(f"{process} ({name}) {before} {' '.join(map(str, ticks))} 20 0\n")


@pytest.fixture
def cores(tmp_path: Path) -> PythonCores:
    write_stat(tmp_path, 10, 1, (9000, 900, 0, 0))  # the JVM itself: its tasks tell
    write_stat(tmp_path, 11, 10, (100, 0, 50, 0), "python (daemon) x")
    write_stat(tmp_path, 12, 11, (200, 100, 0, 0), "python")
    write_stat(tmp_path, 20, 1, (5000, 0, 0, 0))  # somebody else's
    return PythonCores(10, proc=tmp_path, ticks_per_s=100)


def test_all_processes_below_count_and_no_others(cores: PythonCores, tmp_path: Path) -> None:
    write_stat(tmp_path, 10, 1, (9500, 900, 0, 0))
    write_stat(tmp_path, 12, 11, (350, 150, 0, 0), "python")
    write_stat(tmp_path, 13, 11, (100, 0, 0, 0), "python")  # new
    write_stat(tmp_path, 20, 1, (6000, 0, 0, 0))
    assert cores.look() == pytest.approx(3.0)
    assert cores.look() == 0


def test_a_worker_that_has_ended_is_counted_by_the_one_above_it(cores: PythonCores, tmp_path: Path) -> None:
    (tmp_path / "12" / "stat").unlink()
    write_stat(tmp_path, 11, 10, (100, 0, 350, 120), "python (daemon) x")  # it has waited for its child
    assert cores.look() == pytest.approx(1.2)
