"""Starting and stopping a run. Whoever starts it has no part in it: the first instances know each other by
name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from elastream.decentralized.spark.folders import RunFolder, take_lock
from elastream.decentralized.spark.settings import RunSettings, first_address, read_settings
from elastream.decentralized.spark.supervisor import start_supervisor
from elastream.decentralized.spark.transports import check_same_data, check_transport, with_topics
from elastream.engines.spark.java import check_java
from elastream.engines.spark.local_paths import local_folder
from elastream.engines.spark.pipeline import Kind
from elastream.engines.spark.run import PipelineFile
from elastream.errors import ElastreamError, InvalidInput

_STOP_TIMEOUT_S = 90.0
_POLL_S = 0.2


def start(run: RunFolder, file: PipelineFile, settings: RunSettings) -> None:
    """Start the first instance of each operator, or in a folder that was used before all that have not ended."""
    check_java()
    graph = file.pipeline.graph()
    settings.check(graph)
    check_transport(settings)
    if run.settings.exists():
        before = read_settings(run)
        if before.pipeline != settings.pipeline:
            raise InvalidInput(f"{run.path}: holds a run of {before.pipeline}; choose another folder, or --fresh")
        if before.locks != settings.locks:
            raise InvalidInput(
                f"{run.path}: its instances scale with --locks {before.locks}, found --locks {settings.locks}; "
                "choose another folder, or --fresh"
            )
        if living(run):
            raise ElastreamError(f"{run.path}: this run is under way; `elastream decentralized stop` ends it")
        check_same_data(settings, before, run)
        settings = replace(settings, seed=before.seed, topics=before.topics)
    run.path.mkdir(parents=True, exist_ok=True)
    run.stop.unlink(missing_ok=True)
    with_topics(settings, file.pipeline.name).write(run)
    known = [folder for folder in run.instances() if not folder.has_ended]
    for address in {*(first_address(operator) for operator in graph.order), *(folder.me for folder in known)}:
        start_supervisor(run, address)


def stop(run: RunFolder) -> None:
    """Let every instance end after its batch; what is in the inboxes stays there for the next start."""
    run.stop.touch()
    deadline_s = time.monotonic() + _STOP_TIMEOUT_S
    while living(run):
        if time.monotonic() > deadline_s:
            raise ElastreamError(f"{run.path}: these instances do not end: {', '.join(living(run))}")
        time.sleep(_POLL_S)


def living(run: RunFolder) -> list[str]:
    """Instances that somebody looks after."""
    found = []
    for folder in run.instances():
        if (folder.path / "supervisor.lock").exists():
            try:
                take_lock(folder.path / "supervisor.lock", folder.me).close()
            except ElastreamError:
                found.append(folder.me)
    return found


@contextmanager
def feeding(run: RunFolder, file: PipelineFile) -> Iterator[None]:
    """With a load generator, in a process of its own, where the pipeline's file asks for one."""
    feeds = [step.name for step in file.pipeline.steps if step.kind is Kind.FEED]
    if file.generator is None or not feeds:
        yield
        return
    module, *arguments = file.generator
    command = [sys.executable, "-m", module, str(run.feed(feeds[0]).absolute()), *arguments]
    process = subprocess.Popen(command, start_new_session=True, env=dict(os.environ))
    try:
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)


def run_folder(folder: Path | None, name: str) -> RunFolder:
    return RunFolder(local_folder(folder or Path("out") / f"{name}-decentralized"))
