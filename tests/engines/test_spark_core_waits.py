"""Waiting for a core, from a made-up /proc and from the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastream.engines.spark.core_waits import CoreWaits

TASK = "Executor task l"


def count(proc: Path, thread: int, *, ran_s: float, waited_s: float, name: str = TASK) -> None:
    folder = proc / "7" / "task" / str(thread)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comm").write_text(f"{name}\n", encoding="utf-8")
    (folder / "schedstat").write_text(f"{ran_s * 1e9:.0f} {waited_s * 1e9:.0f} 12\n", encoding="utf-8")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def waits_of(proc: Path, cores: int = 2) -> CoreWaits:
    """A second passes between two looks."""
    return CoreWaits(7, cores=cores, proc=proc, clock=Clock())


def test_it_is_what_tasks_waited_by_what_they_ran_since_the_last_look(tmp_path: Path) -> None:
    count(tmp_path, 1, ran_s=10, waited_s=7)
    waits = waits_of(tmp_path)
    count(tmp_path, 1, ran_s=11, waited_s=8)
    count(tmp_path, 2, ran_s=1, waited_s=3)
    assert waits.look() == pytest.approx(2.0)
    count(tmp_path, 1, ran_s=13, waited_s=9)
    assert waits.look() == pytest.approx(0.5)


def test_threads_that_run_no_tasks_do_not_count(tmp_path: Path) -> None:
    waits = waits_of(tmp_path)
    count(tmp_path, 1, ran_s=2, waited_s=1)
    count(tmp_path, 2, ran_s=1, waited_s=50, name="C2 CompilerThre")
    assert waits.look() == pytest.approx(0.5)


def test_tasks_that_wait_as_others_use_the_cores_say_nothing(tmp_path: Path) -> None:
    waits = waits_of(tmp_path, cores=4)
    count(tmp_path, 1, ran_s=1, waited_s=9)
    assert waits.look() is None


def test_nothing_is_known_while_no_task_runs(tmp_path: Path) -> None:
    waits = waits_of(tmp_path)
    assert waits.look() is None
    count(tmp_path, 1, ran_s=2, waited_s=1)
    assert waits.look() is not None
    assert waits.look() is None


def test_a_new_thread_with_an_old_number_is_not_counted_backwards(tmp_path: Path) -> None:
    count(tmp_path, 1, ran_s=10, waited_s=5)
    waits = waits_of(tmp_path)
    count(tmp_path, 1, ran_s=1, waited_s=0)
    count(tmp_path, 2, ran_s=2, waited_s=2)
    assert waits.look() == pytest.approx(1.0)


def test_a_process_that_is_not_there_or_has_no_tasks_is_no_error() -> None:
    assert CoreWaits(os.getpid()).look() is None
    assert CoreWaits(2**30).look() is None
