"""Records of which many have the same key, until they no longer do: for skew that begins and ends."""

from __future__ import annotations

import pyarrow as pa

SCHEMA = "created_ms bigint, key bigint"
HOT_SHARE = 0.6
HOT = 0
UNEVEN_RECORDS = 30_000
"""The first so many records have a hot key; those after them have none."""
_KEYS = 997


def uneven(first: int, count: int, *, created_ms: int) -> pa.Table:
    keys = pa.array([key_of(number) for number in range(first, first + count)], pa.int64())
    return pa.table({"created_ms": pa.array([created_ms] * count, pa.int64()), "key": keys})


def key_of(number: int) -> int:
    """The same for the same number."""
    if number < UNEVEN_RECORDS and number * 7 % 10 < 10 * HOT_SHARE:
        return HOT
    return 1 + number * 7919 % _KEYS
