"""Queries that fail: each failure is found once, told with what it was to read, and kept until the run ends."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.failed_input import input_text, records_of
from elastream.engines.spark.failures import StepFailure, failure_of
from elastream.engines.spark.isolation import NotIsolatedError
from elastream.engines.spark.poisoned import Poisoned
from elastream.engines.spark.query import StepQuery
from elastream.engines.spark.workspace import Workspace
from elastream.manager.engine import EngineFailed

_log = logging.getLogger(__name__)

MOST_FAILURES = 4
"""Of a query in a row; after one more the run ends."""
_MOST_PAUSE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class _Found:
    start: int
    """Of the query: which one it was that failed."""
    batches: int
    """That the query had done by then."""
    at_s: float
    failure: StepFailure


class QueryFailures:
    """For any thread: one looks from time to time, the manager's asks and starts again."""

    def __init__(
        self,
        workspace: Workspace,
        queries: Mapping[str, StepQuery],
        schemas: Mapping[str, StructType],
        poisoned: Poisoned | None = None,
    ) -> None:
        """`poisoned` puts records aside at which a batch fails; without it they end the run."""
        self._workspace = workspace
        self._queries = queries
        self._schemas = schemas
        self._poisoned = poisoned
        self._lock = threading.Lock()
        self._found: dict[str, _Found] = {}
        self._untold: list[str] = []
        self._working: frozenset[str] = frozenset()

    def look(self) -> bool:
        """Whether there is something to tell."""
        for name in self._queries:
            self.of(name)
        with self._lock:
            return bool(self._untold)

    def take(self) -> tuple[str, ...]:
        """What was not told yet."""
        with self._lock:
            told, self._untold = tuple(self._untold), []
            return told

    def of(self, name: str) -> StepFailure | None:
        """Why the query of a step does not run now; None where it does."""
        query = self._queries[name]
        start, batch = query.starts, query.batch_begun
        text = query.failure()
        if text is None or start != query.starts:  # someone else has started it again meanwhile
            return None
        with self._lock:
            known = self._found.get(name)
            if known is None or known.start < start:
                failure = self._failure(query, text, batch)
                known = _Found(start=start, batches=query.batches, at_s=time.time(), failure=failure)
                self._found[name] = known
                self._untold.append(known.failure.told)
            return known.failure

    def revive(self) -> dict[str, str]:
        """Start queries again that failed; which, and why. One that fails again and again ends the run."""
        failed = {}
        for name, query in self._queries.items():
            found = self.of(name)
            if found is None:
                continue
            if query.failures >= MOST_FAILURES:
                raise EngineFailed(f"{found.last} (all of it: {self._trace(name)})")
            if self._goes_on_without_poison(query, found):
                query.failures = 0
            else:
                time.sleep(min(_MOST_PAUSE_S, 2.0**query.failures))
                query.failures += 1
            query.start()
            failed[name] = f"failed and was started again: {found.failure.text}"
        return failed

    def _goes_on_without_poison(self, query: StepQuery, found: StepFailure) -> bool:
        """Whether the records at which a batch fails a second time were put aside."""
        if self._poisoned is None or not query.failures or found.batch is None or found.failure.late_worker:
            return False
        try:
            told = self._poisoned.put_aside(query.step.name, found.batch)
        except NotIsolatedError as error:
            _log.info("%s: no record is put aside: %s", query.step.name, error)
            return False
        with self._lock:
            self._untold.append(told)
        return True

    def failing(self) -> dict[str, str]:
        """Steps that failed and have not worked since, with the reason: those that look well are forgotten."""
        with self._lock:
            found = dict(self._found)
        well = [name for name, one in found.items() if self._is_well(self._queries[name], one)]
        with self._lock:
            for name in well:
                if self._found.get(name) is found[name]:
                    del self._found[name]
        return {name: one.failure.failure.text for name, one in found.items() if name not in well}

    def _is_well(self, query: StepQuery, found: _Found) -> bool:
        return query.batches > found.batches or (query.starts > found.start and query.is_waiting())

    def _trace(self, name: str) -> str:
        """Where all of it is."""
        return str(self._workspace.folder / f"{name}.error.txt")

    def before_halt(self) -> None:
        """Afterwards nobody can say which queries were well."""
        self.look()
        self._working = frozenset(name for name, query in self._queries.items() if query.is_waiting())

    def unsettled(self) -> tuple[str, ...]:
        """Steps that failed and did not work again, a sentence each; for queries that are stopped."""
        return tuple(
            _sentence(name, found, self._queries[name], self._trace(name))
            for name, found in self._found.items()
            if self._queries[name].batches == found.batches
            and name not in self._working
            and not (found.failure.failure.late_worker and found.batches)  # it would have been well the next time
        )

    def _failure(self, query: StepQuery, text: str, batch: int | None) -> StepFailure:
        name = query.step.name
        with contextlib.suppress(OSError):  # the disk may be full, which is then why it failed
            (self._workspace.folder / f"{name}.error.txt").write_text(text, encoding="utf-8")
        found = failure_of(text)
        return StepFailure(
            operator=name,
            failure=found,
            batch=batch,
            before=query.failures,
            most=MOST_FAILURES,
            input=None if found.late_worker or batch is None else self._input(query, found.reason),
        )

    def _input(self, query: StepQuery, reason: str) -> str | None:
        """Where it lies in files: of a topic it would have to be fetched, from a broker that may be away."""
        with contextlib.suppress(Exception):  # a help for who reads the error, of which this must not be the cause
            for read in query.step.reads:
                channel = self._workspace.channel(read)
                if isinstance(channel, FileChannel):
                    schema = to_arrow_schema(self._schemas[read], timezone="UTC")
                    batches = channel.between(*channel.log.batch_of(query.step.name), schema)
                    if (text := input_text(records_of(batches), reason, of=read)) is not None:
                        return text
        return None


def _sentence(name: str, found: _Found, query: StepQuery, trace: str) -> str:
    since = f"has not worked since {time.strftime('%H:%M:%S', time.localtime(found.at_s))}"
    when = since if query.batches else "never worked in this run"
    return f"{name} {when}: {found.failure.failure.text} (all of it: {trace})"
