"""Rules with agents beside Spark, and without them: one pipeline, one load, the same actions at the same times.

    python tests/spark/agents_story.py [FOLDER]        about ten minutes, with bin/prometheus on the PATH

A standalone cluster of two workers, and the pipeline of `agents_story_pipeline.py` twice on it. First
`elastream run --rules` scales it. Then the run has no rules; an agent beside each worker reads its executors, its
JVMs and its host, Prometheus scrapes the run, and `elastream master` evaluates the same rules and scales it over
the run's REST API. Four rules scale out, on CPU, heap, queue and a query of Prometheus, and four scale in.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import agents_story_pipeline as story_pipeline
from running import wait_until

from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster
from elastream.errors import ElastreamError
from elastream.manager.run import RECORDING

INTERVAL_S = 5.0
OPERATORS = ("computing", "holding", "queueing", "asked_for")
_WINDOW_S = 1.0  # of the run that agents read: what they are told is that old
_LASTS_S = 185.0
_COMMAND = "from elastream.cli import main; main()"
_TOKEN = "of-the-story"
_QUERY = 'promql:100 * elastream_operator_utilization_ratio{operator="asked_for"}'
# little room for what is garbage, so that the heap shows what is held
_CONF = ("spark.executor.extraJavaOptions=-XX:MaxNewSize=96m", "spark.executor.heartbeatInterval=5s")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A rule that scales an operator out, and one that scales it in again."""

    operator: str
    metric: str
    above: str
    for_at_least: str
    below: str
    by: int = 1
    in_after: str = "15 s"

    def __str__(self) -> str:
        out = f"{{metric: '{self.metric}', above: {self.above}, for_at_least: {self.for_at_least}}}"
        back = f"{{metric: '{self.metric}', below: {self.below}, for_at_least: {self.in_after}}}"
        return (
            f"  - {{name: {self.operator} out, scale_out: {self.operator}, by: {self.by},\n"
            f"     never_above: {1 + self.by}, when: [{out}], unless_scaled_in_within: 1 h}}\n"
            f"  - {{name: {self.operator} in, scale_in: {self.operator}, by: {self.by},\n"
            f"     when: [{back}], unless_scaled_out_within: 20 s}}\n"
        )


def rules(query: str | None = None) -> str:
    """The last operator is scaled by its utilization, as the engine measures it or as Prometheus knows it."""
    unit = " %" if query is None else ""
    pairs = (
        Pair(operator="computing", metric="cpu_utilization", above="25 %", for_at_least="15 s", below="15 %"),
        Pair(operator="holding", metric="heap_utilization", above="30 %", for_at_least="15 s", below="25 %"),
        Pair(
            operator="queueing",
            metric="queue_length",
            above="60",
            for_at_least="10 s",
            below="1",
            by=2,
            in_after="30 s",
        ),
        Pair(
            operator="asked_for",
            metric=query or "utilization",
            above=f"60{unit}",
            for_at_least="15 s",
            below=f"20{unit}",
        ),
    )
    return "rules:\n" + "".join(map(str, pairs))


@dataclass(frozen=True, kw_only=True)
class Action:
    operator: str
    before: int
    after: int
    at_s: float
    """Since the load began."""

    def __str__(self) -> str:
        return f"{self.operator} {self.before} → {self.after} at {self.at_s:.1f} s"


class Story:
    def __init__(self, folder: Path, cluster: StandaloneCluster) -> None:
        self._folder, self._cluster = folder, cluster

    def without_agents(self) -> list[Action]:
        folder = self._folder / "without-agents"
        with self._run(folder, rules(), INTERVAL_S) as run:
            assert run.wait() == 0, said(folder)
        return _actions(folder / "run" / RECORDING, self._load.at_s)

    def with_agents(self) -> list[Action]:
        folder = self._folder / "with-agents"
        page, ui, prometheus, port = free_ports(4)
        with (
            self._run(folder, "rules: []\n", _WINDOW_S, page=page, ui=ui) as run,
            _prometheus(folder, page, prometheus),
            ExitStack() as stack,
        ):
            started = stack.enter_context(_Processes(folder))
            _wait_for_the_run(run, folder, page)
            (folder / "agents-rules.yaml").write_text(rules(_QUERY))
            started.starts(
                *("master", "--rules", str(folder / "agents-rules.yaml"), "--engine", f"http://127.0.0.1:{page}"),
                *("--interval", f"{INTERVAL_S:g} s", "--port", str(port), "--folder", str(folder / "master")),
                *("--prometheus", f"http://127.0.0.1:{prometheus}", "--record", "--json"),
            )
            operators = [word for name in OPERATORS for word in ("--operator", name)]
            for name, pid in self._cluster.pids.items():
                if name.startswith("worker"):
                    started.starts(
                        *("agent", *operators, "--master", f"127.0.0.1:{port}", "--pid", str(pid), "--json"),
                        *("--name", name.replace(" ", "-"), "--spark", f"http://127.0.0.1:{ui}"),
                        *("--engine-metrics", f"http://127.0.0.1:{page}/api/v1/operators"),
                    )
            assert run.wait() == 0, said(folder)
        return _actions(folder / "master" / RECORDING, self._load.at_s)

    @contextmanager
    def _run(
        self, folder: Path, text: str, interval_s: float, page: int = 0, ui: int = 0
    ) -> Iterator[subprocess.Popen[str]]:
        folder.mkdir()
        (folder / "rules.yaml").write_text(text)
        self._load = _LoadBegins(folder)
        self._load.start()
        conf = [word for one in (*_CONF, f"spark.ui.port={ui}") for word in ("--conf", one)]
        with _Processes(folder) as started:
            yield started.starts(
                *("run", story_pipeline.__file__, "--master", self._cluster.master_url, *conf),
                *("--executor-cores", "4", "--executor-memory", "1g", "--rules", str(folder / "rules.yaml")),
                *("--interval", f"{interval_s:g} s", "--duration", f"{_LASTS_S:g} s", "--port", str(page)),
                *("--folder", str(folder / "run"), "--json"),
            )


