"""`elastream run` and `show`: pipelines on an engine, and what they look like."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from rich.console import Console
from rich.text import Text

from elastream.commands import console, plots
from elastream.commands.as_json import accounts_json, print_json
from elastream.commands.live import LiveRun
from elastream.commands.logs import log_shown_by
from elastream.commands.pipeline_file import arguments_of_file
from elastream.commands.recordings import rates_in
from elastream.commands.run_summary import RunSummary
from elastream.commands.serve import PageOptions, Shown, can_serve, serving
from elastream.commands.settings import PolicyOptions, pairs_of, settings_for
from elastream.commands.shared import JsonOption, err, out
from elastream.commands.signature import flags_given, from_options
from elastream.dataflow import Dataflow, render
from elastream.engines.registry import ENGINES, engine_kind, read_job
from elastream.engines.spark.kind import Spark
from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.engine import EngineFailed, EngineKind, KeepsLatency, LeavesElsewhere
from elastream.manager.events import Event, event_to_json
from elastream.manager.run import RECORDING, Run
from elastream.measurement import Snapshot
from elastream.measurement.accounts import Accounts
from elastream.nodes.files import WorkerNodes
from elastream.options import option
from elastream.policies.catalog import keeping

_SPARK = "spark"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What holds for a run on any engine."""

    PANEL: ClassVar = "Run"

    engine: str = option(_SPARK, "what runs it: spark, simulated (a scenario), or an engine of another package")
    duration_s: float | None = option(None, "how long, e.g. '3 min'; until Ctrl-C where not given", unit="s")
    interval: str | None = option(
        None, "how often it measures and decides, e.g. '10 s'; short for --set interval=..., which is 30 s"
    )
    dry_run: bool = option(False, "measure and say what it would do, but change nothing")
    folder: Path | None = option(
        None,
        "where channels, checkpoints and the recording are kept; out/ and the pipeline's name where not given",
    )
    fresh: bool = option(False, "begin anew: delete what an earlier run left there")
    learn_from: Path | None = option(
        None, "for policies that look ahead: a recording of the same sources, or a trace called as the source is"
    )
    serve: bool = option(True, "show it in the browser while it runs")

    def with_short_forms(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings with those that have an option of their own."""
        short = {} if self.interval is None else {"interval": self.interval}
        return {**settings, **short, **({"dry_run": "true"} if self.dry_run else {})}


@from_options
def run(
    ctx: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="For Spark a Python file with a Pipeline, such as examples/wordcount.py.")
    ],
    options: RunOptions,
    policy: PolicyOptions,
    spark: Spark,
    page: PageOptions,
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline on Spark, or on another engine, and keep it at the right size.

    A live table and a page while it runs, a recording of everything, a summary and a plot at the end. Ctrl-C ends
    it after the batches under way; started again with the same folder, it goes on where it stopped. Exits with 1
    if the records of some operator do not add up, or if one failed and did not work again until the end.

    What stands after `--` is for the pipeline file, which finds it in `sys.argv`: `elastream run job.py -- --most
    3`. Settings of Spark go into `--conf`, connectors from Maven into `--packages`; what is always the same stands
    better in the file: `Pipeline("job", conf={...}, packages=[...])`.

    Example: `elastream run job.py --latency '10 s' --duration '1 h'`
    """
    spark = replace(spark, arguments=arguments_of_file(ctx))
    kind, settings = _kind(options.engine, spark, pairs_of(policy.settings))
    job = read_job(options.engine, kind, file)
    recorded = {} if options.learn_from is None else _recorded(options.learn_from, job.graph())
    latency_s = job.latency_s if isinstance(job, KeepsLatency) else None
    chosen = policy.chosen(dataflow=job.graph(), given=options.with_short_forms(settings))
    chosen = replace(chosen, policy=keeping(chosen.policy, latency_s))
    folder = options.folder or Path("out") / job.name
    if options.fresh:
        if isinstance(job, LeavesElsewhere):
            job.delete_elsewhere(folder)
        shutil.rmtree(folder, ignore_errors=True)
    managed = Run(
        job=job,
        policy=chosen.policy,
        knobs=chosen.knobs,
        folder=folder,
        header=chosen.header(job.name, options.engine),
        duration_s=options.duration_s,
        recorded=recorded,
    )
    shown = Shown(pipeline=job.name, kind="run", engine=options.engine, chosen=chosen, dataflow=job.graph())
    summary = RunSummary()
    live = LiveRun(err if as_json else console.new_console(enduring=True), job.name)
    with _watched(managed, shown, summary, page if options.serve and can_serve() else None, live) as watched:
        try:
            unsettled = watched.run()
        except EngineFailed as error:
            raise ElastreamError(str(error)) from None
    nodes = spark.nodes if kind is spark else None
    _summarize(f"{job.name} on {_title(options.engine)}", job.name, summary, folder, nodes, as_json=as_json)
    _conclude(summary.accounts, unsettled, err if as_json else out)


def _recorded(path: Path, graph: Dataflow) -> dict[str, list[tuple[float, float]]]:
    """The rates of the sources that there are; of none of them is a mistake."""
    rates = rates_in(path)
    found = {name: rates[name] for name in graph.sources if name in rates}
    if not found:
        wanted, others = ", ".join(graph.sources), ", ".join(rates) or "none"
        raise InvalidInput(f"--learn-from {path}: rates of {wanted} were expected, found those of {others}")
    return found


def _kind(engine: str, spark: Spark, settings: Mapping[str, str]) -> tuple[EngineKind, Mapping[str, str]]:
    """The engine with its options, and the settings that are not among them."""
    if engine == _SPARK:
        return spark, settings
    given = [*flags_given(spark), *(["-- ARGUMENTS"] if spark.arguments else [])]
    if given:
        raise InvalidInput(f"{', '.join(given)}: for the engine {_SPARK}, found --engine {engine}")
    of_engine, others = settings_for(ENGINES.named(engine), settings)
    return engine_kind(engine, of_engine), others


@contextmanager
def _watched(run: Run, shown: Shown, summary: RunSummary, page: PageOptions | None, to: LiveRun) -> Iterator[Run]:
    """The run with all that look at it: the summary, the live table and the page."""
    with (
        nullcontext() if page is None else serving(shown, page.address(), run.clock.wake) as served,
        to as live,
        log_shown_by(live.log),
    ):
        feed, inbox = served or (None, None)
        looking: list[Any] = [summary, live, *([] if feed is None else [feed])]

        def on_snapshot(snapshot: Snapshot) -> None:
            for one in looking:
                one.snapshot(snapshot)

        def on_event(event: Event) -> None:
            for one in looking:
                one.event(event)

        yield replace(run, on_snapshot=on_snapshot, on_event=on_event, inbox=inbox)


def _title(engine: str) -> str:
    return engine.capitalize() if engine == _SPARK else engine


def _summarize(
    title: str, name: str, run: RunSummary, folder: Path, nodes: WorkerNodes | None, *, as_json: bool
) -> None:
    delays = None
    if nodes is not None:
        from elastream.engines.spark.on_nodes import delays_text

        delays = delays_text(nodes)
    recording = folder / RECORDING
    plot = None if run.last is None else _plotted(run, folder / "run.png", title)
    if as_json:
        files = {"recording": str(recording), "plot": plot and str(plot)}
        print_json({"pipeline": name, **_told(run, delays), **files})
        return
    console.print_run(out, name, run)
    if delays is not None:
        out.print(delays, soft_wrap=True)
    out.print(f"recording: {recording}, {plots.told(plot)}")


def _plotted(run: RunSummary, path: Path, title: str) -> Path | None:
    """A disk that is full in the end takes the plot, and not the summary."""
    try:
        return plots.plot_run(run.history, path, title=title)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        err.print(f"{path}: cannot be written: {error.strerror or error}", soft_wrap=True, highlight=False)
        return None


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


def _conclude(accounts: Accounts | None, unsettled: Sequence[str], to: Console) -> None:
    """The last lines: what was lost as late, what never worked. With that, or where records do not add up, the run
    has failed."""
    for warning in accounts.warnings if accounts else ():
        to.print(Text(warning, style="bold yellow"), soft_wrap=True)
    for sentence in unsettled:
        err.print(Text.assemble(("error:", "bold red"), f" {sentence}"), soft_wrap=True)
    if unsettled or (accounts and accounts.differences):
        raise typer.Exit(1)


def show(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A Python file with a Pipeline.")],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid diagram.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Draw a pipeline: what reads what, with the parallelism to start with. Nothing is run.

    Mistakes that can be seen without Spark are told: in names, in the graph, in what functions take and return.
    What stands after `--` is for the file, as with `elastream run`.

    Example: `elastream show job.py`
    """
    from elastream.engines.spark.run import read_pipeline

    pipeline = read_pipeline(file, arguments_of_file(ctx)).pipeline
    graph, start = pipeline.graph(), pipeline.plan()
    if as_json:
        print_json(render.as_json(graph, start))
    else:
        out.print(render.as_mermaid(graph, start) if mermaid else render.as_text(graph, start), soft_wrap=True)
