"""Hadoop on this machine, for tests: HDFS, a NameNode and a DataNode, and on request YARN above it.

    with Hadoop(folder) as hadoop:
        ...  # a Spark that is started with hadoop.environment has HDFS as its default file system

    python hadoop.py fetch    brings the jars, 66 MB

Every daemon is a process with a small heap that listens on loopback, has a log in the folder and ends with us.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from xml.sax.saxutils import escape

from pyspark.find_spark_home import _find_spark_home

from elastream.engines.spark.daemons import Daemons
from elastream.engines.spark.jars import JarSet, read_lock
from elastream.engines.spark.java import find_java
from elastream.engines.spark.ports import free_port
from elastream.engines.spark.rest import get_json
from elastream.errors import ElastreamError

HOST = "127.0.0.1"
_PATIENCE_S = 300.0  # for a machine that does other things too
_POLL_S = 0.1
_JAVA = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_HDFS = "org.apache.hadoop.hdfs.server"
_YARN = "org.apache.hadoop.yarn.server"


def hadoop_jars() -> JarSet:
    jars = read_lock(Path(__file__).with_suffix(".lock").read_text(encoding="utf-8"))
    version = next(jar.version for jar in jars if jar.artifact == "hadoop-client-minicluster")
    return JarSet(name=f"hadoop-{version}", jars=jars, fetched_by="`make test-jars`")


class Hadoop:
    """As a context: it is up inside, and all of its processes are gone afterwards."""

    def __init__(self, folder: Path, *, yarn: bool = False) -> None:
        self._folder = folder
        self._yarn = yarn
        self._daemons = Daemons(folder)
        self._names_port, self._web_port, self._yarn_port = (free_port(HOST) for _ in range(3))
        self._settings = folder / "settings"

    @property
    def file_system(self) -> str:
        return f"hdfs://{HOST}:{self._names_port}"

    @property
    def environment(self) -> dict[str, str]:
        """For a process whose Spark is to be a client of it."""
        return {"HADOOP_CONF_DIR": str(self._settings), "YARN_CONF_DIR": str(self._settings)}

    def __enter__(self) -> Self:
        self._daemons.make_folder()
        self._write_settings()
        try:
            self._format()
            self.start_names()
            self._start("datanode", f"{_HDFS}.datanode.DataNode")
            if self._yarn:
                self._start("resourcemanager", f"{_YARN}.resourcemanager.ResourceManager")
                self._start("nodemanager", f"{_YARN}.nodemanager.NodeManager")
            self._wait_until_it_answers()
        except BaseException:
            self._daemons.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._daemons.stop()

    def files(self, folder: str = "/") -> Iterator[str]:
        """All files and folders that lie there, each with its path."""
        address = f"http://{HOST}:{self._web_port}/webhdfs/v1{urllib.parse.quote(folder)}?op=LISTSTATUS"
        for entry in get_json(address)["FileStatuses"]["FileStatus"]:
            path = f"{folder.rstrip('/')}/{entry['pathSuffix']}"
            yield path
            if entry["type"] == "DIRECTORY":
                yield from self.files(path)

    def ended(self) -> list[str]:
        return self._daemons.ended()

    def kill_names(self) -> None:
        """The NameNode; the DataNode waits for it."""
        os.killpg(self._daemons.pids["namenode"], signal.SIGKILL)

    def start_names(self) -> None:
        """It begins in safe mode, until the DataNode has told it of its blocks."""
        self._start("namenode", f"{_HDFS}.namenode.NameNode")

    def _start(self, name: str, java_class: str) -> None:
        self._daemons.start_command(name, [*self._java(), java_class])

    def _format(self) -> None:
        command = [*self._java(), f"{_HDFS}.namenode.NameNode", "-format", "-force"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise ElastreamError(f"HDFS cannot be formatted: {done.stdout[-2000:]}")

    def _java(self) -> list[str]:
        """The settings come first: those of Spark's jars are not meant."""
        jars = hadoop_jars().paths("daemons")
        path = [str(self._settings), *map(str, jars), os.path.join(_find_spark_home(), "jars", "*")]
        logs = self._folder.absolute()
        return [
            find_java(),
            *_JAVA,
            f"-Dhadoop.log.dir={logs}",
            f"-Dyarn.log.dir={logs}",
            "-cp",
            os.pathsep.join(path),
        ]

    def _wait_until_it_answers(self) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not self._answers():
            if ended := self.ended():
                raise ElastreamError(f"Hadoop did not start: {'; '.join(ended)}")
            if time.monotonic() > deadline_s:
                raise ElastreamError(f"Hadoop did not start within {_PATIENCE_S:.0f} s; its logs: {self._folder}")
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        state = "Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            found = get_json(f"http://{HOST}:{self._web_port}/jmx?qry={state}")["beans"][0]
            if self._yarn:
                nodes = get_json(f"http://{HOST}:{self._yarn_port}/ws/v1/cluster/metrics")["clusterMetrics"]
                if nodes["activeNodes"] < 1:
                    return False
        except (ElastreamError, LookupError):
            return False
        return found["NumLiveDataNodes"] == 1 and found["FSState"] == "Operational"

    def _write_settings(self) -> None:
        self._settings.mkdir(parents=True)
        data = self._folder.absolute()
        _write_xml(self._settings / "core-site.xml", {"fs.defaultFS": self.file_system})
        hdfs = {
            "dfs.namenode.name.dir": (data / "names").as_uri(),
            "dfs.datanode.data.dir": (data / "blocks").as_uri(),
            "dfs.namenode.http-address": f"{HOST}:{self._web_port}",
            "dfs.datanode.address": f"{HOST}:0",
            "dfs.datanode.http.address": f"{HOST}:0",
            "dfs.datanode.ipc.address": f"{HOST}:0",
            "dfs.replication": "1",
            "dfs.namenode.safemode.extension": "5000",  # after a start, in ms; 30 s where it is not set
        }
        _write_xml(self._settings / "hdfs-site.xml", hdfs)
        if self._yarn:
            _write_xml(self._settings / "yarn-site.xml", self._yarn_settings(data))

    def _yarn_settings(self, data: Path) -> dict[str, Any]:
        scheduler = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
        manager = {
            f"yarn.resourcemanager.{name}.address": f"{HOST}:{free_port(HOST)}"
            for name in ("scheduler", "resource-tracker", "admin")
        }
        return manager | {
            "yarn.resourcemanager.address": f"{HOST}:{free_port(HOST)}",
            "yarn.resourcemanager.webapp.address": f"{HOST}:{self._yarn_port}",
            "yarn.resourcemanager.scheduler.class": scheduler,
            "yarn.nodemanager.address": f"{HOST}:0",
            "yarn.nodemanager.localizer.address": f"{HOST}:{free_port(HOST)}",
            "yarn.nodemanager.webapp.address": f"{HOST}:{free_port(HOST)}",
            "yarn.nodemanager.local-dirs": str(data / "local"),
            "yarn.nodemanager.log-dirs": str(data / "containers"),
            "yarn.nodemanager.resource.memory-mb": 8192,
            "yarn.nodemanager.resource.cpu-vcores": 8,
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.scheduler.minimum-allocation-mb": 256,
        }


def _write_xml(path: Path, settings: Mapping[str, Any]) -> None:
    entries = (
        f"<property><name>{name}</name><value>{escape(str(value))}</value></property>\n"
        for name, value in settings.items()
    )
    path.write_text(f"<configuration>\n{''.join(entries)}</configuration>\n", encoding="utf-8")


if __name__ == "__main__":
    print(f"{hadoop_jars().fetch()} jars fetched, all are in {hadoop_jars().folder}")
