"""Looking at this machine, for `elastream doctor`: each call finds one thing out and changes nothing."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from elastream.errors import ElastreamError
from elastream.extras import EXTRAS, missing

_PATIENCE_S = 20.0
_LOST = {
    "spark": "pipelines on Spark",
    "kafka": "channels in Kafka",
    "web": "the page and Prometheus",
    "plot": "plots",
    "report": "reports",
    "agents": "master and agents",
}


def python_workers() -> tuple[str, tuple[int, int] | None]:
    """What PYSPARK_PYTHON is set to, and which version that is."""
    variable = os.environ.get("PYSPARK_PYTHON", "")
    if not variable:
        return "", None
    code = "import sys; print(*sys.version_info[:2])"
    try:
        asked = [variable, "-c", code]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=_PATIENCE_S, check=True).stdout
        major, minor = said.split()
        return variable, (int(major), int(minor))
    except (OSError, subprocess.SubprocessError, ValueError):
        return variable, None


def pyspark_version() -> str | None:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None


def other_spark() -> tuple[Path | None, str | None]:
    """SPARK_HOME with the version that lies there, where it is not that of PySpark."""
    home = os.environ.get("SPARK_HOME")
    if not home or "site-packages" in Path(home).parts:
        return None, None
    jars = (path.name for path in (Path(home) / "jars").glob("spark-core_*.jar"))
    found = [re.search(r"spark-core_[\d.]+-([\d.]*\d)", name) for name in jars]
    return Path(home), next((one[1] for one in found if one), None)


def missing_extras() -> dict[str, str]:
    return {extra: _LOST[extra] for extra in EXTRAS if missing(extra) is not None}


def java() -> tuple[str | None, str]:
    """Its version and command, or why there is none."""
    from elastream.engines.spark.java import java_and_version

    try:
        command, version = java_and_version()
        return f"{version} at {command}", ""
    except ElastreamError as error:
        return None, str(error)


def memory() -> tuple[float, float]:
    """Bytes that are free, and all of them; those of the container, where that has a limit."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = float(page * os.sysconf("SC_PHYS_PAGES"))
    available = float(page * os.sysconf("SC_AVPHYS_PAGES")) if "SC_AVPHYS_PAGES" in os.sysconf_names else total
    with suppress(OSError, ValueError, AttributeError):  # Linux also knows what it could make free
        told = Path("/proc/meminfo").read_text(encoding="ascii")
        available = 1024.0 * int(re.search(r"MemAvailable:\s+(\d+) kB", told)[1])  # type: ignore[index]
    with suppress(OSError, ValueError):  # "max" is no number: there is no limit
        group = Path("/sys/fs/cgroup")
        limit = float(int((group / "memory.max").read_text(encoding="ascii")))
        used = float(int((group / "memory.current").read_text(encoding="ascii")))
        total, available = min(total, limit), min(available, limit - used)
    return available, total


def cores() -> tuple[int, float]:
    """How many this process may use, and how many processes want one."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return count, os.getloadavg()[0]


def room(folder: Path) -> tuple[float | None, str]:
    """Bytes that are left where the folder is, or will be, and why nothing can be written there."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=there) as probe:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return float(shutil.disk_usage(there).free), ""
    except OSError as error:
        return None, f"cannot be written or locked: {error.strerror}"


def runs_code(folder: Path) -> bool:
    return not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)


def open_files() -> float:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if limit == resource.RLIM_INFINITY else float(limit)


def loopback() -> str:
    """Why this machine cannot talk to itself."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo("localhost", None)}
    except OSError as error:
        return f"localhost is not known: {error.strerror or error}"
    if "127.0.0.1" not in addresses:
        return f"localhost is {', '.join(sorted(addresses))}"
    return "" if is_free(0) else "no port can be opened on 127.0.0.1"


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def start_of_spark(log: Path) -> tuple[float, str]:
    """How long it takes until a Python worker of Spark's answers, and why it does not."""
    from elastream.engines.spark.session import start_session

    began_s = time.monotonic()
    try:
        session = start_session("doctor", master="local[2]", settings={"spark.ui.port": "0"}, log=log)
        try:
            found = session.sparkContext.parallelize(range(4), 2).map(lambda number: number + 1).sum()
        finally:
            session.stop()
    except Exception as error:  # of Spark, of Java, of the workers: all of it is what was asked for
        return time.monotonic() - began_s, str(error).strip().split("\n", 1)[0][:200] or type(error).__name__
    return time.monotonic() - began_s, "" if found == 10 else f"1 + 2 + 3 + 4 was {found}"


def version_of_python() -> tuple[int, int]:
    return sys.version_info[0], sys.version_info[1]
