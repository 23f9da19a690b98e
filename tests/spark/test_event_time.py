"""Event time as in plain Spark, in short: bids that were lost over a backlog, and random cases of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from event_time_bids import Form, closed_windows, counts_here, plain_counts
from event_time_cases import draw, run
from event_time_kinds import KINDS, differences
from pyspark.sql import SparkSession

from elastream.engines.spark.channels.kinds import Files, Kafka
from elastream.engines.spark.kafka.broker import Broker

SHORT = {"bids": 12_000, "files": 40}


def test_every_bid_of_a_closed_window_is_counted_as_in_plain_spark(spark: SparkSession, tmp_path: Path) -> None:
    form = Form(window_s=10)
    plain = plain_counts(spark, tmp_path / "plain", form)
    found = counts_here(spark, tmp_path, form, Files())
    assert sum(count for _, _, count in plain) == 48_000
    assert differences("beside plain Spark", found, plain) == []
    assert differences("by definition", found, closed_windows(form)) == []


@pytest.mark.parametrize(
    "form",
    [Form(window_s=10, how="killed", **SHORT), Form(window_s=60, how="rescaled", **SHORT)],
    ids=lambda form: form.how,
)
def test_so_it_is_when_disturbed(spark: SparkSession, tmp_path: Path, form: Form) -> None:
    assert differences("by definition", counts_here(spark, tmp_path, form, Files()), closed_windows(form)) == []


def test_so_it_is_in_kafka(spark: SparkSession, tmp_path: Path, broker: Broker) -> None:
    form = Form(window_s=60, how="rescaled", **SHORT)
    found = counts_here(spark, tmp_path, form, Kafka(servers=broker.servers))
    assert differences("by definition", found, closed_windows(form)) == []


SEEDS = (3, 59, 90, 148, 204)
"""Quick ones of five kinds, on a backlog; `make event-time` runs hundreds of all kinds, with kills and Kafka."""


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed}-{KINDS[seed % len(KINDS)].name}")
def test_the_same_answer_as_plain_spark(
    spark: SparkSession, tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    case = draw(seed)
    channels = Files()
    if case.channels == "kafka":
        channels = Kafka(servers=request.getfixturevalue("broker").servers)
    assert run(spark, case, tmp_path, channels).faults == [], case
