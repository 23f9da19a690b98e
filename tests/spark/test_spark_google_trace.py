"""The query over a Google cluster on Spark: real events, rescaled while replayed, and every result right."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from running import Running, kept, wait_until

from examples.paper_workloads.google_query import CLUSTER, MACHINES, RESULTS, SOURCE, google_query
from examples.paper_workloads.google_statistics import INTERVAL_S
from examples.paper_workloads.google_trace import EXTRACT
from experiments.workloads.google_with_pandas import differing, expected_results

SPEED = 400.0  # 14 s for the extract, if the machine has nothing else to do


def test_every_statistic_is_right_while_the_operator_is_rescaled(spark: SparkSession, tmp_path: Path) -> None:
    expected = expected_results(EXTRACT, INTERVAL_S)
    pipeline = google_query(kept(tmp_path, RESULTS), speed=SPEED, most_instances=4)
    # a batch takes long for its own sake on a slow machine, and many small ones would take minutes there
    with Running(spark, pipeline, tmp_path, longest_batch_s=5.0) as running:
        assert running.engine.graph()[CLUSTER].fixed

        def ends() -> int:
            """How many results of the cluster there are."""
            running.revive()
            return len({row[0] for row in running.kept(RESULTS)})

        wait_until(lambda: events(running) > 0, "the first events")
        assert running.rescale(**{MACHINES: 3}).succeeded
        wait_until(lambda: ends() >= 2, "two results")
        assert running.rescale(**{MACHINES: 2}).succeeded
        wait_until(lambda: ends() > 0 and len(running.kept(RESULTS)) >= len(expected), "all results")
        found = pd.DataFrame(running.kept(RESULTS), columns=expected.columns)
    assert differing(found, expected) == []


def events(running: Running) -> int:
    """That machines have dealt with."""
    return running.workspace.channel(SOURCE).log.acknowledged(MACHINES).record
