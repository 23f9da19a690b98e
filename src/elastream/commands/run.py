"""`elastream run` and `show`: pipelines on Spark."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from elastream.commands import console, plots
from elastream.commands.as_json import accounts_json, print_json
from elastream.commands.live import LiveRun
from elastream.commands.run_summary import RunSummary
from elastream.commands.serve import HostOption, KnownAsOption, PortOption, Shown, address_of, can_serve, serving
from elastream.commands.settings import counts_of, header_of, pairs_of, policy_and_knobs, with_rules
from elastream.commands.settings import duration as duration_of
from elastream.commands.shared import JsonOption, PolicyOption, RulesOption, SetOption, err, out
from elastream.dataflow import render
from elastream.errors import ElastreamError
from elastream.manager.events import Event, event_to_json
from elastream.manager.loop import WallClock
from elastream.measurement import Snapshot
from elastream.measurement.accounts import Accounts
from elastream.nodes.files import WorkerNodes, read_worker_nodes
from elastream.web.address import DEFAULT_PORT, LOOPBACK


def run(
    file: Annotated[Path, typer.Argument(help="A Python file with a Pipeline, such as examples/wordcount.py.")],
    policy: PolicyOption = "ds2",
    rules: RulesOption = None,
    settings: SetOption = None,
    master: Annotated[
        str, typer.Option(help="Where Spark runs: local[32] offers 32 slots, spark://HOST:PORT is a cluster.")
    ] = "local[32]",
    nodes: Annotated[
        Path | None,
        typer.Option(help="A YAML file with nodes and delays: workers are started and stopped on those chosen."),
    ] = None,
    executor_cores: Annotated[int, typer.Option(help="Slots of an executor on a cluster.")] = 4,
    executor_memory: Annotated[str, typer.Option(help="Memory of an executor on a cluster.")] = "1g",
    spare_executors: Annotated[
        int, typer.Option(help="Kept warm beyond what is needed, so that growing need not wait for them.")
    ] = 0,
    min_executors: Annotated[int, typer.Option(help="At least so many.")] = 1,
    max_executors: Annotated[int | None, typer.Option(help="At most so many.")] = None,
    duration: Annotated[str, typer.Option(help="How long, e.g. '3 min'; until Ctrl-C where not given.")] = "365 d",
    interval: Annotated[str | None, typer.Option(help="Short for --set interval=...")] = None,
    batch_interval: Annotated[str, typer.Option(help="How often each operator takes a batch.")] = "1 s",
    longest_batch: Annotated[
        str, typer.Option(help="How long a batch may take: the longer, the fewer instances are needed.")
    ] = "3 s",
    start: Annotated[
        list[str] | None, typer.Option(help="OPERATOR=N, repeatable: the parallelism to begin with.")
    ] = None,
    channel_bound: Annotated[
        int | None, typer.Option(help="Records that may wait in a channel before its writer is held back.")
    ] = None,
    channels: Annotated[str, typer.Option(help="What lies between operators: files or kafka.")] = "files",
    kafka_servers: Annotated[
        str, typer.Option(help="For --channels kafka; `elastream kafka start` runs a broker.")
    ] = "localhost:9092",
    folder: Annotated[
        Path | None, typer.Option(help="Where channels, checkpoints and the recording are kept.")
    ] = None,
    fresh: Annotated[bool, typer.Option(help="Begin anew: delete what an earlier run left there.")] = False,
    generate: Annotated[bool, typer.Option(help="Write the file's own load to its feed.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Everything but the act.")] = False,
    serve: Annotated[bool, typer.Option(help="Show it in the browser while it runs.")] = True,
    port: PortOption = DEFAULT_PORT,
    host: HostOption = LOOPBACK,
    known_as: KnownAsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline on Spark and keep it at the right size.

    A live table and a page while it runs, a recording of everything, a summary and a plot at the end. Ctrl-C ends
    it after the batches under way; started again with the same folder, it goes on where it stopped. Exits with 1
    if the records of some operator do not add up.
    """
    from elastream.engines.spark.channels.kinds import delete_topics, kind_of
    from elastream.engines.spark.engine import PipelineFailed
    from elastream.engines.spark.executors import ExecutorOptions
    from elastream.engines.spark.run import RunOptions, read_pipeline
    from elastream.engines.spark.run import run as run_pipeline

    found = read_pipeline(file)
    policy, given = with_rules(policy, rules, pairs_of(settings))
    if interval is not None:
        given["interval"] = interval
    if dry_run:
        given["dry_run"] = "true"
    chosen, knobs = policy_and_knobs(policy, given, dataflow=found.pipeline.graph())
    kind = kind_of(channels, kafka_servers=kafka_servers)
    where = folder or Path("out") / found.pipeline.name
    if fresh:
        for left in delete_topics(where / "channels"):
            err.print(left, soft_wrap=True)
        shutil.rmtree(where, ignore_errors=True)
    options = RunOptions(
        folder=where,
        master=master,
        duration_s=duration_of("--duration", duration),
        batch_interval_s=duration_of("--batch-interval", batch_interval),
        longest_batch_s=duration_of("--longest-batch", longest_batch),
        start=counts_of("--start", start),
        channel_bound=channel_bound,
        generate=generate,
        executors=ExecutorOptions(
            cores=executor_cores,
            memory=executor_memory,
            spare=spare_executors,
            least=min_executors,
            most=max_executors,
        ),
        channels=kind,
        nodes=None if nodes is None else read_worker_nodes(nodes),
    )
    summary = RunSummary()
    clock = WallClock()
    shown = Shown(
        pipeline=found.pipeline.name,
        kind="run",
        policy_name=policy,
        policy=chosen,
        knobs=knobs,
        dataflow=found.pipeline.graph(),
    )
    page = serve and can_serve()
    with (
        serving(shown, address_of(host, port, known_as), clock.wake) if page else nullcontext() as served,
        LiveRun(err if as_json else out, found.pipeline.name) as live,
    ):
        feed, inbox = served or (None, None)

        def on_snapshot(snapshot: Snapshot) -> None:
            summary.snapshot(snapshot)
            live.snapshot(snapshot)
            if feed is not None:
                feed.snapshot(snapshot)

        def on_event(event: Event) -> None:
            summary.event(event)
            live.event(event)
            if feed is not None:
                feed.event(event)

        try:
            run_pipeline(
                found,
                chosen,
                knobs,
                options,
                header=header_of(found.pipeline.name, "spark", policy, chosen, knobs),
                on_snapshot=on_snapshot,
                on_event=on_event,
                on_phase=live.phase,
                clock=clock,
                inbox=inbox,
            )
        except PipelineFailed as error:
            raise ElastreamError(str(error)) from None
    _summarize(found.pipeline.name, summary, where, options.nodes, as_json=as_json)
    _conclude(summary.accounts, err if as_json else out)


