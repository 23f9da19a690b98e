"""The command. Every subcommand prints tables for people, or with --json one JSON value and nothing else."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from elastream import __version__, console, plots
from elastream.engines.simulated.scenario import Scenario, read_scenario
from elastream.engines.simulated.simulation import Simulation, simulate
from elastream.errors import ElastreamError, InvalidInput, nearest
from elastream.experiments import frame
from elastream.manager.events import event_to_json
from elastream.manager.knobs import Knobs
from elastream.manager.replay import replay
from elastream.monitor.recording import RecordingWriter, read_recording, snapshot_line
from elastream.monitor.snapshot_format import read_snapshot
from elastream.options import build, describe
from elastream.policies.catalog import Policy, catalog, create, info
from elastream.policies.proposal import Proposal
from elastream.policies.starting_plan import starting_plan

app = typer.Typer(
    name="elastream",
    help="Keeps a streaming pipeline at the smallest parallelism that keeps up with its input.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
experiments_app = typer.Typer(help="Repeat the experiments of the papers and compare.", no_args_is_help=False)
app.add_typer(experiments_app, name="experiments")

out = Console()
err = Console(stderr=True)

PolicyOption = Annotated[
    str, typer.Option("--policy", "-p", help="Which policy; `elastream policies` lists them.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="NAME=VALUE", help="An option of the policy or a knob of the manager; repeatable."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
OutOption = Annotated[Path, typer.Option("--out", help="Where plots and reports are written.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"elastream {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
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
    chosen = create(policy, _settings(settings))
    found = read_snapshot(snapshot)
    proposal = chosen(found)
    if as_json:
        missing = list(found.missing)
        _print_json({**_proposal_json(proposal), "complete": found.is_complete, "missing": missing})
        return
    console.print_proposal(out, found, proposal)
    if why:
        console.print_reasons(out, proposal)


@app.command(name="simulate")
def simulate_command(
    scenario: Annotated[Path, typer.Argument(help="A scenario in YAML: pipeline, capacities, load.")],
    policy: PolicyOption = "ds2",
    settings: SetOption = None,
    folder: OutOption = Path("out"),
    record: Annotated[Path | None, typer.Option(help="Also write a recording (JSON lines) there.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario on the simulated engine: decisions, elasticity measures and a plot.

    No Spark, no waiting: an hour of a pipeline takes well under a second. See examples/wordcount.yaml.
    """
    found = read_scenario(scenario)
    run = _run(found, policy, _settings(settings), quiet=as_json)
    plot = folder / f"{scenario.stem}-{policy}.png"
    plots.plot_simulations({policy: run}, plot, title=f"{found.name} with {policy} (simulated)")
    if record is not None:
        _record(run, record)
    if as_json:
        _print_json({"scenario": found.name, "policy": policy, **_run_json(run), "plot": str(plot)})
        return
    console.print_simulation(out, found.name, policy, run)
    out.print(f"plot: {plot}" + (f", recording: {record}" if record else ""))


@app.command()
def compare(
    scenario: Annotated[Path, typer.Argument(help="A scenario in YAML.")],
    policies: Annotated[str, typer.Option(help="Names with commas between them.")] = "ds2,dhalion,threshold,lag",
    settings: SetOption = None,
    folder: OutOption = Path("out"),
    as_json: JsonOption = False,
) -> None:
    """Run a scenario with several policies and show them side by side.

    Each policy runs with the knobs of its authors unless the scenario or --set says otherwise.
    """
    found = read_scenario(scenario)
    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names:
        raise InvalidInput("--policies: name at least one policy")
    for name in names:
        info(name)  # an unknown name is better found before the first run than after it
    runs = {name: _run(found, name, _settings(settings), quiet=as_json, lenient=True) for name in names}
    plot = folder / f"{scenario.stem}-compare.png"
    plots.plot_simulations(runs, plot, title=f"{found.name} (simulated)")
    if as_json:
        results = {name: _run_json(run) for name, run in runs.items()}
        _print_json({"scenario": found.name, "policies": results, "plot": str(plot)})
        return
    out.rule(f"{found.name} (simulated)")
    console.print_elasticity(out, {name: run.elasticity for name, run in runs.items()})
    out.print(f"plot: {plot}")


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
    """The parallelism to start with, from what earlier runs measured, for a given source rate."""
    windows = read_recording(recording, ignore_cut_off=ignore_cut_off).snapshots
    found = starting_plan(windows, create(policy, _settings(settings)), _rates(rate))
    if not as_json:
        console.print_starting_plan(out, found)
        return
    _print_json(
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
    settings: SetOption = None,
    ignore_cut_off: Annotated[bool, typer.Option(help="Leave out a last line that was cut off.")] = False,
    as_json: JsonOption = False,
) -> None:
    """What a policy and the manager would have decided in every window of a recording."""
    windows = read_recording(recording, ignore_cut_off=ignore_cut_off).snapshots
    chosen, knobs = _policy_and_knobs(policy, _settings(settings))
    events = replay(windows, chosen, knobs)
    if as_json:
        _print_json([event_to_json(event) for event in events])
    else:
        console.print_decisions(out, events)


