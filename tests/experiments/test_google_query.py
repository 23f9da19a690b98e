"""The functions that Spark calls for the query over a Google cluster, called as Spark does: key by key, with a
state that is kept as text, and with results that go through Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from elastream.dataflow import Plan
from examples.paper_workloads import google_query as query
from examples.paper_workloads.google_statistics import INTERVAL_S
from examples.paper_workloads.google_trace import EXTRACT, needed, read_task_events
from experiments.workloads.google_with_pandas import differing, expected_results


@dataclass
class FakeState:
    """Of one key, as Spark has it."""

    value: tuple[str] | None = None

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[str]:
        assert self.value is not None
        return self.value

    def update(self, value: tuple[str]) -> None:
        self.value = value


ARROW = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string()}


def through_arrow(frames: list[pd.DataFrame], ddl: str) -> pd.DataFrame:
    """As Spark takes them: by the schema that was declared, and refused if they do not fit."""
    schema = pa.schema([(name, ARROW[kind]) for name, kind in (column.split() for column in ddl.split(", "))])
    frame = pd.concat([one for one in frames if len(one)], ignore_index=True)
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)


def test_every_statistic_is_right_when_spark_calls_the_functions() -> None:
    batch = 3_000
    events = needed(read_task_events(EXTRACT)).to_pandas()
    machines: dict[Any, FakeState] = {}
    cluster, results = FakeState(), []
    for first in range(0, len(events), batch):
        told = []
        for key, its in events.iloc[first : first + batch].sample(frac=1, random_state=1).groupby("machine"):
            state = machines.setdefault(key, FakeState())
            told += list(query.take_events((key,), [its], state, interval_s=INTERVAL_S))
        rows = through_arrow(told, query._TOLD).astype({"machine": "int64"})
        results += list(
            query.take_told((0,), [rows.sample(frac=1, random_state=2)], cluster, interval_s=INTERVAL_S)
        )
    found = through_arrow(results, query._RESULT)
    assert differing(found, expected_results(EXTRACT, INTERVAL_S)) == []


def test_the_pipeline_is_that_of_the_thesis(tmp_path: Any) -> None:
    pipeline = query.google_query(tmp_path / "results", most_instances=8)
    graph = pipeline.graph()
    assert graph.order == (query.SOURCE, query.MACHINES, query.CLUSTER, query.RESULTS)
    assert graph[query.CLUSTER].fixed
    assert graph[query.MACHINES].most == 8
    assert pipeline.plan() == Plan({query.MACHINES: 1, query.CLUSTER: 1, query.RESULTS: 1})
