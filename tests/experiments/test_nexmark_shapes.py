from __future__ import annotations

import pytest

from experiments.workloads.nexmark_shapes import AUCTIONS, BIDS, PERSONS, Q1, Q2, Q3, Q5, Q8, Q11, SINK, Shape


@pytest.mark.parametrize("shape", [Q1, Q2, Q3, Q5, Q8, Q11], ids=lambda shape: shape.name)
def test_a_shape_is_a_dataflow_from_its_sources_to_one_sink(shape: Shape) -> None:
    dataflow = shape.dataflow(max_parallelism=36)
    assert dataflow.sources == shape.sources
    assert dataflow.sinks == (SINK,)
    assert shape.main in dataflow.scalable
    assert all(dataflow[name].max_parallelism == 36 for name in dataflow.scalable)


@pytest.mark.parametrize(
    ("shape", "sources"), [(Q1, (BIDS,)), (Q3, (AUCTIONS, PERSONS)), (Q8, (PERSONS, AUCTIONS)), (Q11, (BIDS,))]
)
def test_sources_are_what_no_operator_puts_out(shape: Shape, sources: tuple[str, ...]) -> None:
    assert shape.sources == sources


def test_rates_follow_from_the_selectivities() -> None:
    """A fifth of the auctions, half of the persons; a result for each auction whose seller passed, too."""
    required = Q3.required_per_s({AUCTIONS: 500e3, PERSONS: 100e3})
    assert required == pytest.approx(
        {"filter-auctions": 500e3, "filter-persons": 100e3, "join": 100e3 + 50e3, SINK: 50e3}
    )
