"""What a classic PySpark session tells of its queries: the thin part that talks to it.

Progress is pulled from the driver's JVM: a listener in Python would be called by the thread that tells all others
of Spark what happens, and one that is slow or stuck would hold those up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from elastream.attached.from_spark import interval_s, left_alone
from elastream.attached.watch import QueryWatch
from elastream.errors import InvalidInput

_LEAST_VERSION = (3, 5)


def check_session(spark: Any) -> None:
    """InvalidInput where nothing can be attached to, with the reason."""
    module = type(spark).__module__
    if module.startswith("pyspark.sql.connect"):
        raise InvalidInput(
            "attach: a session of Spark Connect has no driver here, whose executors could be asked for; attach in "
            "the program that runs the driver, with a classic session"
        )
    if not module.startswith("pyspark.sql"):
        raise InvalidInput(f"attach: a SparkSession was expected, found {type(spark).__name__}")
    if getattr(spark.sparkContext, "_jsc", None) is None or spark.sparkContext._jsc.sc().isStopped():
        raise InvalidInput("attach: this session is stopped")
    version = tuple(int(part) for part in str(spark.version).split(".")[:2])
    if version < _LEAST_VERSION:
        raise InvalidInput(f"attach: PySpark 3.5 or newer was expected, found {spark.version}")
    if spark.sparkContext.uiWebUrl is None:
        raise InvalidInput(
            "attach: spark.ui.enabled is false, and the REST API that tells of stages is part of it"
        )


class Queries:
    """The active queries of a session, with what is remembered of each run."""

    def __init__(self, spark: Any, latency_s: float | None) -> None:
        self._manager: Any = spark._jsparkSession.streams()
        self._latency_s = latency_s
        self.watches: dict[str, QueryWatch] = {}

    def look(self) -> None:
        """Take in the progress since the last look; queries that have ended are forgotten."""
        active = {str(query.runId().toString()): query for query in self._manager.active()}
        for run, query in active.items():
            if run not in self.watches:
                self.watches[run] = self._watch(run, query)
            self.watches[run].progressed(_new_progress(query, self.watches[run].newest))
        self.watches = {run: watch for run, watch in self.watches.items() if run in active}

    @property
    def sized(self) -> list[QueryWatch]:
        return [watch for watch in self.watches.values() if watch.left_alone is None]

    @property
    def left_alone(self) -> Mapping[str, str]:
        return {watch.name: watch.left_alone for watch in self.watches.values() if watch.left_alone is not None}

    def _watch(self, run: str, query: Any) -> QueryWatch:
        trigger = _trigger(query)
        return QueryWatch(
            name=shown_name(query.name(), str(query.id().toString())),
            run=run,
            interval_s=interval_s(trigger) or 0.0,
            asked_latency_s=self._latency_s,
            left_alone=left_alone(trigger),
        )


def shown_name(name: str | None, query: str) -> str:
    """What is not printable is not shown; one without a name has the beginning of its id, as in `from_spark`."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in name or "").strip()
    return shown or f"query-{query[:8]}"


def _trigger(query: Any) -> str:
    """Not part of Spark's public API: where it is not there, a query is taken to have no interval."""
    try:
        return str(query.streamingQuery().trigger().toString())
    except Exception:
        return ""


def _new_progress(query: Any, newest: int) -> list[Mapping[str, Any]]:
    """What came since that batch, oldest first: from the newest back, so that what is known is not sent again."""
    entries = query.recentProgress()
    found: list[Mapping[str, Any]] = []
    for index in range(len(entries) - 1, -1, -1):
        entry: Mapping[str, Any] = json.loads(entries[index].json())
        if int(entry["batchId"]) <= newest:
            break
        found.append(entry)
    return found[::-1]
