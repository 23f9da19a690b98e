"""What a query's checkpoint says of the batches that are done, and how far they have read.

    offsets/17    what batch 17 reads up to: two lines of Spark's own, then a line for each place of the plan that
                  reads a stream, from left to right
    commits/17    batch 17 is done

Both are small files on the local disk, of which Spark keeps the newest hundred.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from elastream.engines.spark.channels.segments import StreamPosition
from elastream.errors import ElastreamError

OWN_LINES = 2
NOTHING_YET = "-"
_PARTITIONS = "spark.sql.shuffle.partitions"


def newest_committed(checkpoint: Path) -> int | None:
    """None before the first batch is done."""
    found = (path.name for path in (checkpoint / "commits").glob("[0-9]*"))
    return max((int(name) for name in found if name.isdigit()), default=None)


def positions(checkpoint: Path, batch: int, reads: Sequence[str | None]) -> dict[str, StreamPosition]:
    """Up to where a batch reads each channel; `reads` are the channels of the plan, with None for other streams.

    A channel that the plan has in several places is one stream, which is then told several times.
    """
    try:
        lines = offset_lines(checkpoint, batch)[OWN_LINES:]
    except OSError as error:
        raise ElastreamError(f"{checkpoint}/offsets/{batch}: cannot be read: {error.strerror}") from None
    if len(lines) != len(reads):
        raise ElastreamError(
            f"{checkpoint}/offsets/{batch}: a position for each of {len(reads)} inputs was expected, "
            f"found {len(lines)}"
        )
    found: dict[str, StreamPosition] = {}
    for channel, line in zip(reads, lines, strict=True):
        if channel is not None:
            at = position(line)
            found[channel] = min(found.get(channel, at), at, key=lambda one: one.record)
    return found


def position(text: str) -> StreamPosition:
    """As Spark writes it down; the beginning, where it has not read anything yet."""
    if text == NOTHING_YET:
        return StreamPosition()
    try:
        told = json.loads(text)
        return StreamPosition(record=int(told["record"]), commit=int(told["commit"]))
    except (ValueError, LookupError, TypeError):
        raise ElastreamError(f"a position in a channel was expected, found {text!r}") from None


def moved_state(checkpoint: Path, batch: int) -> bool:
    """Whether a batch was none, but moved the state into other partitions (`state.py`): it read nothing."""
    try:
        return _partitions(checkpoint, batch) != _partitions(checkpoint, batch - 1)
    except (OSError, ValueError, LookupError):  # so long ago that Spark has deleted it
        return False


def _partitions(checkpoint: Path, batch: int) -> str:
    return str(json.loads(offset_lines(checkpoint, batch)[1])["conf"][_PARTITIONS])


def offset_lines(checkpoint: Path, batch: int) -> list[str]:
    return (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
