"""Whether a machine has what pipelines on Spark need: from what was found on it to findings with advice. Values
in, values out; `machine.py` looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from elastream.durations import text as duration_text

LEAST_PYTHON = (3, 11)
PYSPARK = (4, 3)
"""The release that the measurements, and moving state, were made for."""
_GIB = 1024**3
_LEAST_MEMORY, _GOOD_MEMORY = 1.0 * _GIB, 3.0 * _GIB  # the driver's heap alone is 1 GiB unless it is set
_LEAST_DISK, _GOOD_DISK = 1.0 * _GIB, 5.0 * _GIB
_GOOD_FILES = 4_096
_BUSY = 2.0


class Grade(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    grade: Grade
    found: str
    advice: str = ""
    """What to do; nothing where it is well."""


def python(version: tuple[int, int], executable: str, workers: tuple[int, int] | None, variable: str) -> Finding:
    """`workers` is the version that PYSPARK_PYTHON names, with `variable` as it is set, where it is."""
    found = f"{_version(version)} at {executable}"
    if version < LEAST_PYTHON:
        return _failure("Python", found, f"install Python {_version(LEAST_PYTHON)} or newer")
    if variable and workers != version:
        what = "does not run" if workers is None else f"is Python {_version(workers)}"
        return _failure(
            "Python",
            f"{found}; PYSPARK_PYTHON={variable} {what}",
            f"unset PYSPARK_PYTHON, or set it to a Python {_version(version)}: Spark's workers run with it",
        )
    return _ok("Python", found)


def pyspark(version: str | None, home: Path | None, home_version: str | None) -> Finding:
    """`home` is SPARK_HOME, where it is set and leads to another Spark than the one that came with PySpark."""
    if version is None:
        return _failure("PySpark", "not installed", "pip install 'elastream[spark]'")
    if _parts(version) != PYSPARK:
        return _failure("PySpark", version, f"pip install 'pyspark>={_version(PYSPARK)},<4.4'")
    if home is None:
        return _ok("PySpark", version)
    found = f"{version}, and SPARK_HOME={home} has {home_version or 'a version that it does not tell'}"
    if home_version is not None and _parts(home_version) == PYSPARK:
        return _ok("PySpark", found)
    return _failure("PySpark", found, "unset SPARK_HOME: Spark there is started in place of the one of PySpark")


def extras(missing: Mapping[str, str]) -> Finding:
    """Those that are not installed, with what each is for."""
    if not missing:
        return _ok("extras", "all are installed")
    lost = "; ".join(f"{name}: {what}" for name, what in missing.items())
    return _warning("extras", f"without {lost}", f"pip install 'elastream[{','.join(missing)}]'")


def java(found: str | None, trouble: str) -> Finding:
    """`trouble` has what to do, as whoever starts Spark would say it."""
    if found is not None:
        return _ok("Java", found)
    said, _, advice = trouble.partition(": install ")
    return _failure("Java", said, f"install {advice or 'Java 17 or newer'}")


def memory(available: float, total: float) -> Finding:
    found = f"{_gib(available)} of {_gib(total)} GiB are free"
    if available < _LEAST_MEMORY:
        return _failure("memory", found, "end something: Spark's driver alone takes 1 GiB")
    if available < _GOOD_MEMORY:
        smaller = "end something, or run with fewer slots: --master 'local[4]'"
        return _warning("memory", found, smaller)
    return _ok("memory", found)


def cores(count: int, load: float) -> Finding:
    """`load` is the number of processes that compute or wait for a core, on average over the last minute."""
    found = f"{count}, of which {min(load, count):.1f} are busy"
    if load > _BUSY * count:
        found = f"{count}, and {load:.1f} processes want one"
        return _warning("cores", found, "wait for what else runs: Spark may take minutes to start")
    if count < 2:
        return _warning("cores", found, "two are the least at which operators do not wait for each other")
    return _ok("cores", found)


def disk(check: str, folder: Path, free: float | None, trouble: str, advice: str) -> Finding:
    """`trouble` is why nothing can be written there; `free` bytes are left."""
    if trouble or free is None:
        return _failure(check, f"{folder}: {trouble}", advice)
    found = f"{_gib(free)} GiB are free in {folder}"
    if free < _LEAST_DISK:
        return _failure(check, found, "make room: channels, checkpoints and state are kept on the disk")
    if free < _GOOD_DISK:
        return _warning(check, found, "make room, or choose another place")
    return _ok(check, found)


def native_code(folder: Path, executable: bool) -> Finding:
    """Where Java puts the library of the state store before it loads it."""
    if executable:
        return _ok("native code", f"can be loaded from {folder}")
    return _failure(
        "native code",
        f"{folder} is mounted noexec, and the state store (RocksDB) is loaded from there",
        "--conf 'spark.driver.extraJavaOptions=-Djava.io.tmpdir=/another/folder'",
    )


def open_files(limit: float) -> Finding:
    if limit < _GOOD_FILES:
        return _warning(
            "open files", f"at most {limit:,.0f}", f"ulimit -n {_GOOD_FILES}: every state partition has some"
        )
    return _ok("open files", "any number" if limit == float("inf") else f"at most {limit:,.0f}")


def loopback(trouble: str) -> Finding:
    if trouble:
        return _failure(
            "loopback", trouble, "see to it that localhost is 127.0.0.1 in /etc/hosts: Spark talks to itself"
        )
    return _ok("loopback", "localhost is 127.0.0.1, and ports can be opened there")


def port(what: str, number: int, free: bool, otherwise: str) -> Finding:
    """`otherwise` is what happens, or what to do, where someone else has it."""
    check = f"port {number}"
    return _ok(check, f"free, for {what}") if free else _warning(check, f"in use; it is for {what}", otherwise)


def spark_ports(taken: int, tried: int) -> Finding:
    """Spark takes the first that is free of those from 4040 on."""
    check = f"ports 4040-{4040 + tried - 1}"
    if taken == tried:
        return _failure(
            check, "all are in use", "end other Sparks, or --conf spark.ui.port=0: elastream measures there"
        )
    return _ok(check, f"{tried - taken} of {tried} are free, for Spark's own page")


def jars(missing: int, total: int, folder: Path) -> Finding:
    if missing:
        what = f"{missing} of {total} jars of Kafka are missing"
        return _warning(
            "Kafka's jars", what, "elastream kafka fetch, for --channels kafka and sources that read Kafka"
        )
    return _ok("Kafka's jars", f"all {total} are in {folder}")


def reached(check: str, where: str, trouble: str, advice: str) -> Finding:
    """Something that was asked whether it answers."""
    return _failure(check, trouble, advice) if trouble else _ok(check, f"{where} answers")


def unknown_master(master: str) -> Finding:
    return _warning("master", f"{master} cannot be looked at from here", "try a run: --duration '1 min'")


def yarn(configured: str) -> Finding:
    """`configured` is the folder that HADOOP_CONF_DIR or YARN_CONF_DIR names."""
    if configured:
        return _ok("master", f"yarn, configured in {configured}")
    return _failure("master", "yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set", "set one of them")


def tried(took_s: float, trouble: str, log: str) -> Finding:
    """Spark was started, and a Python worker asked for something."""
    if trouble:
        return _failure("a start of Spark", trouble, f"its log: {log}")
    found = f"started and answered in {duration_text(round(took_s))}"
    if took_s > 60:
        return _warning("a start of Spark", found, "wait for what else runs on this machine")
    return _ok("a start of Spark", found)


def worst(findings: Iterable[Finding]) -> Grade:
    found = {finding.grade for finding in findings}
    return next((grade for grade in (Grade.FAILURE, Grade.WARNING) if grade in found), Grade.OK)


def _ok(check: str, found: str) -> Finding:
    return Finding(check=check, grade=Grade.OK, found=found)


def _warning(check: str, found: str, advice: str) -> Finding:
    return Finding(check=check, grade=Grade.WARNING, found=found, advice=advice)


def _failure(check: str, found: str, advice: str) -> Finding:
    return Finding(check=check, grade=Grade.FAILURE, found=found, advice=advice)


def _version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _parts(version: str) -> tuple[int, int] | None:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def _gib(amount: float) -> str:
    return f"{amount / _GIB:.1f}"
