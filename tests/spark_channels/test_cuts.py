"""A commit in parts: together they are the commit, and nothing behind a cut is as early as anything before it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from elastream.engines.spark.channels import cuts
from elastream.engines.spark.channels.cuts import Parts, TimedFile, in_parts, read_event_times
from elastream.engines.spark.channels.segments import Segment


def timed(*files: Sequence[int]) -> list[TimedFile]:
    return [TimedFile(path=f"f{i}", times=np.asarray(times, dtype=np.int64)) for i, times in enumerate(files)]


def times_of(files: Sequence[TimedFile], parts: Parts) -> list[int]:
    """In the order of the stream."""
    by_path = {file.path: file.times for file in files}
    return [int(t) for s in parts.segments for t in by_path[s.path][s.first : s.first + s.records]]


few_or_many = st.lists(st.lists(st.integers(-50, 50), max_size=900).map(sorted), max_size=6)


@given(few_or_many)
def test_the_parts_are_the_commit_and_each_is_later_than_all_before(files: list[list[int]]) -> None:
    given_files = timed(*files)
    parts = in_parts(given_files)
    times = times_of(given_files, parts)
    assert sorted(times) == sorted(t for file in files for t in file)
    assert list(parts.cuts) == sorted(set(parts.cuts))
    for cut in parts.cuts:
        assert 0 < cut < len(times)
        assert max(times[:cut]) < min(times[cut:])


@given(few_or_many)
def test_every_record_of_every_file_is_named_once(files: list[list[int]]) -> None:
    seen = [(s.path, n) for s in in_parts(timed(*files)).segments for n in range(s.first, s.first + s.records)]
    assert sorted(seen) == sorted((f"f{i}", n) for i, file in enumerate(files) for n in range(len(file)))


def test_a_large_commit_is_cut_into_parts_of_about_the_same_size() -> None:
    parts = in_parts(timed(range(0, 60_000, 2), range(1, 60_000, 2)))
    sizes = np.diff([0, *parts.cuts, 60_000])
    assert len(parts.cuts) == 255
    assert sizes.max() <= 2 * sizes.min()


def test_a_small_commit_stays_in_one_part() -> None:
    assert in_parts(timed(range(200))).cuts == ()


def test_the_entry_of_many_files_of_the_same_time_stays_small() -> None:
    parts = in_parts(timed(*(range(2_000) for _ in range(300))))
    assert parts.cuts
    assert len(parts.segments) <= 2 * cuts._MOST_SEGMENTS


def test_what_is_not_in_order_is_not_cut() -> None:
    files = timed(range(1_000), [*range(500), 3])
    assert in_parts(files) == Parts(
        segments=(Segment(path="f0", records=1_000), Segment(path="f1", records=501)), cuts=()
    )


def test_records_of_one_moment_stay_together() -> None:
    assert in_parts(timed([7] * 5_000)).cuts == ()


def test_event_times_are_read_with_nulls_first_and_from_columns_of_any_name(tmp_path: Path) -> None:
    moments = [None, datetime(2026, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]
    table = pa.table({"when.at": pa.array(moments, pa.timestamp("us", tz="UTC")), "at": pa.array([1, 2, 3])})
    pq.write_table(table, tmp_path / "f.parquet")
    found = read_event_times(tmp_path / "f.parquet", "when.at")
    assert found.tolist() == sorted(found.tolist())
    assert found[0] == np.iinfo(np.int64).min
    assert found[1] == 1_767_225_600_000_000
