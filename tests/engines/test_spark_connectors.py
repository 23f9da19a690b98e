"""Which jars a session has: those of the channels, of the user, and Kafka's connector where it was fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastream.engines.spark.connectors import jars_of_session, spark_defaults
from elastream.engines.spark.kafka.jars import JarUse, kafka_jars


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return kafka_jars().folder


@pytest.fixture
def fetched(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As if someone had: files of the right size, but without the broker."""
    monkeypatch.setattr("elastream.engines.spark.jars.JarSet._check", lambda *_: None)  # they are empty
    cache.mkdir(parents=True)
    found = [jar for jar in kafka_jars().jars if jar.use == JarUse.CONNECTOR]
    for jar in found:
        with (cache / jar.file).open("wb") as file:
            file.truncate(jar.size)
    return [(cache / jar.file).as_uri() for jar in found]


def test_the_connector_is_there_once_it_was_fetched(fetched: list[str]) -> None:
    assert jars_of_session([], {}, {}) == fetched


def test_nothing_is_there_where_nothing_was_fetched(cache: Path) -> None:
    assert jars_of_session([], {}, {}) == []


def test_those_of_channels_are_there_once(fetched: list[str]) -> None:
    assert jars_of_session(kafka_jars().paths(JarUse.CONNECTOR), {}, {}) == fetched


def test_those_of_the_user_stay(fetched: list[str]) -> None:
    assert jars_of_session([], {}, {"spark.jars": "a.jar, b.jar"}) == ["a.jar", "b.jar", *fetched]
    settings, defaults = {"spark.jars": "of-this-run.jar"}, {"spark.jars": "default.jar"}
    assert jars_of_session([], settings, defaults) == ["of-this-run.jar", *fetched]


@pytest.mark.parametrize(
    "named",
    [
        {"spark.jars": "/x/spark-sql-kafka-0-10_2.13-4.3.0.jar"},
        {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"},
    ],
)
def test_a_connector_of_the_users_is_taken_as_it_is(fetched: list[str], named: dict[str, str]) -> None:
    assert jars_of_session([], {}, named) == [jar for jar in named.values() if jar.endswith(".jar")]


def test_what_spark_defaults_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert spark_defaults() == {}
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.jars no.jar\nspark.jars   a.jar,b.jar  \nspark.jars.packages=x:y:1\nspark.jarsx 1\n",
        encoding="utf-8",
    )
    assert spark_defaults() == {"spark.jars": "a.jar,b.jar", "spark.jars.packages": "x:y:1"}
