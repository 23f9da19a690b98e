"""Which records each task of a batch reads: contiguous parts of even size, as many as the parallelism."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from elastream.engines.spark.channels.segments import Commit, StreamPosition


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """Some records of one file or partition: from the first, up to but without the last."""

    path: str
    first: int
    last: int


def splits(
    commits: Iterable[Commit],
    start: StreamPosition,
    end: StreamPosition,
    parallelism: int,
    *,
    left_out: Collection[int] = (),
) -> list[list[Slice]]:
    """At most `parallelism` parts; together they are the records from start to end, but for those left out, which
    are given by their positions in the stream."""
    total = end.record - start.record
    parts = min(parallelism, total)
    if parts <= 0:
        return []
    edges = [start.record + total * index // parts for index in range(parts + 1)]
    found: list[list[Slice]] = [[] for _ in range(parts)]
    part = 0
    for commit in commits:
        at = commit.before
        for segment in commit.segments:
            segment_end = at + segment.records
            while part < parts and edges[part] < segment_end:
                first, last = max(at, edges[part]), min(segment_end, edges[part + 1])
                begins = segment.first - at
                for one in _without(left_out, first, last):
                    found[part].append(Slice(path=segment.path, first=begins + one.start, last=begins + one.stop))
                if edges[part + 1] > segment_end:
                    break
                part += 1
            at = segment_end
    return [_joined(slices) for slices in found]


def _without(left_out: Collection[int], first: int, last: int) -> Iterator[range]:
    """What is left of the records from the first up to the last."""
    for position in sorted(one for one in left_out if first <= one < last):
        if first < position:
            yield range(first, position)
        first = position + 1
    if first < last:
        yield range(first, last)


def _joined(slices: list[Slice]) -> list[Slice]:
    """What follows each other in a file as one slice: the parts of a commit that was cut are read in one go."""
    found: list[Slice] = []
    newest: dict[str, int] = {}
    for one in slices:
        at = newest.get(one.path)
        if at is not None and found[at].last == one.first:
            found[at] = replace(found[at], last=one.last)
        else:
            newest[one.path] = len(found)
            found.append(one)
    return found
