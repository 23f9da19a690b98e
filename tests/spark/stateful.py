"""A stateful processor that several tests run: Spark's Python workers get it with its code, as they do not find
files of tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class RunningTotal(StatefulProcessor):
    """The sum of the ids of a key, after every batch that had some."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        before = self._total.get()
        total = int(before[0] if before is not None else 0) + sum(int(frame["id"].sum()) for frame in rows)
        self._total.update((total,))
        yield pd.DataFrame({"key": [int(key[0])], "total": [total]})

    def close(self) -> None:
        pass
