"""A lock that is held by Spark's own process, for as long as that lives.

A driver that is killed leaves its JVM behind for a moment, in which it may still finish a batch. Checkpoints are
not safe against a second writer, so who starts again waits until that JVM is gone: the lock ends with it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from elastream.errors import ElastreamError

_PATIENCE_S = 60.0
_POLL_S = 0.2


class JvmLock:
    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark = spark
        self._path = path
        self._file: Any = None

    def take(self) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not self._try():
            if time.monotonic() > deadline_s:
                raise ElastreamError(f"{self._path.parent}: the Spark of an earlier run is still at work here")
            time.sleep(_POLL_S)

    def release(self) -> None:
        if self._file is not None:
            self._file.close()  # which gives the lock back
            self._file = None

    def _try(self) -> bool:
        jvm = self._spark.sparkContext._jvm
        assert jvm is not None
        file = jvm.java.io.RandomAccessFile(str(self._path), "rw")
        try:
            got = file.getChannel().tryLock() is not None
        except Py4JJavaError as error:
            if "OverlappingFileLockException" not in str(error.java_exception):
                file.close()
                raise
            got = False  # another engine in this very process
        if got:
            self._file = file
        else:
            file.close()
        return got