class _Processes:
    """Commands of ours, and what they say in files; all of them end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, ExitStack()

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def starts(self, *words: str) -> subprocess.Popen[str]:
        log = self._stack.enter_context((self._folder / f"said-{words[0]}.txt").open("a"))
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *words],
            stdout=log,
            stderr=log,
            text=True,
            env={**os.environ, "ELASTREAM_PAGE_TOKEN": _TOKEN},
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        return process


@contextmanager
def _prometheus(folder: Path, page: int, port: int) -> Iterator[None]:
    config = folder / "prometheus.yaml"
    config.write_text(
        f"global: {{scrape_interval: 1s}}\n"
        f"scrape_configs: [{{job_name: run, static_configs: [{{targets: ['127.0.0.1:{page}']}}]}}]\n"
    )
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "said-prometheus.txt").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _wait_for_the_run(run: subprocess.Popen[str], folder: Path, page: int) -> None:
    from elastream.agents.run_adaptor import RunAdaptor

    def is_up() -> bool:
        assert run.poll() is None, said(folder)
        try:
            return bool(RunAdaptor(f"http://127.0.0.1:{page}", _TOKEN).operators())
        except ElastreamError:
            return False

    wait_until(is_up, lambda: said(folder))


def said(folder: Path) -> str:
    return "\n".join(f"{path.name}:\n{path.read_text()[-3_000:]}" for path in sorted(folder.glob("said-*.txt")))


class _LoadBegins(threading.Thread):
    """Looks when the first records are there, from which follows when the load began."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._channel = FileChannel(folder / "run" / "channels" / "numbers")
        self.at_s: float | None = None

    def run(self) -> None:
        while self.at_s is None:
            with suppress(ElastreamError, OSError):
                if (count := self._channel.log.head().records) > 0:
                    self.at_s = time.time() - count / story_pipeline.LOW_PER_S
            time.sleep(0.1)


def _actions(recording: Path, began_s: float | None) -> list[Action]:
    assert began_s is not None, "there was no load"
    lines = [json.loads(line) for line in recording.read_text().splitlines()]
    return [
        Action(operator=name, before=before, after=line["decision"]["after"][name], at_s=line["at_s"] - began_s)
        for line in lines
        if line.get("event") == "decided"
        for name, before in line["decision"]["before"].items()
        if line["decision"]["after"][name] != before
    ]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def by_operator(actions: Sequence[Action]) -> Mapping[str, list[Action]]:
    found: dict[str, list[Action]] = {}
    for action in actions:
        found.setdefault(action.operator, []).append(action)
    return found


def tell(without: Sequence[Action], with_agents: Sequence[Action]) -> bool:
    """Print both beside each other; whether they are the same actions, each within one interval."""
    equal = True
    for name in OPERATORS:
        ours, theirs = by_operator(with_agents).get(name, []), by_operator(without).get(name, [])
        same = [(a.before, a.after) for a in ours] == [(a.before, a.after) for a in theirs] != []
        apart_s = max((abs(a.at_s - b.at_s) for a, b in zip(ours, theirs, strict=False)), default=0.0)
        equal = equal and same and apart_s <= INTERVAL_S
        print(f"{name}: without agents {_told(theirs)}; with agents {_told(ours)}; {apart_s:.1f} s apart")
    return equal


def _told(actions: Sequence[Action]) -> str:
    return ", ".join(f"{one.before} → {one.after} at {one.at_s:.1f} s" for one in actions) or "nothing"


def main(folder: Path) -> int:
    began_s = time.monotonic()
    options = ClusterOptions(folder=folder / "cluster", workers=2, cores=4, memory="2g", port=0, web_port=0)
    with StandaloneCluster(options) as cluster:
        story = Story(folder, cluster)
        with_agents = story.with_agents()
        without = story.without_agents()
    equal = tell(without, with_agents)
    print(f"{'equal' if equal else 'NOT equal'} within one interval, in {time.monotonic() - began_s:.0f} s")
    return 0 if equal else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory(prefix="elastream-") as name:
        sys.exit(main(Path(name)))
