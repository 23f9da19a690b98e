"""How a pipeline runs on Spark, as options: declared here once, for the command and for the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from elastream.engines.spark.executors import ExecutorOptions, check_master, is_local
from elastream.engines.spark.from_checkpoint import FromCheckpoint, from_checkpoint_of
from elastream.engines.spark.session_conf import conf_of, packages_of
from elastream.engines.spark.state_folder import state_url
from elastream.errors import InvalidInput
from elastream.nodes.files import WorkerNodes, read_worker_nodes
from elastream.options import check_bounds, option


class WhenPoisoned(StrEnum):
    ASIDE = "aside"
    FAIL = "fail"


def counts_of(pairs: Sequence[str]) -> dict[str, int]:
    """The parallelism of operators, written as OPERATOR=N."""
    found = {}
    for pair in pairs:
        operator, _, value = pair.rpartition("=")
        if not operator or not value.isdecimal():
            raise InvalidInput(f"OPERATOR=N with a whole number was expected, found {pair!r}")
        found[operator.strip()] = int(value)
    return found


def settings_of_channels(pairs: Sequence[str]) -> dict[str, str]:
    found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    if len(found) < len(pairs):
        raise InvalidInput(f"NAME=VALUE was expected, each once, found {', '.join(map(repr, pairs))}")
    return found


@dataclass(frozen=True, kw_only=True)
class ChannelOptions:
    """What lies between operators."""

    PANEL: ClassVar = "Channels"

    kind: str = option(
        "files", "what lies between operators: files, kafka, or a kind of another package", name="channels"
    )
    kafka_servers: str = option("localhost:9092", "for --channels kafka; `elastream kafka start` runs a broker")
    settings: Mapping[str, str] = option(
        dict,
        "NAME=VALUE, repeatable: an option of a kind of another package",
        name="channel_set",
        written=list[str] | None,
        read=settings_of_channels,
    )
    bound: int | None = option(
        None,
        "records that may wait in a channel before its writer is held back",
        unit="records",
        name="channel_bound",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    PANEL: ClassVar = "Spark"

    master: str = option(
        "local[32]", "where Spark runs: local[32] offers 32 slots, spark://HOST:PORT is a cluster"
    )
    batch_interval_s: float = option(1.0, "how often each operator takes a batch", unit="s", least=0.001)
    latency_s: float | None = option(
        None,
        "the latency to keep from end to end, e.g. '10 s': the longer, the fewer instances are needed",
        unit="s",
        least=0.001,
    )
    longest_batch_s: float | None = option(
        None, "how long a batch may take, in place of --latency; 3 s where neither is given", unit="s", least=0.001
    )
    start: Mapping[str, int] = option(
        dict,
        "OPERATOR=N, repeatable: the parallelism to begin with",
        written=list[str] | None,
        read=counts_of,
    )
    generate: bool = option(True, "write the file's own load to its feed")
    nodes: WorkerNodes | None = option(
        None,
        "a YAML file with nodes and delays: workers are started and stopped on those chosen",
        written=Path | None,
        read=read_worker_nodes,
    )
    """On which the instances of an operator are placed; without a cluster as the master the run starts one."""
    conf: Mapping[str, str] = option(
        dict,
        "KEY=VALUE, repeatable: a setting of Spark; counts before those of the pipeline file",
        written=list[str] | None,
        read=conf_of,
    )
    packages: tuple[str, ...] = option(
        (),
        "GROUP:ARTIFACT:VERSION, repeatable: from Maven, such as a connector; beside those of the pipeline file",
        written=list[str] | None,
        read=packages_of,
    )
    from_checkpoint: tuple[FromCheckpoint, ...] = option(
        (),
        "DIR, or SOURCE=DIR repeatable: go on where a plain writeStream job with this checkpoint stopped",
        written=list[str] | None,
        read=from_checkpoint_of,
    )
    state_folder: str | None = option(
        None,
        "where state lies that every node must reach, e.g. hdfs:///user/me/state; in --folder where not given",
        written=str | None,
        read=state_url,
    )
    poisoned: WhenPoisoned = option(
        WhenPoisoned.ASIDE,
        "a record that makes an operator fail: aside puts it into a folder and goes on, fail ends the run",
    )
    arguments: tuple[str, ...] = ()
    """What a pipeline file finds in `sys.argv`; on the command line what stands after `--`."""
    executors: ExecutorOptions = field(default_factory=ExecutorOptions)
    channels: ChannelOptions = field(default_factory=ChannelOptions)

    def __post_init__(self) -> None:
        check_bounds(self)
        check_master(self.master)
        if self.latency_s is not None and self.longest_batch_s is not None:
            raise InvalidInput("--latency and --longest-batch: how long a batch may take follows from the latency")
        if self.nodes is not None and not (is_local(self.master) or self.master.startswith("spark://")):
            raise InvalidInput(f"--nodes starts workers of a standalone cluster, found --master {self.master}")
        if self.executors.spare and is_local(self.master):
            raise InvalidInput(f"--spare-executors: {self.master} has no executors, only a cluster has")
