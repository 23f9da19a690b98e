"""The order of the tests: files that take minutes come first, so that no worker is left alone with one at the end.
What starts more than Python, and evidence, is marked slow. No test fails for being slow on a machine that does
other things, too. And one browser for all that look at the page, one broker of Kafka for all that need it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from benchmarks.browser import Browser, missing_browser
from elastream.engines.spark.java import check_java
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.kafka.jars import kafka_jars
from elastream.errors import ElastreamError
from tests.class_archive import java_options
from tests.needed import need_jars

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())
os.environ.pop("COLUMNS", None)  # pytest-xdist tells its workers how wide the terminal is; tests say it themselves

_TESTS = Path(__file__).parent
_SPARK = _TESTS / "spark"
_LONGEST = (
    "test_event_time",
    "test_event_time_bad_input",
    "test_exactly_once",
    "test_decentralized_run",
    "test_hdfs",
    "test_cluster",
    "test_run_failures",
    "test_run_command",
    "test_exactly_once_kafka",
    "test_spark_kafka",
    "test_same_folder",
    "test_on_nodes",
    "test_notebook",
    "test_spark_contract",
)
"""Files of some minutes each."""
_SLOW_FOLDERS = ("spark", "experiments", "processes")
_SLOW_FILES = ("test_benchmarks", "test_benchmarks_spark")
_SLOW_FIXTURES = {"java", "spark", "broker", "browser", "channels"}


@pytest.hookimpl(tryfirst=True)  # before the marks are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_slow(item):
            item.add_marker("slow")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """The longest files first, and of the rest those on Spark."""
    if item.path.stem in _LONGEST:
        return _LONGEST.index(item.path.stem)
    return len(_LONGEST) + (not item.path.is_relative_to(_SPARK))


def _is_slow(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)  # a fixture with the parameter "kafka" asks for the broker itself
    return (
        item.path.relative_to(_TESTS).parts[0] in _SLOW_FOLDERS
        or item.path.stem in _SLOW_FILES
        or bool(_SLOW_FIXTURES & set(getattr(item, "fixturenames", ())))
        or (parameters is not None and "kafka" in parameters.params.values())
    )


@pytest.fixture(scope="session")
def _one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if missing := missing_browser():
        if os.environ.get("CI") == "true":
            pytest.fail(f"with CI=true the tests of the page must run: {missing}")
        pytest.skip(missing)
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(_one_browser: Browser) -> Iterator[Browser]:
    """A fresh page in a window of the usual size; whatever the browser complains of fails the test."""
    _one_browser.open("about:blank")
    _one_browser.resize(1280)
    _one_browser.prefer("light")
    _one_browser.complaints()
    yield _one_browser
    _one_browser.open("about:blank")  # so that no page looks for a server that is gone
    assert _one_browser.complaints() == []


@pytest.fixture(scope="session")
def java() -> None:
    try:
        check_java()
    except ElastreamError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"with CI=true the tests on Spark must run: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def broker(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    need_jars(kafka_jars(), "Kafka")
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.kill()  # nobody needs its records any more
