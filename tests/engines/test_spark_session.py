"""Java is looked at before Spark is started, with executables that stand for one."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from elastream.engines.spark.java import check_java
from elastream.engines.spark.session import still_runs
from elastream.errors import ElastreamError


def java(folder: Path, script: str, *, executable: bool = True) -> Path:
    """A home of a Java that is a shell script."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    if executable:
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def says(version: str) -> str:
    return f"""echo 'openjdk version "{version}" 2025-04-15' >&2"""


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.parametrize("version", ["17.0.15", "17", "21.0.2", "25-ea"])
def test_a_new_java_will_do(tmp_path: Path, version: str) -> None:
    java(tmp_path, says(version))
    check_java()


def test_the_one_of_java_home_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path, says("11.0.1"))
    java(tmp_path / "newer", says("17.0.1"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "newer"))
    check_java()


def test_none_on_the_path() -> None:
    with pytest.raises(
        ElastreamError, match=r"needs Java 17 or newer, and none was found on the PATH: install one"
    ):
        check_java()


def test_none_at_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path, says("17.0.1"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(ElastreamError, match=rf"none was found at JAVA_HOME \({tmp_path}/gone\)"):
        check_java()


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_402", "9"])
def test_too_old_a_java_is_named(tmp_path: Path, version: str) -> None:
    path = java(tmp_path, says(version))
    with pytest.raises(ElastreamError, match=rf"needs Java 17 or newer, found {version} at {path}: install one"):
        check_java()


@pytest.mark.parametrize("script", ["echo 'Error: could not find libjava.so' >&2; exit 2", "exit 0"])
def test_one_that_does_not_say_its_version(tmp_path: Path, script: str) -> None:
    path = java(tmp_path, script)
    with pytest.raises(ElastreamError, match=f"found unknown at {path}"):
        check_java()


def test_one_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = java(tmp_path / "home", says("17.0.1"), executable=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(ElastreamError, match=rf"{path} does not run \(Permission denied\)"):
        check_java()


class _Context:
    """Stands for Spark's, of a process that answers, whose Spark has stopped, or that is gone."""

    def __init__(self, stopped: bool | None) -> None:
        self.stopped = stopped

    def sc(self) -> _Context:
        return self

    def isStopped(self) -> bool:  # noqa: N802 - Spark's own name
        if self.stopped is None:
            raise Py4JNetworkError("Answer from Java side is empty")
        return self.stopped


@pytest.mark.parametrize(("stopped", "runs"), [(False, True), (True, False), (None, False)])
def test_a_spark_that_a_signal_has_stopped_runs_no_longer_though_java_answers(
    stopped: bool | None, runs: bool
) -> None:
    session: Any = SimpleNamespace(_jsc=_Context(stopped))
    assert still_runs(session) is runs
