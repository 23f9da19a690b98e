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
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from elastream.engines.spark.executors import is_local
from elastream.engines.spark.local_paths import for_spark
from elastream.errors import ElastreamError

_DRIVER, _SPARK = "driver", "spark"
_PREFIX = ".same-folder-"
_PATIENCE_S = 3.0  # a network file system may show only a moment later what another machine wrote
_POLL_S = 0.1
_LEFTOVER_S = 3600.0
_TASKS_PER_EXECUTOR = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """One of those who work in a folder, and what it has found there."""

    who: str
    """In words."""
    file: str
    """That it has written."""
    saw: Mapping[str, str]
    """What it has read in the files of others, or why it could not; of its own, why it could not write it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """A folder in the folder in question, where each of them writes the token into a file."""

    folder: Path
    token: str

    @property
    def path(self) -> Path:
        return self.folder / f"{_PREFIX}{self.token}"


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


def difference(probe: Probe, witnesses: Sequence[Witness]) -> str | None:
    """Who does not see what another has written, in a sentence; nothing if all see the same."""
    writers = {witness.file: witness.who for witness in witnesses}
    for reader in witnesses:
        for file, found in reader.saw.items():
            if found == probe.token:
                continue
            if file == reader.file:
                return f"{probe.folder}: {reader.who} cannot write there: {found}"
            return (
                f"{probe.folder}: {writers[file]} and {reader.who} do not see the same folder there: what the one "
                f"has written the other does not find ({found or 'empty'}); every node needs this folder at the "
                "same path, on a file system that all of them share, such as NFS"
            )
    return None


def _judge(probe: Probe, others: Sequence[Witness]) -> None:
    """The driver looks last, and only where the others found all: it would wait for each of their files."""
    told = difference(probe, [*others, Witness(who="the driver", file=_DRIVER, saw={})])
    if told is None:
        saw = {other.file: _patiently(_reader(probe.path), other.file, probe.token) for other in others}
        told = difference(probe, [*others, Witness(who="the driver", file=_DRIVER, saw=saw)])
    if told is not None:
        raise ElastreamError(told)


@contextlib.contextmanager
def _probe(folder: Path) -> Iterator[Probe]:
    """With the driver's file in it; gone in the end."""
    probe = Probe(folder=folder, token=uuid.uuid4().hex)
    try:
        _delete_leftovers(folder)
        probe.path.mkdir()
        _write(probe.path / _DRIVER, probe.token)
    except OSError as error:
        raise ElastreamError(f"{folder}: cannot be used: {error.strerror}") from error
    try:
        yield probe
    finally:
        shutil.rmtree(probe.path, ignore_errors=True)


def _delete_leftovers(folder: Path) -> None:
    """Of drivers that were killed; a young one may be of a driver that asks at this moment."""
    for left in folder.glob(f"{_PREFIX}*"):
        if time.time() - left.stat().st_mtime > _LEFTOVER_S:
            shutil.rmtree(left, ignore_errors=True)


# Those who are asked


def _ask_spark(spark: SparkSession, probe: Probe) -> Witness:
    """As Spark itself reads and writes: through Hadoop, with the scheme."""
    jvm: Any = spark.sparkContext._jvm
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    files = jvm.org.apache.hadoop.fs.Path(for_spark(probe.path)).getFileSystem(settings)

    def read(name: str) -> str:
        opened = files.open(jvm.org.apache.hadoop.fs.Path(for_spark(probe.path / name)))
        try:
            return bytes(opened.readAllBytes()).decode(errors="replace")
        finally:
            opened.close()

    found = _patiently(read, _DRIVER, probe.token)
    saw = {_DRIVER: found if found == probe.token else f"{found}{_encoding_hint(jvm, probe.folder)}"}
    if found == probe.token:  # else it would leave something elsewhere
        try:
            created = files.create(jvm.org.apache.hadoop.fs.Path(for_spark(probe.path / _SPARK)))
            created.writeBytes(probe.token)
            created.close()
        except Py4JError as error:
            saw[_SPARK] = _reason(error)
    return Witness(who="Spark's own process", file=_SPARK, saw=saw)


def _ask_tasks(spark: SparkSession, probes: Sequence[Probe]) -> list[list[Witness]]:
    """Of each probe; one job for all of them."""
    if not probes:
        return []
    context = spark.sparkContext
    count = _TASKS_PER_EXECUTOR * (1 if is_local(str(context.master)) else _executors(spark))
    asked = list(probes)

    def look(number: int) -> list[Witness]:
        return [_look(probe, number) for probe in asked]

    answers = context.parallelize(range(count), count).map(look).collect()
    return [[answer[index] for answer in answers] for index in range(len(asked))]


def _look(probe: Probe, number: int) -> Witness:
    """In a task."""
    file, saw = f"task-{number}", {}
    for name in (_DRIVER, _SPARK):
        saw[name] = _patiently(_reader(probe.path), name, probe.token)
        if saw[name] != probe.token:
            break
    else:
        try:
            _write(probe.path / file, probe.token)
        except OSError as error:
            saw[file] = str(error)
    return Witness(who=f"a task on {socket.gethostname()}", file=file, saw=saw)


def _executors(spark: SparkSession) -> int:
    """How many there are now; Spark offers tasks to all of them in turn, so that each gets some."""
    known = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
    return max(1, int(known.size()) - 1)  # without the driver


# Reading and writing


def _reader(path: Path) -> Callable[[str], str]:
    return lambda name: (path / name).read_text(errors="replace")


def _patiently(read: Callable[[str], str], name: str, token: str) -> str:
    """What is in a file; where it cannot be read in time, what is wrong."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            found = read(name)
        except (OSError, Py4JError) as error:
            found = _reason(error)
        if found == token or time.monotonic() > deadline_s:
            return found
        time.sleep(_POLL_S)


def _write(path: Path, token: str) -> None:
    with path.open("w") as file:
        file.write(token)
        file.flush()
        os.fsync(file.fileno())  # for those who do not read it from this machine


def _reason(error: Exception) -> str:
    text = str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
    return text.strip().split("\n", 1)[0][:200] or type(error).__name__


def _encoding_hint(jvm: Any, folder: Path) -> str:
    encoding = str(jvm.java.lang.System.getProperty("sun.jnu.encoding"))
    if str(folder).isascii() or encoding.upper() == "UTF-8":
        return ""
    return f"; Java spells names in {encoding}, and cannot spell this one: set LC_ALL=C.UTF-8"
