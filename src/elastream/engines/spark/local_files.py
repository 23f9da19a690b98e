"""Hadoop's local file system without a process for each file that it makes.

A batch of an operator makes some thirty small files and folders: offsets, what has changed in each partition of
the state, what its tasks put out. For each Hadoop sets permissions, and where its native library is not at hand,
as it is nowhere beside a PySpark from PyPI, it starts `chmod` to do so. It also writes a second file for each,
with its checksums, which has to be brought to the disk as well. So in the JVM of the driver, where the tasks of
`local[N]` run, too, its object for `file:` is exchanged for one that lets Java set permissions and writes no
checksums. What these told of files that a power loss has torn, `lasting_checkpoint.py` also sees without them.

The class is compiled in that JVM, by the compiler with which Spark compiles queries. Executors keep Hadoop's own.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_CLASS = "elastream.LocalFiles"
_SOURCE = """
package elastream;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public final class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new WithoutProcesses());
    setWriteChecksum(false);
  }

  public boolean rename(Path from, Path to) throws IOException {
    return !isFile(to) && super.rename(from, to);  // as HDFS does it, and the one that is exchanged
  }

  public static final class WithoutProcesses extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getStickyBit()) {  // which Java has no name for
        super.setPermission(path, permission);
        return;
      }
      Files.setPosixFilePermissions(
          pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
    }
  }
}
"""
_IMPL = "fs.file.impl"
_KNOWN = ("org.apache.hadoop.fs.LocalFileSystem", "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem")
"""Whose work is the same: Hadoop's own, and the one that comes with Hive, as in a PySpark from PyPI."""


def start_no_processes_for_files(spark: SparkSession) -> None:
    """For all that this JVM writes to `file:` from here on; not where another file system was asked for."""
    jvm: Any = spark.sparkContext._jvm
    settings: Any = spark.sparkContext._jsc.hadoopConfiguration()
    files, local = jvm.org.apache.hadoop.fs.FileSystem, jvm.java.net.URI.create("file:///")
    try:
        before = files.get(local, settings)
        if settings.get(_IMPL) is not None or before.getClass().getName() not in _KNOWN:
            return
        with_ours = jvm.org.apache.hadoop.conf.Configuration(settings)
        with_ours.setClassLoader(_compiled(jvm))
        with_ours.set(_IMPL, _CLASS)
        before.close()  # and with that forgotten: whoever asks next is given the one that is made now
        files.get(local, with_ours)
    except (Py4JError, TypeError) as error:  # a TypeError where a class is not there
        _log.info("Hadoop's own local file system is used: %s", str(error).strip().split("\n", 1)[0][:300])


def _compiled(jvm: Any) -> Any:
    """A class loader that knows the class."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    return compiler.getClassLoader()
