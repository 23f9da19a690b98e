"""The partitions of an operator's state: how many it is to have, how many it has, and how one becomes the other.

Spark fixes the number in the checkpoint. Its offline repartitioning, which this module wraps, copies the state of
a stopped query into another number of partitions, as a batch of its own that reads nothing: it writes the batch's
offsets with the new number, then the state, then the commit. Until the commit is there the query refuses to start,
and another repartition must have the same number. So an interrupted one is told by the checkpoint itself, and is
finished before anything else.

What the state is to have is written down in the workspace before anything is done, and compared with the
checkpoint whenever the query is started: whoever is killed in between finds it there.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from elastream.engines.spark.lasting_checkpoint import abandon_move, begin_move, end_move
from elastream.engines.spark.local_paths import for_spark
from elastream.errors import ElastreamError
from elastream.whole_files import read_json, write_json

_SETTING = "spark.sql.shuffle.partitions"


class RepartitionRefused(ElastreamError):  # noqa: N818 - reads better where it is raised
    """Spark cannot repartition this state; the checkpoint is as it was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedPartitions:
    """How many partitions a state is to have."""

    declared: int
    """What the pipeline said when this was written: if it says something else now, that counts."""
    partitions: int


def write_wanted(path: Path, wanted: WantedPartitions) -> None:
    write_json(path, asdict(wanted))


def read_wanted(path: Path) -> WantedPartitions | None:
    found = read_json(path)
    return None if found is None else WantedPartitions(**found)


def take_up_wanted(path: Path, *, declared: int) -> WantedPartitions:
    """What an earlier run left, unless the pipeline has been changed since."""
    left = read_wanted(path)
    if left is not None and left.declared == declared:
        return left
    wanted = WantedPartitions(declared=declared, partitions=declared)
    write_wanted(path, wanted)
    return wanted


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundState:
    """What a checkpoint says about its state."""

    partitions: int | None
    """Of the last batch that was committed, or else of the first; none before that."""
    open_batch: int | None
    """Begun and not committed."""
    unfinished: int | None
    """The open batch is a repartition to so many partitions."""


def look(checkpoint: Path) -> FoundState:
    begun, committed = _newest(checkpoint / "offsets"), _newest(checkpoint / "commits")
    if begun is None:
        return FoundState(partitions=None, open_batch=None, unfinished=None)
    partitions = _partitions(checkpoint, begun if committed is None else committed)
    if begun == committed:
        return FoundState(partitions=partitions, open_batch=None, unfinished=None)
    of_begun = _partitions(checkpoint, begun)
    unfinished = None if of_begun == partitions else of_begun
    return FoundState(partitions=partitions, open_batch=begun, unfinished=unfinished)


def repartition(spark: SparkSession, checkpoint: Path, partitions: int) -> None:
    """Copy the state of a stopped query into so many partitions, or finish doing so: seconds, even of a small one.

    A batch that was begun must have been committed.
    """
    manager: Any = getattr(spark, "_streamingCheckpointManager", None)
    if not hasattr(manager, "repartition"):  # not public yet, so it may be elsewhere in another release
        raise RepartitionRefused(f"Spark {spark.version} cannot move state: PySpark 4.3 is known to")
    where = for_spark(checkpoint)
    jvm: Any = spark.sparkContext._jvm
    uri = jvm.org.apache.hadoop.fs.Path(where).toUri()
    if (
        uri.getRawPath() != uri.getPath()
    ):  # Spark would look for `a%20b` where the folder is called `a b`, and make it
        raise RepartitionRefused(
            f"Spark cannot move state where the path has spaces, or signs such as % and #: {checkpoint}"
        )
    found = look(checkpoint)
    begun = _newest(checkpoint / "offsets") or 0
    begin_move(checkpoint, begun if found.unfinished is not None else begun + 1)
    try:
        manager.repartition(where, partitions)
        end_move(checkpoint)
    except Exception as error:  # of several classes, some of them not translated from the JVM's
        reason = _reason(error)
        if _undo(checkpoint):
            abandon_move(checkpoint)
            raise RepartitionRefused(f"Spark cannot move this state: {reason}") from error
        raise ElastreamError(f"moving the state to {partitions} partitions failed: {reason}") from error


def _undo(checkpoint: Path) -> bool:
    """Take back a repartition that has written none of the state yet: Spark looks whether it can do it only after
    it has begun. False where there is something to finish."""
    found = look(checkpoint)
    if found.unfinished is None:
        return True
    assert found.open_batch is not None
    version = re.compile(
        rf"\.?{found.open_batch + 1}[._]"
    )  # what a batch writes has the next number as its version
    if any(version.match(path.name) for path in (checkpoint / "state").rglob("*") if path.is_file()):
        return False
    (checkpoint / "offsets" / str(found.open_batch)).unlink()
    (checkpoint / "offsets" / f".{found.open_batch}.crc").unlink(missing_ok=True)
    return True


def _newest(log: Path) -> int | None:
    return max((int(path.name) for path in log.glob("[0-9]*") if path.name.isdigit()), default=None)


def _partitions(checkpoint: Path, batch: int) -> int:
    """The second line of a batch's offsets has the settings that it was begun with."""
    path = checkpoint / "offsets" / str(batch)
    try:
        return int(json.loads(path.read_text(encoding="utf-8").split("\n")[1])["conf"][_SETTING])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ElastreamError(f"{path}: does not tell the partitions of the state: {error!r}") from error


def _reason(error: BaseException) -> str:
    """The innermost condition that Spark names: the outer ones say that something failed, not what."""
    text = str(error)
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        text, cause = str(cause.getMessage() or text), cause.getCause()
    return " ".join(text.split())[:300]
