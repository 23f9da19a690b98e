"""From what was found on a machine to findings with advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastream.commands import checkup
from elastream.commands.checkup import Finding, Grade

GIB = 1024**3
OUT = Path("out")


@pytest.mark.parametrize(
    ("finding", "grade", "advice"),
    [
        (checkup.python((3, 12), "/p", None, ""), Grade.OK, ""),
        (checkup.python((3, 10), "/p", None, ""), Grade.FAILURE, "install Python 3.11 or newer"),
        (checkup.python((3, 12), "/p", (3, 12), "python3"), Grade.OK, ""),
        (checkup.python((3, 12), "/p", (3, 11), "python3"), Grade.FAILURE, "unset PYSPARK_PYTHON"),
        (checkup.python((3, 12), "/p", None, "no-such"), Grade.FAILURE, "unset PYSPARK_PYTHON"),
        (checkup.pyspark("4.3.0", None, None), Grade.OK, ""),
        (checkup.pyspark(None, None, None), Grade.FAILURE, "pip install 'elastream[spark]'"),
        (checkup.pyspark("3.5.1", None, None), Grade.FAILURE, "pip install 'pyspark>=4.3,<4.4'"),
        (checkup.pyspark("4.3.0", Path("/opt/spark"), "4.3.1"), Grade.OK, ""),
        (checkup.pyspark("4.3.0", Path("/opt/spark"), "3.5.1"), Grade.FAILURE, "unset SPARK_HOME"),
        (checkup.pyspark("4.3.0", Path("/opt/spark"), None), Grade.FAILURE, "unset SPARK_HOME"),
        (checkup.extras({}), Grade.OK, ""),
        (checkup.extras({"web": "the page", "plot": "plots"}), Grade.WARNING, "pip install 'elastream[web,plot]'"),
        (checkup.java("17 at /java", ""), Grade.OK, ""),
        (checkup.java(None, "Java is old: install one (Debian: x)"), Grade.FAILURE, "install one (Debian: x)"),
        (checkup.memory(8 * GIB, 16 * GIB), Grade.OK, ""),
        (checkup.memory(2 * GIB, 16 * GIB), Grade.WARNING, "--master 'local[4]'"),
        (checkup.memory(0.5 * GIB, 16 * GIB), Grade.FAILURE, "end something"),
        (checkup.cores(4, 1.5), Grade.OK, ""),
        (checkup.cores(4, 8.5), Grade.WARNING, "wait for what else runs"),
        (checkup.cores(1, 0.1), Grade.WARNING, "two are the least"),
        (checkup.disk("disk", OUT, 9.0 * GIB, "", "another"), Grade.OK, ""),
        (checkup.disk("disk", OUT, 2.0 * GIB, "", "another"), Grade.WARNING, "make room"),
        (checkup.disk("disk", OUT, 0.2 * GIB, "", "another"), Grade.FAILURE, "make room"),
        (checkup.disk("disk", OUT, None, "cannot be written", "another"), Grade.FAILURE, "another"),
        (checkup.native_code(OUT, True), Grade.OK, ""),
        (checkup.native_code(OUT, False), Grade.FAILURE, "-Djava.io.tmpdir="),
        (checkup.open_files(float("inf")), Grade.OK, ""),
        (checkup.open_files(1_024), Grade.WARNING, "ulimit -n 4096"),
        (checkup.loopback(""), Grade.OK, ""),
        (checkup.loopback("localhost is ::1"), Grade.FAILURE, "/etc/hosts"),
        (checkup.port("the page", 8765, True, "nothing"), Grade.OK, ""),
        (checkup.port("the page", 8765, False, "nothing"), Grade.WARNING, "nothing"),
        (checkup.spark_ports(16, 17), Grade.OK, ""),
        (checkup.spark_ports(17, 17), Grade.FAILURE, "spark.ui.port=0"),
        (checkup.jars(0, 38, OUT), Grade.OK, ""),
        (checkup.jars(2, 38, OUT), Grade.WARNING, "elastream kafka fetch"),
        (checkup.reached("Kafka", "h:1", "", "start it"), Grade.OK, ""),
        (checkup.reached("Kafka", "h:1", "does not answer", "start it"), Grade.FAILURE, "start it"),
        (checkup.unknown_master("k8s://h"), Grade.WARNING, "--duration '1 min'"),
        (checkup.yarn("/etc/hadoop"), Grade.OK, ""),
        (checkup.yarn(""), Grade.FAILURE, "set one of them"),
        (checkup.tried(12, "", "log"), Grade.OK, ""),
        (checkup.tried(90, "", "log"), Grade.WARNING, "wait"),
        (checkup.tried(3, "no worker", "/tmp/log"), Grade.FAILURE, "/tmp/log"),
    ],
)
def test_what_follows_from_what_was_found(finding: Finding, grade: Grade, advice: str) -> None:
    assert finding.grade is grade
    assert advice in finding.advice
    assert bool(finding.advice) == (grade is not Grade.OK), "whoever is warned is told what to do"
    assert finding.found


def test_the_worst_of_them() -> None:
    ok, warning, failure = checkup.loopback(""), checkup.jars(1, 2, OUT), checkup.yarn("")
    assert checkup.worst([]) is Grade.OK
    assert checkup.worst([ok, warning]) is Grade.WARNING
    assert checkup.worst([warning, failure, ok]) is Grade.FAILURE
