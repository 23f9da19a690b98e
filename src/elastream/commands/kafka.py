"""`elastream kafka`: the jars that channels in Kafka need, and a broker on this machine to try them with."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn

from elastream.commands.shared import JsonOption, err, out
from elastream.commands.waiting import waiting
from elastream.errors import ElastreamError

DEFAULT_PORT = 9092


kafka_app = typer.Typer(
    help="Kafka for `run --channels kafka` and `decentralized run --data kafka`: its jars, a broker to try.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@kafka_app.command()
def fetch(as_json: JsonOption = False) -> None:
    """Bring the jars of a broker and of Spark's connector from Maven Central into the cache, about 50 MB.

    Each is checked against its SHA-256. ELASTREAM_MAVEN_REPOSITORY names a mirror.

    Example: `elastream kafka fetch`
    """
    from elastream.engines.spark.kafka.jars import kafka_jars

    count, folder = _fetch(quiet=as_json), kafka_jars().folder
    if as_json:
        print(json.dumps({"fetched": count, "folder": str(folder)}))
    else:
        out.print(f"{count} jars fetched, all are in {folder}", soft_wrap=True)


@kafka_app.command()
def start(
    port: Annotated[int, typer.Option(help="Where it listens, on loopback only.")] = DEFAULT_PORT,
    folder: Annotated[Path, typer.Option(help="Where it keeps its records.")] = Path("out") / "kafka",
    as_json: JsonOption = False,
) -> None:
    """Run a broker (one node, KRaft mode) until Ctrl-C; started again in the same folder it has its records.

    Example: `elastream kafka start --port 9093`
    """
    from elastream.engines.spark.kafka.broker import Broker

    _fetch(quiet=as_json)
    with ExitStack() as up:
        with waiting(err, "starting a broker", quiet=as_json):
            broker = up.enter_context(Broker(folder, port=port))
        if as_json:
            print(json.dumps({"servers": broker.servers, "folder": str(folder)}), flush=True)
        else:
            out.print(f"Kafka runs at {broker.servers} until Ctrl-C; its records are in {folder}", soft_wrap=True)
            out.print("no password: every user of this machine can read, add and delete records", soft_wrap=True)
            out.print(
                f"elastream run PIPELINE.py --channels kafka --kafka-servers {broker.servers}", soft_wrap=True
            )
        code = broker.wait()
    raise ElastreamError(f"the broker ended with status {code}: see {broker.log_file}")


def _fetch(*, quiet: bool) -> int:
    from elastream.engines.spark.kafka.jars import kafka_jars

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        console=err,
        transient=True,
        disable=quiet or not err.is_terminal,
    )
    with bar:
        task = bar.add_task("fetching the jars of Kafka", total=1.0)
        return kafka_jars().fetch(
            on_progress=lambda name, share: bar.update(task, completed=share, description=name)
        )
