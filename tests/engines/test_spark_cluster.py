"""What a cluster on this machine refuses before it starts anything."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster
from elastream.engines.spark.ports import check_answers
from elastream.errors import ElastreamError, InvalidInput


@pytest.mark.parametrize("option", ["port", "web_port"])
def test_a_port_that_someone_has_is_named_with_the_option(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"port": 0, "web_port": 0, option: port}
        cluster = StandaloneCluster(ClusterOptions(folder=tmp_path / "cluster", **ports))
        with pytest.raises(ElastreamError, match=rf"port {port} of 127.0.0.1 .*--{option.replace('_', '-')}"):
            cluster.start()
    assert cluster.pids == {}
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "--workers must be from 1 to 64, found 0"),
        ({"workers": 65}, "--workers must be from 1 to 64, found 65"),
        ({"cores": 0}, "--cores must be at least 1, found 0"),
        ({"memory": "much"}, "memory is written like 512m or 2g, found 'much'"),
    ],
)
def test_a_size_that_cannot_be(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ClusterOptions(folder=tmp_path, **options)


def test_a_master_that_is_not_there_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_answers(f"spark://127.0.0.1:{port}")
    with pytest.raises(ElastreamError, match=rf"127.0.0.1:{port} .*`elastream cluster start` starts one"):
        check_answers(f"spark://127.0.0.1:{port}")


def test_one_master_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_answers(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("master", ["local[4]", "yarn", "k8s://https://127.0.0.1:1"])
def test_other_masters_are_sparks_affair(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
    check_answers(master)


def test_yarn_is_found_by_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ElastreamError, match="--master yarn: HADOOP_CONF_DIR or YARN_CONF_DIR was expected"):
        check_answers("yarn")
