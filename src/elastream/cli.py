"""The command. Every subcommand prints tables for people, or with --json one JSON value and nothing else."""

from __future__ import annotations

import dataclasses
import io
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text
from typer.core import TyperGroup

from elastream import __version__, console, plots
from elastream.as_json import policy_json, print_json, proposal_json, run_json
from elastream.cluster_command import cluster_app
from elastream.dataflow import render
from elastream.engines.simulated.scenario import Scenario, read_scenario
from elastream.engines.simulated.simulation import Simulation, simulate, simulate_ideal
from elastream.errors import ElastreamError, InvalidInput
from elastream.experiments import frame
from elastream.kafka_command import kafka_app
from elastream.live import LiveRun
from elastream.manager.events import Event, event_to_json
from elastream.manager.knobs import Knobs
from elastream.manager.replay import replay
from elastream.monitor import Snapshot
from elastream.monitor.recording import RecordingWriter, read_recording, snapshot_line
from elastream.monitor.snapshot_format import read_snapshot
from elastream.options import build, describe
from elastream.policies.catalog import Policy, Remembers, catalog, create, info
from elastream.policies.knowledge import NOTHING_KNOWN
from elastream.policies.starting_plan import starting_plan
from elastream.rules_command import rules_app
from elastream.settings import counts_of, pairs_of, policy_and_knobs, rates_of, with_rules
from elastream.settings import duration as duration_of

out = console.new_console()
err = console.new_console(stderr=True)


class Command(TyperGroup):
    """Errors that a user can act on are one line on standard error and exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ElastreamError as error:
            err.print(Text.assemble(("error:", "bold red"), f" {error}"), soft_wrap=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            err.print("interrupted")
            raise typer.Exit(130) from None


app = typer.Typer(
    name="elastream",
    cls=Command,
    help="Keeps a streaming pipeline at the smallest parallelism that keeps up with its input.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
experiments_app = typer.Typer(
    help="List the experiments, which repeat those of the papers and compare; `run` runs them.",
    no_args_is_help=False,
    rich_markup_mode="markdown",
)
app.add_typer(experiments_app, name="experiments")
app.add_typer(cluster_app, name="cluster")
app.add_typer(kafka_app, name="kafka")
app.add_typer(rules_app, name="rules")

PolicyOption = Annotated[
    str, typer.Option("--policy", "-p", help="Which policy; `elastream policies` lists them.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="NAME=VALUE", help="An option of the policy or a knob of the manager; repeatable."
    ),
]
RulesOption = Annotated[
    Path | None, typer.Option("--rules", help="Scale as the rules in this file say: short for --policy rules.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
OutOption = Annotated[Path, typer.Option("--out", help="Where plots and reports are written.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"elastream {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def evaluate(
    snapshot: Annotated[Path, typer.Argument(help="A snapshot in JSON: the graph, source rates and readings.")],
    policy: PolicyOption = "ds2",
    settings: SetOption = None,
    why: Annotated[bool, typer.Option("--why", help="Print every reason, not only the telling ones.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Given these measurements, how many instances does each operator need, and why?

    Offline advice from one window. The defaults are the paper's: target utilization 1.0, tolerance 0. For some
    room add `--set target_utilization=0.8`; to work off the backlog `--set catch_up_s=300`.
    """
    chosen = create(policy, pairs_of(settings))
    found = read_snapshot(snapshot)
    known = chosen.remember(found, NOTHING_KNOWN) if isinstance(chosen, Remembers) else NOTHING_KNOWN
    proposal = chosen(found, known)
    if as_json:
        missing = list(found.missing)
        print_json({**proposal_json(proposal), "complete": found.is_complete, "missing": missing})
        return
    console.print_proposal(out, found, proposal, every_reason=why)


