"""The parts of a batch: together they are its records, in order, and none is much larger than another."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.engines.spark.channels.segments import Commit, Segment, StreamPosition
from elastream.engines.spark.channels.splits import Slice, splits

Sizes = list[list[int]]  # of each commit, of each of its files


def commits_of(sizes: Sizes) -> list[Commit]:
    before = [0, *accumulate(sum(files) for files in sizes)]
    return [
        Commit(
            number=number,
            batch=number,
            before=before[number],
            segments=tuple(Segment(path=f"{number}/{index}", records=size) for index, size in enumerate(files)),
        )
        for number, files in enumerate(sizes)
    ]


def position(commits: list[Commit], record: int) -> StreamPosition:
    return StreamPosition(record=record, commit=sum(commit.before < record for commit in commits))


def numbers(commits: list[Commit], part: list[Slice]) -> list[int]:
    """Which records of the whole stream the slices are."""
    begins = {}
    for commit in commits:
        at = commit.before
        for segment in commit.segments:
            begins[segment.path] = at
            at += segment.records
    return [number for s in part for number in range(begins[s.path] + s.first, begins[s.path] + s.last)]


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Commit], int, int, int]:
    sizes = draw(st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=4), min_size=1, max_size=5))
    commits = commits_of(sizes)
    first = draw(st.integers(0, commits[-1].after))
    last = draw(st.integers(first, commits[-1].after))
    return commits, first, last, draw(st.integers(1, 12))


@given(batches(), st.data())
def test_what_is_left_out_is_in_no_part_and_all_else_is(
    batch: tuple[list[Commit], int, int, int], data: st.DataObject
) -> None:
    commits, first, last, parallelism = batch
    left_out = data.draw(st.sets(st.integers(0, commits[-1].after)))
    start, end = position(commits, first), position(commits, last)
    found = splits(commits[max(0, start.commit - 1) : end.commit], start, end, parallelism, left_out=left_out)
    read = [number for part in found for number in numbers(commits, part)]
    assert read == [number for number in range(first, last) if number not in left_out]
    assert all(one.first < one.last for part in found for one in part)


@given(batches())
def test_the_parts_are_the_records_in_order(batch: tuple[list[Commit], int, int, int]) -> None:
    commits, first, last, parallelism = batch
    start, end = position(commits, first), position(commits, last)
    found = splits(commits[max(0, start.commit - 1) : end.commit], start, end, parallelism)

    parts = [numbers(commits, part) for part in found]
    assert [number for part in parts for number in part] == list(range(first, last))
    assert len(parts) == min(parallelism, last - first)
    assert all(parts), "no part is empty"
    assert max(map(len, parts), default=0) - min(map(len, parts), default=0) <= 1
    assert all(piece.first < piece.last for part in found for piece in part)


def test_a_part_reaches_over_files_and_commits() -> None:
    commits = commits_of([[2, 3], [4]])
    found = splits(commits, StreamPosition(), StreamPosition(record=9, commit=2), 2)
    assert found == [
        [Slice(path="0/0", first=0, last=2), Slice(path="0/1", first=0, last=2)],
        [Slice(path="0/1", first=2, last=3), Slice(path="1/0", first=0, last=4)],
    ]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_nothing_to_read_makes_no_parts(parallelism: int) -> None:
    at = StreamPosition(record=5, commit=1)
    assert splits([], at, at, parallelism) == []


def test_the_records_of_a_segment_may_begin_in_the_middle_of_a_partition() -> None:
    commit = Commit(number=0, batch=0, before=10, segments=(Segment(path="2", records=6, first=100),))
    found = splits([commit], StreamPosition(record=11, commit=1), StreamPosition(record=15, commit=1), 2)
    assert found == [[Slice(path="2", first=101, last=103)], [Slice(path="2", first=103, last=105)]]


def test_parts_of_a_file_that_follow_each_other_are_one_slice() -> None:
    """A commit that is cut in event time names its files part after part."""
    parts = [("a", 0, 10), ("b", 0, 10), ("a", 10, 5), ("b", 10, 20)]
    segments = tuple(Segment(path=path, first=first, records=records) for path, first, records in parts)
    commit = Commit(number=0, batch=0, before=0, segments=segments)
    whole = splits([commit], StreamPosition(), StreamPosition(record=45, commit=1), 1)
    assert whole == [[Slice(path="a", first=0, last=15), Slice(path="b", first=0, last=30)]]
    halves = splits([commit], StreamPosition(), StreamPosition(record=45, commit=1), 2)
    assert halves == [
        [Slice(path="a", first=0, last=12), Slice(path="b", first=0, last=10)],
        [Slice(path="a", first=12, last=15), Slice(path="b", first=10, last=30)],
    ]