@app.command()
def policies(
    name: Annotated[str | None, typer.Argument(help="Show the options of this policy.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List each policy with what it needs and what it is good for; with a name, its options and the knobs."""
    found = [info(name)] if name is not None else list(catalog().values())
    if as_json:
        _print_json([_policy_json(entry) for entry in found])
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
        _print_json([{"name": e.name, "paper": e.paper, "question": e.question} for e in found])
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
        with _progress(experiment.name, quiet=as_json) as tell:
            reports[experiment.name] = experiment.run(tell)
        written = frame.write(experiment.name, reports[experiment.name], folder)
        if not as_json:
            console.print_report(out, experiment, reports[experiment.name])
            out.print(f"written: {', '.join(map(str, written))}")
    if as_json:
        _print_json([frame.report_as_json(name, report) for name, report in reports.items()])
    if not all(report.holds for report in reports.values()):
        raise typer.Exit(1)


# What the subcommands share


def _run(
    scenario: Scenario, policy: str, settings: Mapping[str, str], *, quiet: bool, lenient: bool = False
) -> Simulation:
    chosen, knobs = _policy_and_knobs(
        policy,
        settings,
        from_scenario=scenario.manager,
        policy_options=scenario.policies.get(policy, {}),
        lenient=lenient,
    )
    with _progress(f"{scenario.name}, {policy}", quiet=quiet) as tell:
        return simulate(
            scenario.model,
            chosen,
            knobs,
            duration_s=scenario.duration_s,
            on_progress=lambda at_s: tell("", at_s / scenario.duration_s),
        )


def _policy_and_knobs(
    policy: str,
    settings: Mapping[str, str],
    *,
    from_scenario: Mapping[str, Any] | None = None,
    policy_options: Mapping[str, Any] | None = None,
    lenient: bool = False,
) -> tuple[Policy, Knobs]:
    """What --set names may be an option of the policy or a knob of the manager.

    With several policies (`lenient`) an option that only some of them have is passed over by the others.
    """
    entry = info(policy)
    of_policy = {option.name for option in describe(entry.options_class)}
    of_manager = {option.name for option in describe(Knobs)}
    of_any = {option.name for other in catalog().values() for option in describe(other.options_class)}
    for_policy, for_manager = dict(policy_options or {}), {**entry.knobs, **(from_scenario or {})}
    for name, value in settings.items():
        if {name, f"{name}_s"} & of_policy:
            for_policy[name] = value
        elif {name, f"{name}_s"} & of_manager:
            for_manager[name] = value
        elif not (lenient and {name, f"{name}_s"} & of_any):
            known = of_policy | of_manager
            raise InvalidInput(f"--set {name}: no option of {policy} and no knob{nearest(name, known)}")
    return create(policy, for_policy), build(Knobs, for_manager, place="manager")


def _settings(pairs: Iterable[str] | None) -> dict[str, str]:
    found = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidInput(f"--set takes NAME=VALUE, found {pair!r}")
        found[name.strip().replace("-", "_")] = value.strip()
    return found


def _rates(pairs: Iterable[str] | None) -> dict[str, float]:
    found = {}
    for pair in pairs or ():
        source, _, value = pair.rpartition("=")
        try:
            found[source] = float(value)
        except ValueError:
            raise InvalidInput(f"--rate takes SOURCE=RECORDS_PER_S, found {pair!r}") from None
        if not source:
            raise InvalidInput(f"--rate takes SOURCE=RECORDS_PER_S, found {pair!r}")
    return found


def _record(run: Simulation, path: Path) -> None:
    """Snapshots and events in the order in which they happened; an event follows the window it is about."""
    lines: list[tuple[float, Mapping[str, Any]]] = [(s.at_s, snapshot_line(s)) for s in run.snapshots]
    lines += [(event.at_s, event_to_json(event)) for event in run.events]
    path.unlink(missing_ok=True)
    with RecordingWriter(path) as recording:
        for _, line in sorted(lines, key=lambda timed: timed[0]):
            recording.write(line)


@contextmanager
def _progress(what: str, *, quiet: bool) -> Iterator[frame.Progress]:
    """A bar on standard error, where someone looks at it: tell it what is being done and the share behind it."""
    bar = Progress(
        TextColumn("{task.description}"),
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


def _proposal_json(proposal: Proposal) -> dict[str, Any]:
    operators = {}
    for name, advice in proposal.advice.items():
        fields = dataclasses.asdict(advice)
        fields.pop("operator")
        operators[name] = fields
    return {
        "policy": proposal.policy,
        "parallelism": dict(proposal.parallelism),
        "operators": operators,
        "reasons": [dataclasses.asdict(reason) for reason in proposal.reasons],
        "expected_share": proposal.expected_share,
        "workers": proposal.workers,
    }


def _run_json(run: Simulation) -> dict[str, Any]:
    return {
        "duration_s": run.duration_s,
        "actions": run.actions,
        "final_parallelism": dict(run.final_plan),
        "elasticity": dataclasses.asdict(run.elasticity),
        "events": [
            event_to_json(event) for event in run.events if event.event in ("decided", "acted", "judged", "phase")
        ],
    }


def _policy_json(entry: Any) -> dict[str, Any]:
    return {
        "name": entry.name,
        "summary": entry.summary,
        "needs": entry.needs,
        "good_for": entry.good_for,
        "knobs": dict(entry.knobs),
        "options": [dataclasses.asdict(option) for option in describe(entry.options_class)],
    }


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, default=_plain))


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def main() -> None:
    """Errors that a user can act on are one line on standard error and exit status 2."""
    try:
        app()
    except ElastreamError as error:
        err.print(f"[bold red]error:[/bold red] {error}", markup=True, highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(130)