@app.command(name="simulate")
def simulate_command(
    scenario: Annotated[Path, typer.Argument(help="A scenario in YAML: pipeline, capacities, load.")],
    policy: PolicyOption = "ds2",
    rules: RulesOption = None,
    settings: SetOption = None,
    folder: OutOption = Path("out"),
    record: Annotated[Path | None, typer.Option(help="Also write a recording (JSON lines) there.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario on the simulated engine: decisions, elasticity measures and a plot.

    No Spark, no waiting: an hour of a pipeline takes well under a second. See examples/wordcount.yaml.
    """
    found = _scenario(scenario)
    policy, given = with_rules(policy, rules, pairs_of(settings))
    chosen, knobs = policy_and_knobs(policy, given, found)
    plot = folder / f"{scenario.stem}-{policy}.png"
    with _writing_to(folder):
        run = _run(found, policy, chosen, knobs, quiet=as_json)
        plots.plot_simulations({policy: run}, plot, title=f"{found.name} with {policy} (simulated)")
    if record is not None:
        _record(run, record)
    if as_json:
        print_json({"scenario": found.name, "policy": policy, **run_json(run), "plot": str(plot)})
        return
    console.print_simulation(out, found.name, policy, run)
    out.print(f"plot: {plot}" + (f", recording: {record}" if record else ""), soft_wrap=True)


@app.command()
def compare(
    scenario: Annotated[Path, typer.Argument(help="A scenario in YAML.")],
    policies: Annotated[
        str, typer.Option(help="Names with commas between them; `ideal` is what nobody can do better than.")
    ] = "ds2,dhalion,threshold,lag",
    rules: Annotated[Path | None, typer.Option("--rules", help="Rules to compare with them.")] = None,
    settings: SetOption = None,
    folder: OutOption = Path("out"),
    as_json: JsonOption = False,
) -> None:
    """Run a scenario with several policies and show them side by side.

    Each policy runs with the knobs of its authors unless the scenario or --set says otherwise.
    """
    found = _scenario(scenario)
    names = [name.strip() for name in policies.split(",") if name.strip()]
    given = pairs_of(settings)
    if rules is not None:
        names, given = list(dict.fromkeys([*names, "rules"])), {**given, "file": str(rules)}
    if not names:
        raise InvalidInput("--policies: name at least one policy")
    # all of them before the first run: a mistake in the last one is better found now
    known = [name for name in names if name != _IDEAL]
    chosen = {name: policy_and_knobs(name, given, found, beside=known) for name in known}
    plot = folder / f"{scenario.stem}-compare.png"
    with _writing_to(folder):
        runs = {
            name: _run(found, name, *chosen[name], quiet=as_json) if name in chosen else _ideal(found)
            for name in dict.fromkeys(names)
        }
        plots.plot_simulations(runs, plot, title=f"{found.name} (simulated)")
    if as_json:
        results = {name: run_json(run) for name, run in runs.items()}
        print_json({"scenario": found.name, "policies": results, "plot": str(plot)})
        return
    out.rule(f"{found.name} (simulated)")
    console.print_elasticity(out, {name: run.elasticity for name, run in runs.items()})
    out.print(f"plot: {plot}", soft_wrap=True)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A Python file with a Pipeline, such as examples/wordcount.py.")],
    policy: PolicyOption = "ds2",
    rules: RulesOption = None,
    settings: SetOption = None,
    master: Annotated[
        str, typer.Option(help="Where Spark runs: local[32] offers 32 slots, spark://HOST:PORT is a cluster.")
    ] = "local[32]",
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
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline on Spark and keep it at the right size.

    A live table while it runs, a recording of everything, a summary and a plot at the end. Ctrl-C ends it after
    the batches under way; started again with the same folder, it goes on where it stopped.
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
    )
    snapshots: list[Snapshot] = []
    events: list[Event] = []
    with LiveRun(err if as_json else out, found.pipeline.name) as live:

        def on_snapshot(snapshot: Snapshot) -> None:
            snapshots.append(snapshot)
            live.snapshot(snapshot)

        def on_event(event: Event) -> None:
            events.append(event)
            live.event(event)

        try:
            run_pipeline(
                found, chosen, knobs, options, on_snapshot=on_snapshot, on_event=on_event, on_phase=live.phase
            )
        except PipelineFailed as error:
            raise ElastreamError(str(error)) from None
    _summarize(found.pipeline.name, snapshots, events, where, as_json=as_json)


def _summarize(
    name: str, snapshots: Sequence[Snapshot], events: Sequence[Event], folder: Path, *, as_json: bool
) -> None:
    plot = folder / "run.png"
    if snapshots:
        plots.plot_recording(snapshots, plot, title=f"{name} on Spark")
    if as_json:
        final = dict(snapshots[-1].plan) if snapshots else {}
        told = [event_to_json(event) for event in events if event.event in _TOLD]
        files = {"recording": str(folder / "recording.jsonl"), "plot": str(plot)}
        print_json({"pipeline": name, "final_parallelism": final, "events": told, **files})
        return
    console.print_run(out, name, snapshots, events)
    out.print(f"recording: {folder / 'recording.jsonl'}, plot: {plot}")


@app.command()
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


@app.command()
def plan(
    recording: Annotated[Path, typer.Argument(help="A recording (JSON lines) of earlier runs.")],
    rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE=RECORDS_PER_S", help="The rate to plan for; repeatable. Else the highest seen."
        ),
    ] = None,
    policy: PolicyOption = "ds2-learned",
    settings: SetOption = None,
    ignore_cut_off: Annotated[bool, typer.Option(help="Leave out a last line that was cut off.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The parallelism to start with, from what earlier runs measured, for a given source rate.

    Every recorded window is asked what it would take at that rate. The answer is the median; the lowest and the
    highest answer show how far it can be trusted.
    """
    windows = read_recording(recording, ignore_cut_off=ignore_cut_off).snapshots
    found = starting_plan(windows, create(policy, pairs_of(settings)), rates_of(rate))
    if not as_json:
        console.print_starting_plan(out, found)
        return
    print_json(
        {
            "parallelism": {name: point.parallelism for name, point in found.operators.items()},
            "source_rates": found.source_rates,
            "operators": {name: dataclasses.asdict(point) for name, point in found.operators.items()},
            "unknown": found.unknown,
        }
    )


@app.command(name="replay")
def replay_command(
    recording: Annotated[Path, typer.Argument(help="A recording (JSON lines).")],
    policy: PolicyOption = "ds2",
    rules: RulesOption = None,
    settings: SetOption = None,
    ignore_cut_off: Annotated[bool, typer.Option(help="Leave out a last line that was cut off.")] = False,
    as_json: JsonOption = False,
) -> None:
    """What a policy and the manager would have decided in every window of a recording.

    Nothing is acted upon: each window is judged with the parallelism that it was recorded with.
    """
    windows = read_recording(recording, ignore_cut_off=ignore_cut_off).snapshots
    policy, given = with_rules(policy, rules, pairs_of(settings))
    chosen, knobs = policy_and_knobs(policy, given, dataflow=windows[-1].dataflow)
    events = replay(windows, chosen, knobs)
    if as_json:
        print_json([event_to_json(event) for event in events])
    else:
        console.print_replay(out, policy, windows, events)


@app.command()
def policies(
    name: Annotated[str | None, typer.Argument(help="Show the options of this policy.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List each policy with what it needs and what it is good for; with a name, its options and the knobs."""
    found = [info(name)] if name is not None else list(catalog().values())
    if as_json:
        print_json([policy_json(entry) for entry in found])
    elif name is None:
        console.print_policies(out, found)
    else:
        console.print_policy(out, found[0])
        console.print_options(out, "knobs of the manager (--set NAME=VALUE)", describe(Knobs))


@experiments_app.callback(invoke_without_command=True)
def _experiments(context: typer.Context, as_json: JsonOption = False) -> None:
    if context.invoked_subcommand is not None:
        return
    found = list(frame.experiments().values())
    if as_json:
        print_json([{"name": e.name, "paper": e.paper, "question": e.question} for e in found])
    else:
        console.print_experiments(out, found)


@experiments_app.command(name="run")
def run_experiments(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which ones; `elastream experiments` lists them.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all of them.")] = False,
    folder: OutOption = Path("out"),
    as_json: JsonOption = False,
) -> None:
    """Run experiments, print our numbers beside the paper's, write JSON and plots.

    Exits with 0 only if every bound holds that the experiments set themselves, with 1 if one does not.
    """
    chosen = [frame.find(name) for name in (frame.experiments() if every else names or ())]
    if not chosen:
        raise InvalidInput(f"name an experiment, or --all (known: {', '.join(frame.experiments())})")
    reports = {}
    for experiment in chosen:
        with _writing_to(folder), _progress(experiment.name, quiet=as_json) as tell:
            reports[experiment.name] = experiment.run(tell)
            written = frame.write(experiment.name, reports[experiment.name], folder)
        if not as_json:
            console.print_report(out, experiment, reports[experiment.name])
            out.print(f"written: {', '.join(map(str, written))}", soft_wrap=True)
    if as_json:
        print_json([frame.report_as_json(name, report) for name, report in reports.items()])
    if not all(report.holds for report in reports.values()):
        raise typer.Exit(1)


# What the subcommands share

_IDEAL = "ideal"  # no policy: it knows what no policy can know
_TOLD = ("decided", "acted", "judged", "phase", "renewed", "trouble")


def _scenario(path: Path) -> Scenario:
    """Read a scenario; what it says of the manager and of policies is checked even where it is not used."""
    found = read_scenario(path)
    try:
        build(Knobs, found.manager, place="manager")
        for name, options in found.policies.items():
            create(name, options)
    except InvalidInput as error:
        raise error.at(str(path)) from None
    return found


def _run(scenario: Scenario, name: str, policy: Policy, knobs: Knobs, *, quiet: bool) -> Simulation:
    with _progress(f"{scenario.name}, {name}", quiet=quiet) as tell:
        return simulate(
            scenario.model,
            policy,
            knobs,
            duration_s=scenario.duration_s,
            on_progress=lambda at_s: tell("", at_s / scenario.duration_s),
        )


def _ideal(scenario: Scenario) -> Simulation:
    return simulate_ideal(scenario.model, duration_s=scenario.duration_s)


def _record(run: Simulation, path: Path) -> None:
    """Snapshots and events in the order in which they happened; an event follows the window it is about."""
    lines: list[tuple[float, Mapping[str, Any]]] = [(s.at_s, snapshot_line(s)) for s in run.snapshots]
    lines += [(event.at_s, event_to_json(event)) for event in run.events]
    with RecordingWriter(path, anew=True) as recording:
        for _, line in sorted(lines, key=lambda timed: timed[0]):
            recording.write(line)


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    """Made before the work begins; what the file system refuses then or later is for the user to mend."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ElastreamError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from None


@contextmanager
def _progress(what: str, *, quiet: bool) -> Iterator[frame.Progress]:
    """A bar on standard error, where someone looks at it: tell it what is being done and the share behind it."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=quiet or not err.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=1.0)
        yield lambda detail, share: bar.update(task, completed=share, description=f"{what} {detail}".strip())


def main() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal that lacks a letter shows a question mark in its place
        sys.stdout.reconfigure(errors="replace")
    app()
