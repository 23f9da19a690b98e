"""`elastream cluster`: a standalone Spark cluster on this machine, for trying out `elastream run --master`."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from elastream.accepting import is_loopback
from elastream.commands.as_json import print_json
from elastream.commands.console import counted
from elastream.commands.shared import JsonOption, err, out
from elastream.commands.waiting import waiting
from elastream.errors import ElastreamError

if TYPE_CHECKING:
    from elastream.engines.spark.cluster import StandaloneCluster

_LOOK_EVERY_S = 0.5

cluster_app = typer.Typer(
    help="A Spark cluster on this machine, for trying out; `start` starts one.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@cluster_app.callback()
def _cluster() -> None:
    """Here so that `start` stays a word of the command while it is the only one."""


@cluster_app.command()
def start(
    workers: Annotated[int, typer.Option(help="How many workers.")] = 3,
    cores: Annotated[int, typer.Option(help="Cores that each announces; may be more than there are.")] = 4,
    memory: Annotated[str, typer.Option(help="Memory that each announces.")] = "2g",
    port: Annotated[int, typer.Option(help="Of the master; 0 for any that is free.")] = 7077,
    web_port: Annotated[int, typer.Option(help="Of the master's web page; 0 for any that is free.")] = 8080,
    host: Annotated[str, typer.Option(help="The address to listen on; by default nobody else reaches it.")] = (
        "127.0.0.1"
    ),
    folder: Annotated[Path, typer.Option(help="Where logs and working folders are kept.")] = Path("out/cluster"),
    as_json: JsonOption = False,
) -> None:
    """Start a standalone Spark cluster and keep it up until Ctrl-C.

    Then, in another terminal: `elastream run PIPELINE.py --master spark://127.0.0.1:7077`. A worker may announce
    more cores than the machine has: costs that are waited for need none. Nothing is open to the network unless
    --host says so, and nothing is encrypted or asks for a password: this is for trying out.

    Example: `elastream cluster start --workers 2 --cores 8`
    """
    from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster

    options = ClusterOptions(
        folder=folder, workers=workers, cores=cores, memory=memory, host=host, port=port, web_port=web_port
    )
    signal.signal(signal.SIGTERM, _interrupt)
    cluster = StandaloneCluster(options)
    with waiting(err, f"starting a master and {counted(workers, 'worker')}", quiet=as_json):
        cluster.start()
    try:
        _tell(cluster, as_json=as_json)
        _watch(cluster)
    except KeyboardInterrupt:
        err.print("stopping")
    finally:
        cluster.stop()


def _tell(cluster: StandaloneCluster, *, as_json: bool) -> None:
    options = cluster.options
    if as_json:
        print_json(
            {
                "master": cluster.master_url,
                "web": cluster.web_url,
                "workers": options.workers,
                "cores_per_worker": options.cores,
                "memory_per_worker": options.memory,
                "folder": str(options.folder),
                "pids": cluster.pids,
            }
        )
        return
    out.print(f"master:  {cluster.master_url}")
    out.print(f"web:     {cluster.web_url}")
    out.print(f"workers: {options.workers}, each with {options.cores} cores and {options.memory}")
    out.print(f"logs:    {options.folder}", soft_wrap=True)
    out.print(f"use it:  elastream run PIPELINE.py --master {cluster.master_url}", soft_wrap=True)
    if is_loopback(options.host):
        out.print("open to: every user of this machine, who can run any program as you by it", soft_wrap=True)
    else:
        who = f"warning: whoever reaches {options.host} can run any program as you: nothing asks for a password"
        err.print(who, soft_wrap=True)
    out.print("Ctrl-C stops it")


def _watch(cluster: StandaloneCluster) -> None:
    """Say who ends; without a master or without workers there is nothing left to keep up."""
    while cluster.is_usable:
        time.sleep(_LOOK_EVERY_S)
        for line in cluster.ended():
            err.print(line, soft_wrap=True)
    raise ElastreamError("the cluster has ended: its master, or every worker, is gone")


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
