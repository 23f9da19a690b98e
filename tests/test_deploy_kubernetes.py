"""The examples for Kubernetes fit each other, the command, and the Spark that is installed.

Whether they work is shown by `make test-kubernetes`, on an API server that is not the real one.
"""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from pyspark.find_spark_home import _find_spark_home

from elastream.cli import app
from elastream.engines.spark.executors import check_master
from elastream.engines.spark.session_conf import conf_of

DEPLOY = Path(__file__).parents[1] / "deploy" / "kubernetes"
ENTRYPOINT = DEPLOY / "entrypoint.sh"
OPTIONS = re.compile(r"--[\w-]+")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


@pytest.fixture
def driver() -> dict[str, Any]:
    """The pod of the deployment."""
    [deployment] = documents("driver.yaml")
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


@pytest.fixture
def application() -> dict[str, Any]:
    [found] = documents("spark-application.yaml")
    spec: dict[str, Any] = found["spec"]
    return spec


def test_all_name_one_account_one_claim_and_one_image(
    driver: Mapping[str, Any], application: Mapping[str, Any]
) -> None:
    account, role, binding = documents("rights.yaml")
    [claim] = documents("folder.yaml")
    [container] = driver["containers"]
    conf = _conf(container["args"])

    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [one["name"] for one in binding["subjects"]] == [account["metadata"]["name"]]
    assert driver["serviceAccountName"] == application["driver"]["serviceAccount"] == account["metadata"]["name"]

    volumes = "spark.kubernetes.executor.volumes.persistentVolumeClaim.shared"
    claims = [one["volumes"][0]["persistentVolumeClaim"]["claimName"] for one in (driver, application)]
    assert {*claims, conf[f"{volumes}.options.claimName"]} == {claim["metadata"]["name"]}
    mounted = [one["volumeMounts"][0]["mountPath"] for one in (container, *_pods(application))]
    assert {*mounted, conf[f"{volumes}.mount.path"]} == {"/shared"}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]

    assert container["image"] == application["image"] == conf["spark.kubernetes.container.image"]
    built = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert f"--tag {container['image']} " in built


def test_the_command_has_the_options_that_they_give_it(
    driver: Mapping[str, Any], application: Mapping[str, Any]
) -> None:
    run = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    known = {name for option in run.params for name in option.opts}
    program, *of_driver = driver["containers"][0]["args"]
    assert program == "elastream"
    for command, job, *options in (of_driver, application["arguments"]):
        assert (command, job) == ("run", "/job/job.py")
        names = [OPTIONS.match(option)[0] for option in options]  # type: ignore[index]
        assert set(names) <= known
        told = dict(option.split("=", 1) for option in options)
        check_master(told["--master"])
        assert told["--folder"].startswith("/shared/")


def test_what_kubernetes_is_to_fill_in_is_there(driver: Mapping[str, Any]) -> None:
    [container] = driver["containers"]
    asked = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
    assert asked == {one["name"] for one in container["env"]}


def test_spark_is_that_which_is_installed(application: Mapping[str, Any]) -> None:
    assert list(Path(_find_spark_home(), "jars").glob(f"spark-core_*-{application['sparkVersion']}.jar"))


def test_an_executor_is_started_with_all_that_spark_tells_it(tmp_path: Path) -> None:
    """By a `java` that only says what it was given; the names are those that Spark's own classes have."""
    with zipfile.ZipFile(next(Path(_find_spark_home(), "jars").glob("spark-kubernetes_*.jar"))) as jar:
        constants = b"".join(jar.read(name) for name in jar.namelist() if name.endswith(".class"))
    asked = set(re.findall(r"\$\{?(SPARK_[A-Z_]+)", ENTRYPOINT.read_text(encoding="utf-8")))
    told = {name: name.lower() for name in asked - {"SPARK_JAVA_OPT_", "SPARK_EXTRA_CLASSPATH", "SPARK_CONF_DIR"}}
    assert {name for name in told if name.encode() not in constants} == set()

    said = _entrypoint(tmp_path, told | {"SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dd=e"}, "executor")
    assert said[:4] == ["-Da=b c", "-Dd=e", "-Xmsspark_executor_memory", "-Xmxspark_executor_memory"]
    begins = said.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    options = dict(zip(said[begins + 1 :: 2], said[begins + 2 :: 2], strict=True))
    assert options["--driver-url"] == "spark_driver_url"
    assert options["--executor-id"] == "spark_executor_id"
    assert {name for name in options if name.encode() not in constants} == set()


def test_anything_else_is_a_command_with_its_arguments(tmp_path: Path) -> None:
    assert _entrypoint(tmp_path, {}, "java", "a b", "c") == ["a b", "c"]


def _conf(arguments: list[str]) -> dict[str, str]:
    return conf_of([one.removeprefix("--conf=") for one in arguments if one.startswith("--conf=")])


def _pods(application: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return application["driver"], application["executor"]


def _entrypoint(folder: Path, told: Mapping[str, str], *arguments: str) -> list[str]:
    for name, does in {"java": 'printf "%s\\n" "$@"', "python": f"echo {_find_spark_home()}"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", **told}
    ended = subprocess.run(
        ["sh", str(ENTRYPOINT), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ended.stdout.splitlines()
