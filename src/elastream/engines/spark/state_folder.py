"""State in a file system that every node reaches, such as HDFS; the folder of the run may be on the driver's disk.

    URL/PIPELINE-IDENTITY/NAME    the state of a step, of one run's folder

Spark keeps the state of a query in its checkpoint. The rest of that, which batches were begun and which are done,
are small files that only the driver reads and writes. So a mount table of Hadoop's (viewfs) shows both under one
path, which Spark is given: `checkpoints/NAME/state` leads to the other file system, all else to the run's folder.

State that lies there is not moved into other partitions: what a move that was torn by a power loss has left behind
is taken away on a disk only (`lasting_checkpoint.py`).
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastream.engines.spark.identity import short_identity
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.engine import TAKES_TIME

if TYPE_CHECKING:  # the options of a run are checked without Spark
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_URL = re.compile(r"(?!viewfs:)[A-Za-z][A-Za-z0-9+.-]*://[^\s]*/[^\s]*")
_PATIENCE_S = 120.0
_POLL_S = 1.0
_PASSING = ("SafeModeException", "ConnectException", "StandbyException", "NoRouteToHostException", "SocketTimeout")
_IN_WORDS = (
    ("SafeModeException", "it is in safe mode, and takes nothing"),
    ("ConnectException", "nobody answers there"),
    ("UnknownHostException", "there is no such host"),
    ("No FileSystem for scheme", "Spark knows no such file system: --packages brings the one it lacks"),
    ("ClassNotFoundException", "Spark knows no such file system: --packages brings the one it lacks"),
    ("Incomplete HDFS URI", "a host is needed, as HDFS is not the default file system here"),
    ("AccessControlException", "no right to write there"),
    ("QuotaExceededException", "its quota is full"),
)


def state_url(text: str) -> str:
    """As it is written on the command line; refused where it is no folder of a file system."""
    if not _URL.fullmatch(text):
        raise InvalidInput(
            f"{text}: a folder with the scheme of its file system was expected, such as hdfs:///user/me/state or "
            "hdfs://NAMENODE:8020/user/me/state"
        )
    return text.rstrip("/")


@dataclass(frozen=True, kw_only=True, slots=True)
class StateFolder:
    url: str
    run: Path
    """The folder of the run, whose state no other one's must meet: batches are numbered from 0 in each."""
    pipeline: str

    def checkpoint(self, name: str) -> str:
        """Of a step, for Spark."""
        return f"viewfs://{self._mounts}/checkpoints/{name}"

    def mount(self, spark: SparkSession, names: Iterable[str]) -> None:
        """For all that Spark does from now on."""
        settings = spark.sparkContext._jsc.hadoopConfiguration()
        table = f"fs.viewfs.mounttable.{self._mounts}"
        settings.set(f"{table}.linkFallback", self.run.absolute().as_uri())
        for name in names:
            settings.set(f"{table}.link./checkpoints/{name}/state", f"{self._own}/{name}")

    def check(self, spark: SparkSession, *, patience_s: float = _PATIENCE_S) -> None:
        """Refuse it where the driver cannot write, or a task cannot read; what may pass is waited for."""
        deadline_s, waits = time.monotonic() + patience_s, False
        while (said := self._said_of(spark)) is not None:
            if time.monotonic() > deadline_s or not any(sign in said for sign in _PASSING):
                raise ElastreamError(self._in_words(said))
            if not waits:
                waits = True
                told = f"{self._in_words(said)}: waiting for it, at most {patience_s:.0f} s"
                _log.warning("%s", told, extra=TAKES_TIME)
            time.sleep(_POLL_S)

    def trouble(self, spark: SparkSession) -> str | None:
        """Why it cannot be used now; none where it can."""
        said = self._said_of(spark)
        return None if said is None else self._in_words(said)

    def _said_of(self, spark: SparkSession) -> str | None:
        """What Hadoop says where it cannot be used."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            _try_out(spark, f"{self._own}/.try-{uuid.uuid4().hex}")
        except (Py4JError, PySparkException) as error:
            return _said(error)
        return None

    def _in_words(self, said: str) -> str:
        first = said.strip().split("\n", 1)[0][:300]
        plain = next((words for sign, words in _IN_WORDS if sign in said), None)
        return f"--state-folder {self.url}: {first if plain is None else f'{plain} ({first})'}"

    @property
    def _own(self) -> str:
        return f"{self.url}/{self.pipeline}-{short_identity(self.run)}"

    @property
    def _mounts(self) -> str:
        return f"elastream-{short_identity(self.run)}"


def _try_out(spark: SparkSession, place: str) -> None:
    """The driver writes a file, which a task reads; it is gone in the end."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(place)
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    created = files.create(path)
    try:
        created.writeBytes("read by a task\n")
        created.close()
        spark.read.text(place).collect()
    finally:
        files.delete(path, False)


def _said(error: Exception) -> str:
    """With the class and the message of all that it was caused by."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:
        return str(error)
    told = []
    while cause is not None:
        told.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(told)