def _summarize(name: str, run: RunSummary, folder: Path, nodes: WorkerNodes | None, *, as_json: bool) -> None:
    from elastream.engines.spark.on_nodes import delays_text

    plot = None
    if run.last is not None:
        plot = plots.plot_run(run.points, run.last.dataflow.scalable, folder / "run.png", title=f"{name} on Spark")
    if as_json:
        files = {"recording": str(folder / "recording.jsonl"), "plot": plot and str(plot)}
        print_json({"pipeline": name, **_told(run, None if nodes is None else delays_text(nodes)), **files})
        return
    console.print_run(out, name, run)
    if nodes is not None:
        out.print(delays_text(nodes), soft_wrap=True)
    out.print(f"recording: {folder / 'recording.jsonl'}, {plots.told(plot)}")


def _told(run: RunSummary, delays: str | None) -> dict[str, Any]:
    """What a run says with --json; `delays` are those between nodes, where there are any."""
    on_nodes = {"final_placement": dict(run.last.placement) if run.last else {}, "delays": delays}
    return {
        "final_parallelism": dict(run.last.plan) if run.last else {},
        **({} if delays is None else on_nodes),
        "events": [event_to_json(event) for event in run.events],
        "earlier_events": run.earlier_events,
        "notes": run.last.notes if run.last else (),
        **(accounts_json(run.accounts) if run.accounts else {}),
    }


def _conclude(accounts: Accounts | None, to: Console) -> None:
    """The last lines: what was lost as late. A run whose records do not add up has failed."""
    for warning in accounts.warnings if accounts else ():
        to.print(Text(warning, style="bold yellow"), soft_wrap=True)
    if accounts and accounts.differences:
        raise typer.Exit(1)


def show(
    file: Annotated[Path, typer.Argument(help="A Python file with a Pipeline.")],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid diagram.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Draw a pipeline: what reads what, with the parallelism to start with. Nothing is run."""
    from elastream.engines.spark.run import read_pipeline

    pipeline = read_pipeline(file).pipeline
    graph, start = pipeline.graph(), pipeline.plan()
    if as_json:
        print_json(render.as_json(graph, start))
    else:
        out.print(render.as_mermaid(graph, start) if mermaid else render.as_text(graph, start), soft_wrap=True)
