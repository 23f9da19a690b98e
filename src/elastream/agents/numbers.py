"""Which numbered readings have come: ranges, as they need not come in order, and some never do.

After an outage the newest reading goes before those that were kept, and of those some may have been thinned out.
"""

from __future__ import annotations

from bisect import bisect_right

Ranges = tuple[tuple[int, int], ...]
"""From the first to the last number of each, in order and apart from each other."""

MOST_RANGES = 32


def contains(ranges: Ranges, number: int) -> bool:
    place = bisect_right(ranges, number, key=lambda one: one[0]) - 1
    return place >= 0 and number <= ranges[place][1]


def with_number(ranges: Ranges, number: int) -> Ranges:
    """What is missing between the two oldest is given up where there are too many: it was thinned out long ago."""
    if contains(ranges, number):
        return ranges
    place = bisect_right(ranges, number, key=lambda one: one[0])
    first = last = number
    before, after = ranges[:place], ranges[place:]
    if before and before[-1][1] == number - 1:
        first, before = before[-1][0], before[:-1]
    if after and after[0][0] == number + 1:
        last, after = after[0][1], after[1:]
    found = (*before, (first, last), *after)
    return found if len(found) <= MOST_RANGES else ((found[0][0], found[1][1]), *found[2:])
