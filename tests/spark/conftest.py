"""One Spark for all tests that run pipelines in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from elastream.engines.spark.session import check_java, start_session
from elastream.errors import ElastreamError


@pytest.fixture(scope="session", autouse=True)
def _java() -> None:
    try:
        check_java()
    except ElastreamError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"with CI=true the tests on Spark must run: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """More slots than cores: what the tests let records cost is waiting, which needs no core."""
    warehouse: Path = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.memory": "1g",
        "spark.ui.port": "0",  # any that is free
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.sql.shuffle.partitions": "4",  # of what keeps no state, such as the aggregate of a table
        "spark.sql.session.timeZone": "Asia/Kolkata",  # not that of the files, so that a mix-up shows
    }
    session = start_session("tests", master="local[8]", settings=settings)
    yield session
    session.stop()
