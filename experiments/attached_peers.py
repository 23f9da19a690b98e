"""Who gives a real job how many executors: elastream, Spark, SPARK-24815, Elastic-Scaling, and nobody.

    python -m experiments run attached-peers                 all that is not done yet, one run of each
    python -m experiments.attached_peers spark-dra attach    a run more of each of these, and what is there

Each drives the same unmodified job (`attached_job.py`: a stateless, a windowed and a joining query over Kafka, a
batch every ten seconds) on the same standalone cluster of eight executors with one core, under the same load:
steps, and then a recorded day with its waves and bursts, in two and a half minutes each. What is compared is seen
from outside of the job: executors as the master counts them, and batches by what the job's own checkpoints say.

A run takes eight minutes and leaves a file, so it is run in pieces.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from elastream.arrivals.load import Load, Steps, bundled_trace
from elastream.attached.batch import covered_s
from elastream.engines.spark import with_parent
from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.kafka.jars import JarUse, kafka_jars
from elastream.engines.spark.kafka.topic import Topic
from elastream.errors import ElastreamError, InvalidInput, nearest
from experiments import attached_24815, attached_job
from experiments.frame import Check, Progress, Report, experiment
from experiments.on_spark import folder_for_a_run

FOLDER = Path("out/attached-peers")
MOST = 8
_PEAK_PER_S = 25.0
_LOW_PER_S = 3.0
_LEAD_S = 100.0
"""At the low rate, before anything counts: everybody has come to a size by then."""
_STEPS_S = 150.0
_DAY_S = 150.0
_SPARE_S = 20.0
"""After the load, for the batches that have its last rows."""
_LATENCY_S = 10.0
_PARTITIONS = 8
_UTILIZATION = 0.8
_PATIENCE_S = 240.0
_QUERIES = ("prices", "counts", "joined")
_SETTINGS = {
    "spark.ui.port": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "800m",
    "spark.executor.cores": "1",
    "spark.executor.memory": "480m",
    "spark.sql.shuffle.partitions": "8",
}
_DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.maxExecutors": str(MOST),
}


class Recorded:
    """From when it counts: steps, and then a recorded day in minutes."""

    def __init__(self) -> None:
        day = bundled_trace("worldcup98")
        self._day_rates = [day.rate_at(second * 86_400 / _DAY_S) for second in range(int(_DAY_S) + 1)]
        self._scale = _PEAK_PER_S / max(self._day_rates)
        self._steps = Steps(steps=((0.0, _LOW_PER_S), (50.0, _PEAK_PER_S), (100.0, _LOW_PER_S)))

    def rate_at(self, t_s: float) -> float:
        if t_s < _STEPS_S:
            return self._steps.rate_at(t_s)
        return self._day_rates[min(int(t_s - _STEPS_S), int(_DAY_S))] * self._scale


def fewest(rows_per_s: float) -> int:
    """By arithmetic: what the rows wait for, in the usual share of the time."""
    slots = rows_per_s * (attached_job.PRICE_MS + attached_job.COUNT_MS + attached_job.JOIN_MS) / 1000
    return max(1, math.ceil(slots / _UTILIZATION))


def contestants() -> dict[str, Contestant]:
    load, seconds = Recorded(), int(_STEPS_S + _DAY_S)
    mean_per_s = mean(load.rate_at(second) for second in range(seconds))
    submit = ("-c", "from elastream.cli import main; main()", "submit", "--max-executors", str(MOST))
    return {
        "attach": Contestant(before=submit),
        "spark-dra": Contestant(settings=_DYNAMIC),
        "spark-24815": Contestant(before=("-m", attached_24815.__name__, str(MOST))),
        "elastic-scaling": Contestant(before=(*submit, "--policy", "elastic-scaling")),
        "static peak": Contestant(settings={"spark.cores.max": str(fewest(_PEAK_PER_S))}),
        "static mean": Contestant(settings={"spark.cores.max": str(fewest(mean_per_s))}),
    }


@dataclass(frozen=True, kw_only=True)
class Contestant:
    before: tuple[str, ...] = ()
    """What stands between `python` and the job."""
    settings: Mapping[str, str] = field(default_factory=dict)


@experiment(
    "attached-peers",
    paper="none (the rules' own documentation)",
    question="Who keeps a real job of three queries in time with the fewest executors?",
    minutes=45,
)
def run(progress: Progress) -> Report:
    for number, name in enumerate(contestants()):
        progress(name, number / len(contestants()))
        if not _files(name):
            drive(name)
    progress("done", 1.0)
    return report({name: [json.loads(file.read_text()) for file in _files(name)] for name in contestants()})


def _files(name: str) -> list[Path]:
    return sorted(FOLDER.glob(f"{name.replace(' ', '-')}-[0-9]*.json"))


# One run


def drive(name: str) -> None:
    one = contestants()[name]
    FOLDER.mkdir(parents=True, exist_ok=True)
    with folder_for_a_run() as folder:
        options = ClusterOptions(
            folder=folder / "cluster", workers=2, cores=MOST // 2, memory="4g", port=0, web_port=0
        )
        with StandaloneCluster(options) as cluster, Broker(folder / "kafka") as broker:
            orders, payments = (
                Topic(servers=broker.servers, name=topic, partitions=_PARTITIONS)
                for topic in ("orders", "payments")
            )
            orders.create()
            payments.create()
            found = _watched(one, name, cluster, Feed(orders, payments), folder)
    file = FOLDER / f"{name.replace(' ', '-')}-{len(_files(name)) + 1}.json"
    file.write_text(json.dumps(found, indent=1) + "\n")


class Feed:
    """Orders, each with its payment, as the load says."""

    def __init__(self, orders: Topic, payments: Topic) -> None:
        self.orders, self.payments = orders, payments
        self.sent = 0

    def send_all(self, seconds: float, over: threading.Event) -> None:
        self.send(Steps(steps=((0.0, _LOW_PER_S),)), _LEAD_S, over)
        self.send(Recorded(), seconds, over)

    def send(self, load: Load, seconds: float, over: threading.Event) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.orders.servers, "linger.ms": 20})
        began_s, due, before_s = time.monotonic(), float(self.sent), 0.0
        while before_s < seconds and not over.wait(0.1):
            now_s = time.monotonic() - began_s
            due += load.rate_at(now_s) * (now_s - before_s)
            before_s = now_s
            while self.sent < due:
                for topic in (self.orders, self.payments):
                    producer.produce(topic.name, str(self.sent).encode(), partition=self.sent % _PARTITIONS)
                self.sent += 1
            producer.poll(0)
        producer.flush(30)


def _watched(one: Contestant, name: str, cluster: StandaloneCluster, feed: Feed, folder: Path) -> dict[str, Any]:
    over, samples = threading.Event(), []
    with (folder / "job.log").open("wb") as log:
        job = _started(one, cluster, feed, folder, log)
        try:
            _until_committed(folder, job, feed, over)
            began_s, seconds = time.time() + _LEAD_S, _STEPS_S + _DAY_S
            sender = threading.Thread(target=feed.send_all, args=(seconds, over), daemon=True)
            sender.start()
            while (now_s := time.time() - began_s) < seconds + _SPARE_S:
                if job.poll() is not None:
                    raise ElastreamError(f"the job ended: {_tail(folder / 'job.log')}")
                samples.append((round(now_s, 2), _executors(cluster)))
                time.sleep(0.5)
            sender.join(30)
            batches = {query: _batches(folder / f"checkpoint-{query}", began_s) for query in _QUERIES}
        finally:
            over.set()
            assert job.stdin is not None
            job.stdin.close()
            job.wait()
    with suppress(OSError):  # what it said is worth keeping
        (FOLDER / f"{name.replace(' ', '-')}.log").write_bytes((folder / "job.log").read_bytes())
    return {"samples": samples, "batches": batches, "sent": feed.sent, "prices": _rows(folder / "prices")}


def _started(
    one: Contestant, cluster: StandaloneCluster, feed: Feed, folder: Path, log: Any
) -> subprocess.Popen[bytes]:
    jars = ",".join(map(str, kafka_jars().paths(JarUse.CONNECTOR)))
    settings = {**_SETTINGS, "spark.jars": jars, **one.settings}
    given = " ".join(f"--conf {key}={value}" for key, value in settings.items())
    job = [attached_job.__file__, feed.orders.servers, feed.orders.name, feed.payments.name, str(folder)]
    python = [sys.executable, *one.before, *job]
    return subprocess.Popen(
        [sys.executable, with_parent.__file__, *python],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": f"--master {cluster.master_url} {given} pyspark-shell",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        },
    )


def _until_committed(folder: Path, job: subprocess.Popen[bytes], feed: Feed, over: threading.Event) -> None:
    """Seconds of the load, and the batches that have it: then the job is up, whoever drives it."""
    feed.send(Steps(steps=((0.0, _LOW_PER_S),)), 5.0, over)
    deadline_s = time.monotonic() + _PATIENCE_S
    while not all((folder / f"checkpoint-{query}" / "commits" / "0").exists() for query in _QUERIES):
        if job.poll() is not None or time.monotonic() > deadline_s:
            raise ElastreamError(f"the job did not start: {_tail(folder / 'job.log')}")
        time.sleep(0.5)


def _tail(file: Path) -> str:
    return file.read_text(errors="replace")[-2000:]


def _executors(cluster: StandaloneCluster) -> int:
    """Each has one core."""
    return sum(int(app["cores"]) for app in cluster.state()["activeapps"])


def _batches(checkpoint: Path, began_s: float) -> list[tuple[float, float]]:
    """When each was triggered, and how long it took until it was committed."""
    found = []
    for commit in sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name)):
        told = (checkpoint / "offsets" / commit.name).read_text().splitlines()[1]
        triggered_s = json.loads(told)["batchTimestampMs"] / 1000
        if triggered_s >= began_s - _LEAD_S:
            found.append((round(triggered_s - began_s, 2), round(commit.stat().st_mtime - triggered_s, 2)))
    return found


def _rows(folder: Path) -> int:
    """Different ones that the job wrote."""
    import pyarrow.parquet as pq

    listed = {name for log in (folder / "_spark_metadata").glob("[0-9]*") for name in _added(log)}
    return len({row for name in listed for row in pq.read_table(name, columns=["id"])["id"].to_pylist()})


def _added(log: Path) -> list[str]:
    entries = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    return [entry["path"].removeprefix("file://") for entry in entries]


# Comparing


@dataclass(frozen=True, kw_only=True)
class Found:
    executor_s: float
    mean: float
    late: float
    """The share of the batches that took longer than the latency."""
    late_time: float
    """The share of the time in such batches, of all queries together."""
    worst_s: float


def found_in(run: Mapping[str, Any]) -> Found:
    samples = [sample for sample in run["samples"] if sample[0] >= 0]
    executor_s = sum((after_s - at_s) * executors for (at_s, executors), (after_s, _) in pairwise(samples))
    took = [batch for of in run["batches"].values() for batch in of if batch[0] >= 0]
    late = [(at_s, took_s) for at_s, took_s in took if took_s > _LATENCY_S]
    lasted_s = samples[-1][0] - samples[0][0]
    return Found(
        executor_s=executor_s,
        mean=executor_s / lasted_s,
        late=len(late) / max(1, len(took)),
        late_time=covered_s([(at_s, at_s + took_s) for at_s, took_s in late]) / lasted_s,
        worst_s=max((took_s for _, took_s in took), default=0.0),
    )


def report(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Report:
    found = {name: [found_in(one) for one in of] for name, of in runs.items() if of}
    return Report(
        checks=(
            *_against_dra(found),
            *(Check(what=name, ours=row) for name, of in found.items() for row in map(_row, of)),
        ),
        differs=(
            "A row: executors on the mean, executor-seconds, the share of the batches and of the time over the "
            "latency, the longest batch.",
            "Executors wait and do not compute: the machine has two cores.",
        ),
        data={name: list(of) for name, of in runs.items()},
        plot=partial(_plot, runs),
    )


def _plot(runs: Mapping[str, Sequence[Mapping[str, Any]]], file: Path) -> None:
    """The first run of each: what came, how many executors there were, how long the batches took."""
    from elastream.commands import plots
    from elastream.showing import colours

    figure, (load, executors, took) = plots.new_figure(
        3, title="The same job, and who gives it executors", height=2.2
    )
    shape, seconds = Recorded(), range(int(_STEPS_S + _DAY_S))
    load.plot(list(seconds), [shape.rate_at(second) for second in seconds], color=colours.COLOURS[-2])
    shown = [(name, of[0]) for name, of in runs.items() if of and not name.startswith("static")]
    for (name, one), colour in zip(shown, colours.COLOURS, strict=False):
        executors.step(*zip(*one["samples"], strict=True), where="post", color=colour, label=name)
        batches = [batch for of in one["batches"].values() for batch in of]
        took.scatter(*zip(*batches, strict=True), color=colour, s=9)
    took.axhline(_LATENCY_S, color="grey", linestyle="--")
    load.set_ylabel("orders/s")
    executors.set_ylabel("executors")
    took.set_ylabel("s of a batch")
    took.set_xlabel("s")
    executors.legend(ncols=4, fontsize="small")
    plots.save(figure, file)


def _against_dra(found: Mapping[str, Sequence[Found]]) -> list[Check]:
    if not (found.get("attach") and found.get("spark-dra")):
        return []
    ours, theirs = (mean(one.executor_s for one in found[name]) for name in ("attach", "spark-dra"))
    late, their_late = (mean(one.late_time for one in found[name]) for name in ("attach", "spark-dra"))
    return [
        Check(
            what="executor-seconds of dynamic allocation's",
            ours=f"{ours / theirs:.2f}",
            bound="at most 0.5",
            holds=ours <= 0.5 * theirs,
        ),
        Check(
            what="time over the latency",
            ours=f"{late:.1%}, spark-dra {their_late:.1%}",
            bound="no more",
            holds=late <= their_late,
        ),
    ]


def _row(one: Found) -> str:
    return (
        f"{one.mean:.2f} executors, {one.executor_s:,.0f} s, late {one.late:.0%} of the batches, "
        f"{one.late_time:.0%} of the time, longest {one.worst_s:.1f} s"
    )


def main(*names: str) -> None:
    known = contestants()
    for name in names:
        if name not in known:
            raise InvalidInput(f"unknown contestant {name!r}{nearest(name, known)}")
        drive(name)
    found = report({name: [json.loads(file.read_text()) for file in _files(name)] for name in known})
    for check in found.checks:
        print(f"{check.what}: {check.ours}{'' if check.holds else '  NOT ' + check.bound}")


if __name__ == "__main__":
    main(*sys.argv[1:])
