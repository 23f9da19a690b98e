"""Which records each task of a batch reads: contiguous parts of even size, as many as the parallelism."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elastream.engines.spark.channels.segments import Commit, Position


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """Some records of one file or partition: from the first, up to but without the last."""

    path: str
    first: int
    last: int


def splits(commits: Iterable[Commit], start: Position, end: Position, parallelism: int) -> list[list[Slice]]:
    """At most `parallelism` parts, none of them empty; together they are the records from start to end."""
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
                if first < last:
                    begins = segment.first - at
                    found[part].append(Slice(path=segment.path, first=begins + first, last=begins + last))
                if edges[part + 1] > segment_end:
                    break
                part += 1
            at = segment_end
    return found
