"""Before a pipeline starts: do all who work in its folders see the same ones?

The driver's Python, Spark's own process (a JVM) and the tasks on the executors all read and write there: channels,
checkpoints and what sinks keep. A path may lead each of them to another place: to the disk of another machine, to
the file system of a container, to a name that a JVM with another encoding spells otherwise. What one of them
writes the others then do not find, and a pipeline would fail in ways that say little, or lose records.

So each of them writes a file and the others read it, before anything else is read. Two that see the files of the
driver, and whose files the driver sees, are in the same folder. Tasks are asked in Python, two on each executor:
its JVM is on the same machine. Executors that come later are not asked. What they write is counted with every
batch (`channels/files.py`), and what they cannot read fails by itself.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from elastream.engines.spark import folder_witness
from elastream.engines.spark.executors import is_local
from elastream.engines.spark.folder_witness import (
    DRIVER,
    PREFIX,
    SPARK,
    Probe,
    Witness,
    difference,
    look_in_task,
    read_patiently,
)
from elastream.engines.spark.local_paths import for_spark
from elastream.errors import ElastreamError

_LEFTOVER_S = 3600.0
_TASKS_PER_EXECUTOR = 2


def check_same_folder(spark: SparkSession, folders: Iterable[Path], *, on_executors: Iterable[Path] = ()) -> None:
    """Refuse a folder that the driver's Python, Spark, and where they need it the executors do not see as one."""
    with contextlib.ExitStack() as cleaning:
        probes = {folder: cleaning.enter_context(_probe(folder)) for folder in dict.fromkeys(folders)}
        sparks = {folder: _ask_spark(spark, probe) for folder, probe in probes.items()}
        for folder, probe in probes.items():
            _judge(probe, [sparks[folder]])
        shared = [probes[folder] for folder in dict.fromkeys(on_executors)]
        for probe, tasks in zip(shared, _ask_tasks(spark, shared), strict=True):
            _judge(probe, [*tasks, sparks[probe.folder]])


def _judge(probe: Probe, others: Sequence[Witness]) -> None:
    """The driver looks last, and only where the others found all: it would wait for each of their files."""
    told = difference(probe, [*others, Witness(who="the driver", file=DRIVER, saw={})])
    if told is None:
        saw = {other.file: read_patiently(probe, other.file) for other in others}
        told = difference(probe, [*others, Witness(who="the driver", file=DRIVER, saw=saw)])
    if told is not None:
        raise ElastreamError(told)


@contextlib.contextmanager
def _probe(folder: Path) -> Iterator[Probe]:
    """With the driver's file in it; gone in the end."""
    probe = Probe(folder=folder, token=uuid.uuid4().hex, patience_s=folder_witness.PATIENCE_S)
    try:
        _delete_leftovers(folder)
        probe.path.mkdir()
        folder_witness.write(probe, DRIVER)
    except OSError as error:
        raise ElastreamError(f"{folder}: cannot be used: {error.strerror}") from error
    try:
        yield probe
    finally:
        shutil.rmtree(probe.path, ignore_errors=True)


def _delete_leftovers(folder: Path) -> None:
    """Of drivers that were killed; a young one may be of a driver that asks at this moment."""
    for left in folder.glob(f"{PREFIX}*"):
        if time.time() - left.stat().st_mtime > _LEFTOVER_S:
            shutil.rmtree(left, ignore_errors=True)


def _ask_spark(spark: SparkSession, probe: Probe) -> Witness:
    """As Spark itself reads and writes: through Hadoop, with the scheme."""
    jvm: Any = spark.sparkContext._jvm
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    files = jvm.org.apache.hadoop.fs.Path(for_spark(probe.path)).getFileSystem(settings)

    def read(name: str) -> str:
        try:
            opened = files.open(jvm.org.apache.hadoop.fs.Path(for_spark(probe.path / name)))
            try:
                return bytes(opened.readAllBytes()).decode(errors="replace")
            finally:
                opened.close()
        except Py4JError as error:
            raise OSError(_reason(error)) from error

    found = read_patiently(probe, DRIVER, read)
    saw = {DRIVER: found if found == probe.token else f"{found}{_encoding_hint(jvm, probe.folder)}"}
    if found == probe.token:  # else it would leave something elsewhere
        try:
            created = files.create(jvm.org.apache.hadoop.fs.Path(for_spark(probe.path / SPARK)))
            created.writeBytes(probe.token)
            created.close()
        except Py4JError as error:
            saw[SPARK] = _reason(error)
    return Witness(who="Spark's own process", file=SPARK, saw=saw)


def _ask_tasks(spark: SparkSession, probes: Sequence[Probe]) -> list[list[Witness]]:
    """Of each probe; one job for all of them."""
    if not probes:
        return []
    context = spark.sparkContext
    count = _TASKS_PER_EXECUTOR * (1 if is_local(str(context.master)) else _executors(spark))
    asked = list(probes)
    tasks = context.parallelize(range(count), count)
    try:
        answers = tasks.map(lambda number: [look_in_task(probe, number) for probe in asked]).collect()
    except (PySparkException, Py4JError) as error:
        raise ElastreamError(
            f"{context.master}: a task that only looks into {asked[0].folder} fails: {_python_reason(error)}; "
            "every node needs the same Python as the driver, with elastream"
        ) from error
    return [[answer[index] for answer in answers] for index in range(len(asked))]


def _executors(spark: SparkSession) -> int:
    """How many there are now; Spark offers tasks to all of them in turn, so that each gets some."""
    known = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
    return max(1, int(known.size()) - 1)  # without the driver


def _reason(error: Exception) -> str:
    text = str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
    return text.strip().split("\n", 1)[0][:200] or type(error).__name__


def _python_reason(error: Exception) -> str:
    """What a Python worker died of, among all that Spark tells; else its first line."""
    found = re.search(r"^[\w.]*Error: .+$|Cannot run program .+$", str(error), re.MULTILINE)
    return found[0][:300] if found else _reason(error)


def _encoding_hint(jvm: Any, folder: Path) -> str:
    encoding = str(jvm.java.lang.System.getProperty("sun.jnu.encoding"))
    if str(folder).isascii() or encoding.upper() == "UTF-8":
        return ""
    return f"; Java spells names in {encoding}, and cannot spell this one: set LC_ALL=C.UTF-8"
