"""Settings of Spark and packages that users ask for: what is taken, what is refused, and what counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastream import InvalidInput, Pipeline, run
from elastream.engines.spark import run as spark_run
from elastream.engines.spark import session
from elastream.engines.spark.session_conf import checked_conf, conf_of, merged_packages, packages_of


def test_settings_are_taken_as_they_are_written() -> None:
    found = conf_of(["spark.sql.session.timeZone=UTC", "spark.driver.extraJavaOptions=-Da=b -Dc=d"])
    assert found == {"spark.sql.session.timeZone": "UTC", "spark.driver.extraJavaOptions": "-Da=b -Dc=d"}
    assert checked_conf({"spark.a": True, "spark.b": 3, "spark.c": "x"}) == {
        "spark.a": "true",
        "spark.b": "3",
        "spark.c": "x",
    }


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("spark.sql.session.timeZone", "KEY=VALUE was expected, found 'spark.sql.session.timeZone'"),
        ("=UTC", "KEY=VALUE was expected, found '=UTC'"),
        ("sql.timeZone=UTC", "has a name such as spark.sql.session.timeZone, found 'sql.timeZone'"),
        ("spark.master=local", "spark.master cannot be set: --master sets it"),
        ("spark.sql.shuffle.partitions=4", "declare its state_partitions"),
        ("spark.dynamicAllocation.enabled=true", "elastream asks for executors itself"),
        ("spark.ui.enabled=false", "REST API"),
    ],
)
def test_settings_that_are_refused(written: str, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        conf_of([written])
    assert message in str(error.value)


def test_a_setting_is_given_once() -> None:
    with pytest.raises(InvalidInput, match=r"spark\.a is given twice"):
        conf_of(["spark.a=1", "spark.a=2"])


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(
        InvalidInput, match=r"pipeline 'p': spark\.a: a text, a number, true or false was expected"
    ):
        Pipeline("p", conf={"spark.a": ["x"]})  # type: ignore[dict-item]


def test_packages() -> None:
    assert packages_of(["a:b:1,c:d:2", "e:f:3"]) == ("a:b:1", "c:d:2", "e:f:3")
    assert merged_packages(("a:b:1", "c:d:2"), ("a:b:3",)) == ("a:b:3", "c:d:2"), "the last version counts"
    for wrong in ("avro", "a:b", "a:b:c:d"):
        with pytest.raises(InvalidInput, match="GROUP:ARTIFACT:VERSION was expected"):
            packages_of([wrong])
    with pytest.raises(InvalidInput, match="pipeline 'p': GROUP:ARTIFACT:VERSION"):
        Pipeline("p", packages=["avro"])


class Started(Exception):  # noqa: N818 - how the tests see what a session would begin with
    pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the session is asked for; nothing is started."""
    found: dict[str, Any] = {}

    def start_session(name: str, **given: Any) -> None:
        found.update(given)
        raise Started

    monkeypatch.setattr(spark_run, "start_session", start_session)
    monkeypatch.setattr(spark_run, "check_java", lambda: None)
    return found


def test_what_a_run_is_given_counts_before_what_the_pipeline_says(asked: dict[str, Any], tmp_path: Path) -> None:
    pipeline = Pipeline("p", conf={"spark.a": 1, "spark.b": 2}, packages=["g:x:1", "g:y:1"])
    pipeline.feed("numbers", schema="id bigint")
    with pytest.raises(Started):
        run(pipeline, conf={"spark.b": 3}, packages=["g:y:2"], folder=tmp_path)
    assert asked["conf"] == {"spark.a": "1", "spark.b": "3"}
    assert asked["packages"] == ("g:x:1", "g:y:2")


def test_they_are_for_spark(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="conf, packages and arguments are for the engine spark"):
        run(tmp_path / "scenario.yaml", engine="simulated", conf={"spark.a": 1})


class Builder:
    """In place of Spark's own: what it was given."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def appName(self, name: str) -> Builder:  # noqa: N802 - as Spark has it
        return self

    def master(self, master: str) -> Builder:
        return self

    def config(self, key: str, value: str) -> Builder:
        self.settings[key] = value
        return self

    def getOrCreate(self) -> None:  # noqa: N802 - as Spark has it
        raise Started


def test_a_session_adds_what_is_asked_for_to_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    builder = Builder()
    monkeypatch.setattr(session, "SparkSession", type("SparkSession", (), {"builder": builder}))
    monkeypatch.setattr(session, "check_java", lambda: None)
    monkeypatch.setenv("ELASTREAM_MAVEN_REPOSITORY", "https://mirror.example/maven2")
    conf = {
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.jars": "/own.jar",
        "spark.driver.extraJavaOptions": "-Dmine=1",
    }
    with pytest.raises(Started):
        session.start_session(
            "p",
            master="local[2]",
            settings={"spark.driver.extraJavaOptions": "-Dours=2"},
            jars=[tmp_path / "c.jar"],
            conf={**conf, "spark.empty": ""},
            packages=["g:x:1"],
        )
    found = builder.settings
    assert found["spark.sql.parquet.compression.codec"] == "zstd", "a default of elastream's"
    assert {"/own.jar", (tmp_path / "c.jar").as_uri()} <= set(found["spark.jars"].split(","))
    assert found["spark.driver.extraJavaOptions"].endswith("-Dours=2 -Dmine=1")
    assert found["spark.empty"] == ""
    assert "log4j2" in found["spark.driver.extraJavaOptions"]
    assert (found["spark.jars.packages"], found["spark.jars.repositories"]) == (
        "g:x:1",
        "https://mirror.example/maven2",
    )
    assert found["spark.driver.host"] == "localhost"
