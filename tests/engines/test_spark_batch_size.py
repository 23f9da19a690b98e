"""How many records a batch may have at least, when it took longer than is wanted."""

from __future__ import annotations

import pytest

from elastream.engines.spark.query import within_bounds


@pytest.mark.parametrize(
    ("per_record_s", "parallelism", "least"),
    [
        (None, 1, 100),  # nobody knows yet
        (0.001, 1, 100),  # a thousand would be fine: it is the batch that takes long
        (0.02, 1, 50),
        (0.2, 1, 5),
        (0.2, 3, 15),
        (10.0, 1, 5),
    ],
)
def test_few_records_only_where_each_takes_long(per_record_s: float | None, parallelism: int, least: int) -> None:
    def bounded(records: float) -> int:
        return within_bounds(records, parallelism=parallelism, per_record_s=per_record_s, longest_batch_s=1.0)

    assert bounded(1) == least
    assert bounded(1000) == 1000
    assert bounded(1e12) == 100_000_000
