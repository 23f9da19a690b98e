"""`elastream doctor` on this machine, and on one where something is wrong."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from elastream.cli import app
from elastream.commands import machine


def elastream(*arguments: str, columns: int = 100) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": str(columns)})


def found(result: Result) -> dict[str, dict[str, Any]]:
    return {one["check"]: one for one in json.loads(result.stdout)["findings"]}


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine on which all is well, whatever this one is like."""
    monkeypatch.chdir(tmp_path)
    for name in ("PYSPARK_PYTHON", "SPARK_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "java": ("17.0.1 at /java", ""),
        "cores": (4, 0.5),
        "memory": (8 * 1024.0**3, 16 * 1024.0**3),
        "room": (9 * 1024.0**3, ""),
        "open_files": 20_000.0,
        "is_free": True,
        "missing_extras": {},
    }.items():
        monkeypatch.setattr(machine, name, lambda *_, value=value: value)
    return monkeypatch


def test_a_machine_on_which_all_is_well(healthy: pytest.MonkeyPatch) -> None:
    result = elastream("--json")
    assert result.exit_code == 0
    looked_at = found(result)
    assert {"Python", "Java", "PySpark", "memory", "cores", "disk", "loopback", "port 8765", "Kafka's jars"} <= {
        *looked_at
    }
    assert {one["grade"] for name, one in looked_at.items() if name != "Kafka's jars"} == {"ok"}
    assert "pipelines can run here" in elastream().output


def test_what_is_failing_is_told_with_what_to_do_and_status_1(healthy: pytest.MonkeyPatch) -> None:
    healthy.setattr(machine, "java", lambda: (None, "Spark needs Java 17 or newer: install one (Debian: ...)"))
    healthy.setattr(machine, "room", lambda folder: (None, "cannot be written or locked: Permission denied"))
    result = elastream("--json", "--folder", "/sealed")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["grade"] == "failure"
    assert found(result)["Java"]["advice"].startswith("install one")
    assert found(result)["disk"]["found"] == "/sealed: cannot be written or locked: Permission denied"
    shown = elastream("--folder", "/sealed").output
    assert "→ choose another folder: --folder" in shown
    assert "3 things to mend before pipelines can run here" in shown


def test_a_narrow_terminal_shows_all_of_it(healthy: pytest.MonkeyPatch) -> None:
    healthy.setattr(machine, "java", lambda: (f"17 at /{'a-very-long-path/' * 6}bin/java", ""))
    shown = elastream(columns=60).output
    assert "…" not in shown
    assert max(map(len, shown.splitlines()[:-1])) <= 60


def test_a_cluster_and_a_broker_are_looked_at_where_they_are_named(healthy: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"spark://127.0.0.1:{server.getsockname()[1]}"
        assert found(elastream("--json", "--master", there))["master"]["found"] == f"{there} answers"
    gone = elastream("--json", "--master", there, "--kafka-servers", "127.0.0.1:1")
    assert gone.exit_code == 1
    assert found(gone)["master"]["grade"] == found(gone)["Kafka"]["grade"] == "failure"
    assert found(gone)["master"]["advice"] == "`elastream cluster start` starts one"
    assert "neither HADOOP_CONF_DIR" in found(elastream("--json", "--master", "yarn"))["master"]["found"]
    assert elastream("--master", "sparc://x").exit_code == 2


def test_looking_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    free, trouble = machine.room(folder)
    assert (trouble, folder.parent.exists()) == ("", False)
    assert free is not None
    assert free > 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(0o500)
    assert machine.room(tmp_path / "out")[1] == "cannot be written or locked: Permission denied"


def test_ports_that_someone_has(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not machine.is_free(port)
    assert machine.is_free(port)


def test_this_machine_can_be_looked_at() -> None:
    available, total = machine.memory()
    assert 0 < available <= total
    count, load = machine.cores()
    assert count >= 1
    assert load >= 0
    assert machine.pyspark_version()
    assert machine.open_files() > 0
    assert machine.version_of_python() >= (3, 11)


def test_the_python_and_the_spark_that_variables_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 3 8\n")
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    assert machine.python_workers() == (str(python), (3, 8))
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-python")
    assert machine.python_workers() == ("no-such-python", None)
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").write_text("")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert machine.other_spark() == (tmp_path, "3.5.1")
