"""What it costs to wait for the disk, so that a power loss loses nothing that was published.

The files of a batch are written as Spark and elastream write them (offsets, records of several tasks, state of
several partitions, the entry in the log), with and without syncs, in turn. What the syncs add is the median of
what each pair differs by; it is compared to a batch of a second, which is what a pipeline makes by default.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Measure, Report
from benchmarks.spark_runs import temporary_folder
from benchmarks.spread import median_between
from elastream.engines.spark.channels.segments import Segment, SegmentLog
from elastream.engines.spark.lasting_checkpoint import StateFiles, sync_begun, sync_committed
from elastream.whole_files import VARIABLE, make_folder, sync_files, sync_folders

MOST_SHARE = 1.03
_TASKS = 4
_RECORDS = 20_000
_WARM_UP = 3
_BATCH_S = 1.0


def run(*, batches: int = 60) -> Report:
    with temporary_folder() as folder:
        written = {mode: _Written(folder / mode) for mode in ("on", "off")}
        pairs = [
            {mode: written[mode].batch(number, mode) for mode in (("on", "off") if number % 2 else ("off", "on"))}
            for number in range(batches + _WARM_UP)
        ][_WARM_UP:]
    added = median_between([pair["on"] - pair["off"] for pair in pairs])
    share = 1 + added.value / _BATCH_S
    between = (1 + added.between[0] / _BATCH_S, 1 + added.between[1] / _BATCH_S)
    return Report(
        measures=(
            Measure(what="what syncs add to a batch", value=added.value, unit="s", between=added.between),
            Measure(
                what="a batch of a second with syncs, by one without",
                value=share,
                unit="times",
                at_most=MOST_SHARE,
                between=between,
            ),
        ),
        notes=(f"{_RECORDS:,} records and a state in {_TASKS} parts each, on the disk of the temporary folder",),
    )


class _Written:
    """A step with state, between two channels."""

    def __init__(self, folder: Path) -> None:
        self._log = SegmentLog(folder / "channel")
        self._log.create()
        self._checkpoint = folder / "checkpoints" / "step"
        make_folder(self._log.folder / "segments")
        for name in ("offsets", "commits", *(f"state/0/{part}" for part in range(_TASKS))):
            make_folder(self._checkpoint / name)
        self._state_files = StateFiles(self._checkpoint)
        self._records = pa.table({"n": pa.array(range(_RECORDS // _TASKS), pa.int64())})

    def batch(self, number: int, mode: str) -> float:
        with patch.dict(os.environ, {VARIABLE: mode}):
            began_s = time.perf_counter()
            self._batch(number)
            return time.perf_counter() - began_s

    def _batch(self, number: int) -> None:
        (self._checkpoint / "offsets" / str(number)).write_text("v1\n{}\n{}")
        sync_begun(self._checkpoint, number)
        for part in range(_TASKS):
            (self._checkpoint / "state" / "0" / str(part) / f"{number + 1}.delta").write_bytes(bytes(20_000))
        folder = self._log.folder / "segments" / f"b{number}"
        folder.mkdir()
        paths = [folder / f"{part}.parquet" for part in range(_TASKS)]
        for path in paths:
            pq.write_table(self._records, path)
        sync_files(paths)
        sync_folders([folder, folder.parent])
        self._log.publish(number, [Segment(path=str(path), records=self._records.num_rows) for path in paths])
        self._state_files.sync()
        (self._checkpoint / "commits" / str(number)).write_text("v1\n{}")
        sync_committed(self._checkpoint)
