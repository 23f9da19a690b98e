"""A folder that not all see as the same is refused before anything runs there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import same_folder_story
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession
from same_folder_story import ELSEWHERE, SHARED

from elastream.engines.spark import folder_witness, same_folder
from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster
from elastream.engines.spark.folder_witness import PREFIX, Probe, Witness, difference
from elastream.engines.spark.same_folder import check_same_folder
from elastream.errors import ElastreamError

_PATIENCE_S = 600.0  # for a machine that does other things too
_TOKEN = "t0ken"


def witnesses(*, task_saw: dict[str, str], driver_saw: dict[str, str]) -> list[Witness]:
    return [
        Witness(who="a task on far", file="task-0", saw=task_saw),
        Witness(who="Spark's own process", file="spark", saw={"driver": _TOKEN}),
        Witness(who="the driver", file="driver", saw=driver_saw),
    ]


SEEN_BY_TASK = {"driver": _TOKEN, "spark": _TOKEN}
SEEN_BY_DRIVER = {"task-0": _TOKEN, "spark": _TOKEN}


@pytest.mark.parametrize(
    ("task_saw", "driver_saw", "told"),
    [
        (SEEN_BY_TASK, SEEN_BY_DRIVER, None),
        (
            {"driver": "No such file"},
            {},
            "the driver and a task on far do not see the same folder there: what the one has written the other "
            "does not find (No such file); every node needs",
        ),
        (
            {**SEEN_BY_TASK, "spark": ""},
            {},
            "Spark's own process and a task on far do not see the same folder there: what the one has written the "
            "other does not find (empty); every node needs",
        ),
        (
            SEEN_BY_TASK | {"task-0": "Permission denied"},
            {},
            "a task on far cannot write there: Permission denied",
        ),
        (
            SEEN_BY_TASK,
            SEEN_BY_DRIVER | {"task-0": "No such file"},
            "a task on far and the driver do not see the same folder there",
        ),
    ],
)
def test_who_sees_another_folder_is_told(
    task_saw: dict[str, str], driver_saw: dict[str, str], told: str | None
) -> None:
    found = difference(
        Probe(folder=Path("/run"), token=_TOKEN), witnesses(task_saw=task_saw, driver_saw=driver_saw)
    )
    assert (found or "").startswith(f"/run: {told}" if told else "")
    assert (found is None) == (told is None)


def test_all_see_it_and_nothing_is_left(spark: SparkSession, tmp_path: Path) -> None:
    run, sink = tmp_path / "run", tmp_path / "sink"
    leftover, young = run / f"{PREFIX}old", run / f"{PREFIX}new"
    for folder in (run, sink, leftover, young):
        folder.mkdir()
    a_day_ago_s = time.time() - 86_400
    os.utime(leftover, (a_day_ago_s, a_day_ago_s))
    check_same_folder(spark, [run, sink, run], on_executors=[run, sink])
    check_same_folder(spark, [run])
    assert sorted(tmp_path.rglob("*")) == [run, young, sink], "nor what a driver left that was killed long ago"


def test_spark_sees_another(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_witness, "PATIENCE_S", 0.0)
    monkeypatch.setattr(same_folder, "for_spark", lambda path: f"file://{tmp_path}/other/{path.name}")
    with pytest.raises(
        ElastreamError,
        match=rf"{tmp_path}: the driver and Spark's own process do not see the same folder there: "
        r".* \(File file:.* does not exist\); every node needs this folder at the same path",
    ):
        check_same_folder(spark, [tmp_path])
    assert list(tmp_path.rglob("*")) == []


def test_a_folder_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ElastreamError, match=r"gone: cannot be used: No such file or directory"):
        check_same_folder(spark, [tmp_path / "gone"])


@pytest.mark.parametrize(
    ("installed", "why"),
    [(False, 'Cannot run program ".*/python"'), (True, "ModuleNotFoundError: No module named 'elastream'")],
)
def test_executors_without_our_python(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool, why: str
) -> None:
    python = tmp_path / "python"
    if installed:  # but not with elastream
        (tmp_path / "elastream.py").write_text("raise ModuleNotFoundError(\"No module named 'elastream'\")")
        python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
        python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    with pytest.raises(
        ElastreamError, match=rf"a task that only looks into {tmp_path} fails: {why}.*; every node needs the same"
    ):
        check_same_folder(spark, [tmp_path], on_executors=[tmp_path])
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def hiding(folder: Path) -> list[str]:
    """What starts a command that sees an empty file system of its own in this folder; skipped where nobody may."""
    for unshare in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        command = [*unshare, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]
        try:
            subprocess.run([*command, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return command
    pytest.skip("this machine gives no mount namespaces (Linux, and root or user namespaces)")


def test_a_worker_that_sees_another_folder_is_noticed_at_the_start(tmp_path: Path) -> None:
    for name in (SHARED, ELSEWHERE):
        (tmp_path / name).mkdir()
    command = hiding(tmp_path / ELSEWHERE)
    options = ClusterOptions(folder=tmp_path / "cluster", workers=1, cores=1, memory="1g", port=0, web_port=0)
    with StandaloneCluster(options) as cluster:
        worker = [os.path.join(_find_spark_home(), "bin", "spark-class"), "org.apache.spark.deploy.worker.Worker"]
        worker += [cluster.master_url, "--host", options.host, "--cores", "1", "--memory", options.memory]
        worker += ["--work-dir", str(tmp_path / "cluster" / "work" / "hidden"), "--webui-port", "0"]
        cluster.daemons.start_command("worker hidden", [*command, *worker])
        told = subprocess.run(
            [sys.executable, same_folder_story.__file__, cluster.master_url, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        assert cluster.ended() == []
    assert told.returncode == 0, told.stdout
    seen = json.loads(told.stdout.splitlines()[-1])
    refused = "the driver and a task on .* do not see the same folder there: .*No such file or directory"
    assert re.match(f"{tmp_path}/{ELSEWHERE}/run: {refused}", seen["run"]), seen["run"]
    assert re.match(f"{tmp_path}/{ELSEWHERE}/kept: {refused}", seen["sink"]), seen["sink"]
    assert seen["none"] == "started"
    assert list(tmp_path.rglob(f"{PREFIX}*")) == []
