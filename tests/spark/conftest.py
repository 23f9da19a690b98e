"""One Spark for all tests that run pipelines in a process (`make test` has some of them)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from elastream.engines.spark.channels.kinds import ChannelKind, Files, Kafka
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.kafka.jars import JarUse, kafka_jars
from elastream.engines.spark.session import start_session


@pytest.fixture(scope="session", autouse=True)
def _needs_java(java: None) -> None:
    """Every test here."""


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """More slots than cores: what the tests let records cost is waiting, which needs no core."""
    warehouse: Path = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.memory": "1g",
        "spark.ui.port": "0",  # any that is free
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.sql.shuffle.partitions": "4",  # of what keeps no state, such as the aggregate of a table
        "spark.sql.session.timeZone": "Asia/Kolkata",  # not that of the files, so that a mix-up shows
    }
    jars = [] if kafka_jars().missing() else kafka_jars().paths(JarUse.CONNECTOR)
    session = start_session("tests", master="local[8]", settings=settings, jars=jars)
    yield session
    session.stop()


@pytest.fixture(params=["files", "kafka"])
def channels(request: pytest.FixtureRequest) -> ChannelKind:
    """The kinds of channels: what holds for one holds for the other."""
    if request.param == "files":
        return Files()
    broker: Broker = request.getfixturevalue("broker")
    return Kafka(servers=broker.servers)
