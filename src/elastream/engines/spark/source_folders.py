"""Folders that sources read. Spark takes one that was deleted for one to which nothing comes, and says nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from elastream.engines.spark.logical_plan import nodes_of

_FILES = "StreamingRelation"
"""Spark's node for a stream of files; channels and most other sources are another."""


@dataclass
class SourceFolders:
    """`there` says of a path, which may be a pattern, whether there is something; None where nobody can say."""

    there: Callable[[str], bool | None]
    clock: Callable[[], float] = time.time
    _paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _gone_since_s: dict[str, float] = field(default_factory=dict)

    def declare(self, step: str, paths: Sequence[str]) -> None:
        self._paths[step] = tuple(paths)

    def look(self) -> tuple[str, ...]:
        """What is gone, a sentence each. One that was never there is none: a pattern may have nothing yet."""
        for path in {path for paths in self._paths.values() for path in paths}:
            there = self.there(path)
            if there:
                self._seen.add(path)
                self._gone_since_s.pop(path, None)
            elif there is False and path in self._seen:
                self._gone_since_s.setdefault(path, self.clock())
        return self.gone()

    def gone(self) -> tuple[str, ...]:
        """As found at the last look."""
        return tuple(
            f"{step}: {text}; nothing can arrive until it is back" for step, text in self.failing().items()
        )

    def failing(self) -> dict[str, str]:
        """The same by step."""
        return {
            step: f"{path}, which it reads, is gone since {_time(self._gone_since_s[path])}"
            for step, paths in self._paths.items()
            for path in paths
            if path in self._gone_since_s
        }


def paths_read(frame: DataFrame) -> list[str]:
    """The paths that a plan reads as streams of files, as the user wrote them."""
    found = []
    for node in nodes_of(frame._jdf.queryExecution().analyzed()):
        if node.nodeName() == _FILES:
            options = node.dataSource().options()
            if options.contains("path"):
                found.append(str(options.apply("path")))
    return found


def there_for(spark: SparkSession) -> Callable[[str], bool | None]:
    """As Spark itself looks: through Hadoop, whatever the file system."""

    def there(path: str) -> bool | None:
        jvm: Any = spark.sparkContext._jvm
        try:
            where = jvm.org.apache.hadoop.fs.Path(path)
            files = where.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
            matching = files.globStatus(where)
            return matching is not None and len(matching) > 0
        except Py4JError:  # a file system that does not answer: its source says so
            return None

    return there


def _time(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
