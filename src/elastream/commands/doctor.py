"""`elastream doctor`: whether this machine has what pipelines on Spark need, and what to do where it has not."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from elastream.commands import checkup, machine
from elastream.commands.as_json import print_json
from elastream.commands.checkup import Finding, Grade
from elastream.commands.console import counted, text_table
from elastream.commands.shared import JsonOption, err, out
from elastream.commands.waiting import waiting
from elastream.engines.spark.executors import check_master, is_local
from elastream.errors import ElastreamError
from elastream.web.address import DEFAULT_PORT

_STYLES = {Grade.OK: "green", Grade.WARNING: "bold yellow", Grade.FAILURE: "bold red"}
_SPARK_PORTS = range(4040, 4040 + 17)  # as many as Spark tries
_CLUSTER_PORT, _KAFKA_PORT = 7077, 9092


def doctor(
    folder: Annotated[Path, typer.Option(help="Where runs are to keep their folders.")] = Path("out"),
    master: Annotated[
        str, typer.Option(help="A cluster to look at, such as spark://HOST:7077 or yarn.")
    ] = "local[*]",
    kafka_servers: Annotated[str | None, typer.Option(help="A broker to look at, such as HOST:9092.")] = None,
    try_spark: Annotated[
        bool, typer.Option("--try-spark", help="Also start Spark, and ask a Python worker: up to a minute.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Look whether this machine has what pipelines on Spark need, and say what to do where it has not.

    Java, Python, memory, ports, disk, jars, and with --master and --kafka-servers a cluster and a broker. Nothing
    is changed. Exits with 1 if something is failing; with warnings alone, with 0.

    Example: `elastream doctor --try-spark`
    """
    check_master(master)
    with waiting(err, "looking", quiet=as_json or not err.is_terminal) as waited:
        findings = [*_of_machine(), *_of_disk(folder), *_of_ports(), *_of_others(master, kafka_servers)]
        if try_spark and all(one.grade is not Grade.FAILURE for one in findings):
            waited.say("starting Spark")
            findings.append(_tried())
    _tell(findings, as_json=as_json)
    if checkup.worst(findings) is Grade.FAILURE:
        raise typer.Exit(1)


def _of_machine() -> Iterator[Finding]:
    variable, workers = machine.python_workers()
    yield checkup.python(machine.version_of_python(), sys.executable, workers, variable)
    yield checkup.java(*machine.java())
    yield checkup.pyspark(machine.pyspark_version(), *machine.other_spark())
    yield checkup.extras(machine.missing_extras())
    yield checkup.cores(*machine.cores())
    yield checkup.memory(*machine.memory())
    yield checkup.open_files(machine.open_files())


def _of_disk(folder: Path) -> Iterator[Finding]:
    yield checkup.disk("disk", folder, *machine.room(folder), "choose another folder: --folder")
    scratch = Path(tempfile.gettempdir())
    yield checkup.disk("disk for scratch", scratch, *machine.room(scratch), "set TMPDIR and SPARK_LOCAL_DIRS")
    yield checkup.native_code(scratch, machine.runs_code(scratch))


def _of_ports() -> Iterator[Finding]:
    yield checkup.loopback(machine.loopback())
    taken = sum(not machine.is_free(port) for port in _SPARK_PORTS)
    yield checkup.spark_ports(taken, len(_SPARK_PORTS))
    next_one = "nothing: the page of a run takes the next that is free, and says so"
    yield checkup.port("the page of a run", DEFAULT_PORT, machine.is_free(DEFAULT_PORT), next_one)
    for what, port in (("elastream cluster start", _CLUSTER_PORT), ("elastream kafka start", _KAFKA_PORT)):
        yield checkup.port(what, port, machine.is_free(port), f"if you want to start one: {what} --port 0")


def _of_others(master: str, kafka_servers: str | None) -> Iterator[Finding]:
    if not machine.missing_extras().keys() & {"spark"}:
        from elastream.engines.spark.kafka.jars import kafka_jars

        found = kafka_jars()
        yield checkup.jars(len(found.missing()), len(found.jars), found.folder)
    if not is_local(master):
        yield _of_master(master)
    if kafka_servers is not None:
        from elastream.engines.spark.kafka.topic import answers, away_text

        trouble = "" if answers(kafka_servers) else away_text(kafka_servers)
        yield checkup.reached(
            "Kafka", kafka_servers, trouble, "elastream kafka start runs a broker on this machine"
        )


def _of_master(master: str) -> Finding:
    from elastream.engines.spark.ports import check_answers

    if master == "yarn":
        return checkup.yarn(os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR") or "")
    if not master.startswith("spark://"):
        return checkup.unknown_master(master)
    try:
        check_answers(master)
    except ElastreamError as error:
        found, _, advice = str(error).rpartition("; ")
        return checkup.reached("master", master, found, advice)
    return checkup.reached("master", master, "", "")


def _tried() -> Finding:
    log = Path(tempfile.mkdtemp(prefix="elastream-doctor-")) / "spark.log"
    return checkup.tried(*machine.start_of_spark(log), str(log))


def _tell(findings: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        shown = [dataclasses.asdict(finding) for finding in findings]
        print_json({"grade": checkup.worst(findings), "findings": shown})
        return
    table = text_table("", "looked at")
    table.add_column("found, and → what to do", overflow="fold")
    for finding in findings:
        grade = Text(finding.grade, style=_STYLES[finding.grade])
        advice = Text(f"\n→ {finding.advice}", style="bold") if finding.advice else Text()
        table.add_row(grade, finding.check, Text.assemble(finding.found, advice))
    out.print(table)
    counts = {grade: sum(finding.grade is grade for finding in findings) for grade in Grade}
    if not counts[Grade.FAILURE]:
        noted = f", with {counted(counts[Grade.WARNING], 'warning')}" if counts[Grade.WARNING] else ""
        out.print(f"pipelines can run here{noted}; `elastream new NAME` writes one to try")
    else:
        out.print(f"{counted(counts[Grade.FAILURE], 'thing')} to mend before pipelines can run here")
